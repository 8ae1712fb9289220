"""Compiled keyed functions give the rows, and keep the state, of the same functions row by row."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ray import cloudpickle

import penstock as ps
from penstock import StreamEnvironment
from penstock.engine.compiled.functions import is_compiled
from penstock.engine.errors import GraphError, JobFailedError
from penstock.engine.operators.functions.keyed_process import KeyedProcessOperator
from penstock.testing.harness import Harness, Input
from tests.draws import drawn

SCHEMA = pa.schema([("k", pa.string()), ("n", pa.int64()), ("x", pa.float64()), ("what", pa.string())])
RETURNS = {"k": "string", "total": "int64", "best": "float64", "label": "string"}
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "k": st.sampled_from("abc"),
            "n": st.integers(-5, 5) | st.sampled_from([2**59, -(2**59), None]),
            "x": st.floats(-9, 9),
            "what": st.sampled_from(["add", "reset", "skip", None]),
        }
    ),
    min_size=1,
    max_size=12,
)


class Plain(ps.KeyedProcessFunction):
    """Totals and the best number of each key, which are told when they are worth it."""

    def __init__(self) -> None:
        self.enough = 3

    def open(self, context: Any) -> None:
        self.total = context.get_state(ps.ValueStateDescriptor("total", "int64", default=0))
        self.best = context.get_state(ps.ValueStateDescriptor("best", "float64", default=-1.5))
        self.seen = context.get_state(ps.ValueStateDescriptor("seen", "bool", default=False))

    def process_element(self, row: Any, ctx: Any) -> Iterator[dict[str, Any]]:
        if row["what"] == "skip":
            return
        if row["what"] == "reset":
            yield {"k": ctx.current_key, "total": self.total.value(), "best": self.best.value(), "label": "before"}
            self.total.update(0)
        else:
            self.total.update(self.total.value() + row["n"])
        if row["x"] > self.best.value():
            self.best.update(row["x"])
        if self.seen.value() or self.total.value() > self.enough:
            self.seen.update(True)
            yield {"k": row["k"], "total": self.total.value(), "best": self.best.value(), "label": "enough"}


@ps.compiled
class Compiled(Plain):
    """The same, compiled."""


def outcome(
    function: type[Plain], rows: list[dict[str, Any]], batch_rows: int, backend: Literal["heap", "rocksdb"] = "heap"
) -> str:
    """The rows that come out, or that the job failed."""
    env = StreamEnvironment(runtime="local", parallelism=1, max_batch_rows=batch_rows, state_backend=backend)
    results = env.from_collection(rows, SCHEMA).key_by("k").process(function, returns=RETURNS).collect()
    try:
        env.execute("compiled")
    except JobFailedError:
        return "failed"
    return repr(list(results))


@settings(max_examples=drawn(20))
@given(ROWS, st.sampled_from([1, 3, 1000]))
def test_rows_are_those_of_plain_python(rows: list[dict[str, Any]], batch_rows: int) -> None:
    assert outcome(Compiled, rows, batch_rows) == outcome(Plain, rows, batch_rows)


def test_rows_are_those_of_plain_python_on_rocksdb() -> None:
    rows = [{"k": "ab"[i % 2], "n": i, "x": i / 3, "what": "reset" if i % 5 == 0 else "add"} for i in range(50)]
    assert outcome(Compiled, rows, 7, "rocksdb") == outcome(Plain, rows, 7)


def test_the_plain_function_is_not_called_where_compiled_code_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"k": "ab"[i % 2], "n": i, "x": i / 3, "what": "add"} for i in range(50)]
    wanted = outcome(Plain, rows, 1000)
    monkeypatch.setattr(KeyedProcessOperator, "process_batch", lambda *_: pytest.fail("rows were made"))
    assert outcome(Compiled, rows, 1000) == wanted


def test_a_class_that_is_compiled_stays_as_it_is() -> None:
    marked = ps.compiled(Reducing)
    assert is_compiled(marked)
    assert not is_compiled(Reducing)
    again = cloudpickle.loads(cloudpickle.dumps(marked()))
    assert (type(again).__qualname__, is_compiled(again)) == ("Reducing", True)


class Sparse(Plain):
    """States without defaults, which are cleared."""

    def open(self, context: Any) -> None:
        self.total = context.get_state(ps.ValueStateDescriptor("total", "int64"))
        self.best = context.get_state(ps.ValueStateDescriptor("best", "float64"))
        self.seen = context.get_state(ps.ValueStateDescriptor("seen", "bool"))

    def process_element(self, row: Any, ctx: Any) -> Iterator[dict[str, Any]]:
        if row["what"] == "reset":
            self.total.clear()
            self.best.clear()
        elif row["what"] == "add":
            self.total.update((self.total.value() or 7) + row["n"])
            self.seen.update(row["x"] > 0)
            self.best.update(max(self.best.value() or -0.5, row["x"]))
        label = "none" if self.total.value() is None else "some"
        if self.best.value() is not None or (self.seen.value() or row["x"] > 5):
            yield {"k": row["k"], "total": self.total.value() or 0, "best": self.best.value() or 0.25, "label": label}


@settings(max_examples=drawn(30))
@given(ROWS, st.sampled_from([2, 1000]))
def test_states_without_a_default_are_those_of_plain_python(rows: list[dict[str, Any]], batch_rows: int) -> None:
    assert outcome(ps.compiled(Sparse), rows, batch_rows) == outcome(Sparse, rows, batch_rows)


class NoDefault(Plain):
    def open(self, context: Any) -> None:
        self.total = context.get_state(ps.ValueStateDescriptor("total", "int64"))


class Reducing(Plain):
    def open(self, context: Any) -> None:
        self.total = context.get_reducing_state(ps.ReducingStateDescriptor("all", "int64", function=max))


class TwoNames(Plain):
    def open(self, context: Any) -> None:
        super().open(context)
        self.same = context.get_state(ps.ValueStateDescriptor("total", "int64", default=0))

    def process_element(self, row: Any, ctx: Any) -> Any:
        self.total.update(self.same.value() + 1)
        yield {"k": row["k"], "total": self.same.value(), "best": 0.5, "label": "a"}


class WrongKind(Plain):
    def process_element(self, row: Any, ctx: Any) -> Any:
        self.total.update(row["x"])
        yield {"k": row["k"], "total": 1, "best": 0.5, "label": "a"}


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (NoDefault, r"state 'total' may have no value; write `self.total.value\(\) or 0`"),
        (Reducing, "uses get_reducing_state"),
        (TwoNames, "state 'total' is `self.same` and `self.total`"),
        (WrongKind, "an int is needed, and this is the value of column 'x'|an int is needed, and this is a float"),
    ],
)
def test_what_is_not_compiled_is_refused_when_the_graph_is_built(function: type[Plain], message: str) -> None:
    keyed = StreamEnvironment(runtime="local").from_collection([], SCHEMA).key_by("k")
    with pytest.raises(GraphError, match=message):
        keyed.process(ps.compiled(function), returns=RETURNS)


def test_rows_without_declared_columns_are_refused() -> None:
    keyed = StreamEnvironment(runtime="local").from_collection([], SCHEMA).key_by("k")
    with pytest.raises(GraphError, match="needs `returns`"):
        keyed.process(Compiled)


@pytest.mark.parametrize(("before", "behind"), [(Plain, Compiled), (Compiled, Plain)])
def test_state_goes_from_the_plain_function_to_the_compiled_one_and_back(
    before: type[Plain], behind: type[Plain]
) -> None:
    rows = [{"k": "ab"[i % 2], "n": i, "x": i / 3, "what": "add"} for i in range(10)]

    def build(function: type[Plain]) -> Any:
        return lambda stream: stream.key_by("k").process(function, returns=RETURNS).uid("totals")

    def run(first: type[Plain], second: type[Plain]) -> list[Any]:
        given = Input(SCHEMA)
        with Harness(build(first), given) as harness:
            harness.push(*rows[:5])
            kept, snapshot = harness.take(), harness.snapshot()
        with Harness(build(second), given, restore=snapshot) as harness:
            harness.push(*rows[5:])
            return [*kept, *harness.take()]

    assert run(before, behind) == run(Plain, Plain)


def test_a_keyed_function_that_is_not_compiled_runs_as_plain_python_where_it_may(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Named(Plain):
        def process_element(self, row: Any, ctx: Any) -> Any:
            yield {"k": row["k"].upper(), "total": 1, "best": 0.5, "label": "a"}

    stream = StreamEnvironment(runtime="local", parallelism=1).from_collection(
        [{"k": "a", "n": 1, "x": 0.5, "what": "add"}], SCHEMA
    )
    results = stream.key_by("k").process(ps.compiled(Named, fallback=True), returns=RETURNS).collect()
    assert list(results) == [{"k": "A", "total": 1, "best": 0.5, "label": "a"}]
    assert "`row['k'].upper()` is not compiled" in caplog.text
    assert "runs as plain Python" in caplog.text
