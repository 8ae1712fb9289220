"""What a scalar function is: the arguments that it takes, its type, and its computation on columns.

The families beside this module declare functions with it; the binder checks calls against it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Final, TypeAlias
from zoneinfo import ZoneInfo

import pyarrow as pa

from penstock.engine.columns import with_numbers
from penstock.tables import types as t
from penstock.tables.types import Kind, SqlType


@dataclass(frozen=True, slots=True)
class SessionValues:
    """What functions may know beside their arguments.

    Args:
        zone: of `table.local-time-zone`.
        now_ms: the time (int64 ms since the epoch) at which the batch is computed.
        watermark: event time so far (int64 ms), or None before the first watermark.
    """

    zone: str = "UTC"
    now_ms: int = 0
    watermark: int | None = None

    @property
    def zone_info(self) -> ZoneInfo:
        return ZoneInfo(self.zone)


@dataclass(frozen=True, slots=True)
class CallValues:
    """A call for one batch.

    Args:
        columns: the arguments, one array each, all of one length.
        types: theirs.
        result: the call's type.
        rows: how many rows.
        session: what else may be known.
        literals: the places of arguments that are literals, and so the same in all rows.
    """

    columns: Sequence[pa.Array]
    types: Sequence[SqlType]
    result: SqlType
    rows: int
    session: SessionValues
    literals: AbstractSet[int] = frozenset()

    def with_numbers(self) -> CallValues:
        """The call with numbers in place of times with nanoseconds."""
        return replace(self, columns=[with_numbers(column) for column in self.columns])


Evaluate: TypeAlias = Callable[[CallValues], pa.Array]
Infer: TypeAlias = Callable[[Sequence[SqlType]], SqlType]
Check: TypeAlias = Callable[[Sequence[object]], None]
Coerce: TypeAlias = Callable[[Sequence[SqlType]], Sequence[SqlType]]

TEXT: Final = "a text"
INTEGER: Final = "a whole number"
NUMBER: Final = "a number"
DOUBLE: Final = "a floating-point number"
BOOLEAN: Final = "a boolean"
TIMESTAMP: Final = "a timestamp"
LTZ: Final = "a TIMESTAMP_LTZ"
TEMPORAL: Final = "a date, time or timestamp"
TEMPORAL_OR_INTERVAL: Final = "a date, time, timestamp or interval"
BINARY: Final = "bytes"
ARRAY: Final = "an array"
MAP: Final = "a map"
ANY: Final = "any value"
KEYWORD: Final = "a keyword"
TEXT_OR_BYTES: Final = "a text or bytes"
TEXT_OR_INTEGER: Final = "a text or a whole number"
TEXT_OR_NUMBER: Final = "a text or a number"
TEXT_OR_TIME: Final = "a text, date, time or timestamp"
HEXADECIMAL: Final = "a whole number, a text or bytes"
INSTANT: Final = "a date or timestamp"
TIME_OF_DAY: Final = "a time or timestamp"
INTERVAL: Final = "an interval"
BITMAP: Final = "a bitmap"
MEMBERS: Final = "an array, map or multiset"
FLAT: Final = "a value that is no array, map, multiset or row"
ORDERED: Final = "a value that has an order"
HASHED: Final = "a boolean, number, text, date, time or timestamp"

NESTED: Final = (Kind.ARRAY, Kind.MAP, Kind.ROW, Kind.MULTISET)
"""What is equal or not, and neither smaller nor greater."""
_ACCEPTED: Final = {
    TEXT: t.CHARACTERS,
    INTEGER: t.INTEGERS,
    NUMBER: t.NUMERIC,
    DOUBLE: t.NUMERIC,
    BOOLEAN: (Kind.BOOLEAN,),
    TIMESTAMP: t.TIMESTAMPS,
    LTZ: (Kind.TIMESTAMP_LTZ,),
    TEMPORAL: t.TEMPORAL,
    TEMPORAL_OR_INTERVAL: (*t.TEMPORAL, *t.INTERVALS),
    BINARY: t.BYTES_KINDS,
    ARRAY: (Kind.ARRAY,),
    MAP: (Kind.MAP,),
    KEYWORD: t.CHARACTERS,
    TEXT_OR_BYTES: (*t.CHARACTERS, *t.BYTES_KINDS),
    TEXT_OR_INTEGER: (*t.CHARACTERS, *t.INTEGERS),
    TEXT_OR_NUMBER: (*t.CHARACTERS, *t.NUMERIC),
    TEXT_OR_TIME: (*t.CHARACTERS, *t.TEMPORAL),
    HEXADECIMAL: (*t.INTEGERS, *t.CHARACTERS, *t.BYTES_KINDS),
    INSTANT: (Kind.DATE, *t.TIMESTAMPS),
    TIME_OF_DAY: (Kind.TIME, *t.TIMESTAMPS),
    INTERVAL: t.INTERVALS,
    BITMAP: (Kind.BITMAP,),
    MEMBERS: (Kind.ARRAY, Kind.MAP, Kind.MULTISET),
    FLAT: tuple(kind for kind in Kind if kind not in NESTED),
    ORDERED: tuple(kind for kind in Kind if kind not in (*NESTED, Kind.VARIANT, Kind.BITMAP)),
    HASHED: (Kind.BOOLEAN, *t.NUMERIC, *t.CHARACTERS, *t.TEMPORAL),
}
_TYPE_OF_NULL: Final = {
    TEXT: t.STRING,
    TEXT_OR_BYTES: t.STRING,
    TEXT_OR_INTEGER: t.STRING,
    TEXT_OR_NUMBER: t.STRING,
    TEXT_OR_TIME: t.timestamp(3),
    HEXADECIMAL: t.STRING,
    INTEGER: t.INT,
    DOUBLE: t.DOUBLE,
    BOOLEAN: t.BOOLEAN,
    TIMESTAMP: t.timestamp(3),
    LTZ: t.timestamp_ltz(3),
    TEMPORAL: t.timestamp(3),
    TEMPORAL_OR_INTERVAL: t.timestamp(3),
    INSTANT: t.timestamp(3),
    TIME_OF_DAY: t.timestamp(3),
    BINARY: t.BYTES,
    BITMAP: SqlType(Kind.BITMAP),
    NUMBER: t.NULL,
    ANY: t.NULL,
    FLAT: t.NULL,
    ORDERED: t.NULL,
}
"""What NULL is where nothing else says its type; for the others it has to be cast."""

_LOOKED_AT: Final = 4_096
"""So many values are looked at to see whether values repeat."""
_FEW: Final = 7 / 8
"""Up to this share of distinct values among them, finding out which are the same costs less than it saves."""


def accepts(parameter: str, given: SqlType) -> SqlType | None:
    """The type that an argument of type `given` has to be cast to (its own, where it fits); None: it does not fit."""
    if given.kind is Kind.NULL:
        return _TYPE_OF_NULL.get(parameter)
    if parameter == ANY:
        return given
    if parameter == DOUBLE:
        return t.DOUBLE.with_nullable(given.nullable) if given.kind in t.NUMERIC else None
    return given if given.kind in _ACCEPTED[parameter] else None


class MisfitError(TypeError):
    """An argument that does not fit the others.

    Args:
        place: its place, from 0.
        problem: what it should be, for a message that begins with the function's name.
    """

    def __init__(self, place: int, problem: str) -> None:
        super().__init__(problem)
        self.place = place


@dataclass(frozen=True, slots=True)
class ScalarFunction:
    """A scalar function under one name.

    Args:
        name: in capitals.
        parameters: what each argument must be.
        infer: the result's type, of the arguments' types as they are cast.
        evaluate: computes a batch.
        optional: how many of the last parameters may be left out.
        variadic: whether the last parameter may come any number of times.
        nullable: whether null comes out of values that are not null; else null comes out where null goes in.
        keeps_null: whether an argument of null is a value like others, and the result need not be null.
        deterministic: whether equal arguments always give equal results.
        fallible: whether a row may have no result whatever the literals, see `may_fail`: computed only where it is
            needed.
        fallible_of: for which arguments that is so, where it is of some alone: takes their types, and which are
            literals.
        coerce: of the types of arguments that fit by themselves, those that they are cast to so that they fit each
            other; raises `MisfitError`.
        units: the units of time that it takes, by the kind of its last argument that is a time or an interval.
        check: refuses literals, behind the first argument, with which no row has a value: takes their values, None for
            all others, and raises `MisfitError`. What is no literal there may fail.
    """

    name: str
    parameters: tuple[str, ...]
    infer: Infer
    evaluate: Evaluate
    optional: int = 0
    variadic: bool = False
    nullable: bool = False
    keeps_null: bool = False
    deterministic: bool = True
    fallible: bool = False
    fallible_of: Callable[[Sequence[SqlType], Sequence[bool]], bool] | None = None
    coerce: Coerce | None = None
    units: Mapping[Kind, frozenset[str]] | None = None
    check: Check | None = None

    def parameter(self, place: int) -> str:
        """What the argument at `place`, from 0, must be."""
        return self.parameters[min(place, len(self.parameters) - 1)]

    def may_fail(self, given: Sequence[SqlType], literal: Sequence[bool]) -> bool:
        """Whether a row may have no result, which fails the job, by the arguments' types and which are literals."""
        is_of_these = self.fallible_of is not None and self.fallible_of(given, literal)
        return self.fallible or is_of_these or (self.check is not None and not all(literal[1:]))

    @property
    def fewest(self) -> int:
        return len(self.parameters) - self.optional

    @property
    def most(self) -> int | None:
        return None if self.variadic else len(self.parameters)

    def result(self, arguments: Sequence[SqlType]) -> SqlType:
        """The type of a call, with whether null can come out."""
        found = self.infer(arguments)
        if self.keeps_null:
            return found
        return found.with_nullable(self.nullable or any(argument.nullable for argument in arguments))


