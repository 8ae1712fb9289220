"""Makes a full changelog of one that says the new row of a key alone: each change gets the row that was before.

A source in upsert mode (a compacted topic) stands before it. Rows that say nothing new are dropped, and so are deletes
of keys that are not there. Source: Flink's `ChangelogNormalize`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.engine.changelog import ANY_MODE, ChangelogMode
from penstock.engine.elements import Batch
from penstock.engine.errors import missing_column
from penstock.engine.operators.base import Collector, Operator, OperatorContext
from penstock.engine.operators.changelog.changes import keyed_difference, weights
from penstock.engine.operators.changelog.column_names import free_name
from penstock.engine.operators.changelog.inputs import conformed, distinct_keys, plain_columns
from penstock.engine.operators.changelog.keyed_rows import RowsLayout
from penstock.engine.operators.changelog.row_states import RowState, RowStates
from penstock.engine.operators.spec import OperatorSpec, OperatorTraits
from penstock.engine.state.capture import CaptureRequest, OperatorCapture
from penstock.engine.state.snapshot import OperatorSnapshot

Mask = npt.NDArray[np.bool_]

_ROWS: Final = "rows"
_THERE: Final = "__there"


@dataclass(frozen=True, slots=True)
class NormalizeSpec(OperatorSpec):
    """Creates the operator that completes a changelog.

    Args:
        input: the columns that come; of a delete, those of the key are enough, and the others may be null.
        keys: the columns that tell rows apart.
        emits: retract, or upsert, for what only is to be rid of rows that say nothing new.
        ttl_ms: how long a row is kept after it came, in milliseconds of processing time; None: for ever.

    Raises:
        MissingColumnError: a key is not there.
    """

    input: pa.Schema
    keys: tuple[str, ...]
    emits: ChangelogMode = ChangelogMode.RETRACT
    ttl_ms: int | None = None

    def __post_init__(self) -> None:
        for name in self.keys:
            if name not in self.input.names:
                raise missing_column(name, self.input.names, "normalize")

    @property
    def schema(self) -> pa.Schema:
        """The columns of the result: those that come."""
        return plain_columns(self.input)

    @property
    def traits(self) -> OperatorTraits:
        return OperatorTraits(keys=(self.keys,), accepts=(ANY_MODE,), emits=self.emits)

    def describe(self) -> str:
        return f"normalize([{', '.join(self.keys)}])"

    def create(self) -> Normalize:
        return Normalize(self)


class Normalize(Operator):
    """Keeps the last row of each key."""

    def __init__(self, spec: NormalizeSpec) -> None:
        self._spec = spec
        self._keys = pa.schema([spec.schema.field(name) for name in spec.keys])
        self._there = free_name(_THERE, spec.schema.names)
        self._others = [one for one in spec.schema if one.name not in spec.keys]

    def open(self, context: OperatorContext) -> None:
        values = pa.schema([*self._others, pa.field(self._there, pa.bool_())])
        self._states = RowStates(context, [RowsLayout(_ROWS, self._keys, pa.schema([]), values, self._spec.ttl_ms)])

    def process_batch(self, batch: Batch, input_index: int, out: Collector) -> None:
        rows = conformed(batch.data, self._spec.schema)
        numbers, keys = distinct_keys([rows.column(name) for name in self._keys.names], rows.num_rows)
        last = np.zeros(int(numbers.max()) + 1, np.int64)
        last[numbers] = np.arange(rows.num_rows)
        after, has = rows.take(pa.array(last)), weights(batch)[last] > 0
        state = self._states.begin(_ROWS, keys)
        slots = state.rows.find(keys)
        had = slots >= 0
        before = state.rows.rows(slots[had], self._spec.schema).take(pa.array(np.cumsum(had) - 1, mask=~had))
        changes = keyed_difference(before, had, after, has, self._spec.emits)
        self._keep(state, after, has)
        state.remove(slots[had & ~has])
        self._states.end()
        if changes is not None:
            out.collect(changes)

    def _keep(self, state: RowState, rows: pa.RecordBatch, has: Mask) -> None:
        if not has.any():
            return
        kept = rows.filter(pa.array(has))
        slots, _ = state.add([kept.column(name) for name in self._keys.names])
        for one in self._others:
            state.write(slots, one.name, kept.column(one.name))
        state.write(slots, self._there, pa.array(np.ones(len(slots), np.bool_)))

    def capture(self, request: CaptureRequest) -> OperatorCapture:
        return self._states.capture(request)

    def restore(self, snapshot: OperatorSnapshot) -> None:
        self._states.restore(snapshot)

    def close(self) -> None:
        self._states.close()
