"""The operator of column expressions, as a chain calls it."""

from __future__ import annotations

import narwhals.stable.v2 as nw
import pyarrow as pa
import pytest
from ray import cloudpickle

from penstock.engine.clock import ManualClock
from penstock.engine.elements import Batch, Control
from penstock.engine.errors import MissingColumnError, RecordError
from penstock.engine.expressions import Filter, Step, col, select, with_columns
from penstock.engine.operators.base import Operator, OperatorContext
from penstock.engine.operators.expressions import ExpressionSpec


class Collected:
    """Keeps what an operator emits."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []

    def collect(self, batch: Batch) -> None:
        self.batches.append(batch)

    def broadcast(self, element: Control) -> None:
        raise AssertionError(element)


def opened(*steps: Step) -> Operator:
    operator = cloudpickle.loads(cloudpickle.dumps(ExpressionSpec(steps))).create()
    assert isinstance(operator, Operator)
    operator.open(OperatorContext("filter(delays)", 1, 2, ManualClock()))
    return operator


def test_steps_are_applied_and_empty_results_dropped() -> None:
    operator, out = opened(Filter(col("x") > 1), select(y=col("x") * 2)), Collected()
    for values in ([1, 2, 3], [0, 1], [5]):
        data = pa.RecordBatch.from_pydict({"x": values})
        operator.process_batch(Batch(data, pa.array(values)), 0, out)
    assert [batch.data.to_pydict() for batch in out.batches] == [{"y": [4, 6]}, {"y": [10]}]
    assert [batch.timestamps.to_pylist() for batch in out.batches if batch.timestamps is not None] == [[2, 3], [5]]


def test_a_schema_that_changes_is_bound_again() -> None:
    operator, out = opened(with_columns(z=col("x") + 1)), Collected()
    for values in (pa.array([1]), pa.array([1.5]), pa.array([2])):
        operator.process_batch(Batch(pa.RecordBatch.from_arrays([values], names=["x"])), 0, out)
    assert [batch.data["z"].to_pylist() for batch in out.batches] == [[2], [2.5], [3]]


def test_a_missing_column_behind_a_python_function_is_found_here() -> None:
    with pytest.raises(MissingColumnError, match=r"operator 'filter\(delays\)', subtask 1: .*no column 'x'"):
        opened(Filter(col("x") > 1)).process_batch(Batch(pa.RecordBatch.from_pydict({"xx": [1]})), 0, Collected())


@pytest.mark.parametrize("cut", [0, 1, 2, 3, 4])
def test_a_value_that_cannot_be_computed_is_shown_with_its_row_in_any_cut(cut: int) -> None:
    data = pa.RecordBatch.from_pydict({"k": [1, 2, 3, 4], "s": ["1", "x", "3", "y"]})
    operator, out = opened(Filter(col("k") > 0), with_columns(n=col("s").cast(nw.Int64))), Collected()
    with pytest.raises(RecordError) as caught:
        [operator.process_batch(Batch(part), 0, out) for part in (data[:cut], data[cut:]) if part.num_rows]
    text = str(caught.value)
    assert text.startswith("operator 'filter(delays)', subtask 1: filter(col(k) > 0).with_columns(n=")
    assert "Failed to parse string: 'x'" in text
    assert "{'k': 2, 's': 'x'}" in text
    assert "keep such rows away with filter(...)" in text


def test_a_row_that_python_cannot_show_is_shown_as_arrow_has_it() -> None:
    data = pa.RecordBatch.from_arrays([pa.array(["x"]), pa.array([2**40], pa.timestamp("s"))], names=["s", "t"])
    with pytest.raises(RecordError, match="Failed to parse string: 'x'"):
        opened(with_columns(n=col("s").cast(nw.Int64))).process_batch(Batch(data), 0, Collected())
