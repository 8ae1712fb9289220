"""Which Arrow types stand for which types of PostgreSQL, both ways, and rows made ready for a table.

The sink casts each batch by `fit_column` as it comes, so that nothing is left for the server to refuse when rows are
committed. The source and the lookup table take the types of their columns from `arrow_type`.
"""

from __future__ import annotations

import datetime
import decimal
import json
import re
from dataclasses import dataclass
from typing import Any, Final, NoReturn

import pyarrow as pa
import pyarrow.compute as pc

from penstock.engine.aggregates.accumulators import plain
from penstock.engine.errors import ColumnTypeError, RecordError

_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
_FIRST_DAY: Final = datetime.date(1, 1, 1).toordinal() - _EPOCH.toordinal()
_LAST_DAY: Final = datetime.date(9999, 12, 31).toordinal() - _EPOCH.toordinal()
_DAY_US: Final = 86_400_000_000
_TYPE_NAME: Final = re.compile(r"([a-z_ ]+?)(?:\((\d+)(?:,(-?\d+))?\))?( with(?:out)? time zone)?(\[\])?")
_UUID: Final = "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"
_MOST_DIGITS: Final = 38
_MOST_DIGITS_256: Final = 76
_ZERO: Final = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")
"""In JSON: behind an even number of backslashes, which are characters, `u0000` is text."""
_LARGE_NUMBER: Final = re.compile(r"\d[eE]|\d{1000}")
"""What any JSON has in which a number may have too many digits."""
_MOST_BEFORE_POINT: Final = 131_072
_MOST_BEHIND_POINT: Final = 16_383
"""Digits of any `numeric`, and so of a number in `jsonb`; source: PostgreSQL's documentation, "Numeric Types"."""
_CODECS: Final = {
    **{f"LATIN{n}": f"iso8859-{part}" for n, part in enumerate((1, 2, 3, 4, 9, 10, 13, 14, 15, 16), 1)},
    **{f"ISO_8859_{part}": f"iso8859-{part}" for part in range(5, 9)},
    **{f"WIN{page}": f"cp{page}" for page in (866, 874, *range(1250, 1259))},
    "KOI8R": "koi8-r",
    "KOI8U": "koi8-u",
    "EUC_CN": "gb2312",
    "EUC_JIS_2004": "euc-jis-2004",
    "EUC_JP": "euc-jp",
    "EUC_KR": "euc-kr",
}
"""Python's names of the encodings of databases that cannot hold every text."""

_SIMPLE: Final = {
    "boolean": pa.bool_(),
    "smallint": pa.int16(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "real": pa.float32(),
    "double precision": pa.float64(),
    "text": pa.string(),
    "character varying": pa.string(),
    "character": pa.string(),
    "bpchar": pa.string(),
    "name": pa.string(),
    "json": pa.string(),
    "jsonb": pa.string(),
    "uuid": pa.string(),
    "bytea": pa.binary(),
    "date": pa.date32(),
    "time without time zone": pa.time64("us"),
    "timestamp without time zone": pa.timestamp("us"),
    "timestamp with time zone": pa.timestamp("us", tz="UTC"),
}


@dataclass(frozen=True, slots=True)
class PostgresType:
    """A column's type, as `format_type` writes it, in parts.

    Args:
        name: without length and brackets, such as `numeric` or `timestamp with time zone`.
        length: characters of `character varying(n)`, digits of `numeric(p, s)`; None where there is no limit.
        scale: digits behind the point of `numeric(p, s)`.
        is_array: whether the column holds arrays of it.
    """

    name: str
    length: int | None = None
    scale: int = 0
    is_array: bool = False

    @classmethod
    def parse(cls, text: str) -> PostgresType:
        """The parts of a type such as `numeric(10,2)[]`.

        Example:
            >>> PostgresType.parse("numeric(10,2)[]")
            PostgresType(name='numeric', length=10, scale=2, is_array=True)
        """
        match = _TYPE_NAME.fullmatch(text)
        if match is None:
            return cls(text)
        name, length, scale, zone, array = match.groups()
        limit = None if length is None or zone else int(length)
        return cls(name + (zone or ""), limit, int(scale or 0), array is not None)

    @property
    def element(self) -> PostgresType:
        """The type of an array's elements."""
        return PostgresType(self.name, self.length, self.scale)

    def arrow_type(self) -> pa.DataType | None:
        """The Arrow type that holds its values, None where there is none: `numeric` without digits, `interval`, ..."""
        if self.is_array:
            element = self.element.arrow_type()
            return None if element is None else pa.list_(element)
        if self.name == "numeric":
            fits = self.length is not None and self.length <= _MOST_DIGITS and 0 <= self.scale <= self.length
            return pa.decimal128(self.length, self.scale) if fits else None
        return _SIMPLE.get(self.name)


def check_fits(kind: pa.DataType, column: PostgresType, where: str, shown: str) -> None:
    """Refuse types whose values the column cannot hold.

    Args:
        kind: of the stream's column.
        where: the column, for messages.
        shown: the table's type as the server spells it.

    Raises:
        ColumnTypeError: they do not fit.
    """
    if not _fits(kind, column):
        raise ColumnTypeError(
            f"{where} is {kind} in the stream and {shown} in the table, which cannot hold it; cast it before the sink, "
            "or alter the table"
        )


def _fits(kind: pa.DataType, column: PostgresType) -> bool:
    if pa.types.is_null(kind):
        return column.is_array or column.name in _SIMPLE or column.name == "numeric"
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    if is_list or column.is_array:
        return is_list and column.is_array and _fits(kind.value_type, column.element)
    if column.name == "numeric":
        within = pa.types.is_decimal(kind) and (column.length is None or kind.scale <= column.scale)
        return bool(within or pa.types.is_integer(kind))
    target = _SIMPLE.get(column.name)
    if target is None:
        return False
    if pa.types.is_floating(target):
        return bool(pa.types.is_floating(kind) and kind.bit_width <= target.bit_width)
    if pa.types.is_timestamp(target):
        return bool(pa.types.is_timestamp(kind)) and (kind.tz is None) == (target.tz is None)
    return any(test(target) and test(kind) for test in _FAMILIES)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    whole = pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind)
    return bool(whole or pa.types.is_fixed_size_binary(kind)) and not pa.types.is_decimal(kind)


