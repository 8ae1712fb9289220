"""What becomes of the rows of one Arrow table in another, by hash joins: added, removed, changed.

The comparison of savepoints calls it, table by table. Pure; rows may come in any order, values may be nested.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.engine.columns import one_array

_Mask: TypeAlias = npt.NDArray[np.bool_]
_Rows: TypeAlias = npt.NDArray[np.int64]

_BEFORE: Final = "__before"
_AFTER: Final = "__after"


@dataclass(frozen=True, slots=True)
class RowDifference:
    """What becomes of the rows of one table in another.

    Args:
        added, removed: the rows that are in one of the two only.
        before, after: the rows with the same identity that differ otherwise, in the same order.
        unchanged: how many are the same in both.
    """

    added: pa.Table
    removed: pa.Table
    before: pa.Table
    after: pa.Table
    unchanged: int


def compare(before: pa.Table, after: pa.Table, identity: Sequence[str]) -> RowDifference:
    """How the rows of `after` differ from those of `before`.

    Args:
        before, after: rows in any order.
        identity: the columns that tell rows apart, nulls being equal; empty: equal rows may come several times.
    """
    one, other = _alike(before, after)
    if identity and all(_type_of(one, name) == _type_of(other, name) for name in identity):
        by_identity = _compare_by(one, other, identity)
        if by_identity is not None:
            return _taken(before, after, by_identity)
    if one.schema != other.schema:
        return RowDifference(after, before, before.slice(0, 0), after.slice(0, 0), 0)
    return _compare_equal(before, after, _match(one, other, one.column_names))


@dataclass(frozen=True, slots=True)
class _Match:
    """Groups of rows with the same values: how many there are on each side, and the last of them."""

    last: tuple[_Rows, _Rows]
    counts: tuple[_Rows, _Rows]


def _match(one: pa.Table, other: pa.Table, names: Sequence[str]) -> _Match:
    numbered = []
    for table, own, others in ((one, _BEFORE, _AFTER), (other, _AFTER, _BEFORE)):
        columns = {f"{index}": _groupable(table.column(name)) for index, name in enumerate(names)}
        rows = {own: pa.array(np.arange(table.num_rows)), others: pa.nulls(table.num_rows, pa.int64())}
        numbered.append(pa.table({**columns, _BEFORE: rows[_BEFORE], _AFTER: rows[_AFTER]}))
    by = [f"{index}" for index in range(len(names))]
    sides = (_BEFORE, _AFTER)
    wanted = [(side, function) for side in sides for function in ("max", "count")]
    grouped = pa.concat_tables(numbered).group_by(by, use_threads=False).aggregate(wanted)
    last = [grouped.column(f"{side}_max").fill_null(-1).to_numpy() for side in sides]
    counts = [grouped.column(f"{side}_count").to_numpy() for side in sides]
    return _Match((last[0], last[1]), (counts[0], counts[1]))


def _compare_by(
    one: pa.Table, other: pa.Table, identity: Sequence[str]
) -> tuple[_Rows, _Rows, _Rows, _Rows, int] | None:
    """Rows of `other` that are added, of `one` that are removed, changed ones on both sides, and how many are not.

    None where the identity is none, since rows share it.
    """
    match = _match(one, other, identity)
    if any((counts > 1).any() for counts in match.counts):
        return None
    (last_one, last_other), in_one, in_other = match.last, match.counts[0] > 0, match.counts[1] > 0
    both = in_one & in_other
    rows_one, rows_other = last_one[both], last_other[both]
    rest = [name for name in dict.fromkeys([*one.column_names, *other.column_names]) if name not in identity]
    changed = np.zeros(len(rows_one), np.bool_)
    for name in rest:
        if _type_of(one, name) != _type_of(other, name):
            changed[:] = True
        elif not changed.all():
            pair = (table.column(name).take(pa.array(rows)) for table, rows in ((one, rows_one), (other, rows_other)))
            changed |= _differ(*map(one_array, pair))
    added, removed = np.sort(last_other[in_other & ~in_one]), np.sort(last_one[in_one & ~in_other])
    return added, removed, rows_one[changed], rows_other[changed], int((~changed).sum())


def _taken(before: pa.Table, after: pa.Table, found: tuple[_Rows, _Rows, _Rows, _Rows, int]) -> RowDifference:
    added, removed, changed_before, changed_after, unchanged = found
    return RowDifference(
        after.take(pa.array(added)),
        before.take(pa.array(removed)),
        before.take(pa.array(changed_before)),
        after.take(pa.array(changed_after)),
        unchanged,
    )


def _compare_equal(before: pa.Table, after: pa.Table, match: _Match) -> RowDifference:
    """Rows that may come several times: what is there more often is added, or was removed."""
    more = match.counts[1] - match.counts[0]
    added = np.repeat(match.last[1], np.maximum(more, 0))
    removed = np.repeat(match.last[0], np.maximum(-more, 0))
    unchanged = int(np.minimum(*match.counts).sum())
    return RowDifference(
        after.take(pa.array(added)), before.take(pa.array(removed)), before.slice(0, 0), after.slice(0, 0), unchanged
    )


def _alike(before: pa.Table, after: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Both with columns of the same types, where one fits into the other."""
    for name in before.column_names:
        if name not in after.column_names or _type_of(before, name) == _type_of(after, name):
            continue
        fields = [pa.schema([pa.field(name, _type_of(table, name))]) for table in (before, after)]
        try:
            kind = pa.unify_schemas(fields, promote_options="permissive").field(0).type
            before, after = (
                table.set_column(table.column_names.index(name), name, table.column(name).cast(kind))
                for table in (before, after)
            )
        except pa.ArrowException:
            continue
    return before, after


