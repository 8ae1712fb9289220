"""What a row pattern is made of: variables, one behind the other, one or the other, and repeated.

SQL's parser makes it, `automaton.py` compiles it. It says nothing of what rows a variable takes.

Source: ISO/IEC TR 19075-5, "Row Pattern Recognition in SQL".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Variable:
    """One row, which fulfils the definition of the variable."""

    name: str


@dataclass(frozen=True, slots=True)
class Sequence:
    """One part behind the other, without rows between."""

    parts: tuple[RowPattern, ...]


@dataclass(frozen=True, slots=True)
class Alternatives:
    """One of the parts: the first that leads to a match is preferred."""

    parts: tuple[RowPattern, ...]


@dataclass(frozen=True, slots=True)
class Repeated:
    """A part several times.

    Args:
        least: how often at least.
        most: how often at most; None for any number.
        is_greedy: whether more are preferred to fewer.
    """

    part: RowPattern
    least: int
    most: int | None
    is_greedy: bool


RowPattern: TypeAlias = Variable | Sequence | Alternatives | Repeated
"""A row pattern, or a part of one."""


def in_any_order(parts: tuple[RowPattern, ...]) -> RowPattern:
    """What PERMUTE stands for: the parts in each order; those orders that begin as written are preferred.

    Example:
        >>> [[part.name for part in way.parts] for way in in_any_order((Variable("a"), Variable("b"))).parts]
        [['a', 'b'], ['b', 'a']]
    """
    return Alternatives(tuple(Sequence(order) for order in permutations(parts)))


def variables_of(pattern: RowPattern) -> tuple[str, ...]:
    """The names of the variables, in the order in which they first stand in the pattern."""
    return tuple(dict.fromkeys(_names(pattern)))


def _names(pattern: RowPattern) -> Iterator[str]:
    match pattern:
        case Variable():
            yield pattern.name
        case Repeated():
            yield from _names(pattern.part)
        case Sequence() | Alternatives():
            for part in pattern.parts:
                yield from _names(part)


def shown(pattern: RowPattern) -> str:
    """The pattern as SQL writes it.

    Example:
        >>> shown(Sequence((Variable("A"), Repeated(Variable("B"), 1, None, False))))
        'A B+?'
    """
    match pattern:
        case Variable():
            return pattern.name
        case Sequence():
            return " ".join(f"({shown(p)})" if isinstance(p, Alternatives) else shown(p) for p in pattern.parts)
        case Alternatives():
            return " | ".join(shown(part) for part in pattern.parts)
        case Repeated():
            inner = shown(pattern.part) if isinstance(pattern.part, Variable) else f"({shown(pattern.part)})"
            return f"{inner}{_quantifier(pattern)}{'' if pattern.is_greedy else '?'}"


def _quantifier(repeated: Repeated) -> str:
    bounds = (repeated.least, repeated.most)
    short = {(0, None): "*", (1, None): "+", (0, 1): "?"}.get(bounds)
    if short is not None:
        return short
    if repeated.least == repeated.most:
        return f"{{{repeated.least}}}"
    return f"{{{repeated.least},{'' if repeated.most is None else repeated.most}}}"