_FAMILIES: Final = (
    pa.types.is_boolean, pa.types.is_integer, pa.types.is_date, pa.types.is_time, _is_text, _is_bytes
)  # fmt: skip


def fit_column(array: pa.Array, column: PostgresType, where: str, encoding: str = "UTF8") -> pa.Array:
    """The values as the column holds them: nothing is rounded, cut or left for the server to refuse.

    Args:
        array: of a type that `check_fits` lets pass.
        where: operator and column, for messages.
        encoding: the database's, by the server's name.

    Raises:
        RecordError: a value that the column cannot hold.
    """
    if column.is_array:
        lists = array.cast(pa.large_list(array.type.value_type)) if not pa.types.is_null(array.type) else None
        if lists is None:
            return pa.nulls(len(array), pa.list_(fit_column(pa.nulls(0), column.element, where).type))
        values = fit_column(lists.flatten(), column.element, where, encoding)
        return _lists_of(lists, values)
    target = _target(array.type, column)
    try:
        fitted = _cast(plain(array), target)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise RecordError(
            f"{where}: a value does not fit the table's {column.name}: {' '.join(str(error).split())}; correct it "
            "before the sink, or alter the table"
        ) from error
    _check_values(fitted, column, where, encoding)
    return fitted


def _lists_of(lists: pa.Array, values: pa.Array) -> pa.Array:
    """Lists as long as `lists`, null where they are, of the values of all."""
    lengths = pc.fill_null(pc.list_value_length(lists), 0)
    ends = pc.cumulative_sum(lengths.cast(pa.int64()))
    offsets = pa.concat_arrays([pa.array([0], pa.int64()), ends]).cast(pa.int32())
    mask = pc.is_null(lists) if lists.null_count else None
    return pa.ListArray.from_arrays(offsets, values, mask=mask)


def _target(kind: pa.DataType, column: PostgresType) -> pa.DataType:
    if column.name != "numeric":
        return _SIMPLE[column.name]
    if column.length is not None and column.length <= _MOST_DIGITS:
        return pa.decimal128(column.length, column.scale)
    if pa.types.is_decimal(kind):
        return kind
    scale = column.scale if column.length is not None else 0
    return pa.decimal256(_MOST_DIGITS_256, min(max(scale, 0), _MOST_DIGITS))


def _cast(array: pa.Array, target: pa.DataType) -> pa.Array:
    if pa.types.is_decimal(target) and pa.types.is_integer(array.type):
        array = array.cast(pa.decimal128(20, 0))
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), target)
    return array if array.type == target else array.cast(target)


def _check_values(array: pa.Array, column: PostgresType, where: str, encoding: str) -> None:
    if _is_text(array.type):
        _check_text(array, column, where, encoding)
    elif pa.types.is_decimal(array.type):
        _check_digits(array, column, where)
    elif pa.types.is_date(array.type):
        _check_range(array.cast(pa.int32()), _FIRST_DAY, _LAST_DAY, where)
    elif pa.types.is_timestamp(array.type):
        _check_range(array.cast(pa.int64()), _FIRST_DAY * _DAY_US, (_LAST_DAY + 1) * _DAY_US - 1, where)


