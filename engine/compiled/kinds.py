"""The kinds of value that a compiled function can work with, and what columns hold them.

`translation` infers a kind for each expression; `program` makes arrays of columns by it. Each has one exact meaning in
Python and in compiled code, so that both give the same result or the compiled one gives none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Number:
    """`int` of 64 bits, `float`, or `bool`."""

    name: str


@dataclass(frozen=True, slots=True)
class Word:
    """A text that stands in the function, by its number in the list of these."""


@dataclass(frozen=True, slots=True)
class Text:
    """The text of a column: it can be compared with words, and passed on."""

    column: str


@dataclass(frozen=True, slots=True)
class Opaque:
    """The value of a column that can only be passed on."""

    column: str


Kind: TypeAlias = Number | Word | Text | Opaque

INT: Final = Number("int")
FLOAT: Final = Number("float")
BOOL: Final = Number("bool")
WORD: Final = Word()


def kind_of(field: pa.Field) -> Kind:
    """What a function sees of the column."""
    column = field.type
    if pa.types.is_boolean(column):
        return BOOL
    if pa.types.is_integer(column) and not pa.types.is_uint64(column):
        return INT
    if pa.types.is_float32(column) or pa.types.is_float64(column):
        return FLOAT
    if pa.types.is_string(column) or pa.types.is_large_string(column):
        return Text(field.name)
    return Opaque(field.name)


def can_become(kind: Kind, field: pa.Field, schema: pa.Schema) -> bool:
    """Whether a result of the kind may be the column `field`; `schema` has the columns of the input."""
    if isinstance(kind, (Text, Opaque)):
        return bool(schema.field(kind.column).type == field.type)
    if isinstance(kind, Word):
        return bool(pa.types.is_string(field.type) or pa.types.is_large_string(field.type))
    if kind == INT:
        return bool(pa.types.is_integer(field.type))
    return bool(pa.types.is_float64(field.type)) if kind == FLOAT else bool(pa.types.is_boolean(field.type))


def shown(kind: Kind) -> str:
    """The kind, in messages."""
    match kind:
        case Number(name):
            return f"a {name}" if name != "int" else "an int"
        case Word():
            return "a text"
        case Text(column) | Opaque(column):
            return f"the value of column {column!r}"
