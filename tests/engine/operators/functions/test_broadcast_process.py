"""Functions with broadcast state: every subtask holds the same, it is changed in one place, and restores keep it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from penstock.engine.errors import ConfigurationError, GraphError, RecordError, StateError
from penstock.engine.functions import (
    BroadcastContext,
    BroadcastOnTimerContext,
    BroadcastProcessFunction,
    KeyedBroadcastProcessFunction,
    ReadOnlyBroadcastContext,
    Row,
    Rows,
    RuntimeContext,
)
from penstock.engine.operators.functions.broadcast_process import BroadcastProcessSpec
from penstock.engine.state.descriptors import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from penstock.engine.state.heap import HeapBackend
from tests.engine.operators.functions.functions import Running, at, owner, plain, rescaled
from tests.engine.state.saved import snapshot_of

LIMITS = MapStateDescriptor("limits", "int64")
COUNT = ValueStateDescriptor("count", "int64", default=0)


class Alert(BroadcastProcessFunction):
    """Emits what is over the limit of its kind."""

    def process_element(self, row: Row, ctx: ReadOnlyBroadcastContext) -> Rows:
        limit = ctx.get_broadcast_state(LIMITS).get(row["kind"])
        if limit is not None and row["n"] > limit:
            yield {"kind": row["kind"], "n": row["n"]}

    def process_broadcast_element(self, row: Row, ctx: BroadcastContext) -> Rows:
        limits = ctx.get_broadcast_state(LIMITS)
        if row["limit"] is None:
            limits.remove(row["kind"])
        else:
            limits.put(row["kind"], row["limit"])
        return None


class Counted(KeyedBroadcastProcessFunction):
    """Counts rows by key; the broadcast row `reset` sets all counts of the subtask to its number."""

    def open(self, context: RuntimeContext) -> None:
        self.count = context.get_state(COUNT)

    def process_element(self, row: Row, ctx: ReadOnlyBroadcastContext) -> Rows:
        self.count.update(self.count.value() + 1)
        ctx.timer_service.register_event_time_timer(100)
        yield {"key": ctx.current_key, "n": self.count.value()}

    def process_broadcast_element(self, row: Row, ctx: BroadcastContext) -> Rows:
        ctx.get_broadcast_state(LIMITS).put("reset", row["reset"])
        ctx.apply_to_keyed_state(COUNT, lambda key, count: count.update(row["reset"] if count.value() else None))
        return None

    def on_timer(self, timestamp: int, ctx: BroadcastOnTimerContext) -> Rows:
        state = ctx.get_broadcast_state(LIMITS)
        yield {"key": ctx.current_key, "n": state.get("reset")}


def readings(*pairs: tuple[str, int]) -> Any:
    return plain({"kind": kind, "n": n} for kind, n in pairs)


def rules(*pairs: tuple[str, int | None]) -> Any:
    return plain([{"kind": kind, "limit": limit} for kind, limit in pairs], {"kind": pa.string(), "limit": pa.int64()})


ALERT = BroadcastProcessSpec(Alert, (LIMITS,))
COUNTED = BroadcastProcessSpec(Counted, (LIMITS,), ("key",))


def test_rows_are_judged_by_the_rules_so_far() -> None:
    job = Running(ALERT)
    assert job.process(readings(("heat", 5))) == []
    assert job.process(rules(("heat", 4)), 1) == []
    assert job.process(readings(("heat", 5), ("rain", 5), ("heat", 4))) == [{"kind": "heat", "n": 5}]
    job.process(rules(("heat", None)), 1)
    assert job.process(readings(("heat", 5))) == []


@pytest.mark.parametrize("after", [1, 2, 5])
def test_every_subtask_has_the_rules_after_a_rescale(after: int) -> None:
    old = [Running(ALERT, subtask=subtask, parallelism=3) for subtask in range(3)]
    for job in old:
        job.process(rules(("heat", 4), ("rain", 1)), 1)
    new = rescaled(ALERT, [snapshot_of(job.operator) for job in old], after)
    for job in new:
        assert job.process(readings(("heat", 5), ("rain", 1))) == [{"kind": "heat", "n": 5}]


def test_a_broadcast_row_can_change_the_state_of_every_key() -> None:
    job = Running(COUNTED)
    job.process(plain({"key": key} for key in "aab"))
    job.process(plain([{"reset": 50}]), 1)
    assert job.process(plain({"key": key} for key in "abc")) == [
        {"key": "a", "n": 51},
        {"key": "b", "n": 51},
        {"key": "c", "n": 1},
    ]
    assert [row["n"] for row in job.advance(100)] == [50, 50, 50]


def test_keyed_and_broadcast_state_are_saved_together() -> None:
    old = [Running(COUNTED, subtask=subtask, parallelism=2) for subtask in range(2)]
    for key in "abcd":
        old[owner(pa.array([key]), 2)].process(plain([{"key": key}]))
    for job in old:
        job.process(plain([{"reset": 7}]), 1)
    [job] = rescaled(COUNTED, [snapshot_of(job.operator) for job in old], 1)
    assert job.process(plain({"key": key} for key in "abcd")) == [{"key": key, "n": 8} for key in "abcd"]
    assert sorted(row["key"] for row in job.advance(100)) == list("abcd")


def broadcast(element: Any, rule: Any) -> type[KeyedBroadcastProcessFunction]:
    class Given(KeyedBroadcastProcessFunction):
        def open(self, context: RuntimeContext) -> None:
            self.count = context.get_state(COUNT)

        def process_element(self, row: Row, ctx: ReadOnlyBroadcastContext) -> Rows:
            return element(self, row, ctx)  # type: ignore[no-any-return]

        def process_broadcast_element(self, row: Row, ctx: BroadcastContext) -> Rows:
            return rule(self, row, ctx)  # type: ignore[no-any-return]

        def on_timer(self, timestamp: int, ctx: BroadcastOnTimerContext) -> Rows:
            return None

    return Given


def nothing(self: Any, row: Row, ctx: Any) -> None:
    return None


@pytest.mark.parametrize(
    ("element", "rule", "problem"),
    [
        (nothing, lambda self, row, ctx: self.count.value(), "outside a keyed context"),
        (nothing, lambda self, row, ctx: ctx.current_key, "no current key .*apply_to_keyed_state"),
        (nothing, lambda self, row, ctx: ctx.timer_service.register_event_time_timer(5), "no current key"),
        (nothing, lambda self, row, ctx: ctx.get_broadcast_state(COUNT), "no broadcast state 'count'.*'limits'"),
        (
            nothing,
            lambda self, row, ctx: ctx.apply_to_keyed_state(ValueStateDescriptor("counts", "int64"), print),
            "no keyed state 'counts' .did you mean 'count'.*declare it in open",
        ),
        (
            nothing,
            lambda self, row, ctx: ctx.apply_to_keyed_state(ListStateDescriptor("count", "int64"), print),
            "'count' was declared as ValueStateDescriptor.*asked for as ListStateDescriptor",
        ),
        (
            nothing,
            lambda self, row, ctx: ctx.apply_to_keyed_state(ValueStateDescriptor("count", "string"), print),
            "'count' was declared as .*int64.*asked for as .*string",
        ),
        (
            nothing,
            lambda self, row, ctx: ctx.apply_to_keyed_state(COUNT, 5),
            "takes a function of a key and the state, not 5",
        ),
        (
            lambda self, row, ctx: ctx.get_broadcast_state(LIMITS).put("x", 1),
            nothing,
            "may only read.*change it in process_broadcast_element",
        ),
        (
            lambda self, row, ctx: ctx.get_broadcast_state(LIMITS).clear(),
            nothing,
            "may only read.*change it in process_broadcast_element",
        ),
        (
            lambda self, row, ctx: ctx.get_broadcast_state(LIMITS).remove("x"),
            nothing,
            "may only read.*change it in process_broadcast_element",
        ),
        (
            lambda self, row, ctx: ctx.get_broadcast_state(LIMITS).put_all({"x": 1}),
            nothing,
            "may only read.*change it in process_broadcast_element",
        ),
    ],
)
def test_what_each_method_must_not_do_names_the_remedy(element: Any, rule: Any, problem: str) -> None:
    job = Running(BroadcastProcessSpec(broadcast(element, rule), (LIMITS,), ("key",)))
    wrong = int(element is nothing)
    job.process(plain([{"key": "a"}]), 1 - wrong)
    with pytest.raises((StateError, ConfigurationError), match=rf"operator 'tested', subtask 0: .*{problem}"):
        job.process(plain([{"key": "a"}]), wrong)


@pytest.mark.parametrize("backend", ["heap", "rocksdb"])
def test_state_can_be_applied_to_within_the_state_of_a_key(backend: str) -> None:
    """The key of the outer call is the current one again behind the inner call, and no key behind all."""
    seen: list[Any] = []

    def within(self: Any, row: Row, ctx: BroadcastContext) -> None:
        def outer(key: str, count: Any) -> None:
            ctx.apply_to_keyed_state(COUNT, lambda other, state: seen.append((key, other, state.value())))
            count.update(ord(key))
            seen.append((key, count.value()))

        ctx.apply_to_keyed_state(COUNT, outer)
        with pytest.raises(StateError, match="outside a keyed context"):
            self.count.value()

    counts = broadcast(lambda self, row, ctx: self.count.update(1), within)
    job = Running(BroadcastProcessSpec(counts, (LIMITS,), ("key",)), backend=backend)
    job.process(plain([{"key": key} for key in "ab"]))
    job.process(plain([{"n": 1}]), 1)
    assert [step for step in seen if len(step) == 2] == [("a", 97), ("b", 98)]
    assert [step[2] for step in seen if len(step) == 3] in ([1, 1, 97, 1], [1, 1, 1, 97])
    job.operator.close()


def test_keys_are_asked_for_one_by_one_where_state_is_applied_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """They may be more than memory holds."""
    steps: list[str] = []

    def entries(backend: Any, name: str) -> Iterator[tuple[str, None]]:
        for key in "ab":
            steps.append(f"give {key}")
            yield key, None

    monkeypatch.setattr(HeapBackend, "entries", entries)

    def note(self: Any, row: Row, ctx: BroadcastContext) -> None:
        ctx.apply_to_keyed_state(COUNT, lambda key, count: steps.append(f"see {key}"))

    job = Running(BroadcastProcessSpec(broadcast(nothing, note), (LIMITS,), ("key",)))
    job.process(plain([{"n": 1}]), 1)
    assert steps == ["give a", "see a", "give b", "see b"]


def test_rules_are_there_in_open_behind_a_restore_and_replaced_not_joined() -> None:
    job = Running(ALERT)
    job.process(rules(("heat", 4), ("rain", 1)), 1)
    again = Running(ALERT, restored=snapshot_of(job.operator))
    again.process(rules(("heat", None)), 1)
    third = Running(ALERT, restored=snapshot_of(again.operator))
    assert third.process(readings(("heat", 5), ("rain", 5))) == [{"kind": "rain", "n": 5}]


def test_rules_without_timestamps_emit_nothing_into_a_stream_that_has_them() -> None:
    function = broadcast(nothing, lambda self, row, ctx: [row] if row["emit"] else None)
    job = Running(BroadcastProcessSpec(function, (LIMITS,), ("key",), timed=True))
    job.process(plain([{"emit": False}]), 1)
    with pytest.raises(RecordError, match=r"no event timestamp is known, .* call assign_timestamps on both"):
        job.process(plain([{"emit": True}]), 1)
    assert job.process(at([{"emit": True, "at": 5}]), 1) == [{"emit": True, "at": 5}]


def test_a_state_and_a_broadcast_state_of_one_name_are_refused() -> None:
    with pytest.raises(StateError, match="'count' is the name of broadcast state already, not of keyed state"):
        Running(BroadcastProcessSpec(Counted, (MapStateDescriptor("count", "int64"),), ("key",)))


class Half(BroadcastProcessFunction):
    def process_element(self, row: Row, ctx: ReadOnlyBroadcastContext) -> Rows:
        return None


@pytest.mark.parametrize(
    ("function", "keys", "problem"),
    [
        (Counted, (), "Counted is a KeyedBroadcastProcessFunction, and the stream has no keys"),
        (Alert, ("key",), "takes a KeyedBroadcastProcessFunction .* not Alert"),
        (Half, (), "Half does not implement process_broadcast_element"),
        (None, (), "takes a BroadcastProcessFunction .* not None"),
    ],
)
def test_no_usable_function_is_an_error_while_the_program_is_built(function: Any, keys: Any, problem: str) -> None:
    with pytest.raises(GraphError, match=problem):
        BroadcastProcessSpec(function, (LIMITS,), keys)
