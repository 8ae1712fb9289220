"""UNION, INTERSECT and EXCEPT of two changelogs: how often a row is in the result follows from how often it is in each.

UNION ALL needs no operator. Nulls are equal here, as SQL has it. Source: Flink's documentation, "Set Operations".
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.engine.changelog import ChangelogMode
from penstock.engine.elements import Batch
from penstock.engine.errors import GraphError
from penstock.engine.operators.base import Collector, Operator, OperatorContext
from penstock.engine.operators.changelog.changes import Delta, changelog_of, consolidated
from penstock.engine.operators.changelog.column_names import free_name
from penstock.engine.operators.changelog.inputs import accepted, conformed, plain_columns
from penstock.engine.operators.changelog.keyed_rows import RowsLayout
from penstock.engine.operators.changelog.row_states import RowState, RowStates
from penstock.engine.operators.spec import OperatorSpec, OperatorTraits
from penstock.engine.state.capture import CaptureRequest, OperatorCapture
from penstock.engine.state.snapshot import OperatorSnapshot

Int64s = npt.NDArray[np.int64]

_ROWS: Final = "rows"
_COUNTS: Final = ("__left", "__right")


class SetOperation(enum.Enum):
    """Which rows are in the result."""

    UNION = "union"
    INTERSECT = "intersect"
    INTERSECT_ALL = "intersect all"
    EXCEPT = "except"
    EXCEPT_ALL = "except all"

    def counts(self, left: Int64s, right: Int64s) -> Int64s:
        """How often rows are in the result that are so often on each side.

        Example:
            >>> SetOperation.EXCEPT_ALL.counts(np.array([3, 1]), np.array([1, 2])).tolist()
            [2, 0]
        """
        match self:
            case SetOperation.UNION:
                counts = (left + right > 0).astype(np.int64)
            case SetOperation.INTERSECT:
                counts = ((left > 0) & (right > 0)).astype(np.int64)
            case SetOperation.INTERSECT_ALL:
                counts = np.minimum(left, right)
            case SetOperation.EXCEPT:
                counts = ((left > 0) & (right == 0)).astype(np.int64)
            case SetOperation.EXCEPT_ALL:
                counts = np.maximum(left - right, 0)
        return counts


@dataclass(frozen=True, slots=True)
class SetOperationSpec(OperatorSpec):
    """Creates the operator of a set operation.

    Args:
        left, right: the columns of both sides, of the same types; the result has the left side's names.
        operation: which.
        takes: append where no row of either side ever goes; else retract.
        emits: append for a union or an intersection of rows that stay; else retract.
        ttl_ms: how long a row is remembered after its last change, in milliseconds of processing time; None: for ever.

    Raises:
        GraphError: the types differ, or the result cannot have that mode.
    """

    left: pa.Schema
    right: pa.Schema
    operation: SetOperation
    takes: ChangelogMode = ChangelogMode.RETRACT
    emits: ChangelogMode = ChangelogMode.RETRACT
    ttl_ms: int | None = None

    def __post_init__(self) -> None:
        kinds = [plain_columns(side).types for side in (self.left, self.right)]
        if kinds[0] != kinds[1]:
            shown = [", ".join(map(str, side)) for side in kinds]
            raise GraphError(f"{self.operation.value}: the left side is ({shown[0]}), the right ({shown[1]}); cast one")
        shrinks = self.operation in (SetOperation.EXCEPT, SetOperation.EXCEPT_ALL)
        if self.emits is ChangelogMode.APPEND and (shrinks or self.takes is not ChangelogMode.APPEND):
            raise GraphError(f"{self.operation.value}: rows of the result may go again; let it emit retract")
        if self.emits is ChangelogMode.UPSERT:
            raise GraphError(f"{self.operation.value}: its rows have no key; let it emit retract")

    @property
    def schema(self) -> pa.Schema:
        """The columns of the result."""
        return plain_columns(self.left)

    @property
    def traits(self) -> OperatorTraits:
        keys = (tuple(self.left.names), tuple(self.right.names))
        return OperatorTraits(keys=keys, accepts=(accepted(self.takes),), emits=self.emits)

    def describe(self) -> str:
        return f"{self.operation.value}({', '.join(self.left.names)})"

    def create(self) -> CountedRows:
        return CountedRows(self)


class CountedRows(Operator):
    """Keeps how often each row is on either side."""

    def __init__(self, spec: SetOperationSpec) -> None:
        self._spec = spec
        self._counts = tuple(free_name(name, spec.left.names) for name in _COUNTS)
        self._inputs = (plain_columns(spec.left), plain_columns(spec.right))

    def open(self, context: OperatorContext) -> None:
        counts = pa.schema([pa.field(name, pa.int64()) for name in self._counts])
        layout = RowsLayout(_ROWS, self._spec.schema, pa.schema([]), counts, self._spec.ttl_ms)
        self._states = RowStates(context, [layout])

    def process_batch(self, batch: Batch, input_index: int, out: Collector) -> None:
        delta = consolidated(batch.with_data(conformed(batch.data, self._inputs[input_index])))
        if not len(delta):
            return
        rows = pa.RecordBatch.from_arrays(delta.rows.columns, schema=self._spec.schema)
        state = self._states.begin(_ROWS, rows.columns)
        found = state.rows.find(rows.columns)
        before = [np.zeros(len(found), np.int64) for _ in self._counts]
        for counts, name in zip(before, self._counts, strict=True):
            counts[found >= 0] = state.rows.numbers(found[found >= 0], name)
        after = [*before]
        after[input_index] = np.maximum(before[input_index] + delta.weights, 0)
        _keep(state, rows, found, after)
        self._states.end()
        change = self._spec.operation.counts(*after) - self._spec.operation.counts(*before)
        changed = change != 0
        said = Delta(rows.filter(pa.array(changed)), change[changed])
        changes = changelog_of(said, None, self._spec.emits)
        if changes is not None:
            out.collect(changes if self._spec.emits is not ChangelogMode.APPEND else Batch(changes.data))

    def capture(self, request: CaptureRequest) -> OperatorCapture:
        return self._states.capture(request)

    def restore(self, snapshot: OperatorSnapshot) -> None:
        self._states.restore(snapshot)

    def close(self) -> None:
        self._states.close()


def _keep(state: RowState, rows: pa.RecordBatch, found: Int64s, counts: list[Int64s]) -> None:
    stay = counts[0] + counts[1] > 0
    if stay.any():
        slots, _ = state.add([column.filter(pa.array(stay)) for column in rows.columns])
        for name, of_side in zip(state.layout.values.names, counts, strict=True):
            state.write(slots, name, of_side[stay])
    state.remove(found[~stay & (found >= 0)])
