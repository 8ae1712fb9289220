"""The operator of `map_batches`: what a function may return, the life of an object, and errors."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from ray import cloudpickle

from penstock.engine.clock import ManualClock
from penstock.engine.elements import Batch, Control, concat_batches
from penstock.engine.errors import GraphError, RecordError, SerializationError, UserCodeError
from penstock.engine.operators.base import Operator, OperatorContext
from penstock.engine.operators.batches import BatchMapSpec
from penstock.engine.operators.spec import OperatorSpec

CONTEXT = OperatorContext("score", 1, 2, ManualClock())


class Collected:
    """Keeps what an operator emits."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []

    def collect(self, batch: Batch) -> None:
        assert batch.num_rows > 0
        self.batches.append(batch)

    def broadcast(self, element: Control) -> None:
        raise AssertionError(element)


def opened(spec: OperatorSpec) -> Operator:
    operator = cloudpickle.loads(cloudpickle.dumps(spec)).create()
    assert isinstance(operator, Operator)
    operator.open(CONTEXT)
    return operator


def run(spec: OperatorSpec, *batches: Batch) -> Batch | None:
    operator, out = opened(spec), Collected()
    for batch in batches:
        operator.process_batch(batch, 0, out)
    operator.close()
    return concat_batches(out.batches) if out.batches else None


def batch_of(values: list[Any], timestamps: bool = False) -> Batch:
    data = pa.RecordBatch.from_pydict({"x": values})
    return Batch(data, pa.array(range(len(values))) if timestamps else None)


def returning(value: Any, schema: pa.Schema | None = None) -> BatchMapSpec:
    return BatchMapSpec(lambda batch: value, schema)


@pytest.mark.parametrize(
    "function",
    [
        lambda batch: pa.RecordBatch.from_arrays([pc.multiply(batch["x"], 2)], names=["y"]),
        lambda batch: pa.table({"y": pc.multiply(batch["x"], 2)}),
        lambda batch: pa.table({"y": pa.chunked_array([[2], [4, 6]])}),
        lambda batch: {"y": pc.multiply(batch["x"], 2)},
        lambda batch: {"y": pa.chunked_array([[2], [4, 6]])},
        lambda batch: {"y": batch["x"].to_numpy() * 2},
        lambda batch: {"y": np.array([2, 4, 6], dtype=object)},
        lambda batch: {"y": [2 * x for x in batch["x"].to_pylist()]},
        lambda batch: {"y": (2, 4, 6)},
    ],
)
def test_what_a_function_may_return(function: Any) -> None:
    result = run(BatchMapSpec(function), batch_of([1, 2, 3], timestamps=True))
    assert result is not None
    assert result.data == pa.RecordBatch.from_pydict({"y": [2, 4, 6]})
    assert result.timestamps is not None
    assert result.timestamps.to_pylist() == [0, 1, 2]


def test_any_number_of_rows_without_timestamps_and_none_are_dropped() -> None:
    spec = BatchMapSpec(lambda batch: batch.filter(pc.greater(batch["x"], 2)))
    result = run(spec, batch_of([1, 2]), batch_of([2, 3, 4]))
    assert result is not None
    assert result.data.to_pydict() == {"x": [3, 4]}


