"""Aggregates by key: running ones, and those of bounded input; merged batch by batch, captured, and restored.

They take rows, or partial aggregates. A restore brings back what a capture held; state of other keys, aggregates or
types is refused. `KeyedStream.aggregate` makes running ones, `DataStream.group_by`, the batch view of a stream, the
others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from penstock.engine.aggregates.grouped import GroupedAggregation
from penstock.engine.aggregates.partials import accumulators_of, partial_layout, rows_of
from penstock.engine.cells.key_slots import slots_of_keys
from penstock.engine.cells.slot_accumulators import LATEST, STATE, HeldAccumulators, Rows
from penstock.engine.columns import beside, one_array
from penstock.engine.elements import Batch, table_to_record_batch
from penstock.engine.operators.at_end import EmitsAtEnd
from penstock.engine.operators.base import Collector, Operator, OperatorContext
from penstock.engine.operators.relational import KeyTotals
from penstock.engine.operators.saved_aggregates import check_columns, check_types, refuse_strangers
from penstock.engine.operators.spec import OperatorSpec, OperatorTraits, Updates
from penstock.engine.state.capture import DELETED, CaptureRequest, CaptureScope, OperatorCapture, TableCapture
from penstock.engine.state.changes import ChangedSlots
from penstock.engine.state.keys.index import Slots
from penstock.engine.state.request import StateRequest
from penstock.engine.state.snapshot import HeldState, OperatorSnapshot, Redistribution, with_groups
from penstock.engine.texts import aggregates_text

_Taken: TypeAlias = Callable[[], pa.Table]
"""Makes a table of what a barrier took, later and in any thread."""


class KeyedAccumulators:
    """The accumulators of all keys of one subtask.

    Args:
        aggregation: whose accumulators.
        context: of the operator that they belong to.
        timed: whether each key keeps its largest event timestamp too; all rows must have one then.
    """

    def __init__(self, aggregation: GroupedAggregation, context: OperatorContext, timed: bool = False) -> None:
        self._aggregation = aggregation
        self._context = context
        self._timed = timed
        self._keys = list(aggregation.keys)
        self._clear()
        context.metrics.count_keys(STATE, self, lambda held: len(held._held.index))

    def _clear(self) -> None:
        self._held = HeldAccumulators(self._aggregation, self._timed)
        self._saved: pa.Schema | None = None
        self._changed = ChangedSlots()
        self._every: tuple[int, _Taken, object] | None = None
        """How many keys there are, the table of them, and what stands for it: that may be remembered without it."""

    def merge(self, batch: Batch) -> Rows:
        """Merge rows, or partial aggregates, which count as the rows that they stand for; the slots of their keys."""
        table = accumulators_of(self._aggregation, batch)
        self._context.metrics.rows_in += rows_of(batch) - batch.num_rows
        if self._timed:
            table = table.append_column(LATEST, batch.timestamps)
        if self._saved is not None:
            self._saved = check_types(self._saved, table.schema, self._context.where)
        rows = self._held.merge(table)
        self._changed.mark(rows.touched, self._held.index.end)
        return rows

    def results(self, slots: Slots) -> pa.Table:
        """Keys and aggregates of `slots`, one row each."""
        keys, held = self._held.index.keys(slots), self._held.parts[0].held(slots)
        both = pa.Table.from_arrays([*keys, *held.columns], names=[*self._keys, *held.column_names])
        return self._aggregation.lower(both)

    def take_all(self, at_once: int) -> Iterator[tuple[pa.Table, pa.Int64Array | None]]:
        """The results of all keys and their largest timestamps, so many keys at once; they are forgotten then."""
        every = self._held.index.slots()
        for begin in range(0, len(every), at_once):
            slots = every[begin : begin + at_once]
            times = one_array(self._held.parts[1].held(slots).column(LATEST)) if self._timed else None
            yield self.results(slots), times
        self._clear()

    def capture(self, request: CaptureRequest) -> OperatorCapture:
        """The state at a barrier, by reference; see `Operator.capture`."""
        entries, parts = len(self._held.index), self._held.parts
        if not entries:
            return OperatorCapture()
        changed = self._changed.take(request.scope, entries)
        if changed is None:
            # No slot is ever free: what lies in a row is copied as a block.
            keys, taken = self._every_key(entries), [part.captured_first(entries) for part in parts]
        else:
            self._every = None
            keys = partial(self._grouped, self._held.index.take(changed))
            taken = [part.captured(changed) for part in parts]
        return OperatorCapture({STATE: self._captured(keys, taken, None if changed is None else len(changed))})

    def _every_key(self, entries: int) -> _Taken:
        """As `_grouped` of all keys, which are so many: made once, until another key comes."""
        if self._every is None or self._every[0] != entries:
            self._every = entries, cache(partial(self._grouped, self._held.index.take_first(entries))), object()
        return self._every[1]

    def _grouped(self, keys: Callable[[], list[pa.Array]]) -> pa.Table:
        """Keys that were taken, with their groups."""
        columns = pa.table(dict(zip(self._keys, keys(), strict=True)))
        return with_groups(columns, self._keys, self._context.config.max_parallelism)

    def read_state(self, request: StateRequest) -> Mapping[str, TableCapture]:
        """As `Operator.read_state`."""
        if request.keys is None or len(self._held.index) == 0:
            return self.capture(CaptureRequest(0, CaptureScope.COMPLETE)).tables
        slots = slots_of_keys(self._held.index, [request.keys.column(key) for key in self._keys])
        slots = slots[slots >= 0]
        names, keys = self._keys, self._held.index.take(slots)
        parts = [part.captured(slots) for part in self._held.parts]

        def rows() -> pa.Table:
            taken = [part() for part in parts]
            columns = {name: part.column(name) for part in taken for name in part.column_names}
            return pa.table({**dict(zip(names, keys(), strict=True)), **columns})

        return {STATE: TableCapture(Redistribution.KEYED, rows, tuple(names), exact=True)}

    def _captured(self, keys: _Taken, parts: Sequence[_Taken], changes: int | None = None) -> TableCapture:
        """Keys and accumulators that were taken; `changes`: they are so many changes, and not those of every key."""

        def rows() -> pa.Table:
            data = beside(keys(), *(part() for part in parts))
            return data if changes is None else data.append_column(DELETED, pa.array(np.zeros(changes, np.bool_)))

        same = None if self._every is None else self._every[2]
        return TableCapture(Redistribution.KEYED, rows, tuple(self._keys), changes is not None, keys=same)

    def restore(self, snapshot: OperatorSnapshot) -> None:
        """Hold what the snapshot holds.

        Raises:
            StateError: it was made with other keys or aggregates, or by another kind of operator.
        """
        if snapshot.held is not None:
            self._held = snapshot.held
        else:
            where = self._context.where
            refuse_strangers(snapshot.tables, [STATE], "an aggregate", where)
            if STATE not in snapshot.tables:
                return
            data = snapshot.tables[STATE].data
            check_columns(data.column_names[1:], self._aggregation, [LATEST] if self._timed else [], where)
            self._held.take_in(data)
        self._saved = self._held.saved
        self._changed.begin()


@dataclass(frozen=True, slots=True)
class RunningAggregateSpec(OperatorSpec):
    """Creates the operator that keeps `aggregation` up to date."""

    aggregation: GroupedAggregation

    def create(self) -> RunningAggregate:
        return RunningAggregate(self.aggregation)

    def describe(self) -> str:
        return f"aggregate({aggregates_text(self.aggregation.aggregates)})"

    def hold(self, snapshot: OperatorSnapshot) -> HeldState | None:
        return HeldAccumulators.of(self.aggregation, False, snapshot)

    @property
    def traits(self) -> OperatorTraits:
        keys = tuple(self.aggregation.keys)
        return OperatorTraits(
            keys=(keys,),
            updates=Updates(keys, True, KeyTotals(self.aggregation)),
            partial_layout=partial_layout(self.aggregation),
        )


class RunningAggregate(Operator):
    """Keeps accumulators by key for as long as the job runs; each batch emits one update for every key that it touched.

    The update carries the aggregate over all rows of the key so far, and the largest event timestamp among the rows of
    the batch. The last update of a key is its final value, however the input was cut into batches.
    """

    def __init__(self, aggregation: GroupedAggregation) -> None:
        self._aggregation = aggregation

    def open(self, context: OperatorContext) -> None:
        self._state = KeyedAccumulators(self._aggregation, context)

    def process_batch(self, batch: Batch, input_index: int, out: Collector) -> None:
        rows = self._state.merge(batch)
        updates = table_to_record_batch(self._state.results(rows.touched))
        timestamps = None if batch.timestamps is None else pa.array(rows.largest(batch.timestamps.to_numpy()))
        out.collect(Batch(updates, timestamps))

    def capture(self, request: CaptureRequest) -> OperatorCapture:
        return self._state.capture(request)

    def read_state(self, request: StateRequest) -> Mapping[str, TableCapture]:
        return self._state.read_state(request)

    def restore(self, snapshot: OperatorSnapshot) -> None:
        self._state.restore(snapshot)


@dataclass(frozen=True, slots=True)
class FinalAggregateSpec(OperatorSpec):
    """Creates the operator that emits the results of `aggregation` at the end of its input.

    Args:
        aggregation: keys and aggregates.
        timed: whether rows have event timestamps; results then carry the largest of their key.
    """

    aggregation: GroupedAggregation
    timed: bool

    def create(self) -> Operator:
        return FinalAggregate(self.aggregation, self.timed)

    def describe(self) -> str:
        return f"group_by({', '.join(self.aggregation.keys)}, {aggregates_text(self.aggregation.aggregates)})"

    def hold(self, snapshot: OperatorSnapshot) -> HeldState | None:
        return HeldAccumulators.of(self.aggregation, self.timed, snapshot)

    @property
    def traits(self) -> OperatorTraits:
        return OperatorTraits(
            keys=(tuple(self.aggregation.keys),),
            emits_at_end=True,
            partial_layout=partial_layout(self.aggregation),
            relational=KeyTotals(self.aggregation),
        )


class FinalAggregate(EmitsAtEnd):
    """Keeps accumulators by key until the last watermark, or the end of the input, has come: one row a key then.

    Event time ends here and begins anew: the operator holds watermarks back until the last one, since rows of any time
    may be among its results.
    """

    def __init__(self, aggregation: GroupedAggregation, timed: bool) -> None:
        self._aggregation = aggregation
        self._timed = timed

    def open(self, context: OperatorContext) -> None:
        self._context = context
        self._state = KeyedAccumulators(self._aggregation, context, self._timed)

    def process_batch(self, batch: Batch, input_index: int, out: Collector) -> None:
        self._state.merge(batch)

    def emit(self, out: Collector) -> None:
        for results, times in self._state.take_all(self._context.config.max_batch_rows):
            out.collect(Batch(table_to_record_batch(results), times))

    def capture(self, request: CaptureRequest) -> OperatorCapture:
        return self._state.capture(request)

    def read_state(self, request: StateRequest) -> Mapping[str, TableCapture]:
        return self._state.read_state(request)

    def restore(self, snapshot: OperatorSnapshot) -> None:
        self._state.restore(snapshot)
