"""Rows that are there more than once, with how often and since when: what Top-N and OVER keep of each partition.

Both take in the changes of a batch by `take_in`; a row that comes again keeps its place among rows that are equal in
the order, or goes behind them, as `Ties` says.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.engine.operators.changelog.changes import row_codes
from penstock.engine.operators.changelog.column_names import free_name
from penstock.engine.operators.changelog.keyed_rows import RowsLayout
from penstock.engine.operators.changelog.row_states import NUMBER, RowState

Int64s = npt.NDArray[np.int64]

_COUNT: Final = "__count"


class Ties(enum.Enum):
    """Which of rows that are equal in the order comes first."""

    FIRST_ARRIVED = "first arrived"
    LAST_ARRIVED = "last arrived"


def counted_layout(name: str, keys: pa.Schema, identity: pa.Schema, ttl_ms: int | None) -> RowsLayout:
    """The form of such a state: beside its rows, how often each is there, and its number of arrival."""
    taken = [*keys.names, *identity.names]
    count, number = free_name(_COUNT, taken), free_name(NUMBER, taken)
    return RowsLayout(name, keys, identity, pa.schema({count: pa.int64(), number: pa.int64()}), ttl_ms, number)


def counts_of(state: RowState, slots: Int64s) -> Int64s:
    """How often each of the rows at `slots` is there."""
    return state.rows.numbers(slots, state.layout.values.names[0])


def arrivals_of(state: RowState, slots: Int64s) -> Int64s:
    """The numbers of arrival of the rows at `slots`."""
    return state.rows.numbers(slots, state.layout.values.names[1])


def write_counted(state: RowState, slots: Int64s, counts: Int64s, arrivals: Int64s) -> None:
    """Set how often rows are there, and their numbers of arrival."""
    for name, values in zip(state.layout.values.names, (counts, arrivals), strict=True):
        state.write(slots, name, values)


@dataclass(frozen=True, slots=True)
class Turnover:
    """The rows of a batch that are not alike, each with what its changes come to when they are taken one by one.

    Args:
        rows: the rows.
        weights: how often each came less how often it went.
        lowest: the least that this was on the way, 0 at most.
        again: the place in the batch where it first comes after that.
        last: the place where it comes last; -1 where it only goes.
    """

    rows: pa.RecordBatch
    weights: Int64s
    lowest: Int64s
    again: Int64s
    last: Int64s

    @classmethod
    def of(cls, rows: pa.RecordBatch, signs: Int64s) -> Turnover:
        """The changes of a batch, of one row at least.

        Args:
            rows: of the batch.
            signs: 1 for each that comes, -1 for each that goes.
        """
        codes = row_codes(rows)
        order = np.argsort(codes, kind="stable")
        signs, numbers = signs[order], np.arange(len(order))
        begins = np.flatnonzero(np.diff(codes[order], prepend=-1))
        lengths = np.diff(begins, append=len(order))
        ends = begins + lengths
        total = np.cumsum(signs)
        running = total - np.repeat(total[begins] - signs[begins], lengths)
        lowest = np.minimum(np.minimum.reduceat(running, begins), 0)
        is_low = running == np.repeat(lowest, lengths)
        behind = np.maximum(np.maximum.reduceat(np.where(is_low, numbers, -1), begins) + 1, begins)
        comes = np.maximum.reduceat(np.where(signs > 0, numbers, -1), begins)
        return cls(
            rows.take(pa.array(order[ends - 1])),
            running[ends - 1],
            lowest,
            order[np.minimum(behind, ends - 1)],
            np.where(comes < 0, -1, order[comes]),
        )

    def __len__(self) -> int:
        return len(self.weights)


def take_in(
    state: RowState,
    changes: Turnover,
    keys: Sequence[pa.Array],
    identity: Sequence[pa.Array],
    numbers: Int64s,
    ties: Ties,
) -> Int64s:
    """Take in the changes of a batch: the same state comes of it in whatever batches they come.

    Args:
        state: with the layout of `counted_layout`; the keys of the batch have been begun.
        changes: those of the batch.
        keys, identity: the columns of its rows.
        numbers: of arrival, one for each row of the batch.
        ties: whether a row that comes again keeps its number; one that was gone meanwhile does not.

    Returns:
        the slots whose rows are gone; the caller removes them when it has said what has changed.
    """
    search = state.rows.search(keys, identity)
    found = search.slots
    held = found >= 0
    before, arrived = np.zeros(len(changes), np.int64), np.zeros(len(changes), np.int64)
    before[held], arrived[held] = counts_of(state, found[held]), arrivals_of(state, found[held])
    if ties is Ties.FIRST_ARRIVED:
        arrived = np.where(before + changes.lowest > 0, arrived, numbers[changes.again])
    else:
        arrived = np.where(changes.last >= 0, numbers[changes.last], arrived)
    # A delete of a row that is not there is ignored.
    after = np.maximum(before, -changes.lowest) + changes.weights
    stay, gone = after > 0, found[(after == 0) & held]
    if stay.any():
        slots = state.enter(search, stay, [*keys, *identity])
        write_counted(state, slots, after[stay], arrived[stay])
    state.write(gone, state.layout.values.names[0], np.zeros(len(gone), np.int64))
    went: Int64s = gone
    return went


def repeated(places: Int64s, counts: Int64s) -> tuple[Int64s, Int64s]:
    """Each place as often as its row is there, and which of the rows that are alike each is, from 0."""
    rows = np.repeat(places, counts)
    times: Int64s = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    return rows, times
