"""The types of SQL, as Flink has them, and the Arrow types that hold their values.

The parser reads them, the binder gives each expression one, and the lowering makes Arrow columns of them.

Source: Flink's documentation, "Data Types".
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa

MAX_LENGTH: Final = 2**31 - 1
MAX_PRECISION: Final = 38


class Kind(enum.Enum):
    """The root of a type."""

    NULL = "NULL"
    BOOLEAN = "BOOLEAN"
    TINYINT = "TINYINT"
    SMALLINT = "SMALLINT"
    INT = "INT"
    BIGINT = "BIGINT"
    DECIMAL = "DECIMAL"
    FLOAT = "FLOAT"
    DOUBLE = "DOUBLE"
    CHAR = "CHAR"
    VARCHAR = "VARCHAR"
    BINARY = "BINARY"
    VARBINARY = "VARBINARY"
    DATE = "DATE"
    TIME = "TIME"
    TIMESTAMP = "TIMESTAMP"
    TIMESTAMP_LTZ = "TIMESTAMP_LTZ"
    INTERVAL_MONTHS = "INTERVAL YEAR TO MONTH"
    INTERVAL_MILLIS = "INTERVAL DAY TO SECOND"
    ARRAY = "ARRAY"
    MULTISET = "MULTISET"
    MAP = "MAP"
    ROW = "ROW"
    VARIANT = "VARIANT"
    BITMAP = "BITMAP"


INTEGERS: Final = (Kind.TINYINT, Kind.SMALLINT, Kind.INT, Kind.BIGINT)
"""From narrow to wide."""
APPROXIMATE: Final = (Kind.FLOAT, Kind.DOUBLE)
EXACT: Final = (*INTEGERS, Kind.DECIMAL)
NUMERIC: Final = (*EXACT, *APPROXIMATE)
CHARACTERS: Final = (Kind.CHAR, Kind.VARCHAR)
BYTES_KINDS: Final = (Kind.BINARY, Kind.VARBINARY)
TIMESTAMPS: Final = (Kind.TIMESTAMP, Kind.TIMESTAMP_LTZ)
DIGITS_OF_TIME: Final = 3
"""What a time of day that is written or cast has behind the second at most: more are cut off, as in Flink."""
TEMPORAL: Final = (Kind.DATE, Kind.TIME, *TIMESTAMPS)
INTERVALS: Final = (Kind.INTERVAL_MONTHS, Kind.INTERVAL_MILLIS)
_INSIDE: Final = {Kind.INTERVAL_MONTHS: "INTERVAL MONTH", Kind.INTERVAL_MILLIS: "INTERVAL SECOND(3)"}
_DIGITS: Final = {Kind.TINYINT: 3, Kind.SMALLINT: 5, Kind.INT: 10, Kind.BIGINT: 19}


@dataclass(frozen=True, slots=True)
class RowField:
    """A field of a ROW type."""

    name: str
    type: SqlType


@dataclass(frozen=True, slots=True)
class SqlType:
    """A type with whether null belongs to it.

    Args:
        kind: its root.
        nullable: whether a value may be null.
        precision: digits of a DECIMAL, of the fraction of a second, or characters or bytes.
        scale: digits behind the point of a DECIMAL.
        parts: of ARRAY and MULTISET the element; of MAP key and value.
        fields: of ROW.
        class_name: of a ROW that is a structured type, which is another type under another name.
    """

    kind: Kind
    nullable: bool = True
    precision: int = 0
    scale: int = 0
    parts: tuple[SqlType, ...] = ()
    fields: tuple[RowField, ...] = ()
    class_name: str = ""

    def with_nullable(self, nullable: bool) -> SqlType:
        """The same type, with or without null."""
        return self if self.nullable is nullable else replace(self, nullable=nullable)

    def same_as(self, other: SqlType) -> bool:
        """Whether both are equal but for null."""
        return self.with_nullable(True) == other.with_nullable(True)

    def has(self, kind: Kind) -> bool:
        """Whether it is of a kind, or has a part that is."""
        parts = (*self.parts, *(field.type for field in self.fields))
        return self.kind is kind or any(part.has(kind) for part in parts)

    @property
    def is_numeric(self) -> bool:
        return self.kind in NUMERIC

    @property
    def is_text(self) -> bool:
        return self.kind in CHARACTERS

    def __str__(self) -> str:
        return self._root() + ("" if self.nullable or self.kind is Kind.NULL else " NOT NULL")

    def _root(self) -> str:
        match self.kind:
            case Kind.DECIMAL:
                return f"DECIMAL({self.precision}, {self.scale})"
            case Kind.VARCHAR if self.precision == MAX_LENGTH:
                return "STRING"
            case Kind.VARBINARY if self.precision == MAX_LENGTH:
                return "BYTES"
            case Kind.CHAR | Kind.VARCHAR | Kind.BINARY | Kind.VARBINARY | Kind.TIME | Kind.TIMESTAMP:
                return f"{self.kind.value}({self.precision})"
            case Kind.TIMESTAMP_LTZ:
                return f"TIMESTAMP_LTZ({self.precision})"
            case Kind.ARRAY | Kind.MULTISET | Kind.MAP:
                return f"{self.kind.value}<{', '.join(map(str, self.parts))}>"
            case Kind.ROW:
                fields = [f"{field.name} {field.type}" for field in self.fields]
                named = [f"'{self.class_name}'"] if self.class_name else []
                return f"{'STRUCTURED' if named else 'ROW'}<{', '.join([*named, *fields])}>"
        return str(self.kind.value)


def summary(kind: SqlType) -> str:
    """The text of a type that TYPEOF gives: Flink's, with names in backticks, and the unit that intervals have inside.

    Example:
        >>> summary(SqlType(Kind.ROW, False, fields=(RowField("a", SqlType(Kind.INTERVAL_MONTHS)),)))
        'ROW<`a` INTERVAL MONTH> NOT NULL'
    """
    root = _INSIDE.get(kind.kind)
    if kind.kind is Kind.ROW and not kind.class_name:
        root = f"ROW<{', '.join(f'`{field.name}` {summary(field.type)}' for field in kind.fields)}>"
    elif kind.parts:
        root = f"{kind.kind.value}<{', '.join(map(summary, kind.parts))}>"
    return str(kind) if root is None else root + ("" if kind.nullable else " NOT NULL")


NULL: Final = SqlType(Kind.NULL)
BOOLEAN: Final = SqlType(Kind.BOOLEAN)
INT: Final = SqlType(Kind.INT)
BIGINT: Final = SqlType(Kind.BIGINT)
FLOAT: Final = SqlType(Kind.FLOAT)
DOUBLE: Final = SqlType(Kind.DOUBLE)
STRING: Final = SqlType(Kind.VARCHAR, precision=MAX_LENGTH)
BYTES: Final = SqlType(Kind.VARBINARY, precision=MAX_LENGTH)
DATE: Final = SqlType(Kind.DATE)
INTERVAL_MONTHS: Final = SqlType(Kind.INTERVAL_MONTHS)
INTERVAL_MILLIS: Final = SqlType(Kind.INTERVAL_MILLIS)


def decimal(precision: int, scale: int) -> SqlType:
    """DECIMAL, cut down to 38 digits as Flink does: digits before the point go first, but for six behind it.

    Source: Flink's `LogicalTypeMerging.adjustPrecisionScale`.
    """
    if precision > MAX_PRECISION:
        digits = precision - scale
        scale = max(MAX_PRECISION - digits, min(scale, 6))
        precision = MAX_PRECISION
    return SqlType(Kind.DECIMAL, precision=precision, scale=scale)


def timestamp(precision: int = 3) -> SqlType:
    """TIMESTAMP without a zone."""
    return SqlType(Kind.TIMESTAMP, precision=precision)


def timestamp_ltz(precision: int = 3) -> SqlType:
    """TIMESTAMP_LTZ: a moment, shown in the session's zone."""
    return SqlType(Kind.TIMESTAMP_LTZ, precision=precision)


