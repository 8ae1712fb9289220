"""Every keyed state backend is a dict by key and namespace, through snapshots, restores and rescales at any moment."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from functools import partial
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from penstock.engine.clock import ManualClock
from penstock.engine.errors import ConfigurationError, RecordError, StateError
from penstock.engine.state.backend import BackendContext, Key, KeyedStateBackend, Namespace, key_tuple
from penstock.engine.state.backends import create_backend, create_columnar_backend
from penstock.engine.state.descriptors import (
    AggregateFunction,
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    PickleSerializer,
    ReducingStateDescriptor,
    TtlUpdate,
    ValueStateDescriptor,
    ttl,
)
from penstock.engine.state.key_groups import key_groups, subtask_of
from penstock.engine.state.snapshot import OperatorSnapshot, share
from penstock.engine.state.timers import EVENT_TIMERS, TimerQueue

BACKENDS = ["heap", "columnar", "rocksdb"]
GROUPS = 8
TTL_MS = 100


def make_backend(
    kind: str, keys: Sequence[str] = ("k",), clock: ManualClock | None = None, schema: pa.Schema | None = None
) -> KeyedStateBackend:
    """A backend whose keys are bound: one column `k` of int64 unless told otherwise."""
    context = BackendContext("operator 'tested', subtask 0", tuple(keys), GROUPS, clock or ManualClock())
    backend = create_columnar_backend(context) if kind == "columnar" else create_backend(kind, context)
    backend.bind_keys(schema or pa.schema([("k", pa.int64())]))
    return backend


@pytest.fixture(params=BACKENDS)
def kind(request: pytest.FixtureRequest) -> str:
    if request.param == "rocksdb":
        pytest.importorskip("rocksdict")
    return str(request.param)


@pytest.fixture
def backend(kind: str) -> Iterator[KeyedStateBackend]:
    made = make_backend(kind)
    yield made
    made.close()


# --- the machine --------------------------------------------------------------------------------------------


class Mean(AggregateFunction):
    def create_accumulator(self) -> Any:
        return {"total": 0, "n": 0}

    def add(self, value: Any, accumulator: Any) -> Any:
        return {"total": accumulator["total"] + value, "n": accumulator["n"] + 1}

    def get_result(self, accumulator: Any) -> Any:
        return accumulator["total"] / accumulator["n"]


MEAN = Mean()


def add(one: int, other: int) -> int:
    return one + other


BERLIN = ZoneInfo("Europe/Berlin")
AUTUMN = datetime(2023, 10, 29, 0, 0, tzinfo=timezone.utc)


def in_berlin(minute: int) -> datetime:
    """In the night when summer time ends: at minutes 30 and 90 clocks show the same."""
    return (AUTUMN + timedelta(minutes=minute)).astimezone(BERLIN)


def from_utc(minute: int) -> datetime:
    return AUTUMN + timedelta(minutes=minute)


def told_apart(key: Key) -> Key:
    """The key with its times in UTC, since Python takes both half past two of that night for one."""
    if isinstance(key, tuple):
        return tuple(map(told_apart, key))
    return key.astimezone(timezone.utc) if isinstance(key, datetime) else key


def utc(second: int) -> datetime:
    return datetime(2026, 1, 1, 0, 0, second, tzinfo=timezone.utc)


KEYS: list[tuple[pa.Schema, list[Key]]] = [
    (pa.schema([("k", pa.int64())]), [0, 1, -1, 2**63 - 1, 77]),
    (pa.schema([("value", pa.string())]), ["", "a", "b", "ä", "map_key"]),
    (pa.schema([("k", pa.int32()), ("value", pa.string())]), [(1, "a"), (1, "b"), (2, "a"), (0, "")]),
    (pa.schema([("at", pa.timestamp("ms", "UTC"))]), [utc(second) for second in range(5)]),
    (pa.schema([("at", pa.timestamp("us", "Europe/Berlin"))]), [in_berlin(minute) for minute in (30, 90, 0, 150)]),
    (
        pa.schema([("k", pa.string()), ("at", pa.timestamp("ms", "Europe/Berlin"))]),
        [("a", in_berlin(30)), ("a", in_berlin(90)), ("b", in_berlin(30))],
    ),
]
OF_TYPES: list[tuple[str, pa.DataType, list[tuple[Callable[[], Any], Any]]]] = [
    (
        "struct",
        pa.struct([("x", pa.int64()), ("tags", pa.list_(pa.string())), ("at", pa.timestamp("ms", "UTC"))]),
        [
            (lambda: {"x": 1}, {"x": 1, "tags": None, "at": None}),
            (lambda: {"tags": ("a",), "x": None}, {"x": None, "tags": ["a"], "at": None}),
            (lambda: {"at": in_berlin(30), "tags": []}, {"x": None, "tags": [], "at": AUTUMN.replace(minute=30)}),
        ],
    ),
    ("floats", pa.list_(pa.float32()), [(lambda: (1, 0.1), [1.0, 0.10000000149011612]), (lambda: [None], [None])]),
    ("decimal", pa.decimal128(10, 2), [(lambda: 1, Decimal("1.00")), (lambda: Decimal("-0.5"), Decimal("-0.50"))]),
    ("at", pa.timestamp("us", "Europe/Berlin"), [(partial(from_utc, each), in_berlin(each)) for each in (30, 90)]),
    ("float", pa.float32(), [(lambda: 0.1, 0.10000000149011612), (lambda: 2, 2.0)]),
    ("map", pa.map_(pa.string(), pa.int64()), [(lambda: {"a": 1}, [("a", 1)])]),
]
"""Types of values, each with what is given and what is kept of it."""
SPACES: list[Namespace] = [None, (0, 10), (-10, 10)]
NUMBERS = st.integers(-3, 3)
LONG = ttl(f"{TTL_MS}ms")
RENEWED = ttl(f"{TTL_MS}ms", TtlUpdate.ON_READ_AND_WRITE)


class Subtask:
    """A backend with all kinds of state, and timers."""

    def __init__(self, kind: str, schema: pa.Schema, clock: ManualClock) -> None:
        self.schema = schema
        self.backend = made = make_backend(kind, schema.names, clock, schema)
        self.timers = TimerQueue()
        self.value = made.value_state(ValueStateDescriptor("value", "int64", default=9))
        self.text = made.value_state(ValueStateDescriptor("text", "string"))
        self.any = made.value_state(ValueStateDescriptor("any", serializer=PickleSerializer()))
        self.list = made.list_state(ListStateDescriptor("list", "int64"))
        self.map = made.map_state(MapStateDescriptor("map", "int64"))
        self.sum = made.reducing_state(ReducingStateDescriptor("sum", "int64", function=add))
        accumulator = pa.struct([("total", pa.int64()), ("n", pa.int64())])
        self.mean = made.aggregating_state(AggregatingStateDescriptor("mean", accumulator, function=MEAN))
        self.of_types = {name: made.value_state(ValueStateDescriptor(f"of_{name}", kind)) for name, kind, _ in OF_TYPES}
        self.lists = made.list_state(ListStateDescriptor("lists", OF_TYPES[0][1]))
        self.by_time = made.map_state(MapStateDescriptor("by_time", OF_TYPES[0][1], key_type=OF_TYPES[3][1]))
        self.brief = made.value_state(ValueStateDescriptor("brief", "int64", ttl=RENEWED))
        self.brief_list = made.list_state(ListStateDescriptor("brief_list", "int64", ttl=LONG))
        self.brief_map = made.map_state(MapStateDescriptor("brief_map", "int64", key_type="int64", ttl=LONG))

    def snapshot(self) -> OperatorSnapshot:
        return OperatorSnapshot({**self.backend.snapshot(), EVENT_TIMERS: self.timers.snapshot(self.schema, GROUPS)})

    def restore(self, snapshot: OperatorSnapshot) -> None:
        tables = dict(snapshot.tables)
        timers = tables.pop(EVENT_TIMERS, None)
        if timers is not None:
            self.timers.restore(timers, self.schema)
        self.backend.restore(tables)


WHERE = {"key": st.integers(0, 4), "space": st.sampled_from([0, 0, 1, 2])}


class Machine(RuleBasedStateMachine):
    """Subtasks of one operator, and dicts that should hold the same."""

    kind = "heap"

    @initialize(keys=st.sampled_from(KEYS), subtasks=st.integers(1, 3))
    def begin(self, keys: tuple[pa.Schema, list[Key]], subtasks: int) -> None:
        self.schema, self.keys = keys
        self.clock = ManualClock()
        self.subtasks = [Subtask(self.kind, self.schema, self.clock) for _ in range(subtasks)]
        names = ("value", "text", "any", "list", "map", "sum", "mean", "brief", "brief_list", "brief_map")
        self.model: dict[str, dict[Any, Any]] = {name: {} for name in names}
        self.of_types: dict[Any, Any] = {}
        self.lists: dict[Any, list[Any]] = {}
        self.by_time: dict[Any, dict[datetime, Any]] = {}
        self.timers: set[tuple[int, Key, Namespace]] = set()
        self.fired = -1

    def teardown(self) -> None:
        for subtask in getattr(self, "subtasks", []):
            subtask.backend.close()

    def owner(self, key: Key) -> Subtask:
        group = int(key_groups(self.batch([key]).columns, GROUPS)[0])
        return self.subtasks[subtask_of(group, len(self.subtasks), GROUPS)]

    def at(self, key: int, space: int) -> tuple[Subtask, tuple[Key, Namespace]]:
        self.key = self.keys[key % len(self.keys)]
        subtask = self.owner(self.key)
        subtask.backend.set_current_key(self.key, SPACES[space])
        return subtask, (told_apart(self.key), SPACES[space])

    @rule(**WHERE, which=st.integers(0, len(OF_TYPES) - 1), number=st.integers(0, 2), clear=st.booleans())
    def set_values_of_types(self, key: int, space: int, which: int, number: int, clear: bool) -> None:
        subtask, place = self.at(key, space)
        name, _, values = OF_TYPES[which]
        state, (make, kept) = subtask.of_types[name], values[number % len(values)]
        held = state.value()
        assert written(held) == written(self.of_types.get((name, *place)))
        given = None if clear else make()
        state.update(given)
        spoil(given)
        spoil(held)
        spoil(state.value())
        assert written(state.value()) == written(None if clear else kept)
        put(self.of_types, (name, *place), None if clear else kept)

    @rule(**WHERE, number=st.integers(0, 2), minute=st.sampled_from([30, 90]))
    def change_lists_and_maps_of_structs(self, key: int, space: int, number: int, minute: int) -> None:
        subtask, place = self.at(key, space)
        make, kept = OF_TYPES[0][2][number]
        given = make()
        subtask.lists.add(given)
        subtask.by_time.put(in_berlin(minute), given)
        spoil(given)
        for held in [*subtask.lists.get(), *subtask.by_time.values(), subtask.by_time.get(in_berlin(minute))]:
            spoil(held)
        self.lists.setdefault(place, []).append(kept)
        self.by_time.setdefault(place, {})[told_apart(in_berlin(minute))] = kept
        assert written(subtask.lists.get()) == written(self.lists[place])
        held = {told_apart(at): value for at, value in subtask.by_time.items()}
        assert {at: written(value) for at, value in held.items()} == {
            at: written(value) for at, value in self.by_time[place].items()
        }

    @rule(**WHERE, number=NUMBERS | st.none())
    def set_values(self, key: int, space: int, number: int | None) -> None:
        subtask, place = self.at(key, space)
        text = None if number is None else str(number)
        for name, value in (("value", number), ("text", text), ("any", {number} if number else None)):
            state = getattr(subtask, name)
            assert state.value() == self.model[name].get(place, 9 if name == "value" else None)
            state.update(value)
            put(self.model[name], place, value)

    @rule(**WHERE, values=st.lists(NUMBERS, max_size=3), more=st.booleans())
    def change_lists(self, key: int, space: int, values: list[int], more: bool) -> None:
        subtask, place = self.at(key, space)
        held = self.model["list"].get(place, [])
        assert subtask.list.get() == held
        if more:
            subtask.list.add_all(values)
        else:
            subtask.list.update(values)
        put(self.model["list"], place, (held if more else []) + values or None)

    @rule(**WHERE, name=st.sampled_from(["", "x", "y"]), number=NUMBERS | st.none())
    def change_maps(self, key: int, space: int, name: str, number: int | None) -> None:
        subtask, place = self.at(key, space)
        held = dict(self.model["map"].get(place, {}))
        assert (subtask.map.get(name), subtask.map.contains(name)) == (held.get(name), name in held)
        if number is None:
            subtask.map.remove(name)
            held.pop(name, None)
        else:
            subtask.map.put(name, number)
            held[name] = number
        assert (dict(subtask.map.items()), subtask.map.is_empty()) == (held, not held)
        put(self.model["map"], place, held or None)

    @rule(**WHERE, number=NUMBERS)
    def reduce_and_aggregate(self, key: int, space: int, number: int) -> None:
        subtask, place = self.at(key, space)
        total, numbers = self.model["sum"].get(place), self.model["mean"].get(place, [])
        assert subtask.sum.get() == total
        assert subtask.mean.get() == (sum(numbers) / len(numbers) if numbers else None)
        subtask.sum.add(number)
        subtask.mean.add(number)
        self.model["sum"][place] = number if total is None else total + number
        self.model["mean"][place] = [*numbers, number]

    @rule(**WHERE)
    def clear(self, key: int, space: int) -> None:
        subtask, place = self.at(key, space)
        for name, entries in [*self.model.items(), ("lists", self.lists), ("by_time", self.by_time)]:
            getattr(subtask, name).clear()
            entries.pop(place, None)

    @rule(**WHERE, number=NUMBERS)
    def touch_what_expires(self, key: int, space: int, number: int) -> None:
        subtask, place = self.at(key, space)
        now = self.clock.now_ms()
        assert subtask.brief.value() == next(iter(self.alive("brief", place)), (None,))[0]
        assert subtask.brief_list.get() == [value for value, _ in self.alive("brief_list", place)]
        assert sorted(subtask.brief_map.items()) == sorted(value for value, _ in self.alive("brief_map", place))
        if number:
            subtask.brief.update(number)
            subtask.brief_list.add(number)
            subtask.brief_map.put(abs(number), number)
            self.model["brief"][place] = [(number, now)]
            self.model["brief_list"][place] = [*self.alive("brief_list", place), (number, now)]
            others = [entry for entry in self.alive("brief_map", place) if entry[0][0] != abs(number)]
            self.model["brief_map"][place] = [*others, ((abs(number), number), now)]
        else:
            # It was read, which renews it.
            self.model["brief"][place] = [(value, now) for value, _ in self.alive("brief", place)]

    def alive(self, name: str, place: Any) -> list[Any]:
        now = self.clock.now_ms()
        return [entry for entry in self.model[name].get(place, []) if entry[1] + TTL_MS > now]

    @rule(milliseconds=st.sampled_from([1, 60, 99, 100]))
    def let_time_pass(self, milliseconds: int) -> None:
        self.clock.advance(milliseconds / 1000)

    @rule(keys=st.sets(st.integers(0, 4), min_size=1), numbers=st.lists(st.none() | NUMBERS, min_size=5, max_size=5))
    def work_on_a_batch(self, keys: set[int], numbers: list[int | None]) -> None:
        chosen = [self.keys[index] for index in {key % len(self.keys) for key in keys}]
        for subtask in self.subtasks:
            own = [key for key in chosen if self.owner(key) is subtask]
            if own:
                subtask.backend.set_current_keys(self.batch(own))
                held = [self.model["value"].get((told_apart(key), None), 9) for key in own]
                assert subtask.value.values().to_pylist() == held
                subtask.value.update_values(pa.array(numbers[: len(own)], pa.int64()))
                for key, number in zip(own, numbers[: len(own)], strict=True):
                    put(self.model["value"], (told_apart(key), None), number)

    def batch(self, keys: list[Key]) -> pa.RecordBatch:
        rows = [key_tuple(key, self.schema.names) for key in keys]
        columns = zip(*rows, strict=True)
        arrays = [pa.array(column, field.type) for column, field in zip(columns, self.schema, strict=True)]
        return pa.record_batch(arrays, self.schema)

    @rule(**WHERE, time=st.integers(0, 20), keep=st.booleans())
    def change_timers(self, key: int, space: int, time: int, keep: bool) -> None:
        subtask, place = self.at(key, space)
        if keep:
            subtask.timers.register(time, self.key, place[1])
            self.timers.add((time, *place))
        else:
            subtask.timers.delete(time, self.key, place[1])
            self.timers.discard((time, *place))

    @rule(time=st.integers(0, 20))
    def fire(self, time: int) -> None:
        fired = [list(subtask.timers.due(time)) for subtask in self.subtasks]
        assert all([one[0] for one in each] == sorted(one[0] for one in each) for each in fired)
        due = {timer for timer in self.timers if timer[0] <= time}
        apart = [(time, told_apart(key), space) for each in fired for time, key, space in each]
        assert [timer for timer in apart if timer not in due] == []
        assert sum(map(len, fired)) == len(due)
        self.timers -= due

    @rule(subtasks=st.integers(1, 3))
    def rescale(self, subtasks: int) -> None:
        snapshots = [subtask.snapshot() for subtask in self.subtasks]
        for subtask in self.subtasks:
            subtask.backend.close()
        self.subtasks = [Subtask(self.kind, self.schema, self.clock) for _ in range(subtasks)]
        for index, subtask in enumerate(self.subtasks):
            subtask.restore(share(snapshots, index, subtasks, GROUPS))

    @invariant()
    def entries_are_those_of_the_model(self) -> None:
        for name in ("value", "list", "map", "mean") if hasattr(self, "subtasks") else ():
            held = [entry for subtask in self.subtasks for entry in subtask.backend.entries(name)]
            assert len(held) == len(self.model[name])
            assert {(told_apart(key), space) for key, space in held} == set(self.model[name])


def written(value: Any) -> str:
    """A value with its classes and, of times, the zone, so that equal numbers of other classes differ."""
    return repr(value)


def spoil(value: Any) -> None:
    """Change a value in place, as a careless function may."""
    if isinstance(value, dict):
        for inner in value.values():
            spoil(inner)
        value["x"] = "spoilt"
    elif isinstance(value, list):
        for inner in value:
            spoil(inner)
        value.append("spoilt")


def put(entries: dict[Any, Any], place: Any, value: Any) -> None:
    entries.pop(place, None)
    if value is not None:
        entries[place] = value


def test_a_backend_is_a_dict_of_keys(kind: str) -> None:
    machine = type("MachineOfKind", (Machine,), {"kind": kind})
    examples = 3 if kind == "rocksdb" else 12  # each subtask of it opens a database
    relaxed = settings(
        max_examples=examples, stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck)
    )
    run_state_machine_as_test(machine, settings=relaxed)


# --- one by one ---------------------------------------------------------------------------------------------


def test_state_without_a_current_key_is_an_error(backend: KeyedStateBackend) -> None:
    value = backend.value_state(ValueStateDescriptor("v", "int64"))
    numbers = backend.list_state(ListStateDescriptor("l", "int64"))
    names = backend.map_state(MapStateDescriptor("m", "int64"))
    mortal = backend.value_state(ValueStateDescriptor("t", "int64", ttl=LONG))
    backend.set_current_key(1)
    backend.clear_current_key()
    for use in (
        value.value,
        lambda: value.update(1),
        value.clear,
        numbers.get,
        lambda: numbers.add(1),
        numbers.clear,
        lambda: names.get("a"),
        lambda: names.put("a", 1),
        names.is_empty,
        names.clear,
        mortal.value,
        lambda: mortal.update(1),
        mortal.clear,
    ):
        with pytest.raises(StateError, match=r"operator 'tested'.* outside a keyed context"):
            use()


def test_batch_methods_outside_of_a_batch_are_an_error(backend: KeyedStateBackend) -> None:
    value = backend.value_state(ValueStateDescriptor("v", "int64"))
    backend.set_current_key(1)
    for use in (value.values, lambda: value.update_values([1])):
        with pytest.raises(StateError, match="are for process_batch"):
            use()


def test_a_state_declared_twice_is_the_same_and_otherwise_an_error(backend: KeyedStateBackend) -> None:
    state = backend.value_state(ValueStateDescriptor("v", "int64"))
    assert backend.value_state(ValueStateDescriptor("v", int)) is state
    for declare in (
        lambda: backend.value_state(ValueStateDescriptor("v", "string")),
        lambda: backend.value_state(ValueStateDescriptor("v", "int64", default=1)),
        lambda: backend.value_state(ValueStateDescriptor("v", "int64", ttl=LONG)),
        lambda: backend.list_state(ListStateDescriptor("v", "int64")),
    ):
        with pytest.raises(StateError, match="'v' is declared twice"):
            declare()


def test_none_is_no_value_of_a_list_or_map(backend: KeyedStateBackend) -> None:
    numbers = backend.list_state(ListStateDescriptor("l", "int64"))
    names = backend.map_state(MapStateDescriptor("m", "int64"))
    total = backend.reducing_state(ReducingStateDescriptor("r", "int64", function=add))
    backend.set_current_key(1)
    for use in (
        lambda: numbers.add(None),
        lambda: numbers.update([1, None]),
        lambda: names.put("a", None),
        lambda: names.put(None, 1),
        lambda: total.add(None),
    ):
        with pytest.raises(RecordError, match=r"operator 'tested', subtask 0: state '[lmr]'"):
            use()
    assert numbers.get() == []


@pytest.mark.parametrize(
    ("kind_of_value", "wrong"),
    [
        ("int64", "a"),
        ("int64", True),
        ("int8", 300),
        ("double", "1"),
        ("string", 1),
        ("list<int64>", ["a"]),
        ("timestamp[ms]", 1),
    ],
)
def test_values_that_do_not_fit_are_refused_at_once(backend: KeyedStateBackend, kind_of_value: str, wrong: Any) -> None:
    value = backend.value_state(ValueStateDescriptor("v", kind_of_value))
    backend.set_current_key(1)
    problem = rf"{re.escape(repr(wrong))}.*{kind_of_value[:4]}"
    with pytest.raises(RecordError, match=rf"operator 'tested'.*state 'v': .*{problem}"):
        value.update(wrong)


@pytest.mark.parametrize(("kind_of_value", "wrong"), [("int64", 2**63), ("string", "\ud800")])
def test_values_that_do_not_fit_are_refused_by_the_snapshot_at_the_latest(
    backend: KeyedStateBackend, kind_of_value: str, wrong: Any
) -> None:
    value = backend.value_state(ValueStateDescriptor("v", kind_of_value))
    backend.set_current_key(1)

    def keep() -> None:
        value.update(wrong)
        backend.snapshot()

    with pytest.raises(RecordError, match=r"operator 'tested'.*state 'v'"):
        keep()


def test_a_snapshot_does_not_change_any_more(backend: KeyedStateBackend) -> None:
    value = backend.value_state(ValueStateDescriptor("v", "list<int64>"))
    numbers = backend.value_state(ValueStateDescriptor("n", "int64"))
    names = backend.map_state(MapStateDescriptor("m", "int64"))
    backend.set_current_key(1)
    mutable = [1]
    value.update(mutable)
    numbers.update(1)
    names.put("a", 1)
    snapshot = backend.snapshot()
    mutable.append(2)
    numbers.update(2)
    names.put("b", 2)
    assert snapshot["v"].data["value"].to_pylist() == [[1]]
    assert snapshot["n"].data["value"].to_pylist() == [1]
    assert snapshot["m"].data["map_key"].to_pylist() == ["a"]


def test_a_mutable_default_is_not_shared(backend: KeyedStateBackend) -> None:
    value = backend.value_state(ValueStateDescriptor("v", "list<int64>", default=[]))
    for key in (1, 2):
        backend.set_current_key(key)
        held = value.value()
        assert held == []
        held.append(key)


def test_a_snapshot_of_one_backend_is_restored_by_another(kind: str) -> None:
    for other in ("heap", "columnar"):
        source, target = (Subtask(each, KEYS[2][0], ManualClock()) for each in (kind, other))
        for space in (None, (0, 5)):
            source.backend.set_current_key((1, "a"), space)
            source.value.update(7)
            source.list.add_all([1, 2])
            source.map.put("x", 3)
        target.restore(source.snapshot())
        target.backend.set_current_key((1, "a"), (0, 5))
        assert (target.value.value(), target.list.get(), target.map.items()) == (7, [1, 2], [("x", 3)])
        source.restore(OperatorSnapshot())
        source.backend.close()
        target.backend.close()


@pytest.mark.parametrize(
    "declare",
    [
        lambda backend: backend.value_state(ValueStateDescriptor("v", "string")),
        lambda backend: backend.list_state(ListStateDescriptor("v", "int64")),
        lambda backend: backend.map_state(MapStateDescriptor("v", "int64")),
    ],
)
def test_state_of_another_type_is_not_restored(kind: str, declare: Callable[[KeyedStateBackend], Any]) -> None:
    source, target = make_backend("heap"), make_backend(kind)
    value = source.value_state(ValueStateDescriptor("v", "int64"))
    source.set_current_key(1)
    value.update(1)
    declare(target)
    with pytest.raises(StateError, match=r"state 'v' was saved as \(value: int64\) and is declared now with"):
        target.restore(source.snapshot())
    target.close()


def test_keys_of_another_type_than_before_are_an_error(kind: str) -> None:
    source, target = make_backend("heap"), make_backend(kind, schema=pa.schema([("k", pa.string())]))
    value = source.value_state(ValueStateDescriptor("v", "int64"))
    target.value_state(ValueStateDescriptor("v", "int64"))
    source.set_current_key(1)
    value.update(1)
    with pytest.raises(StateError, match="key column 'k' is int64, but the state so far has keys of string"):
        target.restore(source.snapshot())
    target.close()


def test_states_that_are_no_longer_declared_are_ignored(backend: KeyedStateBackend) -> None:
    source = make_backend("heap")
    value = source.value_state(ValueStateDescriptor("old", "int64"))
    source.set_current_key(1)
    value.update(1)
    new = backend.value_state(ValueStateDescriptor("new", "int64"))
    backend.restore(source.snapshot())
    backend.set_current_key(1)
    assert new.value() is None


def test_time_to_live_may_be_declared_for_state_that_had_none(backend: KeyedStateBackend) -> None:
    source = make_backend("heap")
    value = source.value_state(ValueStateDescriptor("v", "int64"))
    source.set_current_key(1)
    value.update(1)
    mortal = backend.value_state(ValueStateDescriptor("v", "int64", ttl=LONG))
    backend.restore(source.snapshot())
    backend.set_current_key(1)
    assert mortal.value() == 1


@pytest.mark.parametrize(
    ("declared", "given", "held"),
    [
        ("int64", pa.chunked_array([[1], [None]]), [1, None]),
        ("int64", [1, 2], [1, 2]),
        ("int64", pa.array([1, 2], pa.int8()), [1, 2]),
        ("float64", pa.array([1, 2]), [1.0, 2.0]),
        ("string", pa.array(["a", "b"]).dictionary_encode(), ["a", "b"]),
        ("list<int64>", [[1], None], [[1], None]),
        ("date32", pa.nulls(2), [None, None]),
    ],
)
def test_arrays_of_like_types_are_taken(backend: KeyedStateBackend, declared: str, given: Any, held: list[Any]) -> None:
    value = backend.value_state(ValueStateDescriptor("v", declared))
    backend.set_current_keys(pa.record_batch({"k": [1, 2]}))
    value.update_values(given)
    assert value.values().to_pylist() == held
    backend.set_current_key(1)
    assert value.value() == held[0]


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ([1], "1 values for 2 keys"),
        (pa.array(["1", "2"]), "string, which does not fit int64"),
        (pa.array([1.5, 2.0]), "double, which does not fit int64"),
        ([1, "a"], "'a' does not fit"),
        (5, "update_values was given int 5; give an Arrow or NumPy array"),
        ((number for number in (1, 2)), "update_values was given generator"),
        ("ab", "update_values was given str 'ab'"),
        (np.ones((2, 2), np.int64), "update_values was given an array of 2 dimensions"),
        (np.array([1j, 2j]), "array of complex128, which Arrow does not take"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(backend: KeyedStateBackend, given: Any, problem: str) -> None:
    value = backend.value_state(ValueStateDescriptor("v", "int64"))
    backend.set_current_keys(pa.record_batch({"k": [1, 2]}))
    with pytest.raises(RecordError, match=rf"state 'v'.*{problem}"):
        value.update_values(given)


@pytest.mark.parametrize("kind_of_value", [pa.string_view(), pa.list_(pa.string_view())])
def test_states_of_views_are_read_in_batches(backend: KeyedStateBackend, kind_of_value: pa.DataType) -> None:
    value = backend.value_state(ValueStateDescriptor("v", kind_of_value))
    backend.set_current_keys(pa.record_batch({"k": [1, 2]}))
    one = "a" if kind_of_value == pa.string_view() else ["a"]
    value.update_values(pa.array([one, None], kind_of_value))
    backend.set_current_keys(pa.record_batch({"k": [3, 1]}))
    assert value.values().to_pylist() == [None, one]


@pytest.mark.parametrize(
    ("kind_of_key", "absent"),
    [
        ("int64", [1.0, True, "1", None, [], 2**70]),
        ("date32", [datetime(2020, 1, 1, 5), "2020-01-01", 18262]),
        ("decimal128(10, 2)", [Decimal("1.234"), 1.0, "1.00"]),
    ],
)
def test_a_map_key_is_found_by_values_of_its_type_alone(
    backend: KeyedStateBackend, kind_of_key: str, absent: list[Any]
) -> None:
    names = backend.map_state(MapStateDescriptor("m", "int64", key_type=kind_of_key))
    mortal = backend.map_state(MapStateDescriptor("t", "int64", key_type=kind_of_key, ttl=LONG))
    backend.set_current_key(1)
    there = {"int64": np.int64(1), "date32": date(2020, 1, 1), "decimal128(10, 2)": Decimal("1")}[kind_of_key]
    for state in (names, mortal):
        state.put(there, 7)
        for key in absent:
            assert (state.get(key), state.contains(key)) == (None, False)
            state.remove(key)
        assert (state.get(there), state.contains(there), len(state.items())) == (7, True, 1)
        for key in absent[:2]:
            with pytest.raises(RecordError, match=r"state '[mt]'"):
                state.put(key, 1)
        state.remove(there)
        assert state.is_empty()


def test_keys_keep_their_time_zone(backend: KeyedStateBackend, kind: str) -> None:
    berlin = make_backend(kind, schema=KEYS[4][0], keys=("at",))
    number = berlin.value_state(ValueStateDescriptor("v", "int64"))
    names = berlin.map_state(MapStateDescriptor("m", "int64", key_type=KEYS[4][0].field(0).type))
    mortal = berlin.map_state(MapStateDescriptor("t", "int64", key_type=KEYS[4][0].field(0).type, ttl=LONG))
    timers = TimerQueue()
    for minute in (30, 90):
        berlin.set_current_key(in_berlin(minute))
        number.update(minute)
        timers.register(5, in_berlin(minute))
        for state in (names, mortal):
            state.put(in_berlin(minute), minute)
            state.put(in_berlin(minute + 1), minute)
            assert [written(key) for key in sorted(state.keys())] == [
                written(in_berlin(minute)),
                written(in_berlin(minute + 1)),
            ]
    expected = [written(in_berlin(minute)) for minute in (30, 90)]
    assert sorted(written(key) for key, _ in berlin.entries("v")) == sorted(expected)
    again = TimerQueue()
    again.restore(timers.snapshot(KEYS[4][0], GROUPS), KEYS[4][0])
    for queue in (timers, again):
        assert sorted(written(key) for _, key, _ in queue.due(5)) == sorted(expected)
    berlin.close()


def test_dumps_must_return_bytes(backend: KeyedStateBackend) -> None:
    class Texts:
        def dumps(self, value: Any) -> Any:
            return str(value)

        def loads(self, data: bytes) -> Any:
            return data

    value = backend.value_state(ValueStateDescriptor("v", serializer=Texts()))
    backend.set_current_key(1)

    def keep() -> None:
        value.update(1)
        backend.snapshot()

    with pytest.raises(RecordError, match="state 'v': dumps of Texts made str of 1; it must return bytes"):
        keep()


def test_state_behind_a_serializer_has_no_arrays(backend: KeyedStateBackend) -> None:
    value = backend.value_state(ValueStateDescriptor("v", serializer=PickleSerializer()))
    backend.set_current_keys(pa.record_batch({"k": [1, 2]}))
    for use in (value.values, lambda: value.update_values([1, 2])):
        with pytest.raises(StateError, match="has a serializer"):
            use()


def test_a_value_that_the_serializer_cannot_take_is_named(backend: KeyedStateBackend) -> None:
    value = backend.value_state(ValueStateDescriptor("v", serializer=PickleSerializer()))
    backend.set_current_key(1)

    def keep() -> None:
        value.update(lambda: None)
        backend.snapshot()

    with pytest.raises(RecordError, match="state 'v': PickleSerializer cannot turn"):
        keep()


def test_a_function_that_returns_none_is_an_error(backend: KeyedStateBackend) -> None:
    total = backend.reducing_state(ReducingStateDescriptor("r", "int64", function=lambda one, other: None))
    backend.set_current_key(1)
    total.add(1)
    with pytest.raises(RecordError, match="state 'r': its function returned None"):
        total.add(2)


def test_before_the_first_key_there_is_nothing_to_save(kind: str) -> None:
    context = BackendContext("operator 'tested', subtask 0", ("k",), GROUPS, ManualClock())
    unbound = create_columnar_backend(context) if kind == "columnar" else create_backend(kind, context)
    unbound.value_state(ValueStateDescriptor("v", "int64"))
    assert {name: table.data.num_rows for name, table in unbound.snapshot().items()} in ({}, {"v": 0})
    unbound.close()


def test_an_unknown_backend_is_an_error() -> None:
    with pytest.raises(ConfigurationError, match="did you mean 'rocksdb'"):
        make_backend("rocksdbb")


def test_without_key_columns_the_columnar_backend_is_the_heap() -> None:
    backend = make_backend("columnar", (), schema=pa.schema([]))
    value = backend.value_state(ValueStateDescriptor("v", "int64"))
    backend.set_current_key((), (0, 5))
    value.update(1)
    again = make_backend("columnar", (), schema=pa.schema([]))
    restored = again.value_state(ValueStateDescriptor("v", "int64"))
    again.restore(backend.snapshot())
    again.set_current_key((), (0, 5))
    assert restored.value() == 1
