"""Running aggregates per key: each batch emits one update for every key that it touched.

The update carries the aggregate over all rows of the key so far, and the largest event timestamp among the rows of the
batch. The last update of a key is its final value, however the input was cut into batches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from penstock.engine.accumulators import INTERNAL, one_array
from penstock.engine.aggregation import GroupedAggregation
from penstock.engine.elements import Batch, join_schemas, table_to_record_batch
from penstock.engine.errors import RecordError, StateError
from penstock.engine.operators.base import Collector, Operator, OperatorContext
from penstock.engine.operators.cells.counted_keys import beside
from penstock.engine.operators.cells.row_slots import slots_of_rows
from penstock.engine.operators.cells.slot_accumulators import Rows, SlotAccumulators, accumulators_by_slot
from penstock.engine.partials import accumulators_of, rows_of
from penstock.engine.state.capture import (
    DELETED,
    CaptureRequest,
    CaptureScope,
    OperatorCapture,
    TableCapture,
    captured_snapshot,
)
from penstock.engine.state.changes import ChangedSlots
from penstock.engine.state.key_index import KeyIndex, Slots
from penstock.engine.state.snapshot import KEY_GROUP, OperatorSnapshot, Redistribution, with_groups

_STATE: Final = "accumulators"
_REMEDY: Final = "aggregate as before, or start without this operator's state"


@dataclass(frozen=True, slots=True)
class RunningAggregateFactory:
    """Creates the operator that keeps `aggregation` up to date."""

    aggregation: GroupedAggregation

    def __call__(self) -> RunningAggregate:
        return RunningAggregate(self.aggregation)


class RunningAggregate(Operator):
    """Keeps accumulators by key for as long as the job runs."""

    def __init__(self, aggregation: GroupedAggregation) -> None:
        self._aggregation = aggregation
        self._keys = list(aggregation.keys)
        self._index = KeyIndex()
        self._accumulators: SlotAccumulators | None = None
        self._changed = ChangedSlots()
        self._saved: pa.Schema | None = None

    def open(self, context: OperatorContext) -> None:
        self._context = context

    def process_batch(self, batch: Batch, input_index: int, out: Collector) -> None:
        table = accumulators_of(self._aggregation, batch)
        # Partial aggregates count as the rows that they stand for.
        self._context.metrics.rows_in += rows_of(batch) - batch.num_rows
        if self._saved is not None:
            self._check_types(self._saved, table.schema)
            self._saved = None
        rows, accumulators = self._merge(table)
        updated = beside(self._keys_of(rows.touched), accumulators)
        timestamps = None if batch.timestamps is None else pa.array(rows.largest(batch.timestamps.to_numpy()))
        out.collect(Batch(table_to_record_batch(self._aggregation.lower(updated)), timestamps))

    def _merge(self, table: pa.Table) -> tuple[Rows, pa.Table]:
        """Merge rows into the state; what the slots that they touch hold then."""
        rows = Rows(slots_of_rows(self._index, [one_array(table.column(key)) for key in self._keys]), self._index.end)
        if self._accumulators is None:
            self._accumulators = accumulators_by_slot(self._aggregation, table.schema, self._keys_of)
        accumulators = self._accumulators.merge(rows, table)
        self._changed.mark(rows.touched, self._index.end)
        return rows, accumulators

    def _keys_of(self, slots: Slots) -> pa.Table:
        return pa.table(dict(zip(self._keys, self._index.keys(slots), strict=True)))

    def snapshot(self) -> OperatorSnapshot:
        return captured_snapshot(self.capture(CaptureRequest(0, CaptureScope.COMPLETE)))

    def capture(self, request: CaptureRequest) -> OperatorCapture:
        if self._accumulators is None or len(self._index) == 0:
            return OperatorCapture()
        changed = self._changed.take(request.scope, len(self._index))
        names, max_parallelism = self._keys, self._context.config.max_parallelism
        if changed is None:
            # No slot is ever free: what lies in a row is copied as a block.
            keys = self._index.take_first(len(self._index))
            accumulators = self._accumulators.captured_first(len(self._index))
        else:
            keys, accumulators = self._index.take(changed), self._accumulators.captured(changed)

        def rows() -> pa.Table:
            data = beside(pa.table(dict(zip(names, keys(), strict=True))), accumulators())
            if changed is not None:
                data = data.append_column(DELETED, pa.array(np.zeros(len(changed), np.bool_)))
            return with_groups(data, names, max_parallelism)

        table = TableCapture(Redistribution.KEYED, rows, tuple(names), changed is not None)
        return OperatorCapture({_STATE: table})

    def restore(self, snapshot: OperatorSnapshot) -> None:
        if strangers := sorted(snapshot.tables.keys() - {_STATE}):
            raise StateError(
                f"{self._context.where}: the saved state holds {', '.join(strangers)}, which a running aggregate does "
                "not keep; give the operator another uid, and start with allow_non_restored_state to drop that state"
            )
        if _STATE not in snapshot.tables:
            return
        data = snapshot.tables[_STATE].data.drop_columns(KEY_GROUP)
        self._check_names(data.column_names)
        self._saved = data.schema
        if data.num_rows:
            self._merge(data)
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
        needed = [*(fold.name for fold in self._aggregation.folds), *grouped]
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
