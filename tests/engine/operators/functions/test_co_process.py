"""Functions of two inputs: one state and one set of timers for each key, whichever input a row came on."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from penstock.engine.errors import GraphError, StateError
from penstock.engine.functions import (
    Context,
    CoProcessFunction,
    KeyedCoProcessFunction,
    OnTimerContext,
    Row,
    Rows,
    RuntimeContext,
)
from penstock.engine.operators.functions.co_process import CoProcessSpec
from penstock.engine.state.descriptors import ValueStateDescriptor
from tests.engine.operators.functions.functions import Running, at, owner, plain, rescaled
from tests.engine.state.saved import snapshot_of


class Match(KeyedCoProcessFunction):
    """Joins an order with its payment; an order that is not paid in 10 ms is told as unpaid."""

    def open(self, context: RuntimeContext) -> None:
        self.amount = context.get_state(ValueStateDescriptor("amount", "int64"))

    def process_element1(self, row: Row, ctx: Context) -> Rows:
        self.amount.update(row["amount"])
        assert ctx.timestamp is not None
        ctx.timer_service.register_event_time_timer(ctx.timestamp + 10)
        return None

    def process_element2(self, row: Row, ctx: Context) -> Rows:
        yield {"id": ctx.current_key, "due": self.amount.value(), "paid": row["paid"]}
        self.amount.clear()

    def on_timer(self, timestamp: int, ctx: OnTimerContext) -> Rows:
        if self.amount.value() is not None:
            yield {"id": ctx.current_key, "due": self.amount.value(), "paid": None}


FACTORY = CoProcessSpec(Match, (("id",), ("order",)), timed=True)


def orders(*rows: tuple[str, int, int]) -> Any:
    return at({"id": key, "amount": amount, "at": time} for key, amount, time in rows)


def payments(*rows: tuple[str, int, int]) -> Any:
    return at({"paid": paid, "order": key, "at": time} for key, paid, time in rows)


def test_both_inputs_share_state_and_timers_by_key() -> None:
    job = Running(FACTORY)
    assert job.process(payments(("z", 1, 1)), 1) == [{"id": "z", "due": None, "paid": 1}]
    assert job.process(orders(("a", 5, 1), ("b", 7, 2)), 0) == []
    assert job.process(payments(("a", 5, 4)), 1) == [{"id": "a", "due": 5, "paid": 5}]
    assert job.times == [4]
    assert job.advance(20) == [{"id": "b", "due": 7, "paid": None}]
    assert job.times == [12]


@pytest.mark.parametrize("after", [1, 2, 3])
def test_state_of_both_inputs_survives_a_rescale(after: int) -> None:
    old = [Running(FACTORY, subtask=subtask, parallelism=2) for subtask in range(2)]
    for n, key in enumerate("abcdef"):
        old[owner(pa.array([key]), 2)].process(orders((key, n, n)))
    new = rescaled(FACTORY, [snapshot_of(job.operator) for job in old], after)
    for n, key in enumerate("abcdef"):
        [row] = new[owner(pa.array([key]), after)].process(payments((key, 9, 9)), 1)
        assert row == {"id": key, "due": n, "paid": 9}


def test_keys_of_another_type_on_the_second_input_are_refused() -> None:
    job = Running(FACTORY)
    job.process(orders(("a", 5, 1)))
    with pytest.raises(StateError, match="key column 'id' is int64, but the state so far has keys of string"):
        job.process(at([{"order": 5, "paid": 1, "at": 1}]), 1)


class Label(CoProcessFunction):
    def process_element1(self, row: Row, ctx: Context) -> Rows:
        return [{"text": f"1 {row['n']}"}]

    def process_element2(self, row: Row, ctx: Context) -> Rows:
        yield {"text": f"2 {row['m']}"}


class OnlyOne(CoProcessFunction):
    def process_element1(self, row: Row, ctx: Context) -> Rows:
        return None


def test_inputs_without_keys_may_have_other_columns() -> None:
    job = Running(CoProcessSpec(Label))
    assert job.process(plain([{"n": 1}]), 0) == [{"text": "1 1"}]
    assert job.process(plain([{"m": "x"}]), 1) == [{"text": "2 x"}]


@pytest.mark.parametrize(
    ("function", "keys", "problem"),
    [
        (Match, ((), ()), "Match is a KeyedCoProcessFunction, and the stream has no keys; call key_by first"),
        (Label, (("a",), ("b",)), "takes a KeyedCoProcessFunction .* not "),
        (OnlyOne(), ((), ()), "OnlyOne does not implement process_element2"),
        (None, ((), ()), "takes a CoProcessFunction .* not None"),
    ],
)
def test_no_usable_function_is_an_error_while_the_program_is_built(function: Any, keys: Any, problem: str) -> None:
    with pytest.raises(GraphError, match=problem):
        CoProcessSpec(function, keys)
