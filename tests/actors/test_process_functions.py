"""Process functions on Ray give what they give in one process: state, timers, side outputs, broadcast state."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import penstock as ps
from penstock import DataGenSource, RandomInt, Sequence, StreamEnvironment
from penstock.engine.functions import (
    BroadcastContext,
    BroadcastOnTimerContext,
    Context,
    OnTimerContext,
    ReadOnlyBroadcastContext,
    Row,
    RuntimeContext,
)

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_cluster", "no_leak")]

SMALL = ps.OutputTag("small", {"n": "int64"})
FACTORS = ps.MapStateDescriptor("factors", "int64", key_type="int64")


class Total(ps.KeyedProcessFunction):
    """Emits the total of each key when event time is complete, and small numbers to a side output."""

    def open(self, context: RuntimeContext) -> None:
        self.total = context.get_state(ps.ValueStateDescriptor("total", "int64", default=0))

    def process_element(self, row: Row, ctx: Context) -> None:
        self.total.update(self.total.value() + row["n"])
        ctx.timer_service.register_event_time_timer(10**9)
        if row["n"] < 5:
            ctx.output(SMALL, {"n": row["n"]})

    def on_timer(self, timestamp: int, ctx: OnTimerContext) -> Iterator[Row]:
        yield {"k": ctx.current_key, "total": self.total.value()}


class Multiply(ps.KeyedBroadcastProcessFunction):
    """Multiplies the totals that it knows a factor for, when event time is complete."""

    def open(self, context: RuntimeContext) -> None:
        self.total = context.get_state(ps.ValueStateDescriptor("total", "int64"))

    def process_element(self, row: Row, ctx: ReadOnlyBroadcastContext) -> None:
        self.total.update(row["total"])
        ctx.timer_service.register_event_time_timer(2 * 10**9)

    def process_broadcast_element(self, row: Row, ctx: BroadcastContext) -> None:
        ctx.get_broadcast_state(FACTORS).put(row["k"], row["factor"])

    def on_timer(self, timestamp: int, ctx: BroadcastOnTimerContext) -> Iterator[Row]:
        factor = ctx.get_broadcast_state(FACTORS).get(ctx.current_key)
        if factor is not None:
            yield {"k": ctx.current_key, "product": self.total.value() * factor}


@pytest.mark.long("tests/transcripts: Ray gives what the local runtime does")
def test_process_functions_give_the_same_rows_on_ray() -> None:
    def results(runtime: str) -> list[list[str]]:
        env = StreamEnvironment(parallelism=2, runtime=runtime, max_batch_rows=700)  # type: ignore[arg-type]
        numbers = env.from_source(DataGenSource({"n": Sequence(), "k": RandomInt(0, 7)}, rows=5_000))
        totals = numbers.assign_timestamps("n").key_by("k").process(Total, returns={"k": "int64", "total": "int64"})
        factors = env.from_collection([{"k": 2, "factor": 10}, {"k": 3, "factor": 100}])
        products = totals.key_by("k").connect(factors.broadcast(FACTORS)).process(Multiply()).collect()
        outputs = [totals.collect(), totals.get_side_output(SMALL).collect(), products]
        env.execute("functions")
        return [sorted(map(str, output)) for output in outputs]

    local = results("local")
    assert [len(output) for output in local] == [7, 5, 2]
    assert results("ray") == local
