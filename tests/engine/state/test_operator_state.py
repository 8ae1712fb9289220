"""State without keys: lists dealt out or given to all, maps that are alike everywhere, through a rescale."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.errors import RecordError, StateError
from penstock.engine.state.capture import OperatorCapture
from penstock.engine.state.descriptors import ListStateDescriptor, MapStateDescriptor, PickleSerializer, ttl
from penstock.engine.state.operator_state import OperatorState, ReadOnlyMapState
from penstock.engine.state.snapshot import OperatorSnapshot, StateTable, share
from tests.engine.state.saved import captured_snapshot

DEALT = ListStateDescriptor("dealt", "int64")
UNION = ListStateDescriptor("union", "string")
RULES = MapStateDescriptor("rules", "list<int64>", key_type="int64")


def tables_of(state: OperatorState) -> dict[str, StateTable]:
    """All its states by name."""
    return dict(captured_snapshot(OperatorCapture(state.capture())).tables)


class Subtask:
    def __init__(self, restored: Mapping[str, StateTable] | None = None) -> None:
        self.state = OperatorState("operator 'tested', subtask 0", restored or {})
        self.dealt = self.state.list_state(DEALT)
        self.union = self.state.union_list_state(UNION)
        self.rules = self.state.broadcast_state(RULES)


@given(st.lists(st.lists(st.integers(0, 99), max_size=5), min_size=1, max_size=3), st.integers(1, 4))
def test_state_is_shared_out_as_its_kind_says(values: list[list[int]], parallelism: int) -> None:
    snapshots = []
    for own in values:
        subtask = Subtask()
        subtask.dealt.add_all(own)
        subtask.union.update(map(str, own))
        subtask.rules.put_all({7: [1, 2], 8: []})
        snapshots.append(OperatorSnapshot(tables_of(subtask.state)))
    dealt = []
    for index in range(parallelism):
        subtask = Subtask(share(snapshots, index, parallelism, 128).tables)
        dealt.append(subtask.dealt.get())
        assert subtask.union.get() == [str(value) for own in values for value in own]
        assert subtask.rules.items() == [(7, [1, 2]), (8, [])]
    assert [value for part in dealt for value in part] == [value for own in values for value in own]
    assert max(map(len, dealt)) - min(map(len, dealt)) <= 1


def test_a_snapshot_does_not_change_any_more() -> None:
    subtask = Subtask()
    subtask.dealt.add(1)
    tables = tables_of(subtask.state)
    subtask.dealt.add(2)
    assert tables["dealt"].data["value"].to_pylist() == [1]


def test_values_behind_a_serializer_come_back() -> None:
    descriptor = ListStateDescriptor("any", serializer=PickleSerializer())
    state = OperatorState("here")
    state.list_state(descriptor).add({1, 2})
    again = OperatorState("here", tables_of(state))
    assert again.list_state(descriptor).get() == [{1, 2}]


def test_restored_values_are_there_where_the_state_is_declared_and_are_loaded_once() -> None:
    subtask = Subtask()
    subtask.dealt.add(1)
    again = Subtask(tables_of(subtask.state))
    again.dealt.add(2)
    assert again.state.list_state(DEALT).get() == [1, 2]


def test_a_name_is_declared_in_one_way() -> None:
    state = OperatorState("operator 'tested', subtask 0")
    numbers = state.list_state(DEALT)
    assert state.list_state(ListStateDescriptor("dealt", int)) is numbers
    with pytest.raises(StateError, match="'dealt' is declared as split state and as union state"):
        state.union_list_state(DEALT)
    with pytest.raises(StateError, match="'dealt' is declared twice"):
        state.list_state(ListStateDescriptor("dealt", "string"))
    with pytest.raises(StateError, match="no time to live"):
        state.list_state(ListStateDescriptor("mortal", "int64", ttl=ttl("1h")))


def test_state_of_another_type_or_kind_is_not_restored() -> None:
    subtask = Subtask()
    subtask.dealt.add(1)
    tables = tables_of(subtask.state)
    for declare in (
        lambda state: state.list_state(ListStateDescriptor("dealt", "string")),
        lambda state: state.union_list_state(DEALT),
        lambda state: state.broadcast_state(MapStateDescriptor("dealt", "int64")),
    ):
        other = OperatorState("operator 'tested', subtask 0", tables)
        with pytest.raises(StateError, match=r"operator 'tested'.*'dealt' was saved as split state"):
            declare(other)


def test_what_does_not_fit_is_refused() -> None:
    subtask = Subtask()
    for use in (lambda: subtask.dealt.add("a"), lambda: subtask.dealt.add(None), lambda: subtask.rules.put("a", [1])):
        with pytest.raises(RecordError, match="operator 'tested', subtask 0: state"):
            use()


def test_a_read_only_map_shows_the_map_and_refuses_changes() -> None:
    subtask = Subtask()
    subtask.rules.put(7, [1])
    view = ReadOnlyMapState(subtask.rules, "rules", "operator 'tested', subtask 0")
    assert (view.get(7), view.get(8, 0), view.contains(7), view.is_empty()) == ([1], 0, True, False)
    assert (view.keys(), view.values(), view.items()) == ([7], [[1]], [(7, [1])])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subtask.rules, "items", None)  # to look whether there are entries copies none
        assert not view.is_empty()
    changes: list[Callable[[], Any]] = [
        lambda: view.put(1, []),
        lambda: view.put_all({}),
        lambda: view.remove(7),
        view.clear,
    ]
    for change in changes:
        with pytest.raises(
            StateError, match=r"operator 'tested'.*'rules' is broadcast state.*process_broadcast_element"
        ):
            change()
    assert subtask.rules.items() == [(7, [1])]


def test_rows_made_late_are_those_of_the_barrier() -> None:
    subtask = Subtask()
    subtask.dealt.add_all([1, 2])
    subtask.rules.put(7, [1])
    captured = subtask.state.capture()
    expected = tables_of(subtask.state)
    subtask.dealt.add(3)
    subtask.rules.put(7, [2])
    subtask.rules.put(8, [2])
    assert {name: table.rows() for name, table in captured.items()} == {n: t.data for n, t in expected.items()}


def test_what_nobody_declares_goes_on_once() -> None:
    subtask = Subtask()
    subtask.dealt.add(1)
    subtask.union.add("a")
    tables = tables_of(subtask.state)
    for index, union in ((0, ["a"]), (1, None)):
        state = OperatorState("operator 'tested', subtask 0", tables, index)
        kept = tables_of(state)
        assert kept["dealt"].data.column("value").to_pylist() == [1]
        held = kept["union"].data.column("value").to_pylist() if "union" in kept else None
        assert held == union, "every subtask has it: if all kept it, it would grow with each restore"
        assert state.list_state(DEALT).get() == [1]
        assert set(state.capture()) == set(tables) - ({"union"} if index else set())


def test_values_of_a_narrower_type_become_the_declared_one() -> None:
    state = OperatorState("here")
    state.list_state(ListStateDescriptor("n", "int32")).add(1)
    again = OperatorState("here", tables_of(state))
    assert again.list_state(ListStateDescriptor("n", "int64")).get() == [1]