@pytest.mark.parametrize("kinds", [True, False])
def test_rows_with_timestamps_or_kinds_must_keep_their_number(kinds: bool) -> None:
    data = pa.RecordBatch.from_pydict({"x": [1, 2]})
    batch = Batch(data, None, pa.array([0, 0], pa.int8())) if kinds else Batch(data, pa.array([1, 2]))
    for value in ({"x": [1]}, {"x": [1, 2, 3]}, {"x": []}):
        with pytest.raises(RecordError, match=r"'score', subtask 1: .* rows for 2.*before assign_timestamps.*flat_map"):
            run(returning(value), batch)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, "returned builtins.NoneType; return a pyarrow RecordBatch or Table, or a dict"),
        ([1], "returned builtins.list"),
        ({"x": 5}, "column 'x' is 5"),
        ({"x": "abc"}, "column 'x' is 'abc'"),
        ({"x": np.zeros((2, 2))}, r"shape \(2, 2\)"),
        ({"x": [1], "y": [1, 2]}, "different lengths: x 1, y 2"),
        ({"x": [1, 2.5]}, "column 'x'.*float"),
        ({"x": [1, object()]}, "no Arrow type"),
        ({"x": np.array([1 + 2j])}, "no usable columns"),
        (pa.record_batch([pa.array([1]), pa.array([2])], names=["x", "x"]), "two columns of one name"),
    ],
)
def test_what_a_function_may_not_return(value: Any, message: str) -> None:
    with pytest.raises(RecordError, match=message) as caught:
        run(returning(value), batch_of([1]))
    assert str(caught.value).startswith("operator 'score', subtask 1: ")


def test_declared_columns_are_put_in_order_and_cast() -> None:
    schema = pa.schema([("a", pa.int8()), ("b", pa.timestamp("ms")), ("c", pa.list_(pa.int64()))])
    value = {"c": [[1]], "b": np.array(["2020-01-01"], "datetime64[us]"), "a": np.array([1.0])}
    result = run(returning(value, schema), batch_of([1]))
    assert result is not None
    assert result.data.schema == schema
    assert result.data.to_pylist() == [{"a": 1, "b": dt.datetime(2020, 1, 1), "c": [1]}]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"a": [1]}, "lacks the column 'b'; return the declared ones each time: a, b"),
        ({"a": [1], "b": ["x"], "c": [1]}, "has the unknown column 'c'"),
        ({"a": [1.5], "b": ["x"]}, "column 'a'.*float in a column of int8"),
        ({"a": np.array([1.5]), "b": ["x"]}, "column 'a' of map_batches is double and does not fit int8"),
        ({"a": np.array([300]), "b": ["x"]}, "column 'a' of map_batches is int64 and does not fit int8"),
        ({"a": [1], "b": pa.nulls(1)}, "column 'b' of map_batches has nulls"),
    ],
)
def test_a_result_that_does_not_fit_its_declaration(value: Any, message: str) -> None:
    schema = pa.schema([("a", pa.int8()), pa.field("b", pa.string(), nullable=False)])
    with pytest.raises(RecordError, match=message):
        run(returning(value, schema), batch_of([1]))


def in_turn(*values: Any) -> BatchMapSpec:
    """Returns the value that the batch asks for by its number."""
    return BatchMapSpec(lambda batch: values[batch["x"][0].as_py()])


def test_columns_are_held_from_the_first_result() -> None:
    spec = in_turn({"a": pa.nulls(1), "b": ["x"]}, pa.table({"b": ["y"], "a": [1.5]}), {"a": [None], "b": pa.nulls(1)})
    operator, out = opened(spec), Collected()
    for number in range(3):
        operator.process_batch(batch_of([number]), 0, out)
    known = pa.schema([("a", pa.float64()), ("b", pa.string())])
    assert [batch.data.schema for batch in out.batches] == [known.set(0, pa.field("a", pa.null())), known, known]
    assert concat_batches(out.batches).data.to_pydict() == {"a": [None, 1.5, None], "b": ["x", "y", None]}


@pytest.mark.parametrize(
    ("second", "message"),
    [
        ({"a": np.array([1.5])}, "column 'a' of map_batches is double now and was int64 before"),
        ({"a": ["x"]}, "column 'a'"),
        ({"b": [1]}, "lacks the column 'a'; return the ones of the first result each time"),
        ({"a": [1], "b": [1]}, "has the unknown column 'b'"),
    ],
)
def test_a_later_result_that_differs(second: Mapping[str, Any], message: str) -> None:
    with pytest.raises(RecordError, match=message):
        run(in_turn({"a": [1]}, second), batch_of([0]), batch_of([1]))