def array(element: SqlType) -> SqlType:
    """ARRAY<element>."""
    return SqlType(Kind.ARRAY, parts=(element,))


def may_be_key(kind: SqlType) -> bool:
    """Whether the engine takes values of a type as keys of streams: no approximate numbers, no collections."""
    return kind.kind not in (*APPROXIMATE, Kind.ARRAY, Kind.MAP, Kind.ROW, Kind.MULTISET)


def as_decimal(kind: SqlType) -> SqlType:
    """The DECIMAL that holds every value of an exact number's type."""
    return kind if kind.kind is Kind.DECIMAL else SqlType(Kind.DECIMAL, kind.nullable, _DIGITS[kind.kind], 0)


_FLAT_ARROW: Final = {
    Kind.NULL: pa.null(),
    Kind.BOOLEAN: pa.bool_(),
    Kind.TINYINT: pa.int8(),
    Kind.SMALLINT: pa.int16(),
    Kind.INT: pa.int32(),
    Kind.BIGINT: pa.int64(),
    Kind.FLOAT: pa.float32(),
    Kind.DOUBLE: pa.float64(),
    Kind.CHAR: pa.string(),
    Kind.VARCHAR: pa.string(),
    Kind.BINARY: pa.binary(),
    Kind.VARBINARY: pa.binary(),
    Kind.DATE: pa.date32(),
    Kind.INTERVAL_MONTHS: pa.int32(),
    Kind.INTERVAL_MILLIS: pa.int64(),
    Kind.VARIANT: pa.string(),
    Kind.BITMAP: pa.binary(),
}


