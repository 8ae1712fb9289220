"""Accumulators by key, as running and final aggregates keep them: merged batch by batch, captured, and restored.

The operators give rows, or partial aggregates. It guarantees that a restore brings back what a capture held, and that
state of other keys, aggregates or types is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.engine.aggregates.accumulators import INTERNAL, ExtremeAccumulator, FoldAccumulator, GroupAccumulator
from penstock.engine.aggregates.grouped import GroupedAggregation
from penstock.engine.aggregates.partials import accumulators_of, rows_of
from penstock.engine.cells.key_slots import slots_of_rows
from penstock.engine.cells.slot_accumulators import (
    DenseAccumulators,
    Rows,
    SlotAccumulators,
    accumulators_by_slot,
)
from penstock.engine.columns import beside, one_array
from penstock.engine.elements import Batch, join_schemas
from penstock.engine.errors import RecordError, StateError
from penstock.engine.operators.base import OperatorContext
from penstock.engine.state.capture import DELETED, CaptureRequest, CaptureScope, OperatorCapture, TableCapture
from penstock.engine.state.changes import ChangedSlots
from penstock.engine.state.keys.index import KeyIndex, Slots
from penstock.engine.state.request import StateRequest
from penstock.engine.state.snapshot import KEY_GROUP, OperatorSnapshot, Redistribution, parts_of, with_groups

STATE: Final = "accumulators"
LATEST: Final = "__latest time"
"""The largest event timestamp of a key; no accumulator of a column has such a name."""
_REMEDY: Final = "aggregate as before, or start without this operator's state"


class _Latest(ExtremeAccumulator):
    """The largest event timestamp."""

    @property
    def name(self) -> str:
        return LATEST


@dataclass(frozen=True, slots=True)
class _LatestTime:
    """What is kept beside the aggregates."""

    folds: tuple[FoldAccumulator, ...] = (_Latest("", "max"),)
    grouped: tuple[GroupAccumulator, ...] = ()


class HeldAccumulators:
    """The accumulators of some keys, without an operator; a `HeldState`.

    A process that is to become a subtask makes one of the newest checkpoint while others run that subtask's keys, and
    changes it into that of the checkpoint it is restored from. `KeyedAccumulators` works on one.

    Args:
        aggregation: whose accumulators.
        timed: whether each key keeps its largest event timestamp too.

    Attributes:
        index: numbers the keys.
        parts: what they hold, by slot.
        saved: the columns of the state that was taken in; None: there was none.
    """

    def __init__(self, aggregation: GroupedAggregation, timed: bool) -> None:
        self.index = KeyIndex()
        self.parts: list[SlotAccumulators] = []
        self.saved: pa.Schema | None = None
        self._aggregation = aggregation
        self._timed = timed
        self._keys = list(aggregation.keys)

    @classmethod
    def of(cls, aggregation: GroupedAggregation, timed: bool, snapshot: OperatorSnapshot) -> HeldAccumulators | None:
        """What a snapshot holds; None: nothing, or other things."""
        if snapshot.tables.keys() != {STATE}:
            return None
        held = cls(aggregation, timed)
        held.take_in(snapshot.tables[STATE].data)
        return held

    def merge(self, table: pa.Table) -> Rows:
        """Merge rows of keys and accumulators; the slots of the keys."""
        rows = self._rows(table)
        for part in self._parts_for(table):
            part.merge(rows, table)
        return rows

    def take_in(self, saved: pa.Table) -> None:
        """Take in state that was saved, whose keys are not held."""
        data = saved.drop_columns(KEY_GROUP)
        self.saved = data.schema
        for part in parts_of(data):
            self.merge(part)

    def change(self, changes: Mapping[str, pa.Table]) -> bool:
        if changes.keys() - {STATE} or any(pc.any(table.column(DELETED)).as_py() for table in changes.values()):
            # Keys never go one by one.
            return False
        for table in changes.values():
            data = table.drop_columns([KEY_GROUP, DELETED])
            if data.schema != self.saved or any(map(pa.types.is_null, data.schema.types)):
                return False
            for rows in parts_of(data):
                self._replace(rows)
        return True

    def _replace(self, table: pa.Table) -> None:
        rows = self._rows(table)
        for part in self._parts_for(table):
            part.replace(rows, table)

    def keys_of(self, slots: Slots) -> pa.Table:
        """The key columns of slots."""
        return pa.table(dict(zip(self._keys, self.index.keys(slots), strict=True)))

    def _rows(self, table: pa.Table) -> Rows:
        return Rows(slots_of_rows(self.index, [one_array(table.column(key)) for key in self._keys]), self.index.end)

    def _parts_for(self, table: pa.Table) -> list[SlotAccumulators]:
        if not self.parts:
            self.parts = [accumulators_by_slot(self._aggregation, table.schema, self.keys_of)]
            if self._timed:
                self.parts.append(DenseAccumulators(_LatestTime(), self.keys_of))
        return self.parts


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

    def _clear(self) -> None:
        self._held = HeldAccumulators(self._aggregation, self._timed)
        self._saved: pa.Schema | None = None
        self._changed = ChangedSlots()

    def merge(self, batch: Batch) -> Rows:
        """Merge rows, or partial aggregates, which count as the rows that they stand for; the slots of their keys."""
        table = accumulators_of(self._aggregation, batch)
        self._context.metrics.rows_in += rows_of(batch) - batch.num_rows
        if self._timed:
            table = table.append_column(LATEST, batch.timestamps)
        if self._saved is not None:
            self._check_types(self._saved, table.schema)
            if not any(map(pa.types.is_null, table.schema.types)):
                self._saved = None
        rows = self._held.merge(table)
        self._changed.mark(rows.touched, self._held.index.end)
        return rows

    def results(self, slots: Slots) -> pa.Table:
        """Keys and aggregates of `slots`, one row each."""
        return self._aggregation.lower(beside(self._held.keys_of(slots), self._held.parts[0].held(slots)))

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
        if len(self._held.index) == 0:
            return OperatorCapture()
        changed = self._changed.take(request.scope, len(self._held.index))
        if changed is None:
            # No slot is ever free: what lies in a row is copied as a block.
            keys = self._held.index.take_first(len(self._held.index))
            parts = [part.captured_first(len(self._held.index)) for part in self._held.parts]
        else:
            keys, parts = self._held.index.take(changed), [part.captured(changed) for part in self._held.parts]

        return OperatorCapture({STATE: self._captured(keys, parts, None if changed is None else len(changed))})

    def read_state(self, request: StateRequest) -> Mapping[str, TableCapture]:
        """As `Operator.read_state`."""
        if request.keys is None or len(self._held.index) == 0:
            return self.capture(CaptureRequest(0, CaptureScope.COMPLETE)).tables
        slots = self._held.index.find([request.keys.column(key) for key in self._keys])
        slots = slots[slots >= 0]
        parts = [part.captured(slots) for part in self._held.parts]
        return {STATE: self._captured(self._held.index.take(slots), parts)}

    def _captured(
        self,
        keys: Callable[[], list[pa.Array]],
        parts: Sequence[Callable[[], pa.Table]],
        changes: int | None = None,
    ) -> TableCapture:
        """Keys and accumulators that were taken; `changes`: they are so many changes."""
        names, max_parallelism = self._keys, self._context.config.max_parallelism

        def rows() -> pa.Table:
            data = beside(pa.table(dict(zip(names, keys(), strict=True))), *(part() for part in parts))
            if changes is not None:
                data = data.append_column(DELETED, pa.array(np.zeros(changes, np.bool_)))
            return with_groups(data, names, max_parallelism)

        return TableCapture(Redistribution.KEYED, rows, tuple(names), changes is not None)

    def restore(self, snapshot: OperatorSnapshot) -> None:
        """Hold what the snapshot holds.

        Raises:
            StateError: it was made with other keys or aggregates, or by another kind of operator.
        """
        if snapshot.held is not None:
            self._held = snapshot.held
        elif strangers := sorted(snapshot.tables.keys() - {STATE}):
            raise StateError(
                f"{self._context.where}: the saved state holds {', '.join(strangers)}, which an aggregate does not "
                "keep; give the operator another uid, and start with allow_non_restored_state to drop that state"
            )
        elif STATE not in snapshot.tables:
            return
        else:
            data = snapshot.tables[STATE].data
            self._check_names(data.drop_columns(KEY_GROUP).column_names)
            self._held.take_in(data)
        self._saved = self._held.saved
        self._changed.begin()

    def _check_names(self, saved: list[str]) -> None:
        """Make sure that saved state has these keys and accumulators."""
        keys = [name for name in saved if not name.startswith(INTERNAL)]
        if keys != self._keys:
            raise StateError(
                f"{self._context.where}: the state was saved by the keys ({', '.join(keys)}), and the aggregate has "
                f"the keys ({', '.join(self._keys)}) now; {_REMEDY}"
            )
        accumulators = [name for name in saved if name.startswith(INTERNAL)]
        grouped = [name for accumulator in self._aggregation.grouped for name in accumulator.names]
        needed = [*(fold.name for fold in self._aggregation.folds), *grouped, *([LATEST] if self._timed else [])]
        if set(accumulators) != set(needed):
            raise StateError(
                f"{self._context.where}: the state was saved with the accumulators ({', '.join(accumulators)}), and "
                f"the aggregates need ({', '.join(needed)}) now; {_REMEDY}"
            )

    def _check_types(self, saved: pa.Schema, came: pa.Schema) -> None:
        """Make sure that the first rows behind a restore have the types of the saved state."""
        try:
            join_schemas(pa.schema([saved.field(name) for name in came.names]), came, "saved state")
        except RecordError as error:
            kinds = [", ".join(f"{name}: {schema.field(name).type}" for name in came.names) for schema in (saved, came)]
            raise StateError(
                f"{self._context.where}: the state was saved as ({kinds[0]}), and the rows now make ({kinds[1]}); "
                f"{_REMEDY}"
            ) from error
