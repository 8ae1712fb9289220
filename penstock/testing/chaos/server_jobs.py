"""Jobs whose rows go through real servers: what they compute, and what their output must be.

`penstock chaos run --job kafka|s3|postgres` and our tests run them, each with its `ServerJob` from `kafka_job` or
`store_jobs`. Input and output are known beforehand, and are read back by the client of the server alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final, Protocol

from penstock.engine.api.streams import DataStream
from penstock.engine.durations import Duration
from penstock.engine.functions import Context, KeyedProcessFunction, Row, Rows, RuntimeContext
from penstock.engine.state.backend import ValueState
from penstock.engine.state.descriptors import ValueStateDescriptor
from penstock.environment import StreamEnvironment
from penstock.testing.chaos.checkers import OracleChecker, SequenceChecker, Verdict
from penstock.testing.chaos.harness import ChaosServer
from penstock.testing.chaos.jobs import KEYS
from penstock.testing.chaos.schedule import ChaosSchedule

EVENTS: Final[Mapping[str, str]] = {"user": "string", "number": "int64"}
COUNTED: Final[Mapping[str, str]] = {**EVENTS, "count": "int64"}
_LONGEST_PAUSE: Final = "4s"
"""Longer than the time-out of heartbeats, and than that of the transactions in `kafka_job`."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One run of a job, over input and output of its own.

    Args:
        feed: the input comes while its context lasts, from when the job runs; the last of it when the function that it
            gives is called, so that the job does not end before.
        check: reads what the job has put out, when it has ended, and judges it.
    """

    feed: Callable[[], AbstractContextManager[Callable[[], None]]]
    check: Callable[[], Sequence[Verdict]]


class ServerJob(Protocol):
    """A program between servers, and what its output must be.

    Attributes:
        name: what it is called.
        servers: those that may be disturbed, by name.
        weights: how likely each kind of fault is in a random schedule.
    """

    @property
    def name(self) -> str: ...

    @property
    def servers(self) -> Mapping[str, ChaosServer]: ...

    @property
    def weights(self) -> Mapping[str, float]: ...

    def begin(self, env: StreamEnvironment, rows: int, rate: float) -> Trial:
        """Write the program into `env`, for new input and output.

        Args:
            env: where the program goes; the caller submits it.
            rows: how many in all, a multiple of KEYS.
            rate: rows a second.
        """
        ...


def server_schedule(
    job: ServerJob,
    seed: int,
    duration: Duration = "10s",
    faults: int = 3,
    weights: Mapping[str, float] | None = None,
    during: str | None = None,
) -> ChaosSchedule:
    """A schedule for the job that the seed decides: of its processes and of its servers; as `ChaosSchedule.random`."""
    chosen = job.weights if weights is None else weights
    servers = list(job.servers)
    return ChaosSchedule.random(
        seed, duration, faults, chosen, servers=servers, longest_pause=_LONGEST_PAUSE, during=during
    )


class _Counting(KeyedProcessFunction):
    """Counts the events of each user."""

    def open(self, context: RuntimeContext) -> None:
        self._count: ValueState = context.get_state(ValueStateDescriptor("count", "int64", default=0))

    def process_element(self, row: Row, ctx: Context) -> Rows:
        count = self._count.value() + 1
        self._count.update(count)
        return [{**row, "count": count}]


def count_events(events: DataStream) -> DataStream:
    """The events, each with how many there were of its user until then: its number and one, if none counts twice."""
    return events.key_by("user").process(_Counting, returns=COUNTED).name("count").uid("count")


def user_name(user: int) -> str:
    """What a user is called in the events."""
    return f"user-{user:03}"


def check_counted(found: Sequence[Mapping[str, Any]], rows: int) -> Sequence[Verdict]:
    """Judge the output, each user's events in the order in which a reader sees them."""
    users = [user_name(user) for user in range(KEYS)]
    return [
        SequenceChecker("user", "number", last=rows // KEYS - 1, keys=users).check(found),
        OracleChecker(lambda: _expected(rows)).check(found),
    ]


def _expected(rows: int) -> Iterator[Row]:
    for user in range(KEYS):
        for number in range(rows // KEYS):
            yield {"user": user_name(user), "number": number, "count": number + 1}
