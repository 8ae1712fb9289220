"""Bad use of time, windows and state: a typed error that names the operator and says what to do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import penstock as ps
from penstock import (
    AsyncFunction,
    BroadcastProcessFunction,
    CountTrigger,
    DataStream,
    KeyedBroadcastProcessFunction,
    KeyedProcessFunction,
    MapStateDescriptor,
    ProcessFunction,
    ProcessWindowFunction,
    StreamEnvironment,
    ValueStateDescriptor,
    cumulative,
    session,
    sliding,
    tumbling,
)
from penstock.engine.errors import ConfigurationError, GraphError, JobFailedError

COUNT = ValueStateDescriptor("count", "int64")
RULES = MapStateDescriptor("rules", "int64")


def _rows(env: StreamEnvironment, keys: tuple[str | None, ...] = ("a", "b", "a")) -> DataStream:
    rows = env.from_collection([(k, 1, 5) for k in keys], schema={"k": "string", "v": "int64", "at": "int64"})
    return rows.assign_timestamps("at")


class _TimerWithoutKey(ProcessFunction):
    def process_element(self, row: Any, ctx: Any) -> None:
        ctx.timer_service.register_event_time_timer(10)


class _StateWithoutKey(ProcessFunction):
    def open(self, context: Any) -> None:
        context.get_state(COUNT)

    def process_element(self, row: Any, ctx: Any) -> None:
        return None


class _StateInOpen(KeyedProcessFunction):
    def open(self, context: Any) -> None:
        context.get_state(COUNT).value()

    def process_element(self, row: Any, ctx: Any) -> None:
        return None


class _StateDeclaredLate(KeyedProcessFunction):
    def open(self, context: Any) -> None:
        self._context = context

    def process_element(self, row: Any, ctx: Any) -> None:
        self._context.get_state(COUNT)


class _DeclaredTwice(KeyedProcessFunction):
    def open(self, context: Any) -> None:
        context.get_state(COUNT)
        context.get_state(ValueStateDescriptor("count", "string"))

    def process_element(self, row: Any, ctx: Any) -> None:
        return None


class _WrongType(KeyedProcessFunction):
    def open(self, context: Any) -> None:
        self._count = context.get_state(COUNT)

    def process_element(self, row: Any, ctx: Any) -> None:
        self._count.update("many")


class _KeyedStateInBroadcast(KeyedBroadcastProcessFunction):
    def open(self, context: Any) -> None:
        self._count = context.get_state(COUNT)

    def process_element(self, row: Any, ctx: Any) -> None:
        return None

    def process_broadcast_element(self, row: Any, ctx: Any) -> None:
        self._count.value()


class _WritesRules(BroadcastProcessFunction):
    def process_element(self, row: Any, ctx: Any) -> None:
        ctx.get_broadcast_state(RULES).put("x", 1)

    def process_broadcast_element(self, row: Any, ctx: Any) -> None:
        return None


class _UndeclaredRules(BroadcastProcessFunction):
    def process_element(self, row: Any, ctx: Any) -> None:
        ctx.get_broadcast_state(MapStateDescriptor("other", "int64"))

    def process_broadcast_element(self, row: Any, ctx: Any) -> None:
        return None


class _NoTag(KeyedProcessFunction):
    def process_element(self, row: Any, ctx: Any) -> None:
        ctx.output("late", row)


class _NoRow(KeyedProcessFunction):
    def process_element(self, row: Any, ctx: Any) -> Iterator[Any]:
        yield 5


class _NoProcess(AsyncFunction):
    pass


class _BadDeclaration(KeyedProcessFunction):
    def open(self, context: Any) -> None:
        context.get_state(ValueStateDescriptor("t", dict))

    def process_element(self, row: Any, ctx: Any) -> None:
        return None


class _Nonsense(CountTrigger):
    def on_element(self, *arguments: Any) -> Any:
        return "fire"


class _Sum(ProcessWindowFunction):
    def process(self, key: Any, context: Any, elements: Any) -> Iterator[Any]:
        yield {"n": len(elements)}


def _connected(function: Any, keyed: bool) -> Callable[[StreamEnvironment], DataStream]:
    def build(env: StreamEnvironment) -> DataStream:
        stream = _rows(env)
        rules = _rows(env).broadcast(RULES)
        joined: Any = stream.key_by("k").connect(rules) if keyed else stream.connect(rules)
        processed: DataStream = joined.process(function)
        return processed

    return build


RUNNING: list[tuple[Callable[[StreamEnvironment], DataStream], str]] = [
    (lambda env: _rows(env).process(_TimerWithoutKey), "key_by"),
    (lambda env: _rows(env).process(_StateWithoutKey), "key_by"),
    (lambda env: _rows(env).key_by("k").process(_StateInOpen), "key"),
    (lambda env: _rows(env).key_by("k").process(_StateDeclaredLate), "open"),
    (lambda env: _rows(env).key_by("k").process(_DeclaredTwice), "count"),
    (lambda env: _rows(env).key_by("k").process(_WrongType), "int64"),
    (lambda env: _rows(env).key_by("k").process(_BadDeclaration), "state 't'"),
    (lambda env: _rows(env).key_by("k").reduce(lambda one, other: {"v": 1}), "columns differ .* 'at', 'k'"),
    (
        lambda env: _rows(env).key_by("k").window(tumbling("1s")).reduce(lambda one, other: {"v": 1}),
        "columns differ .* 'at', 'k'",
    ),
    (_connected(_KeyedStateInBroadcast, keyed=True), "key"),
    (_connected(_WritesRules, keyed=False), "process_broadcast_element"),
    (_connected(_UndeclaredRules, keyed=False), "other"),
    (lambda env: _rows(env).key_by("k").process(_NoTag), "OutputTag"),
    (lambda env: _rows(env).key_by("k").process(_NoRow), "dict"),
    (lambda env: _rows(env, ("a", None)).key_by("k").process(_NoRow), "null"),
    (lambda env: _rows(env, ("a", None)).key_by("k").window(tumbling("1s")).aggregate(n=ps.count()), "null"),
    (lambda env: _rows(env).key_by("k").window(tumbling("1s")).trigger(_Nonsense(2)).process(_Sum), "TriggerResult"),
    (lambda env: _rows(env).key_by("k").window(session(lambda row: 0)).process(_Sum), "gap"),
    (lambda env: _rows(env).key_by("k").window(session(lambda row: "no")).process(_Sum), "gap"),
]


@pytest.mark.parametrize("backend", ["heap", "rocksdb"])
@pytest.mark.parametrize(("build", "remedy"), RUNNING)
def test_a_job_that_misuses_state_fails_and_says_where(
    build: Callable[[StreamEnvironment], DataStream], remedy: str, backend: Any
) -> None:
    if backend == "rocksdb":
        pytest.importorskip("rocksdict")
    env = StreamEnvironment(runtime="local", parallelism=1, state_backend=backend)
    build(env).name("the operator at fault").print()
    with pytest.raises(JobFailedError, match=remedy) as failed:
        env.execute()
    assert "the operator at fault" in str(failed.value)


WRITTEN: list[tuple[Callable[[DataStream], Any], type[Exception], str]] = [
    (lambda s: s.key_by("k").window(tumbling("0s")), ConfigurationError, "window size"),
    (lambda s: s.key_by("k").window(tumbling("-1s")), ConfigurationError, "-1s|negative|duration"),
    (lambda s: s.key_by("k").window(sliding("10s", "0s")), ConfigurationError, "slide"),
    (lambda s: s.key_by("k").window(session("0s")), ConfigurationError, "gap"),
    (lambda s: s.key_by("k").window(cumulative("10s", "3s")), ConfigurationError, "step"),
    (lambda s: s.key_by("k").count_window(0), ConfigurationError, "count_window"),
    (lambda s: s.key_by("k").count_window(2.5), ConfigurationError, "count_window"),
    (lambda s: s.window(tumbling("1s")), GraphError, "key_by|window_all"),
    (lambda s: s.key_by("k").window(tumbling("1s")).trigger("often"), GraphError, "Trigger"),
    (lambda s: s.key_by("k").window(tumbling("1s")).evictor(3), GraphError, "Evictor"),
    (lambda s: s.key_by("k").window(tumbling("1s")).allowed_lateness("-1s"), ConfigurationError, "lateness"),
    (lambda s: s.key_by("k").process(_TimerWithoutKey), GraphError, "ProcessFunction"),
    (lambda s: s.process(_NoRow), GraphError, "key_by"),
    (lambda s: s.process(lambda row: row), GraphError, "ProcessFunction"),
    (lambda s: s.key_by("k").process(KeyedProcessFunction), GraphError, "process_element"),
    (lambda s: s.get_side_output("late"), GraphError, "OutputTag"),
    (lambda s: ValueStateDescriptor("x"), ConfigurationError, "type"),
    (lambda s: s.aggregate(n=ps.count()), AttributeError, r"no keys; call key_by\(...\) first"),
    (lambda s: s.match(None), AttributeError, r"no keys; call key_by\(...\) first"),
    (lambda s: s.key_by("k").map(len), AttributeError, "call it before key_by"),
    (lambda s: s.key_by("k").window(tumbling("1s")).collect(), AttributeError, "what is computed for each window"),
    (lambda s: s.sum("x"), AttributeError, r"key_by\(...\), group_by\(...\) or window_all\(...\) first"),
    (lambda s: s.key_by("k").sum("x"), AttributeError, r"call aggregate\(n=penstock.count\(\)\)"),
    (lambda s: s.key_by("k").window(tumbling("1s")).count(), AttributeError, r"call aggregate\(n=penstock.count\(\)\)"),
    (lambda s: s.assign_timestamps_and_watermarks(None), AttributeError, "assign_timestamps"),
    (lambda s: s.map_async(_NoProcess), GraphError, "_NoProcess does not implement"),
    (lambda s: ps.ttl("0s"), ConfigurationError, "ttl"),
]


@pytest.mark.parametrize(("build", "error", "message"), WRITTEN)
def test_what_makes_no_sense_is_refused_where_it_is_written(
    build: Callable[[DataStream], Any], error: type[Exception], message: str
) -> None:
    env = StreamEnvironment(runtime="local")
    with pytest.raises(error, match=message):
        build(_rows(env))


def test_an_error_inside_a_function_shows_its_row_and_line() -> None:
    env = StreamEnvironment(runtime="local", parallelism=1)
    _rows(env).key_by("k").process(_WrongType).print()
    with pytest.raises(JobFailedError) as failed:
        env.execute()
    assert "called with: {'k': 'a', 'v': 1, 'at': 5}" in str(failed.value)
    assert 'self._count.update("many")' in str(failed.value)
