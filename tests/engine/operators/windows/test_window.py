"""The general window operator: functions, state and errors that the transcripts of Flink's rules leave out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import penstock as ps
from penstock import (
    AggregateFunction,
    CountTrigger,
    EventTimeTrigger,
    OutputTag,
    PickleSerializer,
    ProcessWindowFunction,
    PurgingTrigger,
    StateError,
    ValueStateDescriptor,
    global_windows,
    session,
    sliding,
    tumbling,
)
from penstock.engine.elements import MAX_TIMESTAMP
from penstock.engine.errors import RecordError, UserCodeError
from tests.engine.operators.windows.window_functions import SUM, Sum, add, summed
from tests.engine.window_driver import SCHEMA, WindowDriver

# --- functions -----------------------------------------------------------------------------------------------


class Mean(AggregateFunction):
    """The mean of `v`, by a dict."""

    def create_accumulator(self) -> Any:
        return {"total": 0.0, "n": 0}

    def add(self, value: Any, accumulator: Any) -> Any:
        return {"total": accumulator["total"] + value["v"], "n": accumulator["n"] + 1}

    def get_result(self, accumulator: Any) -> Any:
        return {"mean": accumulator["total"] / accumulator["n"]}

    def merge(self, one: Any, other: Any) -> Any:
        return {"total": one["total"] + other["total"], "n": one["n"] + other["n"]}


@pytest.mark.parametrize(
    "accumulator",
    ["struct<total: float64, n: int64>", {"total": "float64", "n": int}, PickleSerializer()],
    ids=["text", "columns", "serializer"],
)
@pytest.mark.parametrize("windows", [tumbling("40ms"), session("20ms")], ids=["tumbling", "session"])
def test_an_aggregate_function_with_its_own_accumulator(accumulator: Any, windows: Any, backend: str) -> None:
    driver = WindowDriver(
        lambda k: k.window(windows).aggregate(Mean(), accumulator=accumulator, returns={"mean": "float64"}),
        backend=backend,
    )
    driver.add(("a", 0, 1), ("a", 30, 9), ("b", 5, 10))
    driver.restore()
    driver.add(("a", 15, 5))
    driver.advance(MAX_TIMESTAMP)
    assert sorted(row["mean"] for row in driver.take()) == [5.0, 10.0]
    driver.operator.close()


class Named(ProcessWindowFunction):
    """Adds key and window to the single result."""

    def process(self, key: Any, context: Any, elements: Any) -> Any:
        (row,) = elements
        return [{"key": key, "end": context.window.end, **row}]


def test_the_single_result_is_given_to_a_process_function() -> None:
    aggregated = WindowDriver(
        lambda k: k.window(tumbling("10ms")).aggregate(
            n=ps.count(),
            latest=ps.last("v"),
            process=Named,
            returns={"key": "string", "end": "int64", "n": "int64", "latest": "int64"},
        )
    )
    own = WindowDriver(
        lambda k: k.window(tumbling("10ms")).aggregate(
            Mean(),
            accumulator={"total": "float64", "n": "int64"},
            process=Named(),
            returns={"key": "string", "end": "int64", "mean": "float64"},
        )
    )
    reduced = WindowDriver(lambda k: k.window(tumbling("10ms")).reduce(add, process=Named))
    for driver in (aggregated, own, reduced):
        driver.add(("a", 0, 1), ("a", 5, 3))
        driver.advance(9)
    assert aggregated.take() == [{"key": "a", "end": 10, "n": 2, "latest": 3}]
    assert own.take() == [{"key": "a", "end": 10, "mean": 2.0}]
    assert reduced.take() == [{"key": "a", "end": 10, "k": "a", "at": 0, "v": 4}]


def test_what_functions_do_to_their_rows_changes_no_window() -> None:
    class Spoils(ProcessWindowFunction):
        def process(self, key: Any, context: Any, elements: Any) -> Iterator[dict[str, Any]]:
            for row in elements:
                row["v"] += 100
                yield row

    def spoil(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
        one["v"] += other["v"]
        return one

    processed = WindowDriver(lambda k: k.window(global_windows()).trigger(CountTrigger(1)).process(Spoils))
    processed.add(("a", 0, 1), ("a", 1, 2))
    assert [row["v"] for row in processed.take()] == [101, 101, 102]
    reduced = WindowDriver(lambda k: k.window(sliding("10ms", "5ms")).trigger(CountTrigger(1)).reduce(spoil))
    reduced.add(("a", 5, 1), ("a", 6, 2))
    assert sorted(row["v"] for row in reduced.take()) == [1, 1, 3, 3]


def test_the_worked_example_of_sliding_sums() -> None:
    driver = WindowDriver(lambda k: k.window(sliding("1m", "30s")).reduce(add))
    for second, value in ((0, 9), (15, 6), (30, 8), (45, 4), (60, 7), (75, 3)):
        driver.add(("a", second * 1_000, value))
    driver.advance(89_999)
    assert [row["v"] for row in driver.take()] == [15, 27, 22]


def test_the_worked_examples_of_count_windows() -> None:
    values = [1, 2, 3, 4, 5, 6, 7, 8]
    whole = WindowDriver(lambda k: k.count_window(4).aggregate(n=ps.sum("v")))
    by_two = WindowDriver(lambda k: k.count_window(4, 2).aggregate(n=ps.sum("v")))
    for driver in (whole, by_two):
        driver.add(*(("a", 0, value) for value in values))
    assert whole.take() == [{"k": "a", "n": 10}, {"k": "a", "n": 26}]
    assert [row["n"] for row in by_two.take()] == [3, 10, 18, 26]


class Remembers(ProcessWindowFunction):
    """Counts the firings of a window, and those of a key."""

    def open(self, context: Any) -> None:
        count = ValueStateDescriptor("firings", "int64", default=0)
        self.of_window = context.window_state.get_state(count)
        self.of_key = context.get_state(count)
        self.cleared = context.global_state.get_state(ValueStateDescriptor("cleared", "int64", default=0))

    def process(self, key: Any, context: Any, elements: Any) -> Iterator[dict[str, Any]]:
        self.of_window.update(self.of_window.value() + 1)
        self.of_key.update(self.of_key.value() + 1)
        again = context.window_state.get_state(ValueStateDescriptor("firings", "int64", default=0))
        yield {"k": key, "window": again.value(), "key": self.of_key.value(), "cleared": self.cleared.value()}

    def clear(self, context: Any) -> None:
        self.cleared.update(self.cleared.value() + 1)


def test_functions_have_state_of_the_window_and_of_the_key(backend: str) -> None:
    driver = WindowDriver(
        lambda k: k.window(tumbling("10ms")).trigger(CountTrigger(1)).process(Remembers), backend=backend
    )
    driver.add(("a", 1, 0), ("a", 2, 0), ("a", 11, 0), ("b", 1, 0))
    assert [tuple(row.values()) for row in driver.take()] == [
        ("a", 1, 1, 0),
        ("a", 2, 2, 0),
        ("a", 1, 3, 0),
        ("b", 1, 1, 0),
    ]
    driver.restore()
    driver.advance(9)
    driver.add(("a", 12, 0))
    assert [tuple(row.values()) for row in driver.take()] == [("a", 2, 4, 1)]
    driver.advance(MAX_TIMESTAMP)
    assert driver.states() == {"global-state-firings": 2, "global-state-cleared": 2}
    driver.operator.close()


def test_state_that_was_not_declared_in_open_is_refused() -> None:
    class Late(ProcessWindowFunction):
        def process(self, key: Any, context: Any, elements: Any) -> Any:
            context.global_state.get_state(ValueStateDescriptor("count", "int64"))

    driver = WindowDriver(lambda k: k.count_window(1).process(Late))
    with pytest.raises(
        StateError, match=r"get_state\('count'\): no such state was declared; declare every state in open"
    ):
        driver.add(("a", 0, 1))


def test_windows_that_merge_have_no_state_of_their_own() -> None:
    with pytest.raises(StateError, match="windows that merge have no state of their own; use global_state"):
        WindowDriver(lambda k: k.window(session("1s")).process(Remembers))


def test_side_outputs_of_window_functions() -> None:
    large = OutputTag("large", {"n": "int64"})

    class Splits(ProcessWindowFunction):
        def process(self, key: Any, context: Any, elements: Any) -> None:
            context.output(large, {"n": len(elements)})

    driver = WindowDriver(lambda k: k.window(tumbling("10ms")).process(Splits), sides=["large"])
    driver.add(("a", 1, 0), ("a", 2, 0))
    driver.advance(9)
    assert driver.take() == []
    assert driver.sides["large"].timestamps == [9]
    assert driver.take_side("large") == [{"n": 2}]


def test_functions_are_opened_and_closed_once_in_each_subtask() -> None:
    events: list[str] = []

    class Counts(ProcessWindowFunction):
        def __deepcopy__(self, memo: Any) -> Any:
            events.append("copied")
            return Counts()

        def open(self, context: Any) -> None:
            events.append(f"open {context.operator} {context.subtask}/{context.parallelism}")

        def close(self) -> None:
            events.append("close")

        def process(self, key: Any, context: Any, elements: Any) -> Any:
            return None

    driver = WindowDriver(lambda k: k.count_window(1).process(Counts()))
    driver.add(("a", 0, 1))
    driver.operator.close()
    assert events == ["copied", "open windows 0/1", "close"]


def test_the_key_of_windows_over_all_rows_is_none() -> None:
    driver = WindowDriver(lambda s: s.window_all(tumbling("10ms")).process(Sum, SUM), keyed=False)
    driver.add(("a", 1, 1), ("b", 2, 2))
    driver.restore()
    driver.advance(9)
    assert summed(driver) == [(None, 0, 3)]


# --- errors of the user's code -------------------------------------------------------------------------------


def test_an_error_in_a_function_names_the_row_or_the_window() -> None:
    def fails(one: Any, other: Any) -> Any:
        raise ValueError("no luck")

    reduced = WindowDriver(lambda k: k.window(tumbling("10ms")).reduce(fails))
    with pytest.raises(UserCodeError, match="ValueError: no luck") as on_row:
        reduced.add(("a", 0, 1), ("a", 1, 2))
    assert on_row.value.given == "{'k': 'a', 'at': 1, 'v': 2}"

    class Fails(ProcessWindowFunction):
        def process(self, key: Any, context: Any, elements: Any) -> Any:
            raise ValueError("no luck")

    processed = WindowDriver(lambda k: k.window(tumbling("10ms")).process(Fails))
    processed.add(("a", 0, 1))
    with pytest.raises(UserCodeError, match="ValueError: no luck") as on_timer:
        processed.advance(9)
    assert on_timer.value.given == "a timer at 9 of TimeWindow(start=0, end=10), key 'a'"


@pytest.mark.parametrize(
    ("returned", "message"),
    [(None, "the reduce function returned None"), ([1], r"the reduce function returned \[1\] \(list\), not a row")],
)
def test_a_reduce_function_must_return_a_row(returned: Any, message: str) -> None:
    driver = WindowDriver(lambda k: k.window(tumbling("10ms")).reduce(lambda one, other: returned))
    with pytest.raises(RecordError, match=message):
        driver.add(("a", 0, 1), ("a", 1, 2))


def test_a_process_function_must_return_rows() -> None:
    class Bad(ProcessWindowFunction):
        def process(self, key: Any, context: Any, elements: Any) -> Any:
            return {"n": 1}

    driver = WindowDriver(lambda k: k.count_window(1).process(Bad))
    with pytest.raises(RecordError, match=r"process returned .*, not rows"):
        driver.add(("a", 0, 1))


def test_a_sum_that_does_not_fit_names_the_operator() -> None:
    driver = WindowDriver(lambda k: k.count_window(2).aggregate(n=ps.sum("v")))
    with pytest.raises(RecordError, match="operator 'windows', subtask 0: sum of column 'v' does not fit int64"):
        driver.add(("a", 0, 2**63 - 1), ("a", 0, 1))


# --- columns that are not known before -----------------------------------------------------------------------

COMPUTED: dict[str, Any] = {
    "process": lambda w: w.process(Sum, SUM),
    "reduce": lambda w: w.reduce(add),
    "aggregate": lambda w: w.aggregate(v=ps.sum("v"), first=ps.first("at"), values=ps.collect_list("v")),
}


@pytest.mark.parametrize("computed", COMPUTED)
def test_restored_windows_fire_before_any_row_comes(computed: str, backend: str) -> None:
    expected = None
    for declared in (True, False):
        driver = WindowDriver(
            lambda k: COMPUTED[computed](k.window(session("10ms")).trigger(PurgingTrigger(EventTimeTrigger()))),
            declared=declared,
            backend=backend,
        )
        driver.add(("a", 1, 1), ("b", 3, 3))
        driver.add(("a", 2, 2))
        driver.restore()
        driver.restore()
        driver.advance(MAX_TIMESTAMP)
        rows = sorted(driver.take(), key=repr)
        assert len(rows) == 2
        expected = expected or rows
        assert rows == expected
        driver.operator.close()


def test_a_column_may_get_its_type_with_a_later_batch() -> None:
    driver = WindowDriver(lambda k: COMPUTED["aggregate"](k.count_window(2)), declared=False)
    nulls = pa.schema([("k", pa.string()), ("at", pa.int64()), ("v", pa.null())])
    driver.add(("a", 1, None), schema=nulls)  # type: ignore[arg-type]
    driver.restore()
    driver.add(("a", 2, 5), schema=SCHEMA)
    assert driver.take() == [{"k": "a", "v": 5, "first": 1, "values": [5]}]


def test_times_with_nanoseconds_are_aggregated_whole() -> None:
    schema = pa.schema([("k", pa.string()), ("at", pa.int64()), ("v", pa.timestamp("ns"))])
    driver = WindowDriver(lambda k: k.count_window(2).aggregate(latest=ps.max("v")), declared=False)
    driver.add(("a", 1, 1_000_000_001), ("a", 2, 999), schema=schema)
    (batch,) = driver.out.batches
    assert batch.data.column("latest").cast(pa.int64()).to_pylist() == [1_000_000_001]


@pytest.mark.parametrize("declared", [True, False])
def test_a_function_that_changes_its_row_changes_it_for_no_other_window(declared: bool) -> None:
    def add_up(one: Any, other: Any) -> Any:
        other["v"] += one["v"]
        return other

    driver = WindowDriver(lambda k: k.window(ps.sliding("10ms", "5ms")).reduce(add_up), declared=declared)
    driver.add(("a", 6, 1), ("a", 7, 2))
    driver.advance(MAX_TIMESTAMP)
    assert [row["v"] for row in driver.take()] == [3, 3]