def checked_text(place: int, test: Callable[[str], object]) -> Check:
    """A check of the text at `place`, for which `test` raises ValueError where it is wrong."""

    def check(literals: Sequence[object]) -> None:
        text = literals[place] if place < len(literals) else None
        if isinstance(text, str):
            try:
                test(text)
            except ValueError as error:
                raise MisfitError(place, f": {error}") from None

    return check


def always(kind: SqlType) -> Infer:
    """The same type, whatever the arguments are."""
    return lambda _: kind.with_nullable(False)


def like_first(arguments: Sequence[SqlType]) -> SqlType:
    """The type of the first argument."""
    return arguments[0]


def part_of_first(arguments: Sequence[SqlType]) -> SqlType:
    """A text or bytes of at most the first argument's length."""
    first = arguments[0]
    return SqlType(Kind.VARBINARY if first.kind in t.BYTES_KINDS else Kind.VARCHAR, precision=first.precision)


def joined_texts(arguments: Sequence[SqlType]) -> SqlType:
    """A text as long as all together: CHAR where all are."""
    kind = Kind.CHAR if all(argument.kind is Kind.CHAR for argument in arguments) else Kind.VARCHAR
    return SqlType(kind, precision=min(sum(argument.precision for argument in arguments), t.MAX_LENGTH))


