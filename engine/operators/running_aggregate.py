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
from penstock.engine.state.slots import SlotColumn
from penstock.engine.state.snapshot import KEY_GROUP, OperatorSnapshot, Redistribution, with_groups

_TIME: Final = "__time"
_SLOT: Final = "__slot"
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
        self._columns: dict[str, SlotColumn] = {}
        self._changed = ChangedSlots()
        self._saved: pa.Schema | None = None

    def open(self, context: OperatorContext) -> None:
        self._context = context

    def process_batch(self, batch: Batch, input_index: int, out: Collector) -> None:
        partial = accumulators_of(self._aggregation, batch)
        # Partial aggregates count as the rows that they stand for.
        self._context.metrics.rows_in += rows_of(batch) - batch.num_rows
        if batch.timestamps is None:
            partial = self._aggregation.combine(partial)
            timestamps = None
        else:
            partial = self._aggregation.combine(partial.append_column(_TIME, batch.timestamps), also=((_TIME, "max"),))
            timestamps = partial.column(_TIME).combine_chunks().cast(pa.int64())
            partial = partial.drop_columns(_TIME)
        updated = self._merge(partial)
        out.collect(Batch(table_to_record_batch(self._aggregation.lower(updated)), timestamps))

    def _merge(self, partial: pa.Table) -> pa.Table:
        """Merge one partial row a key into the state; the merged rows, in the order of `partial`."""
        if self._saved is not None:
            self._check_types(self._saved, partial.schema)
            self._saved = None
        slots = self._index.lookup([one_array(partial.column(key)) for key in self._keys])
        names = [name for name in partial.column_names if name not in self._keys]
        # By slot, since whole numbers are grouped several times as fast as texts or several columns.
        came = partial.select(names).append_column(_SLOT, pa.array(slots))
        known = pa.table({name: self._column(name).get(slots) for name in names}).append_column(_SLOT, pa.array(slots))
        both = pa.concat_tables([known, came], promote_options="default")
        merged = self._aggregation.combine(both, by=(_SLOT,))
        self._hold(slots, merged.select(names))
        for key in reversed(self._keys):
            merged = merged.add_column(0, key, partial.column(key))
        return merged.drop_columns(_SLOT)

    def _hold(self, slots: Slots, accumulators: pa.Table) -> None:
        for name in accumulators.column_names:
            self._column(name).set(slots, one_array(accumulators.column(name)))
        self._changed.mark(slots, self._index.end)

    def _column(self, name: str) -> SlotColumn:
        return self._columns.setdefault(name, SlotColumn())

    def snapshot(self) -> OperatorSnapshot:
        return captured_snapshot(self.capture(CaptureRequest(0, CaptureScope.COMPLETE)))

    def capture(self, request: CaptureRequest) -> OperatorCapture:
        if len(self._index) == 0:
            return OperatorCapture()
        changed = self._changed.take(request.scope, len(self._index))
        names, max_parallelism, held = self._keys, self._context.config.max_parallelism, self._columns.items()
        if changed is None and len(self._index) == self._index.end:
            # No slot is free: what lies in a row is copied as a block.
            keys = self._index.take_first(len(self._index))
            columns = {name: column.take_first(len(self._index)) for name, column in held}
        else:
            slots = self._index.slots() if changed is None else changed
            keys, columns = self._index.take(slots), {name: column.take(slots) for name, column in held}

        def rows() -> pa.Table:
            data = dict(zip(names, keys(), strict=True))
            data.update((name, values()) for name, values in columns.items())
            if changed is not None:
                data[DELETED] = pa.array(np.zeros(len(changed), np.bool_))
            return with_groups(pa.table(data), names, max_parallelism)

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
        slots = self._index.lookup([one_array(data.column(key)) for key in self._keys])
        self._hold(slots, data.drop_columns(self._keys))
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
