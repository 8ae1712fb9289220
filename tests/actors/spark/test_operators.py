"""Every verb and window gives the same rows in streaming mode (local) and in batch mode: a test is one job in each."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

import penstock as ps
from penstock import CollectResult, DataStream, KeyedStream, StreamEnvironment, WatermarkStrategy, col
from penstock.engine.functions import (
    BroadcastContext,
    BroadcastOnTimerContext,
    Context,
    OnTimerContext,
    ReadOnlyBroadcastContext,
    Row,
    RuntimeContext,
)
from penstock.engine.job.handle import JobHandle
from tests.actors.spark.conftest import Environment, on_spark

pytestmark = on_spark

Results = Mapping[str, CollectResult]
SMALL = ps.OutputTag("small", {"n": "int64"})
LATE = ps.OutputTag("late", {"k": "string", "n": "int64", "at": "int64"})
FACTORS = ps.MapStateDescriptor("factors", "int64", key_type="string")
DISORDER = WatermarkStrategy.for_bounded_out_of_orderness("1m")


def numbers(env: StreamEnvironment, rows: int = 60) -> DataStream:
    """Rows out of order, over a minute of event time, with three keys."""
    data = [{"k": "abc"[n % 3], "n": n, "at": (n * 37 % 60) * 1000 + n} for n in range(rows)]
    schema = {"k": "string", "n": "int64", "at": "int64"}
    return env.from_collection(data, schema=schema).assign_timestamps("at", DISORDER)


def others(env: StreamEnvironment) -> DataStream:
    """A second stream, with the keys a to d."""
    data = [{"key": "abcd"[n % 4], "m": -n, "time": n * 2_500} for n in range(20)]
    schema = {"key": "string", "m": "int64", "time": "int64"}
    return env.from_collection(data, schema=schema).assign_timestamps("time", DISORDER)


def same_in_both_modes(spark: Environment, build: Callable[[StreamEnvironment], Results]) -> dict[str, list[str]]:
    """Run the program in both modes and compare each of its results; gives them, by name."""
    streaming = StreamEnvironment(runtime="local", parallelism=2)
    expected = rows_of(build(streaming), lambda: streaming.execute("streaming"))
    batch = spark()
    assert rows_of(build(batch), lambda: batch.execute("batch", mode="batch")) == expected
    assert all(expected.values()), "a result without rows tests nothing"
    return expected


def rows_of(results: Results, run: Callable[[], object]) -> dict[str, list[str]]:
    run()
    return {name: sorted(_text(row) for row in result) for name, result in results.items()}


def _text(row: Mapping[str, Any]) -> str:
    sorted_lists = {name: sorted(value) if isinstance(value, list) else value for name, value in row.items()}
    return json.dumps(sorted_lists, default=str, sort_keys=True)


class Split(ps.ProcessFunction):
    """Passes rows on; small ones go aside too."""

    def process_element(self, row: Row, ctx: Context) -> Iterator[Row]:
        if row["n"] < 5:
            ctx.output(SMALL, {"n": row["n"]})
        yield {"n": row["n"], "time": ctx.timestamp}


async def doubled(row: Row) -> Row:
    return {"n": row["n"] * 2}


def test_verbs_that_take_rows_one_by_one(spark: Environment) -> None:
    def build(env: StreamEnvironment) -> Results:
        stream = numbers(env)
        split = stream.process(Split)
        names = ps.ArrowTable(pa.table({"k": ["a", "b"], "name": ["Anna", "Bert"]}), keys="k")
        return {
            "filter, select": stream.filter(col("n") % 2 == 0).select("k", double=col("n") * 2).collect(),
            "map, undeclared": stream.map(lambda row: {"n": row["n"] + 1, "t": (row["k"], 1)[0]}).collect(),
            "flat_map": stream.flat_map(lambda row: [{"n": row["n"]}] * (row["n"] % 3), {"n": "int64"}).collect(),
            "map_batches": stream.map_batches(lambda batch: {"n": batch.column("n")}, {"n": "int64"}).collect(),
            "map_async": stream.map_async(doubled, returns={"n": "int64"}).collect(),
            "process": split.collect(),
            "side output": split.get_side_output(SMALL).collect(),
            "union": stream.filter(col("n") < 9).union(stream.filter(col("n") > 50)).collect(),
            "rebalance": stream.rebalance().map(lambda row: row).set_parallelism(3).collect(),
            "rescale": stream.rescale().filter(col("n") > 3).set_parallelism(4).collect(),
            "broadcast": stream.broadcast().filter(col("n") > 57).collect(),
            "global": stream.global_().filter(col("n") > 3).disable_chaining().collect(),
            "lookup_join": stream.lookup_join(names, on="k", how="left").collect(),
        }

    same_in_both_modes(spark, build)


AGGREGATES: Mapping[str, Callable[[], Any]] = {
    "rows": ps.count,
    "total": lambda: ps.sum("n"),
    "least": lambda: ps.min("n"),
    "most": lambda: ps.max("n"),
    "mean": lambda: ps.mean("n"),
    "kinds": lambda: ps.count_distinct("n"),
    "all": lambda: ps.collect_list("n"),
}


def aggregates() -> dict[str, Any]:
    return {name: make() for name, make in AGGREGATES.items()}


def ends_of_time(keyed: KeyedStream) -> DataStream:
    return keyed.window(ps.global_windows()).trigger(ps.EndOfTimeTrigger()).aggregate(**aggregates())


class Spread(ps.ProcessWindowFunction):
    def process(self, key: Any, context: Any, elements: Iterable[Row]) -> Iterator[Row]:
        values = [row["n"] for row in elements]
        yield {"k": key, "spread": max(values) - min(values), "end": context.window.end}


@pytest.mark.long("tests/parity/test_local.py runs them in such stages, test_native.py and test_parity.py on Spark")
def test_windows(spark: Environment) -> None:
    def build(env: StreamEnvironment) -> Results:
        stream = numbers(env)
        keyed = stream.key_by("k")
        return {
            "tumbling": keyed.window(ps.tumbling("10s")).aggregate(**aggregates()).collect(),
            "sliding": keyed.window(ps.sliding("20s", "5s")).aggregate(**aggregates()).collect(),
            "session": keyed.window(ps.session("2s")).aggregate(**aggregates()).collect(),
            "cumulative": keyed.window(ps.cumulative("30s", "10s")).aggregate(**aggregates()).collect(),
            "global": ends_of_time(keyed).collect(),
            "count": keyed.count_window(20).aggregate(rows=ps.count()).collect(),
            "all": stream.window_all(ps.tumbling("30s")).aggregate(**aggregates()).collect(),
            "reduce": keyed.window(ps.tumbling("30s"))
            .reduce(lambda a, b: {**a, "n": a["n"] + b["n"], "at": max(a["at"], b["at"])})
            .collect(),
            "process": keyed.window(ps.tumbling("30s")).process(Spread).collect(),
            "of windows": keyed.window(ps.tumbling("5s")).aggregate(total=ps.sum("n"))
            .key_by("k").window(ps.tumbling("20s")).aggregate(parts=ps.count(), total=ps.sum("total")).collect(),
        }  # fmt: skip

    same_in_both_modes(spark, build)


class Ran(NamedTuple):
    """A job, and its results by name."""

    job: JobHandle
    results: Results


@pytest.fixture(scope="module")
def ran(spark: Environment) -> Ran:
    """One job of all that the tests which ask for it build: for each a job would take seconds."""
    env = spark()
    env.configure({"penstock.max-batch-rows": 7})
    results = {**late_rows(env), **scaled(env), **in_order(env), **running(env)}
    return Ran(env.execute("several", mode="batch"), results)


def late_rows(env: StreamEnvironment) -> Results:
    # In streaming mode this strategy would drop every row that is behind another.
    stream = numbers(env).assign_timestamps("at", WatermarkStrategy.for_monotonous_timestamps())
    windowed = stream.key_by("k").window(ps.tumbling("1s")).side_output_late_data(LATE).aggregate(rows=ps.count())
    return {"late": windowed.get_side_output(LATE).collect(), "on time": windowed.collect()}


def test_no_row_is_late_in_batch_mode(ran: Ran) -> None:
    late, on_time = ran.results["late"], ran.results["on time"]
    assert (late.to_arrow().num_rows, sum(row["rows"] for row in on_time)) == (0, 60)
    assert ran.job.metrics().late_rows == 0


@pytest.mark.long("tests/parity/test_local.py runs them in such stages, test_parity.py on Spark")
def test_joins(spark: Environment) -> None:
    def build(env: StreamEnvironment) -> Results:
        left, right = numbers(env).key_by("k"), others(env).key_by("key")
        windows = ps.tumbling("10s")
        return {
            "window": left.window_join(right, windows).collect(),
            "window, full": left.window_join(right, windows, how="full").collect(),
            "interval": left.interval_join(right, lower="-2s", upper="2s").collect(),
            "temporal": left.temporal_join(right, how="left").collect(),
            "co_group": left.co_group(
                right, windows, group_sizes, returns={"left": "int64", "right": "int64"}
            ).collect(),
        }

    same_in_both_modes(spark, build)


def group_sizes(key: Any, window: Any, left: Iterable[Row], right: Iterable[Row]) -> Iterator[Row]:
    yield {"left": len(list(left)), "right": len(list(right))}


class Total(ps.KeyedProcessFunction):
    """The total of each key when event time is complete; in which order the rows came, aside."""

    def open(self, context: RuntimeContext) -> None:
        self.total = context.get_state(ps.ValueStateDescriptor("total", "int64", default=0))

    def process_element(self, row: Row, ctx: Context) -> None:
        self.total.update(self.total.value() + row["n"])
        ctx.timer_service.register_event_time_timer(10**9)

    def on_timer(self, timestamp: int, ctx: OnTimerContext) -> Iterator[Row]:
        yield {"k": ctx.current_key, "total": self.total.value(), "at": timestamp}


class Multiply(ps.KeyedBroadcastProcessFunction):
    def open(self, context: RuntimeContext) -> None:
        self.total = context.get_state(ps.ValueStateDescriptor("total", "int64"))

    def process_element(self, row: Row, ctx: ReadOnlyBroadcastContext) -> None:
        self.total.update(row["total"])
        ctx.timer_service.register_event_time_timer(2 * 10**9)

    def process_broadcast_element(self, row: Row, ctx: BroadcastContext) -> None:
        ctx.get_broadcast_state(FACTORS).put(row["key"], row["m"])

    def on_timer(self, timestamp: int, ctx: BroadcastOnTimerContext) -> Iterator[Row]:
        factor = ctx.get_broadcast_state(FACTORS).get(ctx.current_key)
        yield {"k": ctx.current_key, "product": self.total.value() * factor}


class Both(ps.KeyedCoProcessFunction):
    """Counts the rows of both sides by key."""

    def open(self, context: RuntimeContext) -> None:
        self.seen = context.get_state(ps.ValueStateDescriptor("seen", "int64", default=0))

    def process_element1(self, row: Row, ctx: Context) -> None:
        self.count(1, ctx)

    def process_element2(self, row: Row, ctx: Context) -> None:
        self.count(1000, ctx)

    def count(self, step: int, ctx: Context) -> None:
        self.seen.update(self.seen.value() + step)
        ctx.timer_service.register_event_time_timer(10**9)

    def on_timer(self, timestamp: int, ctx: OnTimerContext) -> Iterator[Row]:
        yield {"k": ctx.current_key, "seen": self.seen.value()}


@pytest.mark.long("tests/parity/test_local.py runs them in such stages; state on Spark: the tests below")
def test_functions_with_state_and_timers(spark: Environment) -> None:
    def build(env: StreamEnvironment) -> Results:
        left, right = numbers(env), others(env)
        totals = left.key_by("k").process(Total, returns={"k": "string", "total": "int64", "at": "int64"})
        factors = right.filter(col("m") < -15).broadcast(FACTORS)
        returns = {"k": "string", "product": "int64"}
        return {
            "keyed": totals.collect(),
            "broadcast state": totals.key_by("k").connect(factors).process(Multiply, returns=returns).collect(),
            "connected": left.key_by("k").connect(right.key_by("key"))
            .process(Both, returns={"k": "string", "seen": "int64"}).collect(),
            "connected, without keys": left.connect(right)
            .map(lambda row: {"n": row["n"]}, lambda row: {"n": row["m"]}, returns={"n": "int64"}).collect(),
        }  # fmt: skip

    same_in_both_modes(spark, build)


class Scale(ps.BroadcastProcessFunction):
    """Multiplies by the factor that was known last."""

    def process_element(self, row: Row, ctx: ReadOnlyBroadcastContext) -> Iterator[Row]:
        yield {"n": row["n"] * (ctx.get_broadcast_state(FACTORS).get("all") or 0)}

    def process_broadcast_element(self, row: Row, ctx: BroadcastContext) -> None:
        ctx.get_broadcast_state(FACTORS).put("all", row["m"])


def scaled(env: StreamEnvironment) -> Results:
    stream = env.from_collection([{"n": n} for n in range(10)])
    rules = env.from_collection([{"m": 7}]).broadcast(FACTORS)
    return {"scaled": stream.connect(rules).process(Scale, returns={"n": "int64"}).collect()}


def test_broadcast_rows_without_timestamps_are_known_before_the_others_come(ran: Ran) -> None:
    assert sorted(row["n"] for row in ran.results["scaled"]) == [7 * n for n in range(10)]


class Seen(ps.KeyedProcessFunction):
    """The timestamps of each key's rows in the order in which they come, when there are twenty."""

    def open(self, context: RuntimeContext) -> None:
        self.times = context.get_list_state(ps.ListStateDescriptor("times", "int64"))

    def process_element(self, row: Row, ctx: Context) -> Iterator[Row]:
        self.times.add(ctx.timestamp)
        times = list(self.times.get())
        if len(times) == 20:
            yield {"times": ",".join(map(str, times))}


def in_order(env: StreamEnvironment) -> Results:
    keyed = numbers(env).rebalance().map(lambda row: row).key_by("k")
    return {"seen": keyed.process(Seen, returns={"times": "string"}).collect()}


def test_rows_of_a_key_come_in_the_order_of_their_timestamps(ran: Ran) -> None:
    rows = [[int(time) for time in row["times"].split(",")] for row in ran.results["seen"]]
    assert len(rows) == 3
    assert rows == [sorted(times) for times in rows]


def running(env: StreamEnvironment) -> Results:
    keyed = numbers(env).key_by("k")
    return {
        "totals": keyed.aggregate(total=ps.sum("n"), rows=ps.count()).collect(),
        "reduced": keyed.reduce(lambda a, b: {**a, "n": a["n"] + b["n"]}).collect(),
    }


def test_running_results_come_once_a_key(ran: Ran) -> None:
    totals, reduced = ran.results["totals"], ran.results["reduced"]
    expected = {key: sum(n for n in range(60) if "abc"[n % 3] == key) for key in "abc"}
    assert sorted((row["k"], row["total"], row["rows"]) for row in totals) == [(k, v, 20) for k, v in expected.items()]
    assert sorted((row["k"], row["n"]) for row in reduced) == list(expected.items())
