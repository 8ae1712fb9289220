"""Batches as sums of changes: what came, summed by row, and what is to be said of a result that has changed.

All changelog operators read their input by `consolidated`, and most write their output by `difference`. It guarantees a
well-formed changelog: no row is taken back that was not given, and what has not changed is not spoken of.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.engine.changelog import ChangelogMode, RowKind
from penstock.engine.elements import Batch
from penstock.engine.row_numbers import distinct_of
from penstock.engine.state.keys.codec import is_word, perhaps_alike, words_of
from penstock.engine.state.keys.identity import coded_columns
from penstock.engine.state.keys.numbering import row_numbers

Int64s = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_WEIGHTS: Final = np.array([-1 if kind in (RowKind.UPDATE_BEFORE, RowKind.DELETE) else 1 for kind in RowKind])


@dataclass(frozen=True, slots=True)
class Delta:
    """Rows that differ, each with how often it came less how often it went, which is not 0.

    Args:
        rows: the rows.
        weights: int64, one a row.
    """

    rows: pa.RecordBatch
    weights: Int64s

    def __len__(self) -> int:
        return len(self.weights)

    def filter(self, mask: Mask) -> Delta:
        """The rows where `mask` is true."""
        if mask.all():
            return self
        return Delta(self.rows.filter(pa.array(mask)), self.weights[mask])


def row_codes(rows: pa.RecordBatch) -> Int64s:
    """A number for each row, from 0 in order of first occurrence: the same exactly where rows are not distinct."""
    if rows.num_columns == 0:
        return np.zeros(rows.num_rows, np.int64)
    return row_numbers(coded_columns(rows.columns))


def summed(rows: pa.RecordBatch, signs: Int64s) -> Delta:
    """The rows with their summed weights, in the order in which each came first; those that cancel out are left out."""
    alike = perhaps_alike(rows.columns, rows.num_rows)
    if not len(alike):
        return Delta(rows, signs)
    if len(alike) == rows.num_rows:
        _, places, sums = _summed(rows, signs)
    else:
        alone = np.ones(rows.num_rows, np.bool_)
        alone[alike] = False
        first, last, some = _summed(rows.take(pa.array(alike)), signs[alike])
        single = np.flatnonzero(alone)
        order = np.argsort(np.concatenate([single, alike[first]]))
        places = np.concatenate([single, alike[last]])[order]
        sums = np.concatenate([signs[single], some])[order]
    return Delta(rows.take(pa.array(places)), sums)


def _summed(rows: pa.RecordBatch, signs: Int64s) -> tuple[Int64s, Int64s, Int64s]:
    """For the rows that do not cancel out, the places where each came first and last, and its summed weight."""
    codes = row_codes(rows)
    count = int(codes.max(initial=-1)) + 1
    sums, first, last = np.zeros((3, count), np.int64)
    np.add.at(sums, codes, signs)
    first[codes[::-1]] = np.arange(len(codes))[::-1]
    for places in (np.flatnonzero(signs < 0), np.flatnonzero(signs > 0)):
        last[codes[places]] = places
    stay = np.flatnonzero(sums)
    return first[stay], last[stay], sums[stay]


def weights(batch: Batch) -> Int64s:
    """1 for each row that comes, -1 for each that goes.

    Example:
        >>> rows = pa.record_batch({"n": [5, 5, 6]})
        >>> weights(Batch(rows, kinds=pa.array([0, 3, 2], pa.int8()))).tolist()
        [1, -1, 1]
    """
    if batch.kinds is None:
        return np.ones(batch.num_rows, np.int64)
    signs: Int64s = _WEIGHTS[batch.kinds.to_numpy()]
    return signs


def consolidated(batch: Batch) -> Delta:
    """What a batch changes."""
    return summed(batch.data, weights(batch))


def difference(
    before: pa.RecordBatch, after: pa.RecordBatch, key: Sequence[str] | None, emits: ChangelogMode
) -> Batch | None:
    """The changes that make `after` of `before`; None where they hold the same rows.

    Args:
        before, after: rows with the same columns.
        key: columns of which at most one row on each side has the same values: such a pair is an update. None: there
            are none, so that rows are deleted and inserted.
        emits: retract or upsert: whether an update comes with the row before it.
    """
    rows = pa.concat_batches([before, after])
    signs = np.repeat(np.array([-1, 1]), [before.num_rows, after.num_rows])
    return changelog_of(summed(rows, signs), key, emits)


def changelog_of(
    delta: Delta, key: Sequence[str] | None, emits: ChangelogMode, codes: Int64s | None = None
) -> Batch | None:
    """The changelog that says `delta`: first what goes, then what comes; an update's two rows stand together.

    Args:
        delta: changes of a set of rows.
        key, emits: as for `difference`.
        codes: numbers from 0 that tell the keys of the rows apart; None: they are not known.
    """
    if not len(delta):
        return None
    signs = np.sign(delta.weights)
    rows = np.repeat(np.arange(len(delta)), np.abs(delta.weights))
    goes, comes = rows[signs[rows] < 0], rows[signs[rows] > 0]
    if key is None or not len(goes) or not len(comes):
        kinds = np.repeat(np.array([RowKind.DELETE, RowKind.INSERT], np.int8), [len(goes), len(comes)])
        return _chosen(delta.rows, np.concatenate([goes, comes]), kinds)
    if codes is None:
        codes = row_codes(delta.rows.select(list(key))) if key else np.zeros(len(delta), np.int64)
    partner = np.full(int(codes.max()) + 1, -1)
    partner[codes[comes]] = comes
    new_row = partner[codes[goes]]
    is_update = new_row >= 0
    updated = np.zeros(len(delta), np.bool_)
    updated[new_row[is_update]] = True
    pairs = np.stack([goes[is_update], new_row[is_update]], axis=1)
    deleted, inserted = goes[~is_update], comes[~updated[comes]]
    if emits is ChangelogMode.UPSERT:
        updates, said = pairs[:, 1], np.array([RowKind.UPDATE_AFTER], np.int8)
    else:
        updates, said = pairs.ravel(), np.array([RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER], np.int8)
    kinds = np.concatenate(
        [
            np.full(len(deleted), RowKind.DELETE, np.int8),
            np.tile(said, len(pairs)),
            np.full(len(inserted), RowKind.INSERT, np.int8),
        ]
    )
    return _chosen(delta.rows, np.concatenate([deleted, updates, inserted]), kinds)


def keyed_difference(
    before: pa.RecordBatch, had: Mask, after: pa.RecordBatch, has: Mask, emits: ChangelogMode
) -> Batch | None:
    """The changes of rows that correspond: row i of `after` is what row i of `before` has become.

    Args:
        before, after: rows with the same columns, as many on both sides.
        had, has: whether there was, and is, such a row.
        emits: retract or upsert: whether an update comes with the row before it.
    """
    count = len(had)
    changed = had != has
    for one, other in zip(before.columns, after.columns, strict=True):
        changed |= had & has & _differ(one, other)
    if not changed.any():
        return None
    numbers = np.arange(count)
    says_before = changed & had & (~has | (emits is ChangelogMode.RETRACT))
    says_after = changed & has
    kinds_before, kinds_after = (
        np.where(has, RowKind.UPDATE_BEFORE, RowKind.DELETE),
        np.where(had, RowKind.UPDATE_AFTER, RowKind.INSERT),
    )
    rows = np.concatenate([numbers[says_before], numbers[says_after] + count])
    kinds = np.concatenate([kinds_before[says_before], kinds_after[says_after]])
    order = np.argsort(rows % count, kind="stable")
    return _chosen(pa.concat_batches([before, after]), rows[order], kinds[order].astype(np.int8))


def _differ(one: pa.Array, other: pa.Array) -> Mask:
    """Where two columns of one type have distinct values."""
    if is_word(one.type):
        valid, valid_other = (column.is_valid().to_numpy(zero_copy_only=False) for column in (one, other))
        differ: Mask = (valid != valid_other) | (valid & (words_of(one) != words_of(other)))
        return differ
    numbers, _ = distinct_of([pa.concat_arrays(coded_columns([one, other]))])
    others: Mask = numbers[: len(one)] != numbers[len(one) :]
    return others


def _chosen(rows: pa.RecordBatch, places: Int64s, kinds: npt.NDArray[np.int8]) -> Batch:
    return Batch(rows.take(pa.array(places)), kinds=pa.array(kinds, pa.int8()))