def kernel(function: Callable[..., pa.Array]) -> Evaluate:
    """A computation by an Arrow kernel that takes the columns as they are."""

    def evaluate(call: CallValues) -> pa.Array:
        return function(*call.columns)

    return evaluate


def by_row(function: Callable[..., object]) -> Evaluate:
    """A computation by a Python function of plain values, called where no argument is null."""

    def evaluate(call: CallValues) -> pa.Array:
        rows = zip(*(column.to_pylist() for column in call.columns), strict=True)
        values = [None if any(value is None for value in row) else function(*row) for row in rows]
        return pa.array(values, t.arrow_type(call.result))

    return once_each(evaluate)


def once_each(evaluate: Evaluate) -> Evaluate:
    """The computation, done once for each distinct value of its only argument that is no literal, where values repeat.

    It must give equal results for equal values, and null for null.
    """

    def evaluate_distinct(call: CallValues) -> pa.Array:
        others = [place for place in range(len(call.columns)) if place not in call.literals]
        if len(others) != 1 or not _repeats(call.columns[others[0]]):
            return evaluate(call)
        coded = call.columns[others[0]].dictionary_encode()
        rows = len(coded.dictionary)
        columns = [column.slice(0, rows) for column in call.columns]
        columns[others[0]] = coded.dictionary
        return evaluate(replace(call, columns=columns, rows=rows)).take(coded.indices)

    return evaluate_distinct


def _repeats(column: pa.Array) -> bool:
    """Whether some of its first values, which are texts, bytes or whole numbers, come again and again."""
    kind = column.type
    if not (pa.types.is_string(kind) or pa.types.is_binary(kind) or pa.types.is_integer(kind)):
        return False
    some = column.slice(0, _LOOKED_AT)
    distinct = len(some.unique().drop_null())
    return 0 < distinct < len(some) * _FEW


def constant_at(call: CallValues, place: int) -> object:
    """The value of an argument that is the same in all rows, such as a format; of the first row."""
    return call.columns[place][0].as_py() if call.rows else None


def is_constant(column: pa.Array) -> bool:
    """Whether all rows have one value: it then pays to compute it once."""
    return len(column) > 0 and len(column.unique()) == 1
