"""The rows of queries in `penstock sql`: as a table of what is there, or as the changes that come.

`sql.py` shows them; in a terminal, a table of rows that do not end is redrawn while they come.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from penstock.tables.table import OP

_REDRAWN_A_SECOND: Final = 4
_TAKEN: Final = ("-U", "-D")


class ResultTable:
    """The rows that are there after some changes, in the order in which they came.

    Args:
        names: of the columns.

    Example:
        >>> result = ResultTable(["n"])
        >>> result.apply([{"op": "+I", "n": 1}, {"op": "-U", "n": 1}, {"op": "+U", "n": 2}])
        >>> result.rows()
        [{'n': 2}]
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = list(names)
        self._rows: dict[str, tuple[Mapping[str, Any], int]] = {}

    def apply(self, changes: Iterable[Mapping[str, Any]]) -> None:
        """Take changes; rows without `op` are inserted."""
        for change in changes:
            row = {name: change[name] for name in self._names}
            # Values such as lists cannot be keys.
            key = repr(row)
            count = self._rows.pop(key, (row, 0))[1] + (-1 if change.get(OP) in _TAKEN else 1)
            if count:
                self._rows[key] = (row, count)

    def rows(self) -> list[Mapping[str, Any]]:
        """The rows, each as often as it is there."""
        # At once, as `show_live` draws in another thread than that in which changes come.
        there = list(self._rows.values())
        return [row for row, count in there for _ in range(count)]

    def shown(self) -> Table:
        """The rows for a terminal."""
        return shown_rows(self._names, self.rows())


def shown_rows(names: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> Table:
    """Rows for a terminal."""
    table = Table()
    # Text, so that what is in brackets is not taken for a style.
    for name in names:
        table.add_column(Text(name))
    for row in rows:
        table.add_row(*(Text(shown_value(row[name])) for name in names))
    return table


def shown_value(value: object) -> str:
    """A value for a terminal."""
    return "NULL" if value is None else str(value)


def show_live(names: Sequence[str], changes: Iterable[Mapping[str, Any]], console: Console) -> None:
    """Show the rows that are there, redrawn while changes come, until they end."""
    result = ResultTable(names)
    with Live(console=console, get_renderable=result.shown, refresh_per_second=_REDRAWN_A_SECOND):
        for change in changes:
            result.apply([change])