class Model:
    """Counts what happens to it, in a list that the test sees."""

    def __init__(self, log: list[Any] | None = None) -> None:
        self.log: list[Any] = [] if log is None else log
        self.calls = 0

    def open(self, context: OperatorContext) -> None:
        self.log.append(("open", context.operator, context.subtask))

    def __call__(self, batch: pa.RecordBatch) -> Mapping[str, Any]:
        self.calls += 1
        return {"calls": [self.calls] * batch.num_rows, "log": [repr(self.log)] * batch.num_rows}

    def close(self) -> None:
        self.log.append("close")


def test_a_class_lives_in_the_subtask() -> None:
    log: list[Any] = []

    class Counting(Model):
        def __init__(self) -> None:
            super().__init__(log)

    spec = BatchMapSpec(Counting)
    first, second, out = spec.create(), spec.create(), Collected()
    assert log == []
    first.open(CONTEXT)
    second.open(CONTEXT)
    for operator in (first, first, second):
        operator.process_batch(batch_of([1]), 0, out)
    first.close()
    assert log == [("open", "score", 1), ("open", "score", 1), "close"]
    assert [batch.data["calls"].to_pylist() for batch in out.batches] == [[1], [2], [1]]


def test_each_subtask_has_its_own_copy_of_an_object() -> None:
    model = Model()
    spec = BatchMapSpec(model)
    for _ in range(2):
        operator, out = spec.create(), Collected()
        operator.open(CONTEXT)
        operator.process_batch(batch_of([1]), 0, out)
        operator.close()
        assert out.batches[0].data.to_pylist() == [{"calls": 1, "log": "[('open', 'score', 1)]"}]
    assert (model.calls, model.log) == (0, [])


def test_an_object_that_cannot_be_copied_is_an_error() -> None:
    model = Model([threading.Lock()])
    with pytest.raises(SerializationError, match=r"'score', subtask 1.*cannot be copied.*pass the class"):
        BatchMapSpec(model).create().open(CONTEXT)


class NoCall:
    pass


@pytest.mark.parametrize("function", [NoCall, NoCall(), 5])
def test_what_cannot_be_called_is_refused(function: Any) -> None:
    with pytest.raises(GraphError, match="map_batches"):
        BatchMapSpec(function)


class Broken(Model):
    def __init__(self, where: str = "init") -> None:
        super().__init__()
        self.where = where
        self.fail("init")

    def fail(self, where: str) -> None:
        if self.where == where:
            raise OSError("no model at " + where)

    def open(self, context: OperatorContext) -> None:
        self.fail("open")

    def __call__(self, batch: pa.RecordBatch) -> Mapping[str, Any]:
        self.fail("call")
        return {}

    def close(self) -> None:
        self.fail("close")


@pytest.mark.parametrize("where", ["init", "open", "call", "close"])
def test_what_the_user_raises_comes_with_traceback(where: str) -> None:
    function: Any = Broken if where == "init" else Broken.__new__(Broken)
    if where != "init":
        function.where, function.log, function.calls = where, [], 0
    with pytest.raises(UserCodeError) as caught:
        run(BatchMapSpec(function), batch_of([1]))
    failure = caught.value
    assert (failure.operator, failure.subtask) == ("score", 1)
    assert failure.error == f"OSError: no model at {where}"
    assert 'raise OSError("no model at " + where)' in failure.traceback
    assert "operators/batches.py" not in failure.traceback
    assert isinstance(failure.__cause__, OSError)


def test_the_batch_is_shown_by_its_size_columns_and_first_row() -> None:
    with pytest.raises(UserCodeError) as caught:
        run(BatchMapSpec(lambda batch: batch["nothing"]), batch_of(["a", "b"]))
    assert caught.value.given == "batch of 2 rows (x string), the first is {'x': 'a'}"


def test_close_before_open_is_harmless() -> None:
    BatchMapSpec(Model).create().close()
