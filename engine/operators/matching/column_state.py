"""The arrays of `ColumnFinder` as the state tables of `match_state`, and back.

Tables are made from copies, in any thread. They hold for each key what `MatchState` would keep: its partial matches in
the order of their queue, its steps, each behind the one before it, and its events.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.engine.columns import one_array
from penstock.engine.errors import StateError
from penstock.engine.operators.joins.row_log import RowLog
from penstock.engine.operators.matching.match_spec import MatchPlan
from penstock.engine.operators.matching.match_state import EVENTS, MATCHES, STEPS, state_names, unknown_state
from penstock.engine.patterns.machine import Machine
from penstock.engine.patterns.machine_rules import BEHIND_ALL, Int64s, Memory
from penstock.engine.state.capture import TableCapture
from penstock.engine.state.keys.index import KeyIndex
from penstock.engine.state.snapshot import Redistribution, StateTable, keyed_table
from penstock.engine.state.state_tables import END, START


@dataclass(slots=True)
class SavedColumns:
    """A copy of all partial matches, and the tables that are made of it.

    Args:
        machine: runs the pattern.
        memory: the partial matches.
        rows: of the events.
        held: the slots of keys that have any.
        keys: makes their key columns.
        timed: makes the key columns of time-outs.
        times: of them.
        timers: the table of time-outs, by the kind of time.
        names: of the key columns.
        row_type: the type of a row.
        max_parallelism: number of key groups.
    """

    machine: Machine
    memory: Memory
    rows: RowLog
    held: Int64s
    keys: Callable[[], list[pa.Array]]
    timed: Callable[[], list[pa.Array]]
    times: Int64s
    timers: str
    names: Sequence[str]
    row_type: pa.DataType
    max_parallelism: int

    def captures(self) -> dict[str, TableCapture]:
        """The tables, to be made later; those without rows are left out."""
        made: dict[str, Callable[[], pa.Table]] = {}
        if len(self.held):
            made = {MATCHES: self._match_table, STEPS: self._step_table, EVENTS: self._event_table}
        if len(self.times):
            made[self.timers] = self._timer_table
        return {name: TableCapture(Redistribution.KEYED, partial(_call, make)) for name, make in made.items()}

    def _match_table(self) -> pa.Table:
        memory, owned = self.memory, self._owned()
        slots = memory.slots[self.held]
        counts = slots[:, 1] + slots[:, 2]
        places = np.repeat(slots[:, 0] - (np.cumsum(counts) - counts), counts) + np.arange(counts.sum())
        entries = memory.entries[places]
        ranks = places - np.repeat(slots[:, 0], counts)
        has_step = entries[:, 1] >= 0
        steps = entries[:, 1].clip(0)
        first = memory.steps[owned.root[steps], 2] if len(owned.root) else steps
        names = state_names(self.machine.pattern)
        fields = {
            "state": pa.array(names).take(pa.array(np.where(entries[:, 0] < 0, len(names) - 1, entries[:, 0]))),
            "step": _numbers(owned.step_rank[steps] if len(owned.root) else steps, has_step),
            "first_event": _numbers(owned.event_rank[first] if len(owned.root) else steps, has_step),
            "start_time": pa.array(np.where(has_step, entries[:, 2], -1)),
            "previous_time": pa.array(entries[:, 4]),
            "is_complete": pa.array(ranks >= np.repeat(slots[:, 1], counts)),
        }
        return self._lists(counts, fields)

    def _step_table(self) -> pa.Table:
        owned = self._owned()
        steps = self.memory.steps[owned.step_order]
        has_before = steps[:, 0] >= 0
        fields = {
            "previous": _numbers(owned.step_rank[steps[:, 0].clip(0)], has_before),
            "variable": pa.array(self.machine.pattern.variables).take(pa.array(steps[:, 1])),
            "event": pa.array(owned.event_rank[steps[:, 2]]),
        }
        return self._lists(owned.step_counts[self.held], fields)

    def _event_table(self) -> pa.Table:
        owned = self._owned()
        events = self.memory.events[owned.event_order]
        used = np.sort(events[:, 2])
        if len(used):
            taken = self.rows.take(used).take(pa.array(np.searchsorted(used, events[:, 2])))
            rows = pa.StructArray.from_arrays(taken.columns, fields=list(taken.schema)).cast(self.row_type)
        else:
            rows = pa.array([], self.row_type)
        fields = {"time": pa.array(events[:, 0]), "number": pa.array(events[:, 1]), "row": rows}
        return self._lists(owned.event_counts[self.held], fields)

    def _timer_table(self) -> pa.Table:
        columns: dict[str, Any] = dict(zip(self.names, self.timed(), strict=True))
        nulls = pa.nulls(len(self.times), pa.int64())
        columns |= {START: nulls, END: nulls, "__time": pa.array(self.times)}
        columns["__number"] = pa.array(np.arange(1, len(self.times) + 1))
        distinct = (
            pa.table(columns).group_by([*self.names, "__time"], use_threads=False).aggregate([("__number", "min")])
        )
        kept = pa.table(columns).take(pa.array(np.sort(distinct.column("__number_min").to_numpy()) - 1))
        return keyed_table(kept, self.names, self.max_parallelism).data

    def _lists(self, counts: Int64s, fields: Mapping[str, pa.Array]) -> pa.Table:
        offsets = pa.array(np.concatenate([[0], np.cumsum(counts)]).astype(np.int32))
        values = pa.ListArray.from_arrays(offsets, pa.StructArray.from_arrays(list(fields.values()), list(fields)))
        nulls = pa.nulls(len(counts), pa.int64())
        columns = dict(zip(self.names, self.keys(), strict=True))
        name = "__value" if "value" in self.names else "value"
        table = pa.table({**columns, START: nulls, END: nulls, name: values})
        return keyed_table(table, self.names, self.max_parallelism).data

    def _owned(self) -> _Owned:
        owner, root = self.machine.owners(self.memory)
        steps, slots = self.memory.steps, len(self.memory.slots)
        event_owner = np.full(len(self.memory.events), -1, np.int64)
        mine = owner >= 0
        event_owner[steps[mine, 2]] = owner[mine]
        return _Owned(root, *_ranked(owner, slots), *_ranked(event_owner, slots))


class _Owned(NamedTuple):
    """Which steps and events are whose: those that are somebody's by slot, the rank of each there, and how many."""

    root: Int64s
    step_order: Int64s
    step_rank: Int64s
    step_counts: Int64s
    event_order: Int64s
    event_rank: Int64s
    event_counts: Int64s


