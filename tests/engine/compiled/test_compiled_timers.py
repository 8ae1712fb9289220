"""Compiled keyed functions with timers and side outputs give what plain Python gives, also over rescales."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock import StreamEnvironment
from penstock.engine.elements import Batch, Watermark
from penstock.engine.errors import GraphError
from penstock.engine.operators.functions.compiled_process import CompiledProcessSpec
from penstock.engine.operators.functions.function_operator import FunctionOperator
from penstock.engine.operators.functions.keyed_process import KeyedProcessOperator, KeyedProcessSpec
from penstock.engine.operators.spec import OperatorSpec
from tests.draws import drawn
from tests.engine.operators.functions.functions import Running, owner, rescaled
from tests.engine.state.saved import snapshot_of

GIVEN = pa.schema([("k", pa.string()), ("at", pa.int64()), ("n", pa.int64())])
MADE = pa.schema([("k", pa.string()), ("n", pa.int64()), ("x", pa.float64()), ("what", pa.string())])
LATE = ps.OutputTag("late", {"k": "string", "n": "int64"})
SPAN = 10


class Plain(ps.KeyedProcessFunction):
    """Counts rows until a timer fires, with all that timers may do."""

    def open(self, context: Any) -> None:
        self.count = context.get_state(ps.ValueStateDescriptor("count", "int64", default=0))
        self.mean = context.get_state(ps.ValueStateDescriptor("mean", "float64", default=0.5))
        self.idle = context.get_state(ps.ValueStateDescriptor("idle", "bool", default=True))

    def process_element(self, row: Any, ctx: Any) -> Iterator[dict[str, Any]]:
        if ctx.timestamp <= ctx.timer_service.current_watermark():
            ctx.output(LATE, {"k": row["k"], "n": row["n"]})
            return
        self.count.update(self.count.value() + 1)
        self.mean.update((self.mean.value() + row["n"]) / 2)
        end = (ctx.timestamp // SPAN + 1) * SPAN
        if row["n"] == 0:
            ctx.timer_service.delete_event_time_timer(end)
        else:
            ctx.timer_service.register_event_time_timer(end)
        if self.idle.value():
            self.idle.update(False)
            ctx.timer_service.register_processing_time_timer(ctx.timer_service.current_processing_time() + SPAN)
        for copy in range(row["n"] - 2):
            yield {"k": ctx.current_key, "n": copy, "x": self.mean.value(), "what": "row"}

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[dict[str, Any]]:
        if ctx.is_event_time:
            yield {"k": ctx.current_key, "n": self.count.value(), "x": self.mean.value(), "what": "end"}
            self.mean.clear()
            if self.count.value() > 1:
                self.count.update(self.count.value() // 2)
                ctx.timer_service.register_event_time_timer(timestamp + SPAN)
            else:
                self.count.clear()
            ctx.timer_service.delete_processing_time_timer(timestamp + 1)
        else:
            self.idle.update(True)
            ctx.output(LATE, {"k": ctx.current_key, "n": timestamp + ctx.timer_service.current_processing_time()})
            if self.count.value() > 2:
                ctx.timer_service.register_processing_time_timer(timestamp)


@ps.compiled
class Compiled(Plain):
    """The same, compiled."""


PLAIN = KeyedProcessSpec(Plain, ("k",), MADE, True)
COMPILED = CompiledProcessSpec(Compiled, ("k",), MADE, True)
ROW = st.tuples(st.sampled_from("abcd"), st.integers(0, 40), st.sampled_from([0, 1, 2, 3, 9, -(2**63), None]))
STEP = (
    st.tuples(st.just("rows"), st.lists(ROW, min_size=1, max_size=12))
    | st.tuples(st.just("watermark"), st.integers(0, 60))
    | st.tuples(st.just("clock"), st.integers(0, 60))
    | st.tuples(st.just("rescale"), st.integers(1, 3))
)


def outcome(steps: Sequence[Any], spec: OperatorSpec, then: OperatorSpec, batch_rows: int, backend: str) -> str:
    """All that comes out, in order, with timestamps; or the step that failed.

    Args:
        spec, then: of the operators before the first rescale, and behind it.
    """
    jobs, seen, watermark = [Running(spec, ["late"], backend=backend)], [], 0
    for number, (what, value) in enumerate(steps):
        try:
            if what == "rescale":
                jobs = rescaled(
                    then, [snapshot_of(job.operator) for job in jobs], value, sides=["late"], backend=backend
                )
                for job in jobs:
                    job.advance(watermark)
            elif what == "rows":
                owned = [
                    [row for row in value if owner(pa.array([row[0]]), len(jobs)) == at] for at in range(len(jobs))
                ]
                for job, rows in zip(jobs, owned, strict=True):
                    for start in range(0, len(rows), batch_rows):
                        part = [dict(zip(GIVEN.names, row, strict=True)) for row in rows[start : start + batch_rows]]
                        data = pa.RecordBatch.from_pylist(part, GIVEN)
                        job.operator.process_batch(Batch(data, data.column("at")), 0, job.out)
            elif what == "watermark":
                watermark = max(watermark, value)
                for job in jobs:
                    job.operator.on_watermark(Watermark(watermark), job.out)
        except Exception as error:
            return f"{seen} {number} {type(error).__name__}"
        for job in jobs:
            made = job.tick(max(value, job.clock.now_ms())) if what == "clock" else job.take()
            seen.append((made, job.times, job.side("late")))
    return repr(seen)


@settings(max_examples=drawn(15))
@given(
    st.lists(STEP, min_size=1, max_size=12),
    st.sampled_from([1, 7, 1000]),
    st.sampled_from([(COMPILED, COMPILED), (COMPILED, PLAIN), (PLAIN, COMPILED)]),
)
def test_rows_timers_and_side_outputs_are_those_of_plain_python(
    steps: list[Any], size: int, specs: tuple[OperatorSpec, OperatorSpec]
) -> None:
    assert outcome(steps, *specs, size, "heap") == outcome(steps, PLAIN, PLAIN, 1, "heap")


MANY = [
    ("rows", [("abcd"[i % 4], i // 2, 1 + i % 5) for i in range(40)]),
    ("watermark", 15),
    ("clock", 12),
    ("rescale", 2),
    ("rows", [("abcd"[i % 4], 10 + i, i % 3) for i in range(20)]),
    ("watermark", 25),
    ("clock", 30),
    ("watermark", 60),
]


def test_state_on_rocksdb_is_that_of_plain_python() -> None:
    assert outcome(MANY, COMPILED, COMPILED, 7, "rocksdb") == outcome(MANY, PLAIN, PLAIN, 1, "rocksdb")


def test_the_plain_function_is_not_called_where_compiled_code_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = [*MANY[:2], ("rescale", 3), MANY[4]]
    wanted = outcome(steps, PLAIN, PLAIN, 1, "heap")
    monkeypatch.setattr(KeyedProcessOperator, "process_batch", lambda *_: pytest.fail("rows were made"))
    monkeypatch.setattr(FunctionOperator, "_fire", lambda *_: pytest.fail("timers fired one by one"))
    assert outcome(steps, COMPILED, COMPILED, 1000, "heap") == wanted


def test_a_program_reads_the_side_output_of_a_compiled_function() -> None:
    rows = [{"k": "a", "at": at, "n": 3} for at in (5, 40, 1, 60, 2)]
    env = StreamEnvironment(runtime="local", parallelism=1, max_batch_rows=1)
    stamped = env.from_collection(rows, GIVEN).assign_timestamps("at", ps.WatermarkStrategy.for_monotonous_timestamps())
    counted = stamped.key_by("k").process(Compiled, returns=MADE)
    late = counted.get_side_output(LATE).collect()
    env.execute("late")
    assert [row["n"] for row in late if row["n"] == 3] == [3, 3]


class Told(ps.KeyedProcessFunction):
    def process_element(self, row: Any, ctx: Any) -> Any:
        ctx.timer_service.register_event_time_timer(ctx.timestamp + row["n"])

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield {"k": ctx.current_key[0], "n": ctx.current_key[1]}


def test_timers_know_keys_of_several_columns_as_their_plain_values() -> None:
    given = pa.schema([("k", pa.dictionary(pa.int32(), pa.string())), ("at", pa.int64()), ("n", pa.int64())])
    rows = [{"k": "b", "at": 5, "n": 3}, {"k": "a", "at": 1, "n": 2}]
    env = StreamEnvironment(runtime="local", parallelism=1)
    stamped = env.from_collection(rows, given).assign_timestamps("at", ps.WatermarkStrategy.for_monotonous_timestamps())
    told = stamped.key_by("k", "n").process(ps.compiled(Told), returns={"k": "string", "n": "int64"}).collect()
    env.execute("told")
    assert list(told) == [{"k": "a", "n": 2}, {"k": "b", "n": 3}]


class NoTimer(ps.KeyedProcessFunction):
    def process_element(self, row: Any, ctx: Any) -> Any:
        ctx.timer_service.register_event_time_timer(1)


class NoTime(NoTimer):
    def process_element(self, row: Any, ctx: Any) -> Any:
        yield {"k": row["k"], "n": ctx.timestamp, "x": 0.5, "what": "row"}


class NoColumns(NoTimer):
    def process_element(self, row: Any, ctx: Any) -> Any:
        ctx.output(ps.OutputTag("late"), {"k": row["k"]})


class WrongSide(NoTimer):
    def process_element(self, row: Any, ctx: Any) -> Any:
        ctx.output(LATE, {"k": row["k"], "n": 0.5})


class WrongOfTimer(NoTimer):
    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield {"k": ctx.current_key}


class HiddenTime(NoTimer):
    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        timestamp += 1
        yield {"k": ctx.current_key, "n": timestamp, "x": 0.5, "what": "row"}


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (NoTimer, "there is no on_timer"),
        (NoTime, "`ctx.timestamp` is not compiled"),
        (NoColumns, "is no OutputTag that declares its columns"),
        (WrongSide, "side output 'late': 'n' is a float and declared as int64"),
        (WrongOfTimer, "gives k, and `returns` declares k, n, x, what"),
        (HiddenTime, "'timestamp' is a parameter"),
    ],
)
def test_what_is_not_compiled_is_refused_when_the_graph_is_built(function: type, message: str) -> None:
    keyed = StreamEnvironment(runtime="local").from_collection([], GIVEN).key_by("k")
    with pytest.raises(GraphError, match=message):
        keyed.process(ps.compiled(function), returns=MADE)
