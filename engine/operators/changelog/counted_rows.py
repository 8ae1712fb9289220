"""Rows that are there more than once, with how often and since when: what Top-N and OVER keep of each partition.

Both take in the changes of a batch by `take_in`; a row that comes again keeps its place among rows that are equal in
the order, or goes behind them, as `Ties` says.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.engine.operators.changelog.changes import Delta
from penstock.engine.operators.changelog.keyed_rows import RowsLayout
from penstock.engine.operators.changelog.row_states import NUMBER, RowState

Int64s = npt.NDArray[np.int64]

COUNT: Final = "__count"
"""How often a row is there."""


class Ties(enum.Enum):
    """Which of rows that are equal in the order comes first."""

    FIRST_ARRIVED = "first arrived"
    LAST_ARRIVED = "last arrived"


def counted_layout(name: str, keys: pa.Schema, identity: pa.Schema, ttl_ms: int | None) -> RowsLayout:
    """The form of such a state."""
    return RowsLayout(name, keys, identity, pa.schema({COUNT: pa.int64(), NUMBER: pa.int64()}), ttl_ms)


def take_in(
    state: RowState,
    delta: Delta,
    keys: Sequence[pa.Array],
    identity: Sequence[pa.Array],
    numbers: Int64s,
    ties: Ties,
) -> Int64s:
    """Take in the changes of a batch.

    Args:
        state: with the layout of `counted_layout`; the keys of the batch have been begun.
        delta: the changes.
        keys, identity: the columns of its rows.
        numbers: of the rows' arrival.
        ties: whether a row that comes again keeps its number.

    Returns:
        the slots whose rows are gone; the caller removes them when it has said what has changed.
    """
    found = state.rows.find(keys, identity)
    held = found >= 0
    before, arrived = np.zeros(len(delta), np.int64), numbers.copy()
    before[held] = state.rows.numbers(found[held], COUNT)
    keeps_number = held & ((delta.weights < 0) | (ties is Ties.FIRST_ARRIVED))
    arrived[keeps_number] = state.rows.numbers(found[keeps_number], NUMBER)
    after = np.maximum(before + delta.weights, 0)
    stay, gone = after > 0, found[(after == 0) & held]
    mask = pa.array(stay)
    if stay.any():
        slots, _ = state.add([key.filter(mask) for key in keys], [column.filter(mask) for column in identity])
        state.write(slots, COUNT, after[stay])
        state.write(slots, NUMBER, arrived[stay])
    state.write(gone, COUNT, np.zeros(len(gone), np.int64))
    went: Int64s = gone
    return went


def repeated(places: Int64s, counts: Int64s) -> tuple[Int64s, Int64s]:
    """Each place as often as its row is there, and which of the rows that are alike each is, from 0."""
    rows = np.repeat(places, counts)
    times: Int64s = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    return rows, times
