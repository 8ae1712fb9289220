"""Reads types: `DECIMAL(10, 2) NOT NULL`, `ROW<a INT, b ARRAY<STRING>>`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from penstock.engine.errors import nearest
from penstock.tables.parse.cursor import Cursor
from penstock.tables.types import MAX_LENGTH, MAX_PRECISION, Kind, RowField, SqlType

_PLAIN: Final = {
    "BOOLEAN": Kind.BOOLEAN,
    "TINYINT": Kind.TINYINT,
    "SMALLINT": Kind.SMALLINT,
    "INT": Kind.INT,
    "INTEGER": Kind.INT,
    "BIGINT": Kind.BIGINT,
    "FLOAT": Kind.FLOAT,
    "DATE": Kind.DATE,
    "VARIANT": Kind.VARIANT,
    "BITMAP": Kind.BITMAP,
}
_OF_LENGTH: Final = {
    "CHAR": (Kind.CHAR, 1),
    "CHARACTER": (Kind.CHAR, 1),
    "VARCHAR": (Kind.VARCHAR, MAX_LENGTH),
    "BINARY": (Kind.BINARY, 1),
    "VARBINARY": (Kind.VARBINARY, MAX_LENGTH),
}
_UNBOUNDED: Final = {"STRING": Kind.VARCHAR, "BYTES": Kind.VARBINARY}
_REFUSED: Final = {
    "RAW": "serialised Java objects have no meaning here",
}
_NAMES: Final = (
    *_PLAIN,
    *_OF_LENGTH,
    *_UNBOUNDED,
    *(
        "DECIMAL",
        "NUMERIC",
        "DEC",
        "DOUBLE",
        "TIME",
        "TIMESTAMP",
        "TIMESTAMP_LTZ",
        "ARRAY",
        "MULTISET",
        "MAP",
        "ROW",
        "STRUCTURED",
    ),
)


def parse_type(cursor: Cursor) -> SqlType:
    """Take a type, with `NOT NULL` or `NULL` behind it.

    Raises:
        SqlSyntaxError, SqlUnsupportedError: no type, or one that is not supported.
    """
    kind = _root(cursor)
    while cursor.sees("ARRAY") or cursor.sees("MULTISET"):
        collection = Kind[cursor.take().word]
        kind = SqlType(collection, parts=(kind,))
    if cursor.accept("NOT", "NULL"):
        return kind.with_nullable(False)
    cursor.accept("NULL")
    return kind


def _root(cursor: Cursor) -> SqlType:
    token, word = cursor.token, cursor.token.word
    if word in _REFUSED:
        raise cursor.source.unsupported(token.at, f"the type {word} is not supported: {_REFUSED[word]}")
    if word not in _NAMES and word != "INTERVAL":
        raise cursor.source.syntax(token.at, f"{token.shown} is no type{nearest(word, _NAMES)}")
    cursor.take()
    if word in _PLAIN:
        return SqlType(_PLAIN[word])
    if word in _UNBOUNDED:
        return SqlType(_UNBOUNDED[word], precision=MAX_LENGTH)
    if word in _OF_LENGTH:
        kind, default = _OF_LENGTH[word]
        if word in ("CHAR", "CHARACTER") and cursor.accept("VARYING"):
            kind, default = Kind.VARCHAR, 1
        return SqlType(kind, precision=_number(cursor, default, 1, MAX_LENGTH))
    return _OTHERS[word](cursor)


def _number(cursor: Cursor, default: int, least: int, most: int) -> int:
    if not cursor.accept("("):
        return default
    at = cursor.at
    number = cursor.whole_number("a whole number")
    if not least <= number <= most:
        raise cursor.source.invalid(at, f"this number must be from {least} to {most}, not {number}")
    cursor.expect(")")
    return number


def _decimal(cursor: Cursor) -> SqlType:
    if not cursor.accept("("):
        return SqlType(Kind.DECIMAL, precision=10, scale=0)
    at = cursor.at
    precision = cursor.whole_number("the number of digits")
    scale = cursor.whole_number("the number of digits behind the point") if cursor.accept(",") else 0
    cursor.expect(")")
    if not 1 <= precision <= MAX_PRECISION or scale > precision:
        raise cursor.source.invalid(
            at, f"DECIMAL takes 1 to {MAX_PRECISION} digits, and at most as many behind the point"
        )
    return SqlType(Kind.DECIMAL, precision=precision, scale=scale)


def _double(cursor: Cursor) -> SqlType:
    cursor.accept("PRECISION")
    return SqlType(Kind.DOUBLE)


def _time(cursor: Cursor) -> SqlType:
    precision = _number(cursor, 0, 0, 9)
    cursor.accept("WITHOUT", "TIME", "ZONE")
    return SqlType(Kind.TIME, precision=precision)


def _timestamp(cursor: Cursor) -> SqlType:
    precision = _number(cursor, 6, 0, 9)
    at = cursor.at
    if cursor.accept("WITH", "LOCAL", "TIME", "ZONE"):
        return SqlType(Kind.TIMESTAMP_LTZ, precision=precision)
    if cursor.accept("WITH", "TIME", "ZONE"):
        raise cursor.source.unsupported(
            at, "TIMESTAMP WITH TIME ZONE is not supported, nor is it in Flink SQL; use TIMESTAMP_LTZ"
        )
    cursor.accept("WITHOUT", "TIME", "ZONE")
    return SqlType(Kind.TIMESTAMP, precision=precision)


def _timestamp_ltz(cursor: Cursor) -> SqlType:
    return SqlType(Kind.TIMESTAMP_LTZ, precision=_number(cursor, 6, 0, 9))


def _collection(kind: Kind, parts: int) -> Callable[[Cursor], SqlType]:
    def parse(cursor: Cursor) -> SqlType:
        cursor.expect("<", where=f"behind {kind.value}")
        found = [parse_type(cursor)]
        while len(found) < parts:
            cursor.expect(",", where=f"in the type {kind.value}")
            found.append(parse_type(cursor))
        cursor.expect(">", where=f"in the type {kind.value}")
        return SqlType(kind, parts=tuple(found))

    return parse


def _row(cursor: Cursor) -> SqlType:
    closing = ")" if cursor.accept("(") else ">"
    if closing == ">":
        if cursor.accept("<>"):
            return SqlType(Kind.ROW)
        cursor.expect("<", where="behind ROW")
    fields = cursor.listed(lambda: _field(cursor))
    cursor.expect(closing, where="in the type ROW")
    return SqlType(Kind.ROW, fields=fields)


def _structured(cursor: Cursor) -> SqlType:
    cursor.expect("<", where="behind STRUCTURED")
    name = cursor.string("the name of a class")
    fields = cursor.listed(lambda: _field(cursor)) if cursor.accept(",") else ()
    cursor.expect(">", where="in the type STRUCTURED")
    return SqlType(Kind.ROW, fields=fields, class_name=name)


def _field(cursor: Cursor) -> RowField:
    name = cursor.field_name().name
    kind = parse_type(cursor)
    if cursor.token.kind.value == "text":
        cursor.take()
    return RowField(name, kind)


def _interval(cursor: Cursor) -> SqlType:
    first = cursor.identifier("a unit such as DAY").name.upper()
    _number(cursor, 0, 0, 9)
    last = first
    if cursor.accept("TO"):
        last = cursor.identifier("a unit such as SECOND").name.upper()
        _number(cursor, 0, 0, 9)
    months = {"YEAR", "MONTH"}
    return SqlType(Kind.INTERVAL_MONTHS if {first, last} <= months else Kind.INTERVAL_MILLIS)


_OTHERS: Final[dict[str, Callable[[Cursor], SqlType]]] = {
    "DECIMAL": _decimal,
    "NUMERIC": _decimal,
    "DEC": _decimal,
    "DOUBLE": _double,
    "TIME": _time,
    "TIMESTAMP": _timestamp,
    "TIMESTAMP_LTZ": _timestamp_ltz,
    "ARRAY": _collection(Kind.ARRAY, 1),
    "MULTISET": _collection(Kind.MULTISET, 1),
    "MAP": _collection(Kind.MAP, 2),
    "ROW": _row,
    "STRUCTURED": _structured,
    "INTERVAL": _interval,
}
