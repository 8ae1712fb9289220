"""The kinds of value that a compiled function can work with, and what columns hold them.

`translation` infers a kind for each expression; `program` makes arrays of columns by it. Each has one exact meaning in
Python and in compiled code, so that both give the same result or the compiled one gives none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias, TypeGuard

import pyarrow as pa

from penstock.engine.errors import GraphError


@dataclass(frozen=True, slots=True)
class Number:
    """`int` of 64 bits, `float`, or `bool`."""

    name: str


@dataclass(frozen=True, slots=True)
class Word:
    """A text that stands in the function, by its number in the list of these."""


@dataclass(frozen=True, slots=True)
class Text:
    """The text of a column, null among them: it can be compared with words, and passed on."""

    column: str


@dataclass(frozen=True, slots=True)
class Coded:
    """Any text, by its number among those of the batch, of which words are the first."""


@dataclass(frozen=True, slots=True)
class Opaque:
    """The value of a column that can only be passed on."""

    column: str


@dataclass(frozen=True, slots=True)
class Time(Opaque):
    """The timestamp of a column: it can also be compared with another, and what lies between is a number of seconds."""

    is_utc: bool


@dataclass(frozen=True, slots=True)
class HeldTime(Time):
    """The timestamp of a field of accumulators that takes those of the column of its name."""


@dataclass(frozen=True, slots=True)
class Listed:
    """The values of a list state, as they were when it was read."""

    state: str


@dataclass(frozen=True, slots=True)
class Element:
    """A row of a window, by its number."""


Kind: TypeAlias = Number | Word | Text | Coded | Opaque | Listed | Element

INT: Final = Number("int")
FLOAT: Final = Number("float")
BOOL: Final = Number("bool")
WORD: Final = Word()
TEXT: Final = Coded()
ELEMENT: Final = Element()


def kind_of(field: pa.Field) -> Kind:
    """What a function sees of the column."""
    column = field.type
    if pa.types.is_boolean(column):
        return BOOL
    if pa.types.is_integer(column) and not pa.types.is_uint64(column):
        return INT
    if pa.types.is_float32(column) or pa.types.is_float64(column):
        return FLOAT
    if _is_text(column.value_type if pa.types.is_dictionary(column) else column):
        return Text(field.name)
    # Python compares times of one other zone by what clocks show there.
    if pa.types.is_timestamp(column) and column.tz in (None, "UTC"):
        return Time(field.name, column.tz is not None)
    return Opaque(field.name)


def _is_text(column: pa.DataType) -> bool:
    return bool(pa.types.is_string(column) or pa.types.is_large_string(column))


def is_text(kind: Kind) -> TypeGuard[Word | Text | Coded]:
    """Whether a value of the kind is a text."""
    return isinstance(kind, (Word, Text, Coded))


def is_passed_on(kind: Kind) -> TypeGuard[Text | Opaque]:
    """Whether a result of the kind is a column of the input."""
    return isinstance(kind, (Text, Opaque))


def check_declared(name: str, results: Mapping[str, Kind], given: pa.Schema, made: pa.Schema) -> None:
    """Make sure that a function gives what is declared.

    Args:
        name: of the function.
        results: kind of each column that it gives.
        given, made: the columns of its input, and those that are declared.

    Raises:
        GraphError: it gives other columns, or one of another kind.
    """
    if set(results) != set(made.names):
        gives = ", ".join(results) if results.keys() != {""} else "a value"
        raise GraphError(
            f"compiled: {name} gives {gives}, and `returns` declares {', '.join(made.names)}; give dicts with these "
            "columns"
        )
    for column, kind in results.items():
        declared = made.field(column).type
        if not _can_become(kind, declared, given):
            found = shown(kind)
            if isinstance(kind, (Text, Opaque)):
                found += f", {given.field(kind.column).type},"
            raise GraphError(
                f"compiled: {name}: {column!r} is {found} and declared as {declared}; convert it in the function, or "
                "declare another type"
            )


def _can_become(kind: Kind, declared: pa.DataType, given: pa.Schema) -> bool:
    if is_text(kind) and _is_text(declared):
        return True
    if isinstance(kind, (Text, Opaque)):
        return bool(given.field(kind.column).type == declared)
    if kind == INT:
        return bool(pa.types.is_integer(declared))
    if kind == FLOAT:
        return bool(pa.types.is_float64(declared))
    return kind == BOOL and bool(pa.types.is_boolean(declared))


def shown(kind: Kind) -> str:
    """The kind, in messages."""
    match kind:
        case Number(name):
            return f"a {name}" if name != "int" else "an int"
        case Word() | Coded():
            return "a text"
        case Text(column) | Opaque(column):
            return f"the value of column {column!r}"
        case Listed(state):
            return f"the list of state {state!r}"
        case Element():
            return "a row"
