"""Captures give what has changed, by reference: no more than that, unharmed by what comes later, all where most did."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.clock import ManualClock
from penstock.engine.state import changes, heap
from penstock.engine.state.backend import KeyedStateBackend
from penstock.engine.state.capture import CaptureRequest, CaptureScope, TableCapture
from penstock.engine.state.descriptors import (
    AggregateFunction,
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    PickleSerializer,
    TtlUpdate,
    ValueStateDescriptor,
    ttl,
)
from tests.engine.state.backends import make_backend
from tests.engine.state.saved import Saved, contents, snapshot_of

CHANGES, BASE, SWITCH, COMPLETE = (CaptureRequest(1, scope) for scope in CaptureScope)
IN_MEMORY = pytest.mark.parametrize("kind", ["heap", "columnar"])
VALUE = ValueStateDescriptor("v", "int64")
LIST = ListStateDescriptor("v", "int64")
MAP = MapStateDescriptor("v", "int64", key_type="int64")
MORTAL = ttl("1h")


def captured(backend: KeyedStateBackend, request: CaptureRequest = CHANGES) -> TableCapture:
    return backend.capture(request).tables["v"]


def setter(backend: KeyedStateBackend, descriptor: Any) -> Callable[[int, int], None]:
    """Sets the state of a key, of any kind, to a number."""
    match descriptor:
        case ValueStateDescriptor():
            write: Any = backend.value_state(descriptor).update
        case ListStateDescriptor():
            state = backend.list_state(descriptor)
            write = lambda number: state.update([number])  # noqa: E731
        case _:
            entries = backend.map_state(descriptor)
            write = lambda number: entries.put(0, number)  # noqa: E731

    def put(key: int, number: int) -> None:
        backend.set_current_key(key)
        write(number)

    return put


@IN_MEMORY
@pytest.mark.parametrize(
    "descriptor",
    [
        VALUE,
        LIST,
        MAP,
        ValueStateDescriptor("v", "int64", ttl=MORTAL),
        ListStateDescriptor("v", "int64", ttl=MORTAL),
        MapStateDescriptor("v", "int64", key_type="int64", ttl=MORTAL),
    ],
    ids=["value", "list", "map", "mortal value", "mortal list", "mortal map"],
)
def test_a_capture_holds_the_keys_that_changed_and_all_where_most_did(kind: str, descriptor: Any) -> None:
    backend = make_backend(kind)
    put = setter(backend, descriptor)
    for key in range(100):
        put(key, 0)
    first = captured(backend)
    assert (first.is_changes, first.rows().num_rows) == (False, 100), "nothing counted from anywhere yet"
    for key in range(10):
        put(key, 1)
    savepoint = captured(backend, COMPLETE)
    few = captured(backend)
    for key in range(60):
        put(key, 2)
    most = captured(backend)
    assert sorted(few.rows().column("k").to_pylist()) == list(range(10))
    assert (savepoint.is_changes, savepoint.rows().num_rows) == (False, 100)
    assert (most.is_changes, most.rows().num_rows) == (False, 100)


@IN_MEMORY
def test_one_put_into_a_large_map_is_one_row(kind: str) -> None:
    backend = make_backend(kind)
    entries = backend.map_state(MAP)
    backend.set_current_key(1)
    entries.put_all({number: number for number in range(10_000)})
    captured(backend, BASE)
    entries.put(77, -1)
    entries.remove(78)
    rows = captured(backend).rows()
    assert sorted(rows.select(["map_key", "value", "__deleted"]).to_pylist(), key=lambda row: row["map_key"]) == [
        {"map_key": 77, "value": -1, "__deleted": False},
        {"map_key": 78, "value": None, "__deleted": True},
    ]


@IN_MEMORY
@pytest.mark.parametrize("request_", [CHANGES, BASE, COMPLETE], ids=lambda request: request.scope.value)
def test_rows_made_late_are_those_of_the_barrier(kind: str, request_: CaptureRequest) -> None:
    backend = make_backend(kind)
    value = backend.value_state(ValueStateDescriptor("value", "list<int64>"))
    numbers, entries = backend.list_state(ListStateDescriptor("list", "int64")), backend.map_state(MAP)
    any_value = backend.value_state(ValueStateDescriptor("any", serializer=PickleSerializer()))
    kept: dict[str, int] = {"n": 1}
    for key in range(9):
        backend.set_current_key(key)
        value.update([1])
        numbers.add_all([1, 2])
        entries.put_all({1: 1, 2: 2})
        any_value.update(kept)
    backend.capture(BASE)
    backend.set_current_key(0)
    value.update([2])
    numbers.add(3)
    entries.put(3, 3)
    any_value.update(kept)
    capture = backend.capture(request_)
    before = {name: table.data for name, table in snapshot_of(backend).tables.items()}
    value.update([3])
    numbers.add(4)
    entries.put(3, 4)
    kept["n"] = 2
    backend.set_current_key(1)
    for state in (value, numbers, entries, any_value):
        state.clear()
    for name, table in capture.tables.items():
        rows = table.rows()
        expected = before[name] if not table.is_changes else before[name].filter(pa.compute.equal(before[name]["k"], 0))
        held = rows.drop_columns("__deleted") if table.is_changes else rows
        if table.is_changes and name == "v":
            expected = expected.filter(pa.compute.equal(expected["map_key"], 3))
        assert held.equals(expected), name


@IN_MEMORY
def test_what_was_restored_has_not_changed(kind: str) -> None:
    source, target = make_backend(kind), make_backend(kind)
    put = setter(source, VALUE)
    for key in range(20):
        put(key, key)
    put = setter(target, VALUE)
    target.restore(snapshot_of(source).tables)
    put(5, 7)
    capture = captured(target)
    assert (capture.is_changes, capture.rows().select(["k", "value"]).to_pylist()) == (True, [{"k": 5, "value": 7}])


@IN_MEMORY
def test_an_object_behind_a_serializer_that_was_given_away_has_changed(kind: str) -> None:
    class Append(AggregateFunction):
        def create_accumulator(self) -> Any:
            return []

        def add(self, value: Any, accumulator: Any) -> Any:
            accumulator.append(value)
            return accumulator

        def get_result(self, accumulator: Any) -> Any:
            return accumulator

    backend = make_backend(kind)
    value = backend.value_state(ValueStateDescriptor("v", serializer=PickleSerializer()))
    gathered = backend.aggregating_state(
        AggregatingStateDescriptor("all", serializer=PickleSerializer(), function=Append())
    )
    for key in range(9):
        backend.set_current_key(key)
        value.update([key])
        gathered.add(key)
    backend.capture(BASE)
    backend.set_current_key(3)
    value.value().append("more")
    gathered.add("more")
    for name, table in backend.capture(CHANGES).tables.items():
        (data,) = table.rows().column("value").to_pylist()
        assert PickleSerializer().loads(data) == [3, "more"], name


@IN_MEMORY
def test_keys_that_come_and_go_are_not_remembered_for_ever(kind: str) -> None:
    backend = make_backend(kind)
    value = backend.value_state(VALUE)
    backend.capture(BASE)
    for key in range(5_000):
        backend.set_current_key(key)
        value.update(1)
        backend.capture(COMPLETE) if key % 1000 == 0 else None
    backend.capture(BASE)
    for key in range(5_000):
        backend.set_current_key(key)
        value.clear()
    capture = captured(backend)
    assert (capture.is_changes, capture.rows().num_rows) == (False, 0)


def test_restored_state_that_is_not_declared_goes_on_until_it_is(backend: KeyedStateBackend, kind: str) -> None:
    source = make_backend("heap")
    put = setter(source, VALUE)
    for key in range(3):
        put(key, key)
    backend.value_state(ValueStateDescriptor("new", "int64"))
    backend.restore(snapshot_of(source).tables)
    assert snapshot_of(backend).tables["v"].data.num_rows == captured(backend, COMPLETE).rows().num_rows == 3
    again = make_backend(kind)
    again.restore(snapshot_of(backend).tables)
    late = again.value_state(VALUE)
    again.set_current_key(2)
    assert late.value() == 2
    late.update(5)
    assert sorted(snapshot_of(again).tables["v"].data.column("value").to_pylist()) == [0, 1, 5]
    again.close()


@IN_MEMORY
def test_state_that_nobody_declares_is_written_once(kind: str) -> None:
    source, target = make_backend(kind), make_backend(kind)
    setter(source, VALUE)(1, 1)
    target.restore(snapshot_of(source).tables)
    none, base = captured(target), captured(target, BASE)
    assert (none.is_changes, none.rows().num_rows) == (True, 0)
    assert (base.is_changes, base.rows().num_rows) == (False, 1)


@pytest.mark.parametrize(
    ("old", "new", "kept"),
    [
        (ValueStateDescriptor("v", "int32"), VALUE, 7),
        (ListStateDescriptor("v", "int32"), LIST, [7]),
        (MapStateDescriptor("v", "int32", key_type="int64"), MAP, 7),
    ],
    ids=["value", "list", "map"],
)
def test_state_of_a_narrower_type_is_restored_and_given_whole(kind: str, old: Any, new: Any, kept: Any) -> None:
    source, target = make_backend("heap"), make_backend(kind)
    put, set_again = setter(source, old), setter(target, new)
    for key in range(20):
        put(key, 7)
    target.restore(snapshot_of(source).tables)
    set_again(1, 7)
    if kind != "rocksdb":
        assert not captured(target).is_changes, "rows of two types do not go together"
    assert snapshot_of(target).tables["v"].data.column("value").to_pylist() == [kept] * 20
    target.close()


def test_fields_may_be_added_to_a_struct_and_take_the_default(kind: str) -> None:
    source, target = make_backend("heap"), make_backend(kind)
    old = source.value_state(ValueStateDescriptor("v", pa.struct([("n", pa.int64())])))
    source.set_current_key(1)
    old.update({"n": 1})
    default = {"n": 0, "note": "-"}
    kind_now = pa.struct([("n", pa.int64()), ("note", pa.string())])
    new = target.value_state(ValueStateDescriptor("v", kind_now, default=default))
    target.restore(snapshot_of(source).tables)
    target.set_current_key(1)
    assert new.value() == {"n": 1, "note": "-"}
    target.close()


KINDS_OF_STEPS = ["set", "set", "clear", "clear", "batch", "capture", "capture", "base", "savepoint", "fail"]
STEPS = st.lists(st.tuples(st.sampled_from(KINDS_OF_STEPS), st.integers(0, 2), st.integers(0, 2)), max_size=25)


@IN_MEMORY
@pytest.mark.parametrize("mortal", [None, MORTAL], ids=["", "mortal"])
@given(steps=STEPS)
def test_captures_of_few_keys_add_up(kind: str, mortal: Any, steps: list[tuple[str, int, int]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for module in (changes, heap):
            patch.setattr(module, "are_most", lambda changed, entries: False)
        few = Few(kind, mortal)
        for step, key, number in steps:
            few.take(step, key, number)
        few.take("capture", 0, 0)
        few.take("check", 0, 0)


class Few:
    """A backend with two values, a list and a map, and what its captures add up to."""

    def __init__(self, kind: str, mortal: Any) -> None:
        self.kind, self.mortal = kind, mortal
        self.saved = Saved()
        self.expected: Any = None
        self.open()

    def open(self) -> None:
        made = self.backend = make_backend(self.kind)
        self.values = [made.value_state(ValueStateDescriptor(f"v{n}", "int64", ttl=self.mortal)) for n in range(2)]
        self.list = made.list_state(ListStateDescriptor("l", "int64", ttl=self.mortal))
        self.map = made.map_state(MapStateDescriptor("m", "int64", key_type="int64", ttl=self.mortal))

    def take(self, step: str, key: int, number: int) -> None:
        self.backend.set_current_key(key)
        match step:
            case "set":
                self.values[number % 2].update(number)
                self.list.add(number)
                self.map.put(number, number)
            case "clear":
                self.values[number % 2].clear()
                self.list.clear()
                self.map.clear() if number == 2 else self.map.remove(number)
            case "batch":
                self.backend.set_current_keys(pa.record_batch({"k": [key, key + 1]}))
                self.values[0].update_values([None, number])
                self.backend.clear_current_key()
            case "capture" | "base":
                self.saved.take(self.backend.capture(BASE if step == "base" else CHANGES))
                self.expected = contents(snapshot_of(self.backend))
            case "savepoint":
                self.backend.capture(COMPLETE)
            case "check" if self.expected is not None:
                assert contents(self.saved.snapshot()) == self.expected
            case "fail" if self.expected is not None:
                self.take("check", key, number)
                self.open()
                self.backend.restore(self.saved.snapshot().tables)


@IN_MEMORY
def test_reading_what_is_renewed_by_it_is_a_change(kind: str) -> None:
    backend = make_backend(kind)
    renewed = ttl("1h", TtlUpdate.ON_READ_AND_WRITE)
    value = backend.value_state(ValueStateDescriptor("v", "int64", ttl=renewed))
    numbers = backend.list_state(ListStateDescriptor("l", "int64", ttl=renewed))
    entries = backend.map_state(MapStateDescriptor("m", "int64", key_type="int64", ttl=renewed))
    for key in range(9):
        backend.set_current_key(key)
        value.update(1)
        numbers.add(1)
        entries.put(1, 1)
    backend.capture(BASE)
    backend.set_current_key(3)
    assert (value.value(), numbers.get(), entries.get(1)) == (1, [1], 1)
    for name, table in backend.capture(CHANGES).tables.items():
        assert table.rows().column("k").to_pylist() == [3], name


@IN_MEMORY
def test_what_has_outlived_its_time_is_gone_from_what_captures_add_up_to(kind: str) -> None:
    clock, saved = ManualClock(), Saved()
    backend = make_backend(kind, clock=clock)
    value = backend.value_state(ValueStateDescriptor("v", "int64", ttl=MORTAL))
    for key in range(9):
        backend.set_current_key(key)
        value.update(1)
    saved.take(backend.capture(BASE))
    clock.advance(3600)
    backend.set_current_key(3)
    value.update(2)
    saved.take(backend.capture(CHANGES))
    assert saved.snapshot().tables["v"].data.column("k").to_pylist() == [3]


@IN_MEMORY
def test_a_key_that_comes_back_for_one_state_is_gone_from_the_other(kind: str) -> None:
    backend, saved = make_backend(kind), Saved()
    one, other = (backend.value_state(ValueStateDescriptor(name, "int64")) for name in ("one", "other"))
    for key in range(20):
        backend.set_current_key(key)
        one.update(key)
        other.update(key)
    saved.take(backend.capture(BASE))
    backend.set_current_key(1)
    one.clear()
    other.clear()
    for key in (77, 1):
        backend.set_current_key(key)
        one.update(key)
    capture = backend.capture(CHANGES)
    assert all(table.is_changes for table in capture.tables.values())
    saved.take(capture)
    assert contents(saved.snapshot()) == contents(snapshot_of(backend))


@pytest.mark.parametrize(("changed", "changes"), [(100, 40), (10, 400), (60, 66)])
def test_arrays_are_given_again_once_four_times_as_many_rows_have_changed(changed: int, changes: int) -> None:
    log, given = changes_of_slots(1000), []
    for turn in range(2 * changes + 2):
        log.mark(np.arange(changed) + turn * changed % 900, 1000)
        given.append(log.take(CaptureScope.CHANGES, 1000) is not None)
        assert log.take(CaptureScope.COMPLETE, 1000) is None, "a savepoint changes nothing of that"
    assert given == [*[True] * changes, False, *[True] * changes, False]


@IN_MEMORY
def test_a_switch_gets_what_has_changed_however_much_that_is(kind: str) -> None:
    backend = make_backend(kind)
    value = backend.value_state(ValueStateDescriptor("v", "int64"))
    for capture in (BASE, SWITCH):
        for key in range(9):
            backend.set_current_key(key)
            value.update(key)
        saved = captured(backend, capture)
    assert saved.is_changes, "rows would wait for all of it to be written anew, and read"
    assert saved.rows().num_rows == 9


@given(st.lists(st.integers(0, 99)))
def test_the_marks_of_very_many_slots_are_found_as_those_of_few_are(marked: list[int]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(changes, "_MANY_SLOTS", 1)
        log = changes_of_slots(1000)
        log.mark(np.array(marked, np.int64), 100)
        slots = log.take(CaptureScope.CHANGES, 1000)
    assert slots is not None
    assert slots.tolist() == sorted(set(marked))


def changes_of_slots(entries: int) -> changes.ChangedSlots:
    """A log that begins behind a capture of all."""
    log = changes.ChangedSlots()
    log.begin()
    assert log.take(CaptureScope.BASE, entries) is None
    return log