def _check_digits(numbers: pa.Array, column: PostgresType, where: str) -> None:
    """Refuse numbers with more digits before the point than a column has that no type of Arrow's is as wide as."""
    if column.length is None or column.length <= _MOST_DIGITS:
        return
    most = column.length - column.scale
    if any(end and end.adjusted() >= most for end in pc.min_max(numbers).as_py().values()):
        raise RecordError(
            f"{where}: a number has more than {most} digits before the point, and does not fit the table's "
            f"numeric({column.length},{column.scale}); correct it before the sink, or alter the table"
        )


def _check_range(numbers: pa.Array, first: int, last: int, where: str) -> None:
    ends = pc.min_max(numbers).as_py()
    if ends["min"] is not None and not (first <= ends["min"] and ends["max"] <= last):
        raise RecordError(f"{where}: a time is not within the years 1 to 9999; correct it before the sink")


def _check_text(array: pa.Array, column: PostgresType, where: str, encoding: str) -> None:
    if encoding in _CODECS:
        beyond_ascii = array.filter(pc.invert(pc.string_is_ascii(array)))
        _check_encodable("".join(beyond_ascii.to_pylist()), encoding, where)
    if pc.any(pc.match_substring(array, "\0")).as_py():
        raise RecordError(f"{where}: a text has a zero character, which PostgreSQL cannot store; remove it before")
    if column.length is not None:
        longest = pc.max(pc.utf8_length(array)).as_py()
        if longest is not None and longest > column.length:
            raise RecordError(
                f"{where}: a text of {longest} characters does not fit the table's {column.name}({column.length}); cut "
                "it before the sink, or alter the table"
            )
    if column.name == "uuid" and pc.all(pc.match_substring_regex(array, _UUID)).as_py() is False:
        raise RecordError(f"{where}: a text is no UUID such as 123e4567-e89b-12d3-a456-426614174000")
    if column.name in ("json", "jsonb"):
        for place, text in enumerate(array.to_pylist()):
            if text is not None:
                _check_json(text, column.name, f"{where}, row {place} of the batch", encoding)


def _check_json(text: str, kind: str, where: str, encoding: str) -> None:
    def no_number(constant: str) -> NoReturn:
        raise ValueError(f"{constant} is no JSON")

    # What numbers become does not matter; Python's own have limits that the server has not, and the other way round.
    number = (_check_numeric if kind == "jsonb" else len) if _LARGE_NUMBER.search(text) else None
    try:
        value = json.loads(text, parse_constant=no_number, parse_int=number, parse_float=number)
        # The server refuses half of a surrogate pair, and zero characters.
        ascii_text = json.dumps(value, ensure_ascii=False)
        ascii_text.encode("utf-8")
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{where}: the text is no JSON that PostgreSQL takes: {error}") from None
    if _ZERO.search(ascii_text):
        raise RecordError(f"{where}: the JSON has a zero character, which PostgreSQL cannot store")
    if kind == "jsonb":
        # Its texts are stored without escapes.
        _check_encodable(ascii_text, encoding, where)


def _check_numeric(text: str) -> int:
    """Refuse a number of JSON that `numeric` cannot hold; what it returns means nothing."""
    try:
        number = decimal.Decimal(text)
    except decimal.InvalidOperation:
        raise ValueError("a number is beyond those of numeric") from None
    exponent = number.as_tuple().exponent
    if not isinstance(exponent, int) or -exponent > _MOST_BEHIND_POINT or number.adjusted() >= _MOST_BEFORE_POINT:
        raise ValueError(
            f"a number has more than {_MOST_BEFORE_POINT:,} digits before the point or {_MOST_BEHIND_POINT:,} behind it"
        )
    return 0


def _check_encodable(text: str, encoding: str, where: str) -> None:
    try:
        text.encode(_CODECS.get(encoding, "utf-8"))
    except UnicodeEncodeError as error:
        raise RecordError(
            f"{where}: a text has the character {text[error.start]!r}, which the database cannot hold in its encoding "
            f"{encoding}; remove it before the sink, or use a database with the encoding UTF8"
        ) from None


def to_array(values: list[Any], kind: pa.DataType, where: str) -> pa.Array:
    """A column of what psycopg gave.

    Raises:
        RecordError: a value that the type cannot hold, such as a NaN of `numeric`.
    """
    try:
        return pa.array(values, kind)
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        raise RecordError(
            f"{where}: a value is no {kind}: {' '.join(str(error).split())}; give a query that casts or leaves it out"
        ) from error