def arrow_type(kind: SqlType) -> pa.DataType:
    """The Arrow type of columns that hold values of `kind`.

    Example:
        >>> arrow_type(timestamp(3)), arrow_type(decimal(10, 2))
        (TimestampType(timestamp[ms]), Decimal128Type(decimal128(10, 2)))
    """
    match kind.kind:
        case Kind.DECIMAL:
            return pa.decimal128(kind.precision, kind.scale)
        case Kind.TIME:
            return pa.time32("ms") if kind.precision <= 3 else pa.time64("us" if kind.precision <= 6 else "ns")
        case Kind.TIMESTAMP:
            return pa.timestamp(_unit(kind.precision))
        case Kind.TIMESTAMP_LTZ:
            return pa.timestamp(_unit(kind.precision), "UTC")
        case Kind.ARRAY:
            return pa.list_(arrow_type(kind.parts[0]))
        case Kind.MULTISET:
            return pa.map_(arrow_type(kind.parts[0]), pa.int32())
        case Kind.MAP:
            return pa.map_(arrow_type(kind.parts[0]), arrow_type(kind.parts[1]))
        case Kind.ROW:
            return pa.struct([(field.name, arrow_type(field.type)) for field in kind.fields])
    return _FLAT_ARROW[kind.kind]


def _unit(precision: int) -> str:
    return "ms" if precision <= 3 else "us" if precision <= 6 else "ns"


_OF_FLAT_ARROW: Final = (
    (pa.types.is_boolean, BOOLEAN),
    (pa.types.is_int8, SqlType(Kind.TINYINT)),
    (pa.types.is_int16, SqlType(Kind.SMALLINT)),
    (pa.types.is_uint8, SqlType(Kind.SMALLINT)),
    (pa.types.is_int32, INT),
    (pa.types.is_uint16, INT),
    (pa.types.is_int64, BIGINT),
    (pa.types.is_uint32, BIGINT),
    (pa.types.is_uint64, decimal(20, 0)),
    (pa.types.is_float16, FLOAT),
    (pa.types.is_float32, FLOAT),
    (pa.types.is_float64, DOUBLE),
    (pa.types.is_string, STRING),
    (pa.types.is_large_string, STRING),
    (pa.types.is_binary, BYTES),
    (pa.types.is_large_binary, BYTES),
    (pa.types.is_fixed_size_binary, BYTES),
    (pa.types.is_date, DATE),
    (pa.types.is_null, NULL),
)
_DIGITS_OF_UNIT: Final = {"s": 3, "ms": 3, "us": 6, "ns": 9}


def type_of_arrow(kind: pa.DataType) -> SqlType | None:
    """The SQL type for columns of a stream, or None where there is none (durations, unions, large decimals)."""
    for is_kind, found in _OF_FLAT_ARROW:
        if is_kind(kind):
            return found
    if pa.types.is_dictionary(kind):
        return type_of_arrow(kind.value_type)
    if pa.types.is_decimal(kind) and kind.precision <= MAX_PRECISION and kind.scale >= 0:
        return decimal(kind.precision, kind.scale)
    if pa.types.is_timestamp(kind):
        digits = _DIGITS_OF_UNIT[kind.unit]
        return timestamp(digits) if kind.tz is None else timestamp_ltz(digits)
    if pa.types.is_time(kind):
        return SqlType(Kind.TIME, precision=_DIGITS_OF_UNIT[kind.unit])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        element = type_of_arrow(kind.value_type)
        return None if element is None else array(element)
    if pa.types.is_map(kind):
        parts = (type_of_arrow(kind.key_type), type_of_arrow(kind.item_type))
        key, value = parts
        return None if key is None or value is None else SqlType(Kind.MAP, parts=(key, value))
    if pa.types.is_struct(kind):
        fields = [(field.name, type_of_arrow(field.type)) for field in kind]
        known = tuple(RowField(name, found) for name, found in fields if found is not None)
        return SqlType(Kind.ROW, fields=known) if len(known) == len(fields) else None
    return None
