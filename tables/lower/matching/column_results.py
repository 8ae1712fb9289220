"""What results read of matches that are columns: a column for each reference, for ONE ROW PER MATCH.

`MatchedRows` holds one. What it gives is what the readers of `readers.py` give at the last row of each match.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from penstock.engine.columns import with_numbers
from penstock.engine.patterns.rows.column_rules import Int64s
from penstock.tables.lower.matching.column_partitions import ColumnMatches
from penstock.tables.lower.matching.readers import aggregated
from penstock.tables.plan.row_references import Reference, ReferenceKind
from penstock.tables.types import arrow_type


def read_column(reference: Reference, found: ColumnMatches, names: Sequence[str]) -> pa.Array:
    """The value of a reference for each match.

    Args:
        reference: no time of matches, and no row before the one in question.
        found: at least one match.
        names: the variables of the pattern, by number.
    """
    is_meant = np.array([reference.variables is None or name in reference.variables for name in names], np.bool_)
    mask = is_meant[found.variables]
    if reference.kind is ReferenceKind.AGGREGATE:
        return _aggregate(reference, found, mask)
    begins, ends = _spans(mask, found.begins)
    places = begins + reference.offset if reference.from_first else ends - 1 - reference.offset
    is_there = reference.offset < ends - begins
    members = np.append(np.flatnonzero(mask), 0)
    rows = members[np.where(is_there, places, 0)]
    if reference.kind is ReferenceKind.CLASSIFIER:
        return pa.array(names, pa.string()).take(pa.array(found.variables[rows], mask=~is_there))
    assert reference.value is not None, "a row's value has a place"
    return found.values[reference.value].take(pa.array(found.rows[rows], mask=~is_there))


def _aggregate(
    reference: Reference, found: ColumnMatches, mask: np.ndarray[tuple[int], np.dtype[np.bool_]]
) -> pa.Array:
    kind = arrow_type(reference.type)
    if reference.value is None:
        begins, ends = _spans(mask, found.begins)
        return pa.array(ends - begins).cast(kind)
    column = found.values[reference.value]
    if column.null_count:
        mask = mask & column.is_valid().to_numpy(zero_copy_only=False)[found.rows]
    begins, ends = _spans(mask, found.begins)
    if reference.function == "COUNT":
        return pa.array(ends - begins).cast(kind)
    step, finish = aggregated(replace(reference, value=0))
    values = with_numbers(column.take(pa.array(found.rows[mask]))).to_pylist()
    made = []
    for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
        kept = None
        for value in values[begin:end]:
            kept = step(kept, (value,))
        made.append(finish(kept))
    return pa.array(made, kind)


def _spans(mask: np.ndarray[tuple[int], np.dtype[np.bool_]], begins: Int64s) -> tuple[Int64s, Int64s]:
    """Which of the rows that are meant are those of each match: the first, and the one behind the last."""
    so_far = np.concatenate([[0], np.cumsum(mask)])
    return so_far[begins[:-1]], so_far[begins[1:]]
