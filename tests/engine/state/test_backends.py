"""What every keyed state backend takes, refuses and keeps, one by one."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.engine.clock import ManualClock
from penstock.engine.errors import ConfigurationError, RecordError, StateError
from penstock.engine.state.backend import BackendContext, KeyedStateBackend
from penstock.engine.state.backends import create_backend, create_columnar_backend
from penstock.engine.state.descriptors import (
    ListStateDescriptor,
    MapStateDescriptor,
    PickleSerializer,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from penstock.engine.state.snapshot import OperatorSnapshot
from penstock.engine.state.timers import TimerQueue
from tests.engine.state.backends import GROUPS, KEYS, LONG, Subtask, add, in_berlin, make_backend, written
from tests.engine.state.saved import snapshot_of, timers_of


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
        snapshot_of(backend)

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
    snapshot = snapshot_of(backend).tables
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
        target.restore(snapshot_of(source))
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
        target.restore(snapshot_of(source).tables)
    target.close()


def test_keys_of_another_type_than_before_are_an_error(kind: str) -> None:
    source, target = make_backend("heap"), make_backend(kind, schema=pa.schema([("k", pa.string())]))
    value = source.value_state(ValueStateDescriptor("v", "int64"))
    target.value_state(ValueStateDescriptor("v", "int64"))
    source.set_current_key(1)
    value.update(1)
    with pytest.raises(StateError, match="key column 'k' is int64, but the state so far has keys of string"):
        target.restore(snapshot_of(source).tables)
    target.close()


def test_states_that_are_no_longer_declared_do_no_harm(backend: KeyedStateBackend) -> None:
    source = make_backend("heap")
    value = source.value_state(ValueStateDescriptor("old", "int64"))
    source.set_current_key(1)
    value.update(1)
    new = backend.value_state(ValueStateDescriptor("new", "int64"))
    backend.restore(snapshot_of(source).tables)
    backend.set_current_key(1)
    assert new.value() is None


def test_time_to_live_may_be_declared_for_state_that_had_none(backend: KeyedStateBackend) -> None:
    source = make_backend("heap")
    value = source.value_state(ValueStateDescriptor("v", "int64"))
    source.set_current_key(1)
    value.update(1)
    mortal = backend.value_state(ValueStateDescriptor("v", "int64", ttl=LONG))
    backend.restore(snapshot_of(source).tables)
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
    again.restore(timers_of(timers, KEYS[4][0], GROUPS), KEYS[4][0])
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
        snapshot_of(backend)

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
        snapshot_of(backend)

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
    assert {name: table.data.num_rows for name, table in snapshot_of(unbound).tables.items()} in ({}, {"v": 0})
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
    again.restore(snapshot_of(backend).tables)
    again.set_current_key((), (0, 5))
    assert restored.value() == 1