def _ranked(owner: Int64s, slots: int) -> tuple[Int64s, Int64s, Int64s]:
    counts = np.bincount(owner[owner >= 0], minlength=slots)
    order = np.argsort(owner, kind="stable")[int((owner < 0).sum()) :]
    rank = np.zeros(len(owner), np.int64)
    rank[order] = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
    return order, rank, counts


def _numbers(values: Int64s, valid: Any) -> pa.Array:
    return pa.array(values, pa.int64(), mask=~valid)


def _call(make: Callable[[], pa.Table]) -> pa.Table:
    return make()


class Restored(NamedTuple):
    """What tables hold: the partial matches, the rows of their events, and a number behind those of the events."""

    memory: Memory
    rows: list[pa.RecordBatch]
    sequence: int


class _Lists(NamedTuple):
    """Lists by slot: the slot of each, where it begins, how long it is, and the values of all."""

    slots: Int64s
    begins: Int64s
    counts: Int64s
    values: pa.StructArray


def from_tables(tables: Mapping[str, StateTable], plan: MatchPlan, index: KeyIndex, where: str) -> Restored:
    """The partial matches that tables hold; their keys get slots.

    Raises:
        StateError: they are those of another pattern.
    """
    matches, steps, events = (_lists_of(tables.get(name), plan.keys, index) for name in (MATCHES, STEPS, EVENTS))
    assert matches is not None, "the caller has looked"
    event_begin, step_begin = (_begins(lists, index.end) for lists in (events, steps))
    memory_events, rows = _events(events, plan)
    slots = np.zeros((index.end, 3), np.int64)
    complete = matches.values.field("is_complete").to_numpy(zero_copy_only=False)
    totals = np.concatenate([[0], np.cumsum(complete)])
    held = totals[matches.begins + matches.counts] - totals[matches.begins]
    slots[matches.slots] = np.stack([matches.begins, matches.counts - held, held], axis=1)
    entries = _entries(matches, plan, step_begin, event_begin, memory_events, where)
    memory_steps = _steps(steps, plan, step_begin, event_begin)
    used = np.array([len(entries), len(memory_steps), len(memory_events)], np.int64)
    sequence = int(memory_events[:, 1].max(initial=-1)) + 1
    return Restored(Memory(slots, entries, memory_steps, memory_events, used), rows, sequence)


