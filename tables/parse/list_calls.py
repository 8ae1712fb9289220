"""Aggregate functions that are functions of the list of a group's values: PERCENTILE, and those of bitmaps.

The parser writes them so: `PERCENTILE(x, 0.5)` is `PERCENTILE(ARRAY_AGG(x), 0.5)`, whose rows may be taken back.
"""

from __future__ import annotations

from typing import Final

from penstock.tables.parse import nodes as n
from penstock.tables.parse.expressions import Expressions


def list_call(parser: Expressions, at: int, name: str, arguments: tuple[n.Argument, ...], distinct: bool) -> n.Call:
    """A call of one of `OF_LISTS`, whose arguments were taken.

    Raises:
        SqlSyntaxError: what stands behind it.
    """
    return OF_LISTS[name](parser, at, name, arguments, distinct)


def _percentile(parser: Expressions, at: int, name: str, arguments: tuple[n.Argument, ...], distinct: bool) -> n.Call:
    """Of the list of all values, or of all pairs of a value and how often it counts."""
    if len(arguments) < 2:
        return n.Call(at, name, arguments)
    value, share, *times = arguments
    item = n.Argument(at, n.Constructor(at, "ROW", (value.value, times[0].value))) if times else value
    items = parser.behind_call(n.Call(at, "ARRAY_AGG", (item,), distinct, said=name))
    return n.Call(at, name, (n.Argument(at, items), share, *times[1:]))


def _bitmap(parser: Expressions, at: int, name: str, arguments: tuple[n.Argument, ...], distinct: bool) -> n.Call:
    """Of the list of all values that are not null, or the number of what that has."""
    items = parser.behind_call(n.Call(at, "ARRAY_AGG", arguments, distinct, said=name), True)
    made = n.Call(at, name.replace("_CARDINALITY_AGG", "_AGG"), (n.Argument(at, items),))
    return made if made.name == name else n.Call(at, "BITMAP_CARDINALITY", (n.Argument(at, made),))


OF_LISTS: Final = {
    "PERCENTILE": _percentile,
    **{
        f"BITMAP_{operation}_{result}": _bitmap
        for operation in ("BUILD", "AND", "OR", "XOR")
        for result in ("AGG", "CARDINALITY_AGG")
    },
}
"""By name."""
