"""Programs with process functions and connected streams, run whole in one process; and what cannot be built."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

import penstock as ps
from penstock.engine.clock import ManualClock
from penstock.engine.errors import GraphError, JobFailedError
from penstock.engine.functions import (
    BroadcastContext,
    BroadcastOnTimerContext,
    BroadcastProcessFunction,
    Context,
    CoProcessFunction,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    OnTimerContext,
    OutputTag,
    ProcessFunction,
    ReadOnlyBroadcastContext,
    Row,
    Rows,
    RuntimeContext,
)
from penstock.engine.state.descriptors import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from tests.engine.helpers import local_environment

BIG = OutputTag("big", {"user": "string", "amount": "int64"})
LIMITS = MapStateDescriptor("limits", "int64")
PAYMENTS = [{"user": f"u{n % 7}", "amount": n, "at": n} for n in range(200)]


class Total(KeyedProcessFunction):
    """Emits the total of each user when event time is complete; big amounts also go to a side output."""

    def open(self, context: RuntimeContext) -> None:
        self.total = context.get_state(ValueStateDescriptor("total", "int64", default=0))

    def process_element(self, row: Row, ctx: Context) -> Rows:
        self.total.update(self.total.value() + row["amount"])
        ctx.timer_service.register_event_time_timer(1000)
        if row["amount"] >= 190:
            ctx.output(BIG, {"user": row["user"], "amount": row["amount"]})
        return None

    def on_timer(self, timestamp: int, ctx: OnTimerContext) -> Rows:
        yield {"user": ctx.current_key, "total": self.total.value()}


def totals() -> list[tuple[str, int]]:
    expected: Counter[str] = Counter()
    for row in PAYMENTS:
        expected[str(row["user"])] += int(row["amount"])
    return sorted(expected.items())


@pytest.mark.parametrize("settings", [{}, {"max_batch_rows": 3}, {"state_backend": "rocksdb"}])
@pytest.mark.parametrize("parallelism", [1, 3])
def test_a_keyed_function_with_state_timers_and_a_side_output(parallelism: int, settings: Any) -> None:
    env = local_environment(parallelism, **settings)
    stream = env.from_collection(PAYMENTS).assign_timestamps("at").key_by("user")
    result = stream.process(Total, returns={"user": "string", "total": "int64"})
    assert result.schema == pa.schema([("user", pa.string()), ("total", pa.int64())])
    # Side output rows have the event time of their rows, so windows can be made of them.
    big = result.get_side_output(BIG).key_by("user").window(ps.tumbling("1s")).aggregate(n=ps.count()).collect()
    rows = result.collect()
    env.execute("totals")
    assert sorted((row["user"], row["total"]) for row in rows) == totals()
    assert sum(row["n"] for row in big) == 10


class Later(KeyedProcessFunction):
    def process_element(self, row: Row, ctx: Context) -> Rows:
        timers = ctx.timer_service
        timers.register_processing_time_timer(timers.current_processing_time() + row["in_ms"])
        return None

    def on_timer(self, timestamp: int, ctx: OnTimerContext) -> Rows:
        yield {"key": ctx.current_key}


def test_timers_of_the_clock_that_are_left_at_the_end_of_the_input_do_not_fire() -> None:
    clock = ManualClock()
    env = local_environment(1, clock=clock)
    rows = env.from_collection([{"key": "now", "in_ms": 0}, {"key": "later", "in_ms": 10**9}]).key_by("key")
    assert {row["key"] for row in rows.process(Later).collect()} <= {"now"}
    assert clock.now_ms() < 10**9


class Split(ProcessFunction):
    def process_element(self, row: Row, ctx: Context) -> Rows:
        if row["amount"] % 2:
            yield {"amount": row["amount"]}
        else:
            ctx.output(BIG, {"user": row["user"], "amount": row["amount"]})


def test_a_function_without_keys_splits_a_stream() -> None:
    env = local_environment(2)
    odd = env.from_collection(PAYMENTS).process(Split())
    even = odd.get_side_output(BIG)
    assert even.schema == BIG.schema
    first, second = odd.collect(), even.collect()
    env.execute("split")
    assert sorted(row["amount"] for row in first) == list(range(1, 200, 2))
    assert sorted(row["amount"] for row in second) == list(range(0, 200, 2))


class Untyped(ProcessFunction):
    def process_element(self, row: Row, ctx: Context) -> Rows:
        ctx.output(OutputTag("any"), {"amount": row["amount"]})
        return None


def test_the_columns_that_a_tag_declares_where_it_is_read_hold_for_the_rows() -> None:
    env = local_environment(2)
    some = env.from_collection(PAYMENTS).process(Untyped)
    stream = some.get_side_output(OutputTag("any", {"amount": "float32"}))
    with pytest.raises(GraphError, match=r"'any' of the columns \(amount: float\), .* declares \(amount: string\)"):
        some.get_side_output(OutputTag("any", {"amount": "string"}))
    assert stream.collect().to_arrow().schema == stream.schema == pa.schema({"amount": pa.float32()})
    wrong = local_environment(2).from_collection(PAYMENTS).process(Untyped)
    with pytest.raises(JobFailedError, match=r"side output 'any'.*'amount'.*declared type string"):
        wrong.get_side_output(OutputTag("any", {"amount": "string"})).collect().to_arrow()


def test_a_tag_must_have_the_columns_of_the_late_rows() -> None:
    stream = local_environment(1).from_collection(PAYMENTS).assign_timestamps("at").select("user")
    tag = OutputTag("late", {"user": "int64"})
    counted = stream.key_by("user").window(ps.tumbling("1s")).side_output_late_data(tag).aggregate(n=ps.count())
    with pytest.raises(GraphError, match=r"'late' of the columns \(user: string\), .* declares \(user: int64\)"):
        counted.get_side_output(tag)


@pytest.mark.parametrize("name", ["__start", "__end", "__time", "__key_group"])
@pytest.mark.parametrize("declared", [True, False])
def test_names_of_internal_columns_are_no_keys(name: str, declared: bool) -> None:
    stream = local_environment(1).from_collection([{name: 1}])
    if not declared:
        stream = stream.map(lambda row: row)
    with pytest.raises(GraphError, match=rf"key_by: the name '{name}' begins with '__', as only internal columns may"):
        stream.key_by(name)


class Restless(KeyedProcessFunction):
    """Wants to be called again at once, for ever."""

    def process_element(self, row: Row, ctx: Context) -> Rows:
        ctx.timer_service.register_processing_time_timer(ctx.timer_service.current_processing_time())
        return [row]

    def on_timer(self, timestamp: int, ctx: OnTimerContext) -> Rows:
        ctx.timer_service.register_processing_time_timer(ctx.timer_service.current_processing_time())
        return None


def test_a_timer_for_now_at_each_call_does_not_hold_the_job() -> None:
    env = local_environment(1, max_batch_rows=1)
    stream = env.from_collection([{"key": key} for key in "abc"]).key_by("key").process(Restless)
    assert [row["key"] for row in stream.collect()] == list("abc")


@pytest.mark.parametrize("declared", [True, False])
@pytest.mark.parametrize("parallelism", [1, 3])
def test_reduce_gives_every_running_result_of_a_key(parallelism: int, declared: bool) -> None:
    env = local_environment(parallelism, max_batch_rows=11)
    stream = env.from_collection(PAYMENTS).select("user", "amount")
    if not declared:
        stream = stream.map(lambda row: row)
    reduced = stream.key_by("user").reduce(lambda a, b: {"user": a["user"], "amount": a["amount"] + b["amount"]})
    assert (reduced.schema is not None) == declared
    rows = list(reduced.collect())
    assert len(rows) == 200
    last = {row["user"]: row["amount"] for row in rows}
    assert sorted(last.items()) == totals()
    for user in last:
        sums = [row["amount"] for row in rows if row["user"] == user]
        added = [later - earlier for earlier, later in itertools.pairwise([0, *sums])]
        assert Counter(added) == Counter(row["amount"] for row in PAYMENTS if row["user"] == user)


class Match(KeyedCoProcessFunction):
    def open(self, context: RuntimeContext) -> None:
        self.orders = context.get_list_state(ListStateDescriptor("orders", "int64"))
        self.paid = context.get_list_state(ListStateDescriptor("paid", "int64"))

    def process_element1(self, row: Row, ctx: Context) -> Rows:
        self.orders.add(row["n"])
        return [{"order": row["n"], "paid": paid} for paid in self.paid.get()]

    def process_element2(self, row: Row, ctx: Context) -> Rows:
        self.paid.add(row["m"])
        return [{"order": order, "paid": row["m"]} for order in self.orders.get()]


@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize("late_keys", [True, False])
def test_connected_streams_meet_by_key(parallelism: int, late_keys: bool) -> None:
    env = local_environment(parallelism, max_batch_rows=4)
    orders = env.from_collection([{"n": n, "k": f"k{n % 5}"} for n in range(30)])
    payments = env.from_collection([{"of": f"k{m % 7}", "m": m} for m in range(30)])
    if late_keys:
        connected = orders.connect(payments).key_by("k", "of")
    else:
        connected = orders.key_by("k").connect(payments.key_by("of"))
    pairs = sorted((row["order"], row["paid"]) for row in connected.process(Match).collect())
    assert pairs == sorted((n, m) for n in range(30) for m in range(30) if n % 5 == m % 7)


def test_a_stream_can_be_connected_with_itself_and_a_union() -> None:
    env = local_environment(2)
    stream = env.from_collection([{"n": n} for n in range(5)])
    result = stream.connect(stream.union(stream)).map(lambda row: {"n": row["n"]}, lambda row: {"n": -row["n"]})
    assert sorted(row["n"] for row in result.collect()) == sorted([*range(5), *(-n for n in range(5) for _ in "ab")])


def test_connected_streams_are_mapped_by_a_function_each() -> None:
    env = local_environment(2)
    first, second = env.from_collection([{"n": 1}, {"n": 2}]), env.from_collection([{"text": "a b"}])
    result = first.connect(second).flat_map(
        lambda row: [{"word": str(row["n"])}] * row["n"],
        lambda row: ({"word": word} for word in row["text"].split()),
        returns={"word": "string"},
    )
    assert sorted(row["word"] for row in result.collect()) == ["1", "2", "2", "a", "b"]


class Over(BroadcastProcessFunction):
    """Emits each row with the limits that the subtask knows."""

    def process_element(self, row: Row, ctx: ReadOnlyBroadcastContext) -> Rows:
        yield {"limits": len(ctx.get_broadcast_state(LIMITS).items())}

    def process_broadcast_element(self, row: Row, ctx: BroadcastContext) -> Rows:
        ctx.get_broadcast_state(LIMITS).put(row["user"], row["limit"])
        # One row for each subtask that got the rule.
        yield {"limits": -1}


class OverByKey(KeyedBroadcastProcessFunction):
    """Tells the users whose total is over their limit when event time is complete."""

    def open(self, context: RuntimeContext) -> None:
        self.total = context.get_state(ValueStateDescriptor("total", "int64", default=0))

    def process_element(self, row: Row, ctx: ReadOnlyBroadcastContext) -> Rows:
        self.total.update(self.total.value() + row["amount"])
        ctx.timer_service.register_event_time_timer(10_000)
        return None

    def process_broadcast_element(self, row: Row, ctx: BroadcastContext) -> Rows:
        ctx.get_broadcast_state(LIMITS).put(row["user"], row["limit"])
        return None

    def on_timer(self, timestamp: int, ctx: BroadcastOnTimerContext) -> Rows:
        limit = ctx.get_broadcast_state(LIMITS).get(ctx.current_key)
        if limit is not None and self.total.value() > limit:
            yield {"user": ctx.current_key}


def test_every_subtask_gets_every_broadcast_row() -> None:
    env = local_environment(3)
    rules = env.from_collection([{"user": f"u{n}", "limit": n} for n in range(4)])
    stream = env.from_collection(PAYMENTS).rebalance().map(lambda row: row).connect(rules.broadcast(LIMITS))
    rows = Counter(row["limits"] for row in stream.process(Over()).collect())
    assert rows.pop(-1) == 3 * 4
    assert sum(rows.values()) == 200
    assert set(rows) <= set(range(5))


@pytest.mark.parametrize("seed", range(5))
def test_keyed_rows_meet_broadcast_rules_whatever_came_first(seed: int) -> None:
    env = local_environment(3, seed=seed, max_batch_rows=9)
    rules = env.from_collection([{"user": "u1", "limit": 100}, {"user": "u2", "limit": 10**6}])
    payments = env.from_collection(PAYMENTS).assign_timestamps("at").key_by("user")
    result = payments.connect(rules.broadcast(LIMITS)).process(OverByKey, returns={"user": "string"})
    assert [row["user"] for row in result.collect()] == ["u1"]


def test_broadcast_without_descriptors_is_a_way_of_partitioning() -> None:
    env = local_environment(3)
    rows = env.from_collection([{"n": 1}]).broadcast().map(lambda row: row).collect()
    assert len(list(rows)) == 3


class _Co(CoProcessFunction):
    def process_element1(self, row: Row, ctx: Context) -> Rows:
        return None

    def process_element2(self, row: Row, ctx: Context) -> Rows:
        return None


def test_what_cannot_be_connected_is_an_error_with_a_remedy() -> None:
    env, other = local_environment(), local_environment()
    stream = env.from_collection([{"k": 1, "t": "x", "at": 1}])
    keyed, rules = stream.key_by("k"), stream.broadcast(LIMITS)
    cases: list[tuple[Any, str]] = [
        (lambda: stream.connect(other.from_collection([{"n": 1}])), "different programs"),
        (lambda: stream.connect(keyed), "without keys.*not KeyedStream.*key_by"),
        (lambda: keyed.connect(stream), r"call key_by on both, or broadcast\(MapStateDescriptor"),
        (lambda: stream.connect(None), "not NoneType"),
        (lambda: keyed.connect(stream.key_by("k", "t")), "give both as many"),
        (
            lambda: keyed.connect(stream.key_by("t")),
            "'k' of the first stream is int64, but 't' of the second is string",
        ),
        (lambda: stream.connect(stream).key_by("k", "no"), "no column 'no'"),
        (lambda: stream.connect(stream).key_by(5, "k"), "column names, not 5"),
        (lambda: stream.connect(stream.assign_timestamps("at")), "assign_timestamps on each"),
        (lambda: stream.connect(stream).process(Match), "Match is a KeyedCoProcessFunction.*call key_by first"),
        (lambda: keyed.connect(keyed).process(_Co), "takes a KeyedCoProcessFunction"),
        (lambda: stream.connect(rules).process(OverByKey), "OverByKey is a KeyedBroadcastProcessFunction"),
        (lambda: keyed.connect(rules).process(Over), "takes a KeyedBroadcastProcessFunction"),
        (lambda: stream.connect(stream).process(Over), r"Over takes .* give connect\(other.broadcast\(MapState"),
        (lambda: keyed.connect(keyed).process(OverByKey()), r"OverByKey takes .* give connect\(other.broadcast"),
        (lambda: stream.connect(stream).map(len, None), "a function of a row .* for each of the two"),
        (lambda: stream.broadcast("limits"), "takes MapStateDescriptors, not 'limits'"),
        (lambda: stream.broadcast(LIMITS, LIMITS), "two descriptors have one name"),
        (lambda: stream.process(Total), "goes behind key_by"),
        (lambda: keyed.process(Split), "takes a KeyedProcessFunction"),
        (lambda: keyed.reduce(None), "reduce: needs a function of two rows"),
    ]
    for build, problem in cases:
        with pytest.raises(GraphError, match=rf"(?s){problem}"):
            build()
