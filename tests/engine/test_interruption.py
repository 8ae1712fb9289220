"""What a function raises that is no `Exception` is its failure; what breaks it off from outside is not."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator

import pytest

from penstock.engine.interruption import Interruption, pass_interruption


class Stop(BaseException):
    """A program's own."""


def _raises(error: BaseException) -> None:
    raise error


def _guarded(told: list[BaseException], error: BaseException | None = None) -> Iterator[int]:
    """A generator of the engine around code of the user."""
    try:
        if error is not None:
            _raises(error)
        yield 1
    except BaseException as raised:
        pass_interruption(raised)
        told.append(raised)


@pytest.mark.parametrize("error", [Stop(), SystemExit(3), ValueError(), GeneratorExit()])
def test_whatever_a_function_raises_is_its_failure(error: BaseException) -> None:
    told: list[BaseException] = []
    assert list(_guarded(told, error)) == []
    assert told == [error]


def test_a_generator_that_is_closed_has_not_failed() -> None:
    told: list[BaseException] = []
    rows = _guarded(told)
    next(rows)
    rows.close()  # type: ignore[attr-defined]
    assert told == []


@pytest.mark.parametrize("error", [Interruption(), KeyboardInterrupt()])
def test_what_breaks_off_a_function_is_raised_on(error: BaseException) -> None:
    with pytest.raises(type(error)):
        list(_guarded([], error))


def test_an_interrupt_is_a_failure_of_who_raises_it_where_nobody_else_can_have() -> None:
    told: list[BaseException] = []
    thread = threading.Thread(target=lambda: list(_guarded(told, KeyboardInterrupt())))
    thread.start()
    thread.join()
    before = signal.signal(signal.SIGINT, lambda number, frame: None)
    try:
        list(_guarded(told, KeyboardInterrupt()))
    finally:
        signal.signal(signal.SIGINT, before)
    assert len(told) == 2
