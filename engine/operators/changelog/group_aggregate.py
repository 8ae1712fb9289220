"""GROUP BY over changelogs: each batch says, for each group that it touched, what its results have become.

A group is there while it has rows; when its last row goes, it is deleted. Without keys there is one group, which is not
there before the first row, as in Flink. What goes of a group that is not there (it has outlived its time) is dropped.

Source: Flink's `GroupAggFunction`, and its documentation, "Group Aggregation" and "Mini-Batch Aggregation".
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
from penstock.engine.operators.changelog.calls import (
    COUNTS,
    ENDS,
    EXTREMES,
    MULTISETS,
    SUMS,
    AggregateCall,
)
from penstock.engine.operators.changelog.changes import keyed_difference, weights
from penstock.engine.operators.changelog.column_names import free_name, free_prefix
from penstock.engine.operators.changelog.grouped_rows import GroupedRows, Values
from penstock.engine.operators.changelog.inputs import accepted, conformed, distinct_keys, plain_columns
from penstock.engine.operators.changelog.keyed_rows import RowsLayout
from penstock.engine.operators.changelog.row_states import RowState, RowStates
from penstock.engine.operators.changelog.sums import Accumulator, Sums
from penstock.engine.operators.changelog.value_counts import Extremes, Multisets, ValueCounts, counts_layout
from penstock.engine.operators.changelog.value_logs import Ends, LoggedValues, ValueLog, log_layout
from penstock.engine.operators.spec import OperatorSpec, OperatorTraits
from penstock.engine.state.capture import CaptureRequest, OperatorCapture
from penstock.engine.state.snapshot import OperatorSnapshot

Int64s = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_GROUPS: Final = "groups"
_ROWS: Final = "__rows"


@dataclass(frozen=True, slots=True)
class GroupAggregateSpec(OperatorSpec):
    """Creates the operator of a GROUP BY.

    Args:
        input: the columns that come.
        keys: the columns to group by; of any type, and nulls are a group. None: all rows are one group, so that the
            operator has one subtask.
        calls: the aggregates; none makes the keys distinct.
        takes: append where no row ever goes, so that less is kept; else retract.
        emits: retract or upsert.
        ttl_ms: how long a group lives after its last change, in milliseconds of processing time; None: for ever.

    Raises:
        GraphError: a column is not there or has a wrong type, or two columns of the result have one name.

    Example:
        >>> total = AggregateCall("sum", "total", pa.int64(), "v")
        >>> GroupAggregateSpec(pa.schema({"k": pa.string(), "v": pa.int64()}), ("k",), (total,)).schema.names
        ['k', 'total']
    """

    input: pa.Schema
    keys: tuple[str, ...]
    calls: tuple[AggregateCall, ...]
    takes: ChangelogMode = ChangelogMode.RETRACT
    emits: ChangelogMode = ChangelogMode.RETRACT
    ttl_ms: int | None = None

    def __post_init__(self) -> None:
        for name in (*self.keys, *(call.argument for call in self.calls), *(call.filter for call in self.calls)):
            if name is not None and name not in self.input.names:
                raise missing_column(name, self.input.names, "group aggregate")
        if not self.keys and not self.calls:
            raise GraphError("group aggregate: there is neither a key nor an aggregate; give one of them")
        names = [*self.keys, *(call.name for call in self.calls)]
        if len(set(names)) < len(names):
            raise GraphError(f"group aggregate: two columns of the result have one name ({', '.join(names)})")
        for call in self.calls:
            if call.function in SUMS:
                assert call.argument is not None
                _check_number(call, self.input.field(call.argument).type)

    @property
    def schema(self) -> pa.Schema:
        """The columns of the result: the keys, then the aggregates."""
        plain = plain_columns(self.input)
        return pa.schema([*(plain.field(key) for key in self.keys), *((call.name, call.type) for call in self.calls)])

    def describe(self) -> str:
        calls = ", ".join(call.describe() for call in self.calls)
        return f"group_aggregate(by=[{', '.join(self.keys)}], [{calls}])"

    @property
    def traits(self) -> OperatorTraits:
        return OperatorTraits(keys=(self.keys,), accepts=(accepted(self.takes),), emits=self.emits)

    def create(self) -> GroupAggregate:
        return GroupAggregate(self)


def _check_number(call: AggregateCall, kind: pa.DataType) -> None:
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
        raise GraphError(
            f"aggregate {call.name!r}: {call.function} takes numbers, and column {call.argument!r} is {kind}; cast it"
        )


class GroupAggregate(Operator):
    """Keeps the accumulators of each group, and of those aggregates that need them the values."""

    def __init__(self, spec: GroupAggregateSpec) -> None:
        self._spec = spec
        self._input = plain_columns(spec.input)
        self._keys = pa.schema([self._input.field(key) for key in spec.keys])
        self._counts: dict[str, ValueCounts] = {}
        self._logs: dict[str, ValueLog] = {}
        self._scanned: set[str] = set()
        self._layouts: dict[str, RowsLayout] = {}
        self._calls_of: dict[str, AggregateCall] = {}
        self._rows = free_name(_ROWS, spec.keys)
        self._accumulators = [self._accumulator(place, call) for place, call in enumerate(spec.calls)]

    def _accumulator(self, place: int, call: AggregateCall) -> Accumulator:
        kind = None if call.argument is None else self._input.field(call.argument).type
        prefix = free_prefix(place, self._spec.keys)
        goes = self._spec.takes is ChangelogMode.RETRACT
        if call.function in (*COUNTS, *SUMS):
            values = self._values_of(call).merge if call.is_distinct else _Rows(call)
            return Sums(call, prefix, kind, self._groups, values)
        assert kind is not None
        if call.function in EXTREMES:
            return Extremes(call, prefix, kind, self._groups, self._values_of(call, scan=True) if goes else None)
        if call.function in MULTISETS:
            return Multisets(call, self._values_of(call, scan=True))
        if call.function in ENDS and not goes:
            return Ends(call, prefix, kind, self._groups)
        return LoggedValues(call, self._log_of(call, kind))

    def _values_of(self, call: AggregateCall, *, scan: bool = False) -> ValueCounts:
        """The counts of the call's values, which calls of the same column and filter share."""
        assert call.argument is not None
        name = f"values of {call.argument}" + (f" where {call.filter}" if call.filter else "")
        if scan:
            self._scanned.add(name)
        if name not in self._counts:
            kind = self._input.field(call.argument).type
            self._layouts[name] = counts_layout(name, self._keys, kind, self._spec.ttl_ms)
            self._calls_of[name] = call
            self._counts[name] = ValueCounts(call, lambda: self._states[name])
        return self._counts[name]

    def _log_of(self, call: AggregateCall, kind: pa.DataType) -> ValueLog:
        nulls = " with nulls" if call.function == "array_agg" else ""
        name = f"log of {call.argument}{nulls}" + (f" where {call.filter}" if call.filter else "")
        if name not in self._logs:
            self._layouts[name] = log_layout(name, self._keys, kind, self._spec.ttl_ms)
            self._logs[name] = ValueLog(call, lambda: self._states[name])
        return self._logs[name]

    def _groups(self) -> RowState:
        return self._states[_GROUPS]

    def open(self, context: OperatorContext) -> None:
        self._context = context
        fields = [pa.field(self._rows, pa.int64()), *(field for one in self._accumulators for field in one.fields)]
        groups = RowsLayout(_GROUPS, self._keys, pa.schema([]), pa.schema(fields), self._spec.ttl_ms)
        self._states = RowStates(context, [groups, *self._layouts.values()])

    def process_batch(self, batch: Batch, input_index: int, out: Collector) -> None:
        rows, signs = conformed(batch.data, self._input), weights(batch)
        of, keys = distinct_keys([rows.column(key) for key in self._keys.names], rows.num_rows)
        state = self._states.begin(_GROUPS, keys)
        search = state.rows.search(keys)
        found = search.slots
        had = found >= 0
        if not had.all() and (signs < 0).any():
            known = _behind_the_first(of, signs, had)
            rows, signs, of = rows.filter(pa.array(known)), signs[known], of[known]
        before = np.zeros(len(found), np.int64)
        before[had] = state.rows.numbers(found[had], self._rows)
        after = before.copy()
        np.add.at(after, of, signs)
        self._begin(rows, keys)
        was = self._results(keys, had, found[had])
        has = after > 0
        slots = state.enter(search, had | has, keys)
        self._merge(rows, signs, of, keys, had | has, after, slots)
        now = self._results(keys, has, slots[has[had | has]])
        state.remove(slots[~has[had | has]])
        self._states.end()
        changes = keyed_difference(was, had, now, has, self._spec.emits)
        if changes is not None:
            out.collect(changes)

    def _begin(self, rows: pa.RecordBatch, keys: list[pa.Array]) -> None:
        for name, call in self._calls_of.items():
            if name in self._scanned:
                self._states.begin(name, keys)
            else:
                self._states.begin(name, [rows.column(key) for key in self._keys.names], [rows.column(call.argument)])
        for name in self._logs:
            self._states.begin(name, keys)

    def _merge(
        self,
        rows: pa.RecordBatch,
        signs: Int64s,
        of: Int64s,
        keys: list[pa.Array],
        known: Mask,
        after: Int64s,
        slots: Int64s,
    ) -> None:
        """Take in the rows of the groups that are, or come to be, there; what goes of others was never known."""
        if not known.any():
            return
        if not known.all():
            chosen = known[of]
            rows, signs, of = rows.filter(pa.array(chosen)), signs[chosen], (np.cumsum(known) - 1)[of[chosen]]
            keys, after = [key.filter(pa.array(known)) for key in keys], after[known]
        state = self._states[_GROUPS]
        state.write(slots, self._rows, after)
        groups = GroupedRows(rows, signs, of, keys, slots)
        for accumulator in self._accumulators:
            accumulator.merge(groups)

    def _results(self, keys: list[pa.Array], there: Mask, slots: Int64s) -> pa.RecordBatch:
        """The results of the groups that are there, at the places of their keys."""
        if there.all():
            results = [accumulator.results(slots, keys) for accumulator in self._accumulators]
            return pa.RecordBatch.from_arrays([*keys, *results], schema=self._spec.schema)
        own = [key.filter(pa.array(there)) for key in keys]
        results = [accumulator.results(slots, own) for accumulator in self._accumulators]
        places = pa.array(np.cumsum(there) - 1, mask=~there)
        columns = [*keys, *(result.take(places) for result in results)]
        return pa.RecordBatch.from_arrays(columns, schema=self._spec.schema)

    def capture(self, request: CaptureRequest) -> OperatorCapture:
        return self._states.capture(request)

    def restore(self, snapshot: OperatorSnapshot) -> None:
        self._states.restore(snapshot)

    def close(self) -> None:
        self._states.close()


def _behind_the_first(of: Int64s, signs: Int64s, had: Mask) -> Mask:
    """The rows that count: of groups that are not there, none that goes before one has come."""
    places = np.arange(len(of))
    first = np.where(had, 0, len(of))
    np.minimum.at(first, of[signs > 0], places[signs > 0])
    behind: Mask = places >= first[of]
    return behind


@dataclass(frozen=True, slots=True)
class _Rows:
    """The values of a call, as they come and go with the rows."""

    call: AggregateCall

    def __call__(self, groups: GroupedRows) -> Values:
        return groups.values(self.call)
