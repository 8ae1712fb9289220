"""Every keyed state backend is a dict by key and namespace, through snapshots, restores and rescales at any moment."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pyarrow as pa
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from penstock.engine.clock import ManualClock
from penstock.engine.state.backend import Key, Namespace, key_tuple
from penstock.engine.state.capture import CaptureRequest, CaptureScope, TableCapture
from penstock.engine.state.keys.groups import key_groups, subtask_of
from penstock.engine.state.snapshot import share
from penstock.savepoints.history import merge_rows
from tests.draws import drawn
from tests.engine.state.backends import (
    GROUPS,
    KEYS,
    NUMBERS,
    OF_TYPES,
    SPACES,
    TTL_MS,
    Subtask,
    in_berlin,
    put,
    spoil,
    told_apart,
    written,
)
from tests.engine.state.saved import snapshot_of

ASKED = ("value", "text", "any", "list", "map", "sum", "brief", "brief_list", "brief_map", "of_at")
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

    @rule(keys=st.sets(st.integers(0, 4), min_size=1), name=st.sampled_from(ASKED))
    def ask_for_keys(self, keys: set[int], name: str) -> None:
        """What is told of some keys is what a savepoint would hold of them; and being asked changes nothing."""
        chosen = [self.keys[index] for index in {key % len(self.keys) for key in keys}]
        for subtask in self.subtasks:
            found = subtask.backend.read_keys(name, self.batch(chosen))
            assert found is not None
            held = subtask.backend.capture(CaptureRequest(0, CaptureScope.COMPLETE)).tables[name]
            assert self.rows_of(found, chosen) == self.rows_of(held, chosen)

    def rows_of(self, table: TableCapture, keys: list[Key]) -> list[str]:
        """The rows of these keys that belong to no window."""
        wanted = {told_apart(key_tuple(key, self.schema.names)) for key in keys}
        rows = merge_rows([table.rows()], table.identity, table.expiry).to_pylist()
        apart = [(told_apart(tuple(row[name] for name in self.schema.names)), row) for row in rows]
        return sorted(written(row) for key, row in apart if key in wanted and row["__start"] is None)

    @rule(subtasks=st.integers(1, 3))
    def rescale(self, subtasks: int) -> None:
        snapshots = [snapshot_of(subtask) for subtask in self.subtasks]
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


def test_a_backend_is_a_dict_of_keys(kind: str) -> None:
    machine = type("MachineOfKind", (Machine,), {"kind": kind})
    examples = drawn(3 if kind == "rocksdb" else 12)  # each subtask of it opens a database
    relaxed = settings(max_examples=examples, stateful_step_count=50, suppress_health_check=list(HealthCheck))
    run_state_machine_as_test(machine, settings=relaxed)
