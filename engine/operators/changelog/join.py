"""Joins of two changelogs by equal keys, and maybe a condition more: inner, outer, semi and anti.

Both sides are kept, and each batch says what its changes make of the result. A row of the side that an outer, semi or
anti join preserves knows how many rows of the other side it meets, so that its coming and going is said when that
number leaves 0 or comes back to it. Keys that are null meet nothing, unless the plan says so.

Source: Flink's `StreamingJoinOperator` and `StreamingSemiAntiJoinOperator`; incremental joins by deltas are those of
Gupta and Mumick, "Maintenance of Materialized Views", 1995.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.engine.changelog import ChangelogMode
from penstock.engine.elements import Batch
from penstock.engine.errors import GraphError, missing_column
from penstock.engine.operators.base import Collector, Operator, OperatorContext
from penstock.engine.operators.changelog.changes import Delta, changelog_of, consolidated, weights
from penstock.engine.operators.changelog.column_names import free_name
from penstock.engine.operators.changelog.inputs import accepted, conformed, distinct_keys, plain_columns
from penstock.engine.operators.changelog.keyed_rows import RowsLayout
from penstock.engine.operators.changelog.row_states import RowState, RowStates
from penstock.engine.operators.joins.join_buffers import spread
from penstock.engine.operators.spec import OperatorSpec, OperatorTraits
from penstock.engine.state.capture import CaptureRequest, OperatorCapture
from penstock.engine.state.keys.identity import coded_type
from penstock.engine.state.keys.index import Search
from penstock.engine.state.snapshot import OperatorSnapshot

Int64s = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

JoinCondition: TypeAlias = Callable[[pa.RecordBatch], pa.BooleanArray]
"""Says of pairs of rows, with the columns of the left and then of the right side, which meet; null counts as false."""

LEFT: Final = 0
RIGHT: Final = 1
_NAMES: Final = ("left", "right")
_COUNT: Final = "__count"
_MATCHES: Final = "__matches"


class JoinKind(enum.Enum):
    """Which rows a join gives beside, or in place of, pairs."""

    INNER = "inner"
    LEFT = "left"
    RIGHT = "right"
    FULL = "full"
    SEMI = "semi"
    """Left rows that meet a right one."""
    ANTI = "anti"
    """Left rows that meet none."""

    @property
    def pairs(self) -> bool:
        """Whether the result has the columns of both sides."""
        return self not in (JoinKind.SEMI, JoinKind.ANTI)

    def counts_matches(self, side: int) -> bool:
        """Whether it matters how many rows a row of `side` meets."""
        return self.preserves(side) or (not self.pairs and side == LEFT)

    def preserves(self, side: int) -> bool:
        """Whether a row of `side` that meets nothing comes with nulls."""
        return self is JoinKind.FULL or self is (JoinKind.LEFT, JoinKind.RIGHT)[side]


@dataclass(frozen=True, slots=True)
class JoinInput:
    """One side of a join.

    Args:
        schema: its columns.
        keys: its key columns, in the order of those of the other side, and of the same types. None: all rows meet.
        takes: the changelog mode that comes: append or retract.
        ttl_ms: how long a row is kept, in milliseconds of processing time; None: for ever.
    """

    schema: pa.Schema
    keys: tuple[str, ...]
    takes: ChangelogMode = ChangelogMode.RETRACT
    ttl_ms: int | None = None

    @property
    def layout(self) -> tuple[pa.Schema, pa.Schema]:
        """Key columns and others."""
        plain = plain_columns(self.schema)
        others = [one for one in plain if one.name not in self.keys]
        return pa.schema([plain.field(key) for key in self.keys]), pa.schema(others)


@dataclass(frozen=True, slots=True)
class ChangelogJoinSpec(OperatorSpec):
    """Creates the operator of a join.

    Args:
        left, right: the sides; no column has the same name in both, unless the join gives left rows alone.
        kind: which rows come.
        condition: what pairs with equal keys must fulfil; must be picklable. None: nothing more.
        null_safe: places of keys that are equal when both are null (`IS NOT DISTINCT FROM`).
        emits: append where neither side takes rows back and nothing is preserved; else retract, or upsert with a key.
        key: columns that tell the rows of the result apart, so that its updates are said as such. None: unknown.

    Raises:
        GraphError: keys that do not fit, columns of one name, or a changelog mode that the result cannot have.
    """

    left: JoinInput
    right: JoinInput
    kind: JoinKind = JoinKind.INNER
    condition: JoinCondition | None = None
    null_safe: tuple[int, ...] = ()
    emits: ChangelogMode = ChangelogMode.RETRACT
    key: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        for side in (self.left, self.right):
            for name in side.keys:
                if name not in side.schema.names:
                    raise missing_column(name, side.schema.names, "join")
        kinds = [[coded_type(side.schema.field(key).type) for key in side.keys] for side in (self.left, self.right)]
        if kinds[LEFT] != kinds[RIGHT]:
            raise GraphError(
                f"join: the keys of the left side are {kinds[LEFT]}, and those of the right side {kinds[RIGHT]}; cast "
                "them to the same types"
            )
        both = set(self.left.schema.names) & set(self.right.schema.names)
        if both and (self.kind.pairs or self.condition is not None):
            raise GraphError(f"join: both sides have a column {sorted(both)[0]!r}; rename it on one of them")
        takes_back = ChangelogMode.RETRACT in (self.left.takes, self.right.takes)
        if self.emits is ChangelogMode.APPEND and (takes_back or self.kind not in (JoinKind.INNER, JoinKind.SEMI)):
            raise GraphError(f"join: the result of this {self.kind.value} join has updates; let it emit retract")
        if self.emits is ChangelogMode.UPSERT and self.key is None:
            raise GraphError("join: a result in upsert mode needs a key; give key=(...), or let it emit retract")

    @property
    def schema(self) -> pa.Schema:
        """The columns of the result: those of the left side, then those of the right."""
        right = plain_columns(self.right.schema) if self.kind.pairs else []
        return pa.schema([*plain_columns(self.left.schema), *right])

    @property
    def traits(self) -> OperatorTraits:
        sides = (self.left, self.right)
        return OperatorTraits(
            keys=(self.left.keys, self.right.keys),
            accepts=tuple(accepted(side.takes) for side in sides),
            emits=self.emits,
        )

    def describe(self) -> str:
        pairs = zip(self.left.keys, self.right.keys, strict=True)
        on = ", ".join(f"{one} = {other}" for one, other in pairs)
        more = "" if self.condition is None else " and a condition"
        return f"join({self.kind.value}, [{on}]{more})"

    def create(self) -> ChangelogJoin:
        return ChangelogJoin(self)


@dataclass(slots=True)
class _Result:
    """What a batch changes of the result, in parts."""

    rows: list[pa.RecordBatch] = field(default_factory=list)
    weights: list[Int64s] = field(default_factory=list)

    def add(self, rows: pa.RecordBatch, weights: Int64s) -> None:
        if rows.num_rows:
            self.rows.append(rows)
            self.weights.append(weights)

    def clear(self) -> None:
        self.rows.clear()
        self.weights.clear()


@dataclass(frozen=True, slots=True)
class _Met:
    """The kept rows of the other side that have the keys of a batch.

    Args:
        slots: theirs.
        counts: how often each of them is there.
        begins, ends: for each row of the batch, which of them have its key.
    """

    slots: Int64s
    counts: Int64s
    begins: Int64s
    ends: Int64s


@dataclass(frozen=True, slots=True)
class _Meetings:
    """Which rows of a batch meet which kept rows of the other side: some of these pairs.

    Args:
        rows: numbers of rows of the batch.
        places: numbers of rows among those of `_Met`.
        joined: the pairs, where a condition has looked at them.
    """

    rows: Int64s
    places: Int64s
    joined: pa.RecordBatch | None


class ChangelogJoin(Operator):
    """Keeps the rows of both sides by key."""

    def __init__(self, spec: ChangelogJoinSpec) -> None:
        self._spec = spec
        self._sides = (spec.left, spec.right)
        self._schemas = tuple(plain_columns(side.schema) for side in self._sides)

    def open(self, context: OperatorContext) -> None:
        self._states = RowStates(context, [self._layout(side) for side in (LEFT, RIGHT)])

    def _layout(self, side: int) -> RowsLayout:
        keys, others = self._sides[side].layout
        beside = [_COUNT, _MATCHES] if self._spec.kind.counts_matches(side) else [_COUNT]
        values = [pa.field(free_name(name, self._schemas[side].names), pa.int64()) for name in beside]
        return RowsLayout(_NAMES[side], keys, others, pa.schema(values), self._sides[side].ttl_ms)

    def process_batch(self, batch: Batch, input_index: int, out: Collector) -> None:
        side, result = input_index, _Result()
        rows = conformed(batch.data, self._schemas[side])
        # Rows that only come need not differ.
        delta = Delta(rows, weights(batch)) if self._only_comes(side) else consolidated(batch.with_data(rows))
        can_meet = self._can_meet(side, delta.rows)
        if not can_meet.all():
            self._say_own(side, delta.filter(~can_meet), np.zeros(int((~can_meet).sum()), np.int64), result)
            delta = delta.filter(can_meet)
        if len(delta):
            self._handle(side, delta, result, out)
        self._say(result, out)

    def _only_comes(self, side: int) -> bool:
        return self._sides[side].takes is ChangelogMode.APPEND

    def _say(self, result: _Result, out: Collector) -> None:
        """Emit what a result has so far."""
        if not result.rows:
            return
        rows, weights = pa.concat_batches(result.rows), np.concatenate(result.weights)
        result.clear()
        if self._spec.emits is ChangelogMode.APPEND:
            if not (weights == 1).all():
                rows = rows.take(pa.array(np.repeat(np.arange(len(weights)), weights)))
            out.collect(Batch(rows))
        elif (changes := changelog_of(Delta(rows, weights), self._spec.key, self._spec.emits)) is not None:
            out.collect(changes)

    def _can_meet(self, side: int, rows: pa.RecordBatch) -> Mask:
        """The rows without a null in a key of which null meets nothing."""
        can = np.ones(rows.num_rows, np.bool_)
        for place, key in enumerate(self._sides[side].keys):
            column = rows.column(key)
            if column.null_count and place not in self._spec.null_safe:
                can &= column.is_valid().to_numpy(zero_copy_only=False)
        return can

    def _handle(self, side: int, delta: Delta, result: _Result, out: Collector) -> None:
        keys, identity = ([delta.rows.column(name) for name in schema.names] for schema in self._sides[side].layout)
        own = self._states.begin(_NAMES[side], keys, identity)
        other = self._states.begin(_NAMES[1 - side], keys)
        search = None
        if not self._only_comes(side):
            search = own.rows.search(keys, identity)
            before = _counts(own, search)
            # A row that is not there (its time to live was over) cannot be deleted.
            delta = replace(delta, weights=np.maximum(delta.weights, -before))
        met = _met(keys, len(delta), other)
        matches, change = np.zeros(len(delta), np.int64), np.zeros(len(met.slots), np.int64)
        for meetings in self._meetings(side, delta.rows, other, met):
            if self._spec.kind.pairs:
                self._say_pairs(side, delta, other, met, meetings, result)
            np.add.at(matches, meetings.rows, met.counts[meetings.places])
            if self._spec.kind.counts_matches(1 - side):
                np.add.at(change, meetings.places, delta.weights[meetings.rows])
            if self._spec.emits is ChangelogMode.APPEND:
                # Others are said at once: what goes before what comes in its place.
                self._say(result, out)
        if self._spec.kind.counts_matches(1 - side):
            self._change_other(side, change, other, met, result)
        self._say_own(side, delta, matches, result)
        if search is None:
            self._take_in(side, own, keys, identity, matches)
        else:
            self._keep(side, own, search, [*keys, *identity], before + delta.weights, matches)
        self._states.end()

    def _meetings(self, side: int, rows: pa.RecordBatch, other: RowState, met: _Met) -> Iterator[_Meetings]:
        """The pairs that meet, in parts: without equal keys there may be more than memory has room for."""
        for numbers, places in spread(met.begins, met.ends):
            if self._spec.condition is None:
                yield _Meetings(numbers, places, None)
                continue
            joined = self._joined(side, rows, numbers, other, met.slots[places])
            meets = self._spec.condition(joined).fill_null(False).to_numpy(zero_copy_only=False)
            yield _Meetings(numbers[meets], places[meets], _filtered(joined, meets))

    def _joined(
        self, side: int, rows: pa.RecordBatch, numbers: Int64s, other: RowState, slots: Int64s
    ) -> pa.RecordBatch:
        """Rows of the batch beside kept rows of the other side."""
        came = rows.take(pa.array(numbers))
        kept = other.rows.rows(slots, self._schemas[1 - side])
        left, right = (came, kept) if side == LEFT else (kept, came)
        return pa.RecordBatch.from_arrays(
            [*left.columns, *right.columns], schema=pa.schema([*self._schemas[LEFT], *self._schemas[RIGHT]])
        )

    def _say_pairs(
        self, side: int, delta: Delta, other: RowState, met: _Met, meetings: _Meetings, result: _Result
    ) -> None:
        of_pairs = delta.weights[meetings.rows] * met.counts[meetings.places]
        said = of_pairs != 0
        if meetings.joined is not None:
            joined = _filtered(meetings.joined, said)
        else:
            numbers, slots = meetings.rows[said], met.slots[meetings.places[said]]
            joined = self._joined(side, delta.rows, numbers, other, slots)
        result.add(joined, of_pairs[said])

    def _change_other(self, side: int, change: Int64s, other: RowState, met: _Met, result: _Result) -> None:
        """Count what the other side's rows meet now, and say which of them came to meet something, or nothing.

        Args:
            change: how many more rows each of those that were met meets now.
        """
        changed = np.flatnonzero(change)
        slots, counts = met.slots[changed], met.counts[changed]
        before = other.rows.numbers(slots, _matches_in(other))
        after = np.maximum(before + change[changed], 0)
        other.renew(slots)
        other.write(slots, _matches_in(other), after)
        turned = (before > 0) != (after > 0)
        rows = other.rows.rows(slots[turned], self._schemas[1 - side])
        # A row that meets something now is no longer alone.
        alone = np.where(after[turned] > 0, -counts[turned], counts[turned])
        self._say_alone(1 - side, rows, alone, result)

    def _say_own(self, side: int, delta: Delta, matches: Int64s, result: _Result) -> None:
        """Say the batch's rows that come by themselves."""
        kind = self._spec.kind
        if not kind.counts_matches(side):
            return
        said = ((matches > 0) if kind is JoinKind.SEMI else (matches == 0)) & (delta.weights != 0)
        weights = delta.weights[said]
        rows = delta.rows.filter(pa.array(said))
        self._say_alone(side, rows, -weights if kind is JoinKind.SEMI else weights, result)

    def _say_alone(self, side: int, rows: pa.RecordBatch, alone: Int64s, result: _Result) -> None:
        """Say rows of one side by themselves.

        Args:
            alone: how often more each row meets nothing; of a semi join, whose rows meet something, less.
        """
        if self._spec.kind is JoinKind.SEMI:
            result.add(rows, -alone)
        elif self._spec.kind is JoinKind.ANTI:
            result.add(rows, alone)
        else:
            nulls = [pa.nulls(rows.num_rows, kind) for kind in self._schemas[1 - side].types]
            columns = [*rows.columns, *nulls] if side == LEFT else [*nulls, *rows.columns]
            result.add(pa.RecordBatch.from_arrays(columns, schema=self._spec.schema), alone)

    def _take_in(
        self, side: int, own: RowState, keys: list[pa.Array], identity: list[pa.Array], matches: Int64s
    ) -> None:
        """Keep rows that only come, in one step."""
        slots, _ = own.add(keys, identity)
        own.increase(slots, _count_in(own), np.ones(len(slots), np.int64))
        if self._spec.kind.counts_matches(side):
            own.write(slots, _matches_in(own), matches)

    def _keep(
        self,
        side: int,
        own: RowState,
        search: Search,
        columns: list[pa.Array],
        counts: Int64s,
        matches: Int64s,
    ) -> None:
        stay = counts > 0
        own.remove(search.slots[~stay & (search.slots >= 0)])
        if stay.any():
            slots = own.enter(search, stay, columns)
            own.write(slots, _count_in(own), counts[stay])
            if self._spec.kind.counts_matches(side):
                own.write(slots, _matches_in(own), matches[stay])

    def capture(self, request: CaptureRequest) -> OperatorCapture:
        return self._states.capture(request)

    def restore(self, snapshot: OperatorSnapshot) -> None:
        self._states.restore(snapshot)

    def close(self) -> None:
        self._states.close()


def _met(keys: list[pa.Array], rows: int, other: RowState) -> _Met:
    numbers, distinct = distinct_keys(keys, rows)
    of, slots = other.rows.of_keys(distinct)
    of_keys = np.bincount(of, minlength=int(numbers.max()) + 1)
    ends = np.cumsum(of_keys)
    return _Met(slots, other.rows.numbers(slots, _count_in(other)), (ends - of_keys)[numbers], ends[numbers])


def _count_in(state: RowState) -> str:
    """The column that says how often a row of a side is there."""
    name: str = state.layout.values.names[0]
    return name


def _matches_in(state: RowState) -> str:
    """The column that says how many rows of the other side a row meets."""
    name: str = state.layout.values.names[1]
    return name


def _counts(state: RowState, search: Search) -> Int64s:
    """How often each row is there that was searched for."""
    held = search.slots >= 0
    counts = np.zeros(len(held), np.int64)
    counts[held] = state.rows.numbers(search.slots[held], _count_in(state))
    return counts


def _filtered(rows: pa.RecordBatch, mask: Mask) -> pa.RecordBatch:
    return rows if mask.all() else rows.filter(pa.array(mask))
