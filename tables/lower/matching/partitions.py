"""The partitions that have rows of matches under way: what the operator asks of them, and the table they are saved in.

What is saved is the rows alone, from the one on where the search stands: a restored search begins again with that one,
and comes to the same point. So either way of searching restores what the other has saved.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple, Protocol

import pyarrow as pa

from penstock.engine.columns import with_numbers
from penstock.engine.errors import RecordError, StateError
from penstock.engine.operators.changelog.column_names import free_name, saved_names
from penstock.engine.patterns.rows.column_rules import Int64s
from penstock.engine.patterns.rows.lookahead import Bools
from penstock.engine.patterns.rows.search import PartitionRows
from penstock.engine.patterns.rows.trail import Trail
from penstock.engine.state.capture import TableCapture
from penstock.engine.state.snapshot import KEY_GROUP

TIME: Final = "__time"
_PLACE: Final = "__place"
_ANSWERS: Final = "__answers"


class SortedRows(NamedTuple):
    """Rows by partition, in order within each.

    Args:
        keys: the key columns of the partitions, by number.
        numbers: that of each row's partition, ascending.
        times, answers: of each row; a bit for each variable that it may be, and `NEVER`.
        values: what is kept of each row, by columns.
    """

    keys: Sequence[pa.Array]
    numbers: Int64s
    times: Int64s
    answers: Int64s
    values: Sequence[pa.Array]


class Partitions(Protocol):
    """Holds the rows of matches under way, and searches them."""

    def are_under_way(self, keys: Sequence[pa.Array], count: int) -> Bools:
        """Whether each of `count` partitions has rows."""
        ...

    def take(self, rows: SortedRows, until: int) -> None:
        """Add rows, at least one, and search their partitions; no rows up to `until` (int64 ms) come any more."""
        ...

    def come_to(self, until: int) -> None:
        """No rows up to this time (int64 ms) come any more: search where that decides something."""
        ...

    def end(self) -> None:
        """No rows come any more at all."""
        ...

    @property
    def next_time(self) -> int | None:
        """When time will decide something (int64 ms)."""
        ...

    def capture(self, max_parallelism: int) -> TableCapture | None:
        """The rows as they are now, to be made a table later; None for none."""
        ...

    def restore(self, table: pa.Table) -> None:
        """Hold what was saved; there are no rows yet."""
        ...


def saved_columns(keys: pa.Schema, values: Sequence[pa.DataType]) -> pa.Schema:
    """The columns of the table of saved rows, but for the key group: the keys, then three of int64, then the values.

    The three are the row's time, its place in its partition, from the one on where the search stands (below 0 for
    those that PREV may still read), and its answers.
    """
    names = saved_names(keys.names)
    for name in (TIME, _PLACE, _ANSWERS, *(f"v{place}" for place in range(len(values)))):
        names.append(free_name(name, names))
    kinds = [*keys.types, *[pa.int64()] * 3, *values]
    return pa.schema(list(zip(names, kinds, strict=True)))


def saved_rows(table: pa.Table, columns: pa.Schema, where: str) -> pa.RecordBatch | None:
    """The rows of a saved table; None for none.

    Raises:
        StateError: it was saved by a clause that keeps other values of its rows.
    """
    data = table.drop_columns([KEY_GROUP])
    if data.schema.names != columns.names or data.schema.types != columns.types:
        raise StateError(
            f"{where}: the saved rows of matches under way have other columns than the clause reads now; "
            "start with allow_non_restored_state and another name to leave them, or with the clause as it was"
        )
    return data.combine_chunks().to_batches()[0] if data.num_rows else None


def trail_of(taken: Sequence[int], rows: PartitionRows, start: int, trail: Trail) -> Iterator[Trail]:
    """The rows of a match added to a trail, one by one."""
    for place, variable in enumerate(taken):
        trail.add(variable, rows.values[start + place])
        yield trail


def skips_nowhere(where: str, names: str) -> RecordError:
    """What to say where a match has no row to skip to."""
    return RecordError(
        f"{where}: AFTER MATCH SKIP goes to {names}, of which a match has no row; skip TO NEXT ROW or "
        "PAST LAST ROW, or let each match have one"
    )


def skips_to_itself(where: str, names: str) -> RecordError:
    """What to say where a match begins with the row to skip to."""
    return RecordError(
        f"{where}: AFTER MATCH SKIP goes to {names}, which is the first row of a match, so it would be "
        "found again for ever; skip TO NEXT ROW or PAST LAST ROW"
    )


def key_tuples(columns: Sequence[pa.Array], rows: int) -> list[tuple[Any, ...]]:
    """The keys of rows, or what else they have, as tuples: of no columns they are all alike.

    Times with nanoseconds are their numbers.
    """
    if not columns:
        return [()] * rows
    return list(zip(*(with_numbers(column).to_pylist() for column in columns), strict=True))
