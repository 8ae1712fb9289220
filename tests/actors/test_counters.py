"""What a manager reads of its subtasks: by links on one machine, by calls elsewhere, and of processes that end."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Awaitable, Callable

import pytest

from penstock.actors.counters import CounterReader, serve_counters
from penstock.engine.metrics import OperatorMetrics, SubtaskMetrics
from tests.actors.fakes import FakeActor

pytestmark = pytest.mark.skipif(not os.path.exists("/proc/net/unix"), reason="the abstract namespace is Linux's")

_IDS = itertools.count()


class Counted:
    """A subtask, attempt 3 of it, in this process; where it is called instead of asked, it says 7 rows."""

    def __init__(self) -> None:
        self.rows = 0
        self.cannot_be_told = False
        self.actor = FakeActor(metrics=lambda attempt: self._metrics(7))
        self.actor._actor_id = f"counted-{os.getpid()}-{next(_IDS)}".encode()

    def listen(self) -> Callable[[], None]:
        """Answer links, until what is returned is called."""
        return serve_counters(self.actor._actor_id.hex(), self._of).close

    def _of(self, attempt: int) -> SubtaskMetrics | None:
        self.rows += 1
        return self._metrics(self.rows) if attempt == 3 else None

    def _metrics(self, rows: int) -> SubtaskMetrics:
        counters = OperatorMetrics(rows_in=rows)
        counters.gauge("queued", lambda: 10.0 * rows)
        name = self if self.cannot_be_told else "sum"
        return SubtaskMetrics(1, 0, [(name, counters)])  # type: ignore[list-item]

    def __reduce__(self) -> str:
        raise ValueError("it does not travel")


def told(metrics: SubtaskMetrics | None) -> tuple[int, float] | None:
    """Rows and the gauge of the only operator."""
    if metrics is None:
        return None
    ((_, counters),) = metrics.operators
    return counters.rows_in, counters.group.gauge("queued").value


def asked(use: Callable[[Counted, CounterReader], Awaitable[object]]) -> Counted:
    counted = Counted()

    async def main() -> None:
        await asyncio.wait_for(use(counted, CounterReader()), 30)

    asyncio.run(main())
    return counted


def test_who_is_on_this_machine_is_asked_again_and_again_without_a_call() -> None:
    async def use(counted: Counted, reader: CounterReader) -> None:
        close = counted.listen()
        assert [told(await reader.ask(counted.actor, attempt)) for attempt in (3, 2, 3)] == [(1, 10), None, (3, 30)]
        both = await asyncio.gather(reader.ask(counted.actor, 3), reader.ask(counted.actor, 3))
        assert [told(one) for one in both] == [(4, 40), (5, 50)]
        close()

    assert asked(use).actor.calls == []


def test_counters_that_cannot_be_told_do_not_keep_the_next_ones() -> None:
    async def use(counted: Counted, reader: CounterReader) -> None:
        close = counted.listen()
        counted.cannot_be_told = True
        assert await reader.ask(counted.actor, 3) is None
        counted.cannot_be_told = False
        assert told(await reader.ask(counted.actor, 3)) == (2, 20)
        close()

    asked(use)


def test_who_listens_nowhere_here_is_called_and_asked_as_soon_as_it_listens() -> None:
    async def use(counted: Counted, reader: CounterReader) -> None:
        assert told(await reader.ask(counted.actor, 3)) == (7, 70)
        close = counted.listen()
        assert told(await reader.ask(counted.actor, 3)) == (1, 10)
        close()
        # The end may be noticed behind the question or before it.
        assert told(await reader.ask(counted.actor, 3)) in (None, (7, 70))
        assert told(await reader.ask(counted.actor, 3)) == (7, 70)

    asked(use)