def _type_of(table: pa.Table, name: str) -> pa.DataType | None:
    return table.schema.field(name).type if name in table.column_names else None


def _groupable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column that Arrow can group by: nested values as their text."""
    if not pa.types.is_nested(column.type):
        return column
    return pa.chunked_array([pa.array([None if v is None else repr(v) for v in column.to_pylist()], pa.string())])


def _differ(one: pa.Array, other: pa.Array) -> _Mask:
    """For each row, whether two arrays of the same type and length differ; nulls are equal, and so are NaNs."""
    valid = _mask(one.is_valid())
    differ: _Mask = valid != _mask(other.is_valid())
    both: _Mask = valid & ~differ
    if not both.any() or pa.types.is_null(one.type):
        return differ
    rows = np.flatnonzero(both)
    one, other = (array.take(pa.array(rows)) for array in (one, other))
    differ[rows] = _values_differ(one, other)
    return differ


def _values_differ(one: pa.Array, other: pa.Array) -> _Mask:
    kind = one.type
    if pa.types.is_map(kind):
        entries = pa.list_(pa.struct([pa.field("key", kind.key_type), pa.field("value", kind.item_type)]))
        return _lists_differ(one.cast(entries), other.cast(entries))
    if pa.types.is_struct(kind):
        pairs = zip(one.flatten(), other.flatten(), strict=True)
        any_differs: _Mask = np.logical_or.reduce([np.zeros(len(one), np.bool_), *(_differ(*pair) for pair in pairs)])
        return any_differs
    if pa.types.is_nested(kind):
        return _lists_differ(one, other)
    if pa.types.is_floating(kind):
        one, other = (array.cast(pa.float64()) for array in (one, other))
        values = [array.to_numpy(zero_copy_only=False) for array in (one, other)]
        unequal: _Mask = (values[0] != values[1]) & ~(np.isnan(values[0]) & np.isnan(values[1]))
        return unequal
    return _mask(pc.not_equal(one, other))


def _lists_differ(one: pa.Array, other: pa.Array) -> _Mask:
    lengths = [np.asarray(pc.list_value_length(array)) for array in (one, other)]
    differ: _Mask = lengths[0] != lengths[1]
    rows = np.flatnonzero(~differ)
    if len(rows):
        elements = _differ(*(array.take(pa.array(rows)).flatten() for array in (one, other)))
        differ[np.repeat(rows, lengths[0][rows])[elements]] = True
    return differ


def _mask(array: pa.BooleanArray) -> _Mask:
    mask: _Mask = np.array(array.to_numpy(zero_copy_only=False))
    return mask