def _lists_of(table: StateTable | None, keys: Sequence[str], index: KeyIndex) -> _Lists | None:
    if table is None or not table.data.num_rows:
        return None
    data = table.data.combine_chunks()
    slots = index.lookup([one_array(data.column(name)) for name in keys])
    lists = one_array(data.column("__value" if "value" in keys else "value"))
    offsets = lists.offsets.to_numpy().astype(np.int64)
    return _Lists(slots, offsets[:-1] - offsets[0], np.diff(offsets), lists.flatten())


def _begins(lists: _Lists | None, slots: int) -> Int64s:
    begins = np.zeros(slots, np.int64)
    if lists is not None:
        begins[lists.slots] = lists.begins
    return begins


def _owner(lists: _Lists) -> Int64s:
    return np.repeat(lists.slots, lists.counts)


def _events(lists: _Lists | None, plan: MatchPlan) -> tuple[Int64s, list[pa.RecordBatch]]:
    if lists is None:
        return np.zeros((0, 3), np.int64), []
    values = lists.values
    numbers = [values.field("time").to_numpy(), values.field("number").to_numpy(), np.arange(len(values))]
    rows = values.field("row").cast(plan.row_type)
    batch = pa.RecordBatch.from_arrays(rows.flatten(), schema=plan.rows)
    return np.stack(numbers, axis=1), [batch]


def _steps(lists: _Lists | None, plan: MatchPlan, step_begin: Int64s, event_begin: Int64s) -> Int64s:
    if lists is None:
        return np.zeros((0, 3), np.int64)
    owner = _owner(lists)
    previous = lists.values.field("previous").fill_null(-1).to_numpy()
    names = {name: number for number, name in enumerate(plan.pattern.variables)}
    variables = np.array([names.get(name, -1) for name in lists.values.field("variable").to_pylist()], np.int64)
    before = np.where(previous >= 0, previous + step_begin[owner], -1)
    return np.stack([before, variables, lists.values.field("event").to_numpy() + event_begin[owner]], axis=1)


def _entries(
    lists: _Lists, plan: MatchPlan, step_begin: Int64s, event_begin: Int64s, events: Int64s, where: str
) -> Int64s:
    owner, values = _owner(lists), lists.values
    all_names = state_names(plan.pattern)
    names = {name: number for number, name in enumerate(all_names)}
    encoded = values.field("state").dictionary_encode()
    known = []
    for name in encoded.dictionary.to_pylist():
        if name not in names:
            raise StateError(unknown_state(where, name))
        known.append(-1 if names[name] == len(all_names) - 1 else names[name])
    first = values.field("first_event").fill_null(-1).to_numpy()
    steps = values.field("step").fill_null(-1).to_numpy()
    has_first = first >= 0
    entries = np.full((len(values), 5), -1, np.int64)
    entries[:, 0] = np.array(known, np.int64)[encoded.indices.to_numpy()]
    entries[:, 1] = np.where(steps >= 0, steps + step_begin[owner], -1)
    entries[:, 2] = entries[:, 3] = BEHIND_ALL
    entries[has_first, 2:4] = events[first[has_first] + event_begin[owner[has_first]], 0:2]
    entries[:, 4] = values.field("previous_time").to_numpy()
    return entries
