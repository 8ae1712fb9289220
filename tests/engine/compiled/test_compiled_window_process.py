"""Compiled `ProcessWindowFunction`s compare times, add floats, and run as plain Python where they are not compiled."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock import tumbling
from penstock.engine.compiled import window_translation
from penstock.engine.elements import Batch
from penstock.engine.errors import GraphError
from penstock.engine.operators.windows.compiled_window_process import CompiledWindowProcessOperator
from tests.engine.window_driver import OperatorDriver, spec_of

FIRED = ps.ValueStateDescriptor("fired", "int64")


class Counts(ps.ProcessWindowFunction):
    """How often a window has fired."""

    def open(self, context: Any) -> None:
        self.fired = context.window_state.get_state(FIRED)

    def process(self, key: Any, context: Any, elements: Any) -> Any:
        before = self.fired.value() or 0
        self.fired.update(before + 1)
        yield {"n": len(elements), "fired": before + 1}


class Total(ps.ProcessWindowFunction):
    """The sum of a column."""

    def process(self, key: Any, context: Any, elements: Any) -> Any:
        yield {"v": sum(row["v"] for row in elements) / 1}


class Latest(ps.ProcessWindowFunction):
    """The row of the latest time."""

    def process(self, key: Any, context: Any, elements: Any) -> Any:
        last = elements[0]
        first = last["t"]
        for row in elements:
            if row["t"] >= last["t"]:
                last = row
            if row["t"] < first:
                first = row["t"]
        seconds = (last["t"] - first).total_seconds()
        yield {"v": last["v"], "seconds": seconds, "all": all(row["t"] == first for row in elements)}


class PassesOn(ps.ProcessWindowFunction):
    """A time."""

    def process(self, key: Any, context: Any, elements: Any) -> Any:
        yield {"t": elements[0]["t"]}


def plain(function: Any) -> Any:
    return function


def batch(**columns: pa.Array) -> Batch:
    """Rows of one key and one window."""
    rows = len(next(iter(columns.values())))
    first = {"k": pa.array(["a"] * rows), "at": pa.array([1] * rows, pa.int64())}
    data = pa.RecordBatch.from_pydict({**first, **columns})
    return Batch(data, data.column("at"))


def spec(function: Any, returns: Any) -> Any:
    """Of windows of rows whose columns are not declared."""
    return spec_of(lambda k: k.window(tumbling("10ms")).process(function, returns=returns), declared=False)


def results(function: Any, returns: Any, *batches: Batch) -> list[Any]:
    """What comes out; each batch is added behind a restore."""
    job = OperatorDriver(made := spec(function, returns))
    for number, one in enumerate(batches):
        if number:
            snapshot = job.snapshot()
            job = OperatorDriver(made)
            job.operator.restore(snapshot)
        job.operator.process_batch(one, 0, job.out)
    job.advance(100)
    return job.take()


def computed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the test fail where plain Python runs."""
    monkeypatch.setattr(
        CompiledWindowProcessOperator, "_call_one_by_one", lambda *_: pytest.fail("windows were computed one by one")
    )


def test_a_function_with_states_that_may_fall_back_has_them_until_the_window_goes() -> None:
    outcomes = []
    for mark in (plain, ps.compiled(fallback=True)):
        job = OperatorDriver(spec(mark(Counts), {"n": "int64", "fired": "int64"}))
        job.add(("a", 1, 1), ("b", 2, 2))
        job.advance(100)
        outcomes.append((job.take(), {name: table.data.to_pylist() for name, table in job.snapshot().tables.items()}))
    assert outcomes[0] == outcomes[1]


def test_numbers_of_a_savepoint_stay_what_they_are() -> None:
    batches = batch(v=pa.array([1.5, 2.5])), batch(v=pa.array([1]))
    assert results(ps.compiled(Total), {"v": "float64"}, *batches) == results(Total, {"v": "float64"}, *batches)


@given(
    st.lists(st.tuples(st.integers(-(2**50), 2**50) | st.integers(-2, 2), st.integers(0, 9)), min_size=1, max_size=6),
    st.sampled_from(["s", "ms", "us"]),
    st.sampled_from([None, "UTC"]),
)
def test_times_of_rows_are_compared(rows: list[tuple[int, int]], unit: str, zone: str | None) -> None:
    times = pa.array([time for time, _ in rows], pa.int64()).cast(pa.timestamp("us", zone))
    given = batch(t=times.cast(pa.timestamp(unit, zone), safe=False), v=pa.array([value for _, value in rows]))
    returns = {"v": "int64", "seconds": "float64", "all": "bool"}
    with pytest.MonkeyPatch.context() as patch:
        computed(patch)
        found = results(ps.compiled(Latest), returns, given)
    assert found == results(Latest, returns, given)


@pytest.mark.parametrize("zones", [(None, "UTC"), (None, None)])
def test_times_of_a_savepoint_stay_what_they_are(zones: tuple[str | None, str | None]) -> None:
    before, behind = (pa.timestamp(unit, zone) for unit, zone in zip(("us", "s"), zones, strict=True))
    returns = {"v": "int64", "seconds": "float64", "all": "bool"}
    first = batch(t=pa.array([5], pa.int64()).cast(before), v=pa.array([1]))
    second = batch(t=pa.array([0], pa.int64()).cast(behind), v=pa.array([2]))
    outcomes = []
    for function in (Latest, ps.compiled(Latest)):
        try:
            outcomes.append(results(function, returns, first, second))
        except ps.PenstockError as error:
            outcomes.append([str(error)])
    assert outcomes[0] == outcomes[1]


def test_times_of_rows_that_are_passed_on_are_refused() -> None:
    with pytest.raises(GraphError, match="'t' is a timestamp of a row; these are compared alone"):
        results(
            ps.compiled(PassesOn), {"t": "timestamp[us]"}, batch(t=pa.array([dt.datetime(2026, 1, 1)]), v=pa.array([1]))
        )


def sum_of_python(values: list[float]) -> float:
    """`sum` of CPython 3.12 and later, as `builtin_sum_impl` of its bltinmodule.c has it."""
    result, correction = 0.0, 0.0
    for x in values:
        t = result + x
        # The larger one is exact in the difference.
        large, small = (result, x) if abs(result) >= abs(x) else (x, result)
        correction += (large - t) + small
        result = t
    return result + correction if correction and abs(correction) < float("inf") else result


def sum_without_correction(values: list[float]) -> float:
    """`sum` of CPython before 3.12."""
    result = 0.0
    for x in values:
        result += x
    return result


@pytest.mark.parametrize(("compensates", "wanted"), [(True, sum_of_python), (False, sum_without_correction)])
@pytest.mark.parametrize(
    "values",
    [
        [0.1] * 10,
        [1e16, 1.0, -1e16],
        [1.0, 1e100, 1.0, -1e100],
        [1e308, 1e308, -1e308],
        [-0.0, -0.0],
        [float("inf"), 1.0],
    ],
)
def test_floats_are_added_as_each_python_does(
    values: list[float], compensates: bool, wanted: Callable[[list[float]], float], monkeypatch: pytest.MonkeyPatch
) -> None:
    computed(monkeypatch)
    monkeypatch.setattr(window_translation, "_COMPENSATES", compensates)
    (row,) = results(ps.compiled(Total), {"v": "float64"}, batch(v=pa.array(values)))
    assert repr(row["v"]) == repr(wanted(values))
