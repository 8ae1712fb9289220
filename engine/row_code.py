"""Rows (dicts) put together, and taken apart, by code that is made for the names of their columns.

`rows.py` and `row_buffer.py` use it: a dict that is written out costs a third of `dict(zip(names, values))`. The code
holds nothing of a column but its name, as a literal; it is made once for each set of names, which are of the type `str`
itself: others are equal to them, and have no literal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, Final, TypeAlias, cast

Columns: TypeAlias = "Sequence[Sequence[Any]]"
"""A value for each row."""

_FILE: Final = "<rows>"
_KEPT: Final = 1_000
"""Sets of names whose code is kept."""
_ADDER: Final = """\
def make(plain, other, {columns}):
    def add(row):
        if row.__class__ is dict and len(row) == {count}:
            try:
                {taken}
            except KeyError:
                return other(row)
            if {are_plain}:
                {appended}
                return
        other(row)
    return add
"""


@lru_cache(_KEPT)
def row_maker(names: tuple[str, ...]) -> Callable[[Columns], Iterator[dict[str, Any]]]:
    """Makes the rows of columns with these names, each when it is asked for.

    Example:
        `list(row_maker(("a", "b"))([[1, 2], ["x", "y"]])) == [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]`
    """
    values = _numbered("v", names)
    if not values:
        return lambda columns: iter(())
    pairs = ", ".join(f"{name!r}: {value}" for name, value in zip(names, values, strict=True))
    return _made(f"def make(columns):\n    return ({{{pairs}}} for {', '.join(values)}, in zip(*columns))\n")


@lru_cache(_KEPT)
def adder_maker(names: tuple[str, ...]) -> Callable[..., Callable[[Any], None]]:
    """Gives, for the types of plain values, what takes the other rows, and a list for each column, a function that
    appends the values of a row to the lists.

    Other rows are those that are no dict with these keys, or have a value that is not plain.

    Example:
        `adder_maker(("a", "b"))({int}, print, numbers, others)({"a": 1, "b": 2})`
    """
    values, columns = _numbered("v", names), _numbered("c", names)
    return _made(
        _ADDER.format(
            columns=", ".join(columns),
            count=len(names),
            taken="; ".join(f"{value} = row[{name!r}]" for name, value in zip(names, values, strict=True)),
            are_plain=" and ".join(f"{value}.__class__ in plain" for value in values),
            appended="; ".join(f"{column}.append({v})" for column, v in zip(columns, values, strict=True)),
        )
    )


def _numbered(letter: str, names: Sequence[str]) -> list[str]:
    return [f"{letter}{number}" for number in range(len(names))]


def _made(source: str) -> Callable[..., Any]:
    """The function `make` of the source."""
    made: dict[str, Any] = {}
    exec(compile(source, _FILE, "exec"), made)  # noqa: S102 - written here, and names are literals in it
    return cast("Callable[..., Any]", made["make"])
