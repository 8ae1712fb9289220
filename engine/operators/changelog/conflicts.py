"""What stands before a sink whose key the rows of a changelog may share: the first row of each key, or a failure.

SQL lowers `ON CONFLICT DO NOTHING` and `DO ERROR` onto it. Changes wait for the watermark and are summed up then, so
that a row which goes before another one takes its key is no conflict, in whatever order the two came.

Source: Flink's documentation, "INSERT INTO", and its `WatermarkCompactingSinkMaterializer`.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa

from penstock.engine.changelog import ChangelogMode
from penstock.engine.elements import Batch, Control, Watermark, concat_record_batches
from penstock.engine.errors import RecordError
from penstock.engine.operators.base import Collector, Operator, OperatorContext
from penstock.engine.operators.changelog.changes import Delta, changelog_of, summed, weights
from penstock.engine.operators.changelog.column_names import free_name
from penstock.engine.operators.changelog.inputs import accepted, conformed, plain_columns
from penstock.engine.operators.changelog.row_states import waiting_rows, waiting_table
from penstock.engine.operators.changelog.top_n import TopN, TopNSpec
from penstock.engine.operators.spec import OperatorSpec, OperatorTraits, RowOrder
from penstock.engine.rows import shown_row
from penstock.engine.state.capture import CaptureRequest, OperatorCapture, TableCapture
from penstock.engine.state.snapshot import OperatorSnapshot, Redistribution

_PENDING: Final = "pending"
_WEIGHT: Final = "__weight"
_RANK: Final = "__rank"


class Conflict(enum.Enum):
    """What becomes of rows that share a key with one before them."""

    KEEP_FIRST = "keep first"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class ConflictSpec(OperatorSpec):
    """Creates the operator.

    Args:
        input: the columns that come.
        keys: the sink's key.
        conflict: what becomes of further rows of a key.
        ttl_ms: how long a row is kept, in milliseconds of processing time; None: for ever.

    Example:
        >>> rows = pa.schema({"id": pa.int64(), "name": pa.string()})
        >>> ConflictSpec(rows, ("id",), Conflict.FAIL).describe()
        'one_row_each(by=[id], fail)'
    """

    input: pa.Schema
    keys: tuple[str, ...]
    conflict: Conflict
    ttl_ms: int | None = None

    @property
    def schema(self) -> pa.Schema:
        """The columns of the result."""
        return plain_columns(self.input)

    @property
    def traits(self) -> OperatorTraits:
        return OperatorTraits(
            keys=(self.keys,),
            order=RowOrder.WITHIN_INPUTS,
            accepts=(accepted(ChangelogMode.RETRACT),),
            emits=ChangelogMode.RETRACT,
        )

    def describe(self) -> str:
        return f"one_row_each(by=[{', '.join(self.keys)}], {self.conflict.value})"

    def create(self) -> Operator:
        return OneRowEach(self)


class OneRowEach(Operator):
    """Keeps the changes since the last watermark, and behind it all rows of each key, in the order of arrival."""

    def __init__(self, spec: ConflictSpec) -> None:
        self._spec = spec
        self._schema = spec.schema
        self._keys = pa.schema([self._schema.field(name) for name in spec.keys])
        self._rank, self._weight = (free_name(name, self._schema.names) for name in (_RANK, _WEIGHT))
        self._rows = TopN(TopNSpec(spec.input, spec.keys, (), end=2, rank_column=self._rank, ttl_ms=spec.ttl_ms))
        self._pending: list[Delta] = []

    def open(self, context: OperatorContext) -> None:
        self._context = context
        self._rows.open(context)

    def process_batch(self, batch: Batch, input_index: int, out: Collector) -> None:
        self._pending.append(Delta(conformed(batch.data, self._schema), weights(batch)))

    def on_watermark(self, watermark: Watermark, out: Collector) -> Watermark | None:
        if self._pending:
            changes = changelog_of(self._summed(), None, ChangelogMode.RETRACT)
            self._pending.clear()
            if changes is not None:
                self._rows.process_batch(changes, 0, _FirstRows(self, out))
        return watermark

    def _summed(self) -> Delta:
        rows = concat_record_batches([delta.rows for delta in self._pending])
        return summed(rows, np.concatenate([delta.weights for delta in self._pending]))

    def first_rows(self, ranked: Batch) -> Batch | None:
        """The changes of the rows of rank 1.

        Raises:
            RecordError: a row of rank 2 has come, and that is to fail.
        """
        ranks, comes = ranked.data.column(self._rank).to_numpy(), weights(ranked) > 0
        shared = np.flatnonzero((ranks == 2) & comes)
        rows = ranked.data.select(self._schema.names)
        if len(shared) and self._spec.conflict is Conflict.FAIL:
            raise RecordError(
                f"{self._context.where}: there is another row of the key ({', '.join(self._spec.keys)}) already: "
                f"{shown_row(rows, int(shared[0]))}; group by it, or write ON CONFLICT DO NOTHING or DEDUPLICATE"
            )
        first = ranks == 1
        signs = np.where(comes[first], 1, -1)
        return changelog_of(summed(rows.filter(pa.array(first)), signs), self._spec.keys, ChangelogMode.RETRACT)

    def capture(self, request: CaptureRequest) -> OperatorCapture:
        held = self._rows.capture(request)
        if not self._pending:
            return held
        pending, most = self._summed(), self._context.config.max_parallelism

        def table() -> pa.Table:
            return waiting_table([pending.rows], self._weight, pending.weights, self._keys, most)

        waiting = TableCapture(Redistribution.KEYED, table)
        return replace(held, tables={**held.tables, _PENDING: waiting})

    def restore(self, snapshot: OperatorSnapshot) -> None:
        tables = dict(snapshot.tables)
        waiting = tables.pop(_PENDING, None)
        self._rows.restore(replace(snapshot, tables=tables))
        if waiting is not None and waiting.data.num_rows:
            self._pending.append(Delta(*waiting_rows(waiting.data, self._weight)))

    def close(self) -> None:
        self._rows.close()


@dataclass(frozen=True, slots=True)
class _FirstRows:
    """Passes on the rows of rank 1."""

    operator: OneRowEach
    out: Collector

    def collect(self, batch: Batch) -> None:
        first = self.operator.first_rows(batch)
        if first is not None:
            self.out.collect(first)

    def broadcast(self, element: Control) -> None:
        raise AssertionError("ranked rows broadcast nothing")
