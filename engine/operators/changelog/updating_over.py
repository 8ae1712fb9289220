"""OVER windows whose results change: in any order, over rows that come and go.

Each batch brings the results of the partitions that it touches up to date, so all rows of a partition are kept. Where
rows only come, and in the order of time, `over.py` keeps less and gives each result once.

Source: Flink's documentation, "Over Aggregation", and its `NonTimeRowsUnboundedPrecedingFunction` and siblings.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.engine.changelog import ChangelogMode
from penstock.engine.elements import Batch
from penstock.engine.errors import GraphError, missing_column
from penstock.engine.operators.base import Collector, Operator, OperatorContext
from penstock.engine.operators.changelog.changes import difference, weights
from penstock.engine.operators.changelog.column_names import free_name, free_prefix
from penstock.engine.operators.changelog.counted_rows import (
    Ties,
    Turnover,
    arrivals_of,
    counted_layout,
    counts_of,
    repeated,
    take_in,
)
from penstock.engine.operators.changelog.frames import NUMBERS, FrameFunction, Ordered, OverCall
from penstock.engine.operators.changelog.inputs import accepted, conformed, distinct_keys, plain_columns
from penstock.engine.operators.changelog.over import FrameUnit, first_at
from penstock.engine.operators.changelog.ranks import Nulls, Order, sorted_places
from penstock.engine.operators.changelog.row_states import RowState, RowStates
from penstock.engine.operators.spec import OperatorSpec, OperatorTraits
from penstock.engine.state.capture import CaptureRequest, OperatorCapture
from penstock.engine.state.snapshot import OperatorSnapshot

Int64s = npt.NDArray[np.int64]

_ROWS: Final = "rows"
_PLACE: Final = "__place"
_MOST_ALIKE: Final = 2**31
_LEAST: Final = -(2**63)
_PER_MS: Final = {"us": 1_000, "ns": 1_000_000}
"""So many of a finer unit of time are a millisecond."""


@dataclass(frozen=True, slots=True)
class UpdatingOverSpec(OperatorSpec):
    """Creates the operator of OVER windows whose results change.

    Args:
        input: the columns that come.
        partition: the columns whose values make a partition; none: all rows are one, in one subtask.
        order: by what rows are ordered; of equal ones the first to come is the first. Nothing: all are equal.
        unit: what `preceding` counts. A frame of a range ends with the last of the rows that are equal in the order.
        preceding: how far the frame goes back; None: to the first row. Of a range: in units of the only column of the
            order, a whole number or milliseconds of a timestamp.
        calls: the functions.
        takes: append where no row ever goes; else retract.
        ttl_ms: how long a row is kept, in milliseconds of processing time; None: for ever.

    Raises:
        GraphError: a column that is not there, or a frame that does not go with the order or a function.
    """

    input: pa.Schema
    partition: tuple[str, ...]
    order: tuple[Order, ...]
    unit: FrameUnit
    preceding: int | None
    calls: tuple[OverCall, ...]
    takes: ChangelogMode = ChangelogMode.RETRACT
    ttl_ms: int | None = None

    def __post_init__(self) -> None:
        own = (
            *self.partition,
            *(one.column for one in self.order),
            *(name for call in self.calls for name in call.columns),
        )
        for name in own:
            if name not in self.input.names:
                raise missing_column(name, self.input.names, "over")
        if self.unit is FrameUnit.RANGE and self.preceding:
            kinds = [self.input.field(one.column).type for one in self.order]
            if len(kinds) != 1 or not (pa.types.is_integer(kinds[0]) or pa.types.is_timestamp(kinds[0])):
                raise GraphError("over: a frame of a range takes one column of whole numbers or times in its order")
        for call in self.calls:
            if call.function in NUMBERS and (self.unit is FrameUnit.RANGE or self.preceding is not None):
                raise GraphError(f"over {call.name!r}: {call.function} takes a frame of ROWS without bound")

    @property
    def schema(self) -> pa.Schema:
        """The columns of the result: those that come, then the results."""
        return pa.schema([*plain_columns(self.input), *((call.name, call.type) for call in self.calls)])

    @property
    def traits(self) -> OperatorTraits:
        return OperatorTraits(keys=(self.partition,), accepts=(accepted(self.takes),), emits=ChangelogMode.RETRACT)

    def describe(self) -> str:
        bound = "unbounded" if self.preceding is None else str(self.preceding)
        order = ", ".join(one.describe() for one in self.order)
        calls = ", ".join(call.describe() for call in self.calls)
        by = ", ".join(self.partition)
        return f"updating_over(by=[{by}], order=[{order}], {self.unit.value} {bound} preceding, [{calls}])"

    def create(self) -> UpdatingOver:
        return UpdatingOver(self)


class UpdatingOver(Operator):
    """Keeps all rows of each partition, and says what a batch changes in its results."""

    def __init__(self, spec: UpdatingOverSpec) -> None:
        self._spec = spec
        self._input = plain_columns(spec.input)
        self._keys = pa.schema([self._input.field(name) for name in spec.partition])
        self._others = pa.schema([one for one in self._input if one.name not in spec.partition])
        self._place = free_name(_PLACE, spec.schema.names)
        self._schema = spec.schema.append(pa.field(self._place, pa.int64()))
        self._functions = [
            FrameFunction(call, free_prefix(place, ()), self._input) for place, call in enumerate(spec.calls)
        ]

    def open(self, context: OperatorContext) -> None:
        self._states = RowStates(context, [counted_layout(_ROWS, self._keys, self._others, self._spec.ttl_ms)])

    def process_batch(self, batch: Batch, input_index: int, out: Collector) -> None:
        taken = Turnover.of(conformed(batch.data, self._input), weights(batch))
        keys = [taken.rows.column(name) for name in self._keys.names]
        _, partitions = distinct_keys(keys, len(taken))
        state = self._states.begin(_ROWS, partitions)
        before = self._results(state, partitions)
        identity = [taken.rows.column(name) for name in self._others.names]
        numbers = state.take_numbers(batch.num_rows)
        gone = take_in(state, taken, keys, identity, numbers, Ties.FIRST_ARRIVED)
        after = self._results(state, partitions)
        state.remove(gone)
        self._states.end()
        changes = difference(before, after, (self._place,), ChangelogMode.RETRACT)
        if changes is not None:
            out.collect(changes.with_data(changes.data.drop_columns([self._place])))

    def _results(self, state: RowState, partitions: list[pa.Array]) -> pa.RecordBatch:
        """The rows of some partitions with their results, and what tells the rows apart before and after a batch."""
        of, slots = state.rows.of_keys(partitions)
        columns = state.rows.columns(slots, [one.column for one in self._spec.order])
        sorts = [one.codes(column) for one, column in zip(self._spec.order, columns, strict=True)]
        places = sorted_places([of, *sorts, arrivals_of(state, slots)])
        chosen, times = repeated(places, counts_of(state, slots)[places])
        rows = state.rows.rows(slots[chosen], self._input)
        ordered = self._framed(rows, of[chosen], [codes[chosen] for codes in sorts])
        results = []
        for function in self._functions:
            parts = function.parts(rows)
            results.append(function.finish(function.reduced(parts, ordered), ordered))
        # Two rows of an update are those of one row that came.
        apart = pa.array(slots[chosen] * _MOST_ALIKE + times)
        return pa.RecordBatch.from_arrays([*rows.columns, *results, apart], schema=self._schema)

    def _framed(self, rows: pa.RecordBatch, of: Int64s, sorts: list[Int64s]) -> Ordered:
        places = np.arange(len(of))
        starts = np.ones(len(of), np.bool_)
        starts[1:] = of[1:] != of[:-1]
        is_new = starts.copy()
        for codes in sorts:
            is_new[1:] |= codes[1:] != codes[:-1]
        begins = np.maximum.accumulate(np.where(starts, places, 0))
        highs = places if self._spec.unit is FrameUnit.ROWS else _last_of_runs(is_new)
        preceding = self._spec.preceding
        if preceding is None:
            lows = begins
        elif self._spec.unit is FrameUnit.ROWS:
            lows = np.maximum(begins, places - preceding)
        elif preceding == 0:
            lows = np.maximum.accumulate(np.where(is_new, places, 0))
        else:
            lows = self._lows_of_range(rows.column(self._spec.order[0].column), of, preceding)
        no_carry = np.zeros(len(of), np.bool_)
        return Ordered(of, np.cumsum(is_new), lows, highs, no_carry, preceding is None)

    def _lows_of_range(self, column: pa.Array, of: Int64s, preceding: int) -> Int64s:
        """Where the frame of each row begins that goes back so far in the order; that of a null has all nulls."""
        order = self._spec.order[0]
        if pa.types.is_timestamp(column.type):
            if column.type.unit == "s":
                column = column.cast(pa.timestamp("ms", column.type.tz))
            preceding = min(preceding * _PER_MS.get(column.type.unit, 1), -_LEAST - 1)
        valid = column.is_valid().to_numpy(zero_copy_only=False)
        values: Int64s = column.cast(pa.int64()).fill_null(0).to_numpy()
        if order.descending:
            # As far apart the other way round, and never too large.
            values = ~values
        behind = valid if order.nulls is Nulls.FIRST else ~valid
        return first_at(of * 2 + behind, values, np.maximum(values, _LEAST + preceding) - preceding)

    def capture(self, request: CaptureRequest) -> OperatorCapture:
        return self._states.capture(request)

    def restore(self, snapshot: OperatorSnapshot) -> None:
        self._states.restore(snapshot)

    def close(self) -> None:
        self._states.close()


def _last_of_runs(is_new: npt.NDArray[np.bool_]) -> Int64s:
    """The place of the last row of each row's run."""
    count = len(is_new)
    is_last = np.append(is_new[1:], True) if count else is_new
    lasts = np.where(is_last, np.arange(count), count)
    found: Int64s = np.minimum.accumulate(lasts[::-1])[::-1]
    return found
