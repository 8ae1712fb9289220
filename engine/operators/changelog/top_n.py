"""The first rows of each partition by an order: Top-N, deduplication, and the last word on a key before a sink.

Rows are ranked by ROW_NUMBER, RANK or DENSE_RANK, and those whose rank is in a range are the result, which each batch
brings up to date. Of rows that only ever come, those beyond the range are forgotten at once, so that state is bounded.

Source: Flink's documentation, "Top-N" and "Deduplication", and its `SinkUpsertMaterializer`.
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
from penstock.engine.errors import GraphError, missing_column
from penstock.engine.operators.base import Collector, Operator, OperatorContext
from penstock.engine.operators.changelog.changes import Delta, changelog_of, difference, weights
from penstock.engine.operators.changelog.contest import Contest
from penstock.engine.operators.changelog.counted_rows import (
    Ties,
    Turnover,
    arrivals_of,
    counted_layout,
    counts_of,
    repeated,
    take_in,
    write_counted,
)
from penstock.engine.operators.changelog.inputs import accepted, conformed, distinct_keys, plain_columns
from penstock.engine.operators.changelog.ranks import Order, sorted_places, within_runs
from penstock.engine.operators.changelog.row_states import RowState, RowStates
from penstock.engine.operators.spec import OperatorSpec, OperatorTraits
from penstock.engine.state.capture import CaptureRequest, OperatorCapture
from penstock.engine.state.keys.numbering import row_numbers
from penstock.engine.state.snapshot import OperatorSnapshot

Int64s = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

ROWS: Final = "rows"
"""The name of its state."""


class Rank(enum.Enum):
    """How rows are numbered within their partition."""

    ROW_NUMBER = "row_number"
    RANK = "rank"
    DENSE_RANK = "dense_rank"


@dataclass(frozen=True, slots=True)
class TopNSpec(OperatorSpec):
    """Creates the operator of a Top-N query.

    Args:
        input: the columns that come.
        partition: the columns whose values make a partition; none: all rows are one, in one subtask.
        order: by what rows are ordered; nothing: by arrival alone.
        end: the last rank of the result.
        start: its first rank, above 1 where there is an OFFSET.
        rank: how rows are numbered.
        rank_column: a column of the result behind the others with the rank (int64); None: there is none.
        ties: which of equal rows comes first.
        takes: append where no row ever goes; else retract.
        emits: retract, or upsert where the result has a key; append where rows stay, and are ordered by arrival.
        key: columns that tell the rows of the result apart, where neither the rank nor a range of one row does.
        ttl_ms: how long a row is kept, in milliseconds of processing time; None: for ever.

    Raises:
        GraphError: a column that is not there, a range that is empty, or a mode that the result cannot have.

    Example:
        >>> bids = pa.schema({"auction": pa.int64(), "price": pa.int64()})
        >>> TopNSpec(bids, ("auction",), (Order("price", descending=True),), end=3, rank_column="n").schema.names
        ['auction', 'price', 'n']
    """

    input: pa.Schema
    partition: tuple[str, ...]
    order: tuple[Order, ...]
    end: int
    start: int = 1
    rank: Rank = Rank.ROW_NUMBER
    rank_column: str | None = None
    ties: Ties = Ties.FIRST_ARRIVED
    takes: ChangelogMode = ChangelogMode.RETRACT
    emits: ChangelogMode = ChangelogMode.RETRACT
    key: tuple[str, ...] | None = None
    ttl_ms: int | None = None

    def __post_init__(self) -> None:
        for name in (*self.partition, *(one.column for one in self.order)):
            if name not in self.input.names:
                raise missing_column(name, self.input.names, "top_n")
        if not 1 <= self.start <= self.end:
            raise GraphError(f"top_n: ranks from {self.start} to {self.end} are none; begin at 1 or above")
        if self.rank_column in self.input.names:
            raise GraphError(f"top_n: there is a column {self.rank_column!r} already; give the rank another name")
        stays = self.takes is ChangelogMode.APPEND and not self.order and self.ties is Ties.FIRST_ARRIVED
        if self.emits is ChangelogMode.APPEND and not stays:
            raise GraphError("top_n: rows leave the result when better ones come; let it emit retract")
        if self.emits is ChangelogMode.UPSERT and self.result_key is None:
            raise GraphError("top_n: a result in upsert mode needs a key; give key=(...), or let it emit retract")

    @property
    def schema(self) -> pa.Schema:
        """The columns of the result."""
        plain = plain_columns(self.input)
        return plain if self.rank_column is None else plain.append(pa.field(self.rank_column, pa.int64()))

    @property
    def result_key(self) -> tuple[str, ...] | None:
        """Columns of the result of which no two rows have the same values at one time, if they are known."""
        if self.rank is Rank.ROW_NUMBER and self.rank_column is not None:
            return (*self.partition, self.rank_column)
        if self.rank is Rank.ROW_NUMBER and self.start == self.end:
            return self.partition
        return self.key

    @property
    def traits(self) -> OperatorTraits:
        return OperatorTraits(keys=(self.partition,), accepts=(accepted(self.takes),), emits=self.emits)

    def describe(self) -> str:
        order = ", ".join(one.describe() for one in self.order) or self.ties.value
        return f"top_n({self.rank.value} {self.start} to {self.end}, by=[{', '.join(self.partition)}], [{order}])"

    def create(self) -> TopN:
        return TopN(self)


def deduplication(
    columns: pa.Schema,
    keys: tuple[str, ...],
    keep: Ties,
    time: str | None = None,
    takes: ChangelogMode = ChangelogMode.APPEND,
    emits: ChangelogMode = ChangelogMode.RETRACT,
    ttl_ms: int | None = None,
) -> TopNSpec:
    """One row of each key: the first or the last, by a column of times or by arrival.

    Args:
        columns: those that come.
        keys: of which one row is wanted.
        keep: the first or the last.
        time: the column to go by; None: the order of arrival.
        takes, emits, ttl_ms: as for `TopNSpec`.
    """
    order = () if time is None else (Order(time, descending=keep is Ties.LAST_ARRIVED),)
    return TopNSpec(columns, keys, order, end=1, ties=keep, takes=takes, emits=emits, ttl_ms=ttl_ms)


def upsert_materializer(
    columns: pa.Schema,
    keys: tuple[str, ...],
    emits: ChangelogMode = ChangelogMode.UPSERT,
    ttl_ms: int | None = None,
) -> TopNSpec:
    """What stands in front of a sink whose key is not that of the changelog: of each key's rows the last to come.

    When that row goes, the one before it is the last again.

    Args:
        columns: those that come.
        keys: the sink's key.
        emits, ttl_ms: as for `TopNSpec`.
    """
    return TopNSpec(columns, keys, (), end=1, ties=Ties.LAST_ARRIVED, emits=emits, ttl_ms=ttl_ms)


@dataclass(frozen=True, slots=True)
class _Ranked:
    """Rows with their ranks; a row that is there more than once comes as often.

    Args:
        slots: of the rows.
        ranks: their ranks.
        times: which of rows that are alike each is, from 0.
    """

    slots: Int64s
    ranks: Int64s
    times: Int64s

    def filter(self, mask: Mask) -> _Ranked:
        return _Ranked(self.slots[mask], self.ranks[mask], self.times[mask])


class TopN(Operator):
    """Keeps the rows of each partition; of rows that stay, those alone that have a rank in the range or before it."""

    def __init__(self, spec: TopNSpec) -> None:
        self._spec = spec
        self._input = plain_columns(spec.input)
        self._keys = pa.schema([self._input.field(name) for name in spec.partition])
        self._others = pa.schema([one for one in self._input if one.name not in spec.partition])

    def open(self, context: OperatorContext) -> None:
        self._states = RowStates(context, [counted_layout(ROWS, self._keys, self._others, self._spec.ttl_ms)])

    def process_batch(self, batch: Batch, input_index: int, out: Collector) -> None:
        rows, signs = conformed(batch.data, self._input), weights(batch)
        of, partitions = distinct_keys([rows.column(name) for name in self._keys.names], len(signs))
        state = self._states.begin(ROWS, partitions)
        numbers = state.take_numbers(len(signs))
        rest = np.ones(len(signs), np.bool_)
        if self._spec.takes is ChangelogMode.APPEND and self._spec.order and self._spec.start == 1:
            contest = Contest.of(state, partitions, rows, of, self._spec.order)
            self._say(self._decided(state, contest, rows, numbers), out)
            rest = contest.tied[of]
        if rest.any():
            taken = Turnover.of(rows.filter(pa.array(rest)), signs[rest])
            self._say(self._taken(state, taken, numbers[rest]), out)
        self._states.end()

    def _say(self, changes: Batch | None, out: Collector) -> None:
        if changes is not None:
            out.collect(changes if self._spec.emits is not ChangelogMode.APPEND else Batch(changes.data))

    def _decided(self, state: RowState, contest: Contest, rows: pa.RecordBatch, numbers: Int64s) -> Batch | None:
        """Take in the rows of partitions without equal ones: what of them stays out is never looked for."""
        end = self._spec.end
        entered = ~contest.tied[contest.of_rows] & (contest.ranks <= end)
        free = ~contest.tied[contest.of_held]
        stays = contest.held_ranks <= end
        moved = free & ~stays
        if self._spec.rank_column is not None:
            moved |= free & (contest.held_ranks != contest.ranks_before)
        before = state.rows.rows(contest.slots[moved], self._input)
        new = rows.filter(pa.array(entered))
        was = self._with_ranks(before, contest.ranks_before[moved])
        still = self._with_ranks(before.filter(pa.array(stays[moved])), contest.held_ranks[moved & stays])
        came = self._with_ranks(new, contest.ranks[entered])
        if new.num_rows:
            columns = [[new.column(name) for name in schema.names] for schema in (self._keys, self._others)]
            slots, _ = state.add(*columns)
            write_counted(state, slots, np.ones(len(slots), np.int64), numbers[entered])
        state.remove(contest.slots[free & ~stays])
        signs = np.repeat(np.array([-1, 1]), [was.num_rows, still.num_rows + came.num_rows])
        of = [contest.of_held[moved], contest.of_held[moved & stays], contest.of_rows[entered]]
        ranks = [contest.ranks_before[moved], contest.held_ranks[moved & stays], contest.ranks[entered]]
        codes = self._key_codes(np.concatenate(of), np.concatenate(ranks))
        delta = Delta(pa.concat_batches([was, still, came]), signs)
        return changelog_of(delta, self._spec.result_key, self._spec.emits, codes)

    def _key_codes(self, of: Int64s, ranks: Int64s) -> Int64s | None:
        """Numbers that tell the keys of rows in the result apart, by their partitions and ranks."""
        spec = self._spec
        if spec.rank is not Rank.ROW_NUMBER:
            return None
        if spec.rank_column is not None:
            return row_numbers([pa.array(of), pa.array(ranks)])
        return of if spec.start == spec.end else None

    def _taken(self, state: RowState, taken: Turnover, numbers: Int64s) -> Batch | None:
        """Take in any rows: what has a rank before and behind them is compared."""
        keys = [taken.rows.column(name) for name in self._keys.names]
        _, partitions = distinct_keys(keys, len(taken))
        before = self._ranked(state, partitions)
        identity = [taken.rows.column(name) for name in self._others.names]
        gone = take_in(state, taken, keys, identity, numbers, self._spec.ties)
        after = self._ranked(state, partitions)
        changes = self._changes(state, before, after)
        # Only now, so that no slot has been given to another row meanwhile.
        state.remove(gone)
        self._prune(state, partitions, after)
        return changes

    def _changes(self, state: RowState, before: _Ranked, after: _Ranked) -> Batch | None:
        left, entered = _differing(before, after, self._spec.rank_column is not None)
        before, after = before.filter(left), after.filter(entered)
        was, now = self._result(state, before), self._result(state, after)
        if before.times.any() or after.times.any():
            return difference(was, now, self._spec.result_key, self._spec.emits)
        rows = pa.concat_batches([was, now])
        signs = np.repeat(np.array([-1, 1]), [was.num_rows, now.num_rows])
        return changelog_of(Delta(rows, signs), self._spec.result_key, self._spec.emits)

    def _prune(self, state: RowState, partitions: list[pa.Array], after: _Ranked) -> None:
        """Forget the rows that will never be in the range, where none that is before them goes."""
        if self._spec.takes is ChangelogMode.APPEND:
            kept = after if self._spec.start == 1 else self._ranked(state, partitions, first=1)
            held = state.rows.of_keys(partitions)[1]
            state.remove(held[~np.isin(held, kept.slots)])

    def _ranked(self, state: RowState, partitions: list[pa.Array], first: int | None = None) -> _Ranked:
        """The rows of some partitions whose rank is in the range; from rank `first` on, where it is given."""
        spec = self._spec
        of, slots = state.rows.of_keys(partitions)
        arrived = arrivals_of(state, slots)
        columns = state.rows.columns(slots, [one.column for one in spec.order])
        sorts = [one.codes(column) for one, column in zip(spec.order, columns, strict=True)]
        by_arrival = arrived if spec.ties is Ties.FIRST_ARRIVED else -arrived
        order = sorted_places([of, *sorts, by_arrival])
        rows, times = repeated(order, counts_of(state, slots)[order])
        ranks = _ranks(spec.rank, of[rows], [codes[rows] for codes in sorts])
        chosen = (ranks >= (spec.start if first is None else first)) & (ranks <= spec.end)
        return _Ranked(slots[rows], ranks, times).filter(chosen)

    def _result(self, state: RowState, ranked: _Ranked) -> pa.RecordBatch:
        return self._with_ranks(state.rows.rows(ranked.slots, self._input), ranked.ranks)

    def _with_ranks(self, rows: pa.RecordBatch, ranks: Int64s) -> pa.RecordBatch:
        if self._spec.rank_column is None:
            return rows
        return pa.RecordBatch.from_arrays([*rows.columns, pa.array(ranks)], schema=self._spec.schema)

    def capture(self, request: CaptureRequest) -> OperatorCapture:
        return self._states.capture(request)

    def restore(self, snapshot: OperatorSnapshot) -> None:
        self._states.restore(snapshot)

    def close(self) -> None:
        self._states.close()


def _ranks(rank: Rank, of: Int64s, sorts: list[Int64s]) -> Int64s:
    """The ranks of rows that are sorted by partition and order."""
    if rank is Rank.ROW_NUMBER:
        return within_runs(of) + 1
    is_new = np.ones(len(of), np.bool_)
    is_new[1:] = of[1:] != of[:-1]
    begins = is_new.copy()
    for codes in sorts:
        is_new[1:] |= codes[1:] != codes[:-1]
    if rank is Rank.RANK:
        numbers = within_runs(of) + 1
        return numbers[_last_of(is_new)]
    different: Int64s = np.cumsum(is_new)
    ranks: Int64s = different - different[_last_of(begins)] + 1
    return ranks


def _last_of(begins: Mask) -> Int64s:
    """For each place the last one, up to it, where something begins."""
    lasts: Int64s = np.maximum.accumulate(np.where(begins, np.arange(len(begins)), 0))
    return lasts


def _differing(before: _Ranked, after: _Ranked, with_rank: bool) -> tuple[Mask, Mask]:
    """The rows that left the result, and those that came into it; what is there more than once may be in both.

    Args:
        with_rank: whether a row with another rank is another row.
    """
    left, entered = np.ones(len(before.slots), np.bool_), np.ones(len(after.slots), np.bool_)
    if not len(left) or before.times.any() or after.times.any():
        return left, entered
    order = np.argsort(before.slots)
    slots = before.slots[order]
    found = np.minimum(np.searchsorted(slots, after.slots), len(slots) - 1)
    same = slots[found] == after.slots
    if with_rank:
        same &= before.ranks[order][found] == after.ranks
    entered[same] = False
    left[order[found[same]]] = False
    return left, entered
