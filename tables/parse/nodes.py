"""The syntax tree of expressions, as the parser builds it and the binder reads it; with queries in them: `queries.py`.

Every node knows where it begins in the text (`at`). Nothing is checked here: names may not exist, types may not fit.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from penstock.tables.functions.user import UserFunction
from penstock.tables.types import SqlType


@dataclass(frozen=True, slots=True)
class Node:
    """A part of a statement; `at` is the offset of its first character, and the same part elsewhere is equal."""

    at: int = field(compare=False)


@dataclass(frozen=True, slots=True)
class Identifier(Node):
    """A name, as it was written."""

    name: str


@dataclass(frozen=True, slots=True)
class Name(Node):
    """`a`, `t.a`, `t.a.field`."""

    parts: tuple[Identifier, ...]

    @property
    def text(self) -> str:
        """For messages."""
        return ".".join(part.name for part in self.parts)


@dataclass(frozen=True, slots=True)
class Star(Node):
    """`*`, `t.*`, or all fields of a row: `t.a.*`."""

    qualifier: Name | None = None


@dataclass(frozen=True, slots=True)
class NumberLiteral(Node):
    """`1`, `1.50`, `1e3`: the text decides the type."""

    text: str


@dataclass(frozen=True, slots=True)
class StringLiteral(Node):
    """`'text'`."""

    value: str


@dataclass(frozen=True, slots=True)
class BytesLiteral(Node):
    """`X'45F0'`: two digits a byte."""

    value: bytes


@dataclass(frozen=True, slots=True)
class NullLiteral(Node):
    """`NULL`."""


@dataclass(frozen=True, slots=True)
class BooleanLiteral(Node):
    """`TRUE`, `FALSE`, `UNKNOWN` (None)."""

    value: bool | None


@dataclass(frozen=True, slots=True)
class TemporalLiteral(Node):
    """`DATE '2024-01-01'`, `TIME '...'`, `TIMESTAMP '...'`."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class IntervalLiteral(Node):
    """`INTERVAL '1 10' DAY TO HOUR`.

    Args:
        text: what stands in quotes.
        negative: whether a minus stands before it.
        first, last: the units, in capitals, without an S at the end; equal where only one is given.
    """

    text: str
    negative: bool
    first: str
    last: str


@dataclass(frozen=True, slots=True)
class Unary(Node):
    """`-x`, `+x`, `NOT x`."""

    operator: str
    operand: Node


@dataclass(frozen=True, slots=True)
class Binary(Node):
    """`x + y`, `x AND y`, `x = y`, ...; `at` is the operator's place."""

    operator: str
    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class IsTest(Node):
    """`x IS [NOT] NULL`, `TRUE`, `FALSE`, `UNKNOWN`."""

    operand: Node
    what: str
    negated: bool


@dataclass(frozen=True, slots=True)
class IsDistinct(Node):
    """`x IS [NOT] DISTINCT FROM y`."""

    left: Node
    right: Node
    negated: bool


@dataclass(frozen=True, slots=True)
class Between(Node):
    """`x [NOT] BETWEEN [SYMMETRIC] low AND high`."""

    operand: Node
    low: Node
    high: Node
    negated: bool
    symmetric: bool


@dataclass(frozen=True, slots=True)
class InList(Node):
    """`x [NOT] IN (1, 2)`."""

    operand: Node
    items: tuple[Node, ...]
    negated: bool


@dataclass(frozen=True, slots=True)
class Like(Node):
    """`x [NOT] LIKE pattern [ESCAPE c]`; `operator` is LIKE or SIMILAR."""

    operator: str
    operand: Node
    pattern: Node
    escape: Node | None
    negated: bool


@dataclass(frozen=True, slots=True)
class Case(Node):
    """`CASE [operand] WHEN a THEN b ... [ELSE c] END`."""

    operand: Node | None
    branches: tuple[tuple[Node, Node], ...]
    default: Node | None


@dataclass(frozen=True, slots=True)
class Cast(Node):
    """`CAST(x AS type)`; `safe`: `TRY_CAST`, which gives null for what cannot be cast."""

    operand: Node
    type: SqlType
    safe: bool


@dataclass(frozen=True, slots=True)
class Keyword(Node):
    """A word that is an argument, such as the unit of `EXTRACT(YEAR FROM x)`."""

    word: str


@dataclass(frozen=True, slots=True)
class Descriptor(Node):
    """`DESCRIPTOR(a, b)`."""

    columns: tuple[Identifier, ...]


@dataclass(frozen=True, slots=True)
class Argument(Node):
    """An argument of a call; `name` is that of `name => value`."""

    value: Node
    name: str | None = None


@dataclass(frozen=True, slots=True)
class OrderItem(Node):
    """`x [ASC | DESC] [NULLS FIRST | LAST]`."""

    value: Node
    descending: bool
    nulls_first: bool | None


@dataclass(frozen=True, slots=True)
class FrameBound(Node):
    """`UNBOUNDED PRECEDING`, `3 FOLLOWING`, `CURRENT ROW`: a value of None with `unbounded`, or the current row."""

    direction: str
    unbounded: bool = False
    value: Node | None = None


@dataclass(frozen=True, slots=True)
class Frame(Node):
    """`ROWS | RANGE BETWEEN begin AND end`."""

    unit: str
    begin: FrameBound
    end: FrameBound


@dataclass(frozen=True, slots=True)
class Over(Node):
    """`OVER (PARTITION BY ... ORDER BY ... frame)`; `reference` is the window's name of `OVER w`."""

    partition_by: tuple[Node, ...] = ()
    order_by: tuple[OrderItem, ...] = ()
    frame: Frame | None = None
    reference: Identifier | None = None


@dataclass(frozen=True, slots=True)
class Call(Node):
    """A call of a function, plain or aggregate; special forms come under the same names with plain arguments.

    Args:
        name: in capitals.
        star: `COUNT(*)`.
        within: `WITHIN GROUP (ORDER BY ...)` or an ORDER BY among the arguments.
        said: what messages call it, where it stands for something else; empty: its name.
    """

    name: str
    arguments: tuple[Argument, ...]
    distinct: bool = False
    star: bool = False
    filter: Node | None = None
    over: Over | None = None
    within: tuple[OrderItem, ...] = ()
    said: str = ""

    @property
    def shown(self) -> str:
        """For messages."""
        return self.said or self.name


@dataclass(frozen=True, slots=True)
class Constructor(Node):
    """`ROW(a, b)` or `(a, b)`; `ARRAY[a, b]`; `MAP[k1, v1, k2, v2]`."""

    kind: Literal["ROW", "ARRAY", "MAP"]
    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Element(Node):
    """`x[i]`: of an array (from 1) or of a map."""

    operand: Node
    index: Node


@dataclass(frozen=True, slots=True)
class FieldOf(Node):
    """`expression.field`, where the expression is no name."""

    operand: Node
    field: Identifier


@dataclass(frozen=True, slots=True)
class UserCall(Node):
    """A call of a function of the user; of an aggregate function, its argument is the array of the group's values."""

    name: str
    function: UserFunction
    arguments: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Typed(Node):
    """An argument of the user's function `function`, as the type that it takes; None takes any."""

    value: Node
    function: str
    type: SqlType | None


@dataclass(frozen=True, slots=True)
class ValueColumn(Node):
    """The value of a query in an expression, which stands in column `place` of the rows."""

    place: int
