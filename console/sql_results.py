"""The rows of queries in `penstock sql`: as a table of what is there, or as the changes that come.

`sql.py` shows them; in a terminal, a table of rows that do not end is redrawn while they come.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from penstock.engine.columns import rebuilt
from penstock.engine.job.handle import CollectResult
from penstock.engine.rows import batch_rows
from penstock.tables.functions.casts import cast_values
from penstock.tables.functions.signatures import SessionValues
from penstock.tables.table import OP
from penstock.tables.types import BYTES_KINDS, STRING, SqlType

_REDRAWN_A_SECOND: Final = 4
_TAKEN: Final = ("-U", "-D")
_Row = TypeVar("_Row")


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


def polls_of(result: CollectResult, seen: Callable[[pa.Table], pa.Table]) -> Iterator[Iterator[dict[str, Any]]]:
    """The rows that each look at the job has found, perhaps none; it is looked at once a second at least.

    Args:
        result: of a query.
        seen: what people or programs see of rows: `as_texts` or `as_values`.
    """
    for table in result.tables():
        yield (row for batch in seen(table).to_batches() for row in batch_rows(batch))


def as_texts(columns: Mapping[str, SqlType], zone: str) -> Callable[[pa.Table], pa.Table]:
    """Rows for people: as CAST to STRING has their values, and bytes as `x'6162'`, as Flink's SQL client does.

    Args:
        columns: the query's; others, such as the kind of a change, stay as they are.
        zone: of the session, whose clocks show TIMESTAMP_LTZ.

    Example:
        >>> from penstock.tables.types import timestamp_ltz
        >>> at = pa.table({"at": pa.array([0], pa.timestamp("ms", "UTC"))})
        >>> as_texts({"at": timestamp_ltz(3)}, "Europe/Berlin")(at).to_pylist()
        [{'at': '1970-01-01 01:00:00.000'}]
    """
    session = SessionValues(zone)

    def seen(table: pa.Table) -> pa.Table:
        shown = [_texts(table.column(name), columns.get(name), session) for name in table.column_names]
        return pa.table(shown, table.column_names)

    return seen


def _texts(column: pa.ChunkedArray, kind: SqlType | None, session: SessionValues) -> pa.ChunkedArray:
    if kind is None:
        return column
    if kind.kind in BYTES_KINDS:
        texts = [None if value is None else f"x'{value.hex()}'" for value in column.to_pylist()]
        return pa.chunked_array([pa.array(texts, pa.string())])
    texts = [cast_values(chunk, kind, STRING, False, session) for chunk in column.chunks]
    return pa.chunked_array(texts, pa.string())


def as_values(zone: str) -> Callable[[pa.Table], pa.Table]:
    """Rows for programs: moments with the offset of a zone; times with nanoseconds, which Python has not, as text.

    Example:
        >>> at = pa.table({"at": pa.array([0], pa.timestamp("ms", "UTC"))})
        >>> str(as_values("Europe/Berlin")(at).to_pylist()[0]["at"])
        '1970-01-01 01:00:00+01:00'
    """

    def seen(table: pa.Table) -> pa.Table:
        zoned = pa.schema([field.with_type(_in_zone(field.type, zone)) for field in table.schema])
        return _with_texts(table.cast(zoned))

    return seen


def _in_zone(kind: pa.DataType, zone: str) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.timestamp(kind.unit, kind.tz and zone)
    return rebuilt(kind, lambda inner: _in_zone(inner, zone))


def counted(rows: int) -> str:
    """How many rows there are."""
    return f"{rows} row{'' if rows == 1 else 's'}"


def paged(
    polls: Iterable[Iterable[_Row]], seconds: float, clock: Callable[[], float] = time.monotonic
) -> Iterator[list[_Row]]:
    """The rows in pages, of so many seconds each; Ctrl-C ends them, and what has come is the last page.

    Args:
        polls: the rows of each look for some, often none; a page that is due waits for the next look.

    Example:
        >>> list(paged([[1], [2], [], [3]], 1.0, iter([0.0, 0.5, 1.5, 1.5, 2.6, 2.8]).__next__))
        [[1, 2], [3]]
    """
    page: list[_Row] = []
    since = clock()
    try:
        for rows in polls:
            page.extend(rows)
            if page and clock() - since >= seconds:
                yield page
                page, since = [], clock()
    except KeyboardInterrupt:
        if page:
            yield page
        raise
    if page:
        yield page


def _with_texts(table: pa.Table) -> pa.Table:
    columns = []
    for column in table.columns:
        kind = _as_text(column.type)
        if pa.types.is_timestamp(column.type) and kind != column.type and column.type.tz is not None:
            # As Python shows the zone, and not as Arrow does.
            columns.append(pc.strftime(column, format="%Y-%m-%d %H:%M:%S%Ez"))
        else:
            columns.append(column if kind == column.type else column.cast(kind))
    return pa.table(columns, table.column_names)


def _as_text(kind: pa.DataType) -> pa.DataType:
    """The type, with text in place of times with nanoseconds."""
    if pa.types.is_timestamp(kind) or pa.types.is_time64(kind):
        return pa.string() if kind.unit == "ns" else kind
    if pa.types.is_list(kind):
        return pa.list_(_as_text(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_as_text(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_as_text(kind.key_type), _as_text(kind.item_type))
    return kind


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
    """A text for a terminal."""
    return "NULL" if value is None else str(value)


def show_live(result: ResultTable, changes: Iterable[Mapping[str, Any]], console: Console) -> None:
    """Show the rows that are there, redrawn while changes come, until they end."""
    with Live(console=console, get_renderable=result.shown, refresh_per_second=_REDRAWN_A_SECOND):
        for change in changes:
            result.apply([change])
