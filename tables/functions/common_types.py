"""The type that values of several types have in common: in CASE, in comparisons, in set operations.

Source: Flink's `LogicalTypeMerging.findCommonType`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from penstock.tables import types as t
from penstock.tables.types import Kind, RowField, SqlType

EQUALITIES: Final = frozenset({"=", "<>"})
"""The comparisons of values that need no order."""


def common_type(kinds: Sequence[SqlType]) -> SqlType | None:
    """The type that holds the values of all; None where there is none."""
    nullable = any(kind.nullable or kind.kind is Kind.NULL for kind in kinds)
    known = [kind for kind in kinds if kind.kind is not Kind.NULL]
    if not known:
        return t.NULL
    found: SqlType | None = known[0]
    for kind in known[1:]:
        found = _wider(found, kind)
    return None if found is None else found.with_nullable(nullable)


def _wider(one: SqlType | None, other: SqlType) -> SqlType | None:
    if one is None or one.same_as(other):
        return one
    a, b = one.kind, other.kind
    if one.is_numeric and other.is_numeric:
        return _wider_number(one, other)
    if one.is_text and other.is_text:
        # Of different lengths, so never padded: they stay as they are.
        return SqlType(Kind.VARCHAR, precision=max(one.precision, other.precision))
    if a in t.BYTES_KINDS and b in t.BYTES_KINDS:
        return SqlType(Kind.VARBINARY, precision=max(one.precision, other.precision))
    if {a, b} <= {Kind.DATE, *t.TIMESTAMPS}:
        kind = Kind.TIMESTAMP_LTZ if Kind.TIMESTAMP_LTZ in (a, b) else Kind.TIMESTAMP
        return SqlType(kind, precision=max(one.precision, other.precision))
    if a is b is Kind.TIME:
        return SqlType(Kind.TIME, precision=max(one.precision, other.precision))
    if a is b and a in (Kind.ARRAY, Kind.MAP, Kind.MULTISET):
        parts = [common_type(pair) for pair in zip(one.parts, other.parts, strict=True)]
        found = tuple(part for part in parts if part is not None)
        return SqlType(a, parts=found) if len(found) == len(parts) else None
    if a is b is Kind.ROW and (len(one.fields), one.class_name) == (len(other.fields), other.class_name):
        kinds = [common_type((x.type, y.type)) for x, y in zip(one.fields, other.fields, strict=True)]
        fields = [RowField(f.name, kind) for f, kind in zip(one.fields, kinds, strict=True) if kind is not None]
        return replace(one, fields=tuple(fields)) if len(fields) == len(kinds) else None
    return None


def _wider_number(one: SqlType, other: SqlType) -> SqlType:
    a, b = one.kind, other.kind
    if a in t.INTEGERS and b in t.INTEGERS:
        return SqlType(max(a, b, key=t.INTEGERS.index))
    if a in t.APPROXIMATE or b in t.APPROXIMATE:
        return t.FLOAT if a is b is Kind.FLOAT else t.DOUBLE
    left, right = t.as_decimal(one), t.as_decimal(other)
    scale = max(left.scale, right.scale)
    return t.decimal(max(left.precision - left.scale, right.precision - right.scale) + scale, scale)


def comparable_type(one: SqlType, other: SqlType, operator: str) -> SqlType | None:
    """The type as which `operator` compares values of both; None where it does not.

    A text is read as the time that it is compared with, and, where it is asked what is greater, as the number. Source:
    what Flink 2.3 answers (`=` of a text and a number fails there when the job is planned).
    """
    if other.is_text and not one.is_text:
        one, other = other, one
    if one.is_text and other.kind in t.TEMPORAL:
        return other
    if one.is_text and other.is_numeric and operator not in EQUALITIES:
        return t.DOUBLE if other.kind in t.APPROXIMATE else other
    return common_type((one, other))
