"""The state of an operator at one moment, as immutable Arrow tables, and how it is shared out after a rescale.

Operators make snapshots and are restored from them; the checkpoint store keeps them. A snapshot holds no Python objects
but names, so it can be written to Arrow or Parquet and read by pandas, DuckDB or Spark.

Source of the ways of redistribution: Flink's documentation, "Working with State" and "The Broadcast State Pattern".
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.engine.elements import MIN_TIMESTAMP
from penstock.engine.state.keys.codec import pooled_empty, read_only
from penstock.engine.state.keys.groups import key_group_range, key_groups

KEY_GROUP: Final = "__key_group"
"""The first column of a keyed table: int32; ascending, but in rows of checkpoints."""
_MANY_ROWS: Final = 100_000
"""From here on it is worth while to load numba for the sort."""
_PART_ROWS: Final = 131_072
_WORDS: Final = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}


class HeldState(Protocol):
    """Keyed state as an operator holds it, made before there is the operator: it is changed, not made again, later."""

    def change(self, changes: Mapping[str, pa.Table]) -> bool:
        """Take in what has changed since.

        Args:
            changes: by state, rows that replace those with the same identity, each once; `DELETED` ones are gone.

        Returns:
            False where it cannot: it is worth nothing then.
        """
        ...


class Redistribution(enum.Enum):
    """How a table is shared out among the subtasks that restore it."""

    KEYED = "keyed"
    """Each row goes to the subtask that owns its key group."""
    SPLIT = "split"
    """The rows are dealt out evenly."""
    UNION = "union"
    """Every subtask gets all rows of all subtasks."""
    BROADCAST = "broadcast"
    """All subtasks had the same rows: each gets those of one of them."""
    WHOLE = "whole"
    """All rows of one old subtask stay together: those of old subtask i go to subtask i modulo the parallelism."""


@dataclass(frozen=True, slots=True)
class StateTable:
    """One state of an operator.

    Args:
        redistribution: how it is shared out.
        data: the rows; those of a keyed table begin with `KEY_GROUP`, sorted by it.
    """

    redistribution: Redistribution
    data: pa.Table


def parts_of(table: pa.Table) -> Iterator[pa.Table]:
    """The rows of a table, in parts: what is made of each on its way into memory stays small, and in the caches."""
    for begin in range(0, table.num_rows, _PART_ROWS):
        yield table.slice(begin, _PART_ROWS)


@dataclass(frozen=True, slots=True)
class OperatorSnapshot:
    """All state of one operator in one subtask.

    Args:
        tables: by the name of the state.
        watermark: the event time (int64 ms) that the operator had come to. What was late before stays late after a
            restore, which is more than Flink keeps.
        ahead: after a rescale, the key groups of the old subtasks that had come further, and how far each had. Not
            kept in storage.
        furthest: after a restore, the largest watermark of all old subtasks. Not kept in storage.
        held: keyed state that the operator has made itself, in the place of those tables; see `OperatorSpec.hold`.
    """

    tables: Mapping[str, StateTable] = field(default_factory=dict)
    watermark: int = MIN_TIMESTAMP
    ahead: tuple[tuple[range, int], ...] = ()
    furthest: int = MIN_TIMESTAMP
    held: Any = None


EMPTY_SNAPSHOT: Final = OperatorSnapshot()


def keyed_table(data: pa.Table, keys: Sequence[str], max_parallelism: int) -> StateTable:
    """A keyed table of `data`, whose columns `keys` hold the keys (none: everything belongs to key group 0).

    Rows of one key group stay in their order.
    """
    return StateTable(Redistribution.KEYED, by_group(with_groups(data, keys, max_parallelism)))


def with_groups(data: pa.Table, keys: Sequence[str], max_parallelism: int) -> pa.Table:
    """The rows of `data`, in their order, with the column `KEY_GROUP` in front; arguments as for `keyed_table`."""
    groups = groups_of_rows(data, keys, max_parallelism)
    return data.add_column(0, KEY_GROUP, pa.array(groups, pa.int32()))


def groups_of_rows(rows: pa.Table | pa.RecordBatch, keys: Sequence[str], max_parallelism: int) -> npt.NDArray[np.int32]:
    """The key group of each row; without key columns all are of group 0."""
    columns = [rows.column(key) for key in keys]
    arrays = [column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column for column in columns]
    arrays = [pa.concat_arrays(array.chunks) if isinstance(array, pa.ChunkedArray) else array for array in arrays]
    return key_groups(arrays, max_parallelism) if arrays else np.zeros(rows.num_rows, np.int32)


def by_group(table: pa.Table) -> pa.Table:
    """The rows in order of their `KEY_GROUP`; those of one group stay in theirs."""
    groups = table.column(KEY_GROUP).to_numpy()
    if _are_in_order(groups):
        return table
    if table.num_rows >= _MANY_ROWS:
        return _many_by_group(table, groups)
    # Of 16 bits, numbers are sorted by radix: ten times as fast.
    return table.take(pa.array(np.argsort(groups.astype(np.uint16), kind="stable")))


def _many_by_group(table: pa.Table, groups: npt.NDArray[np.int32]) -> pa.Table:
    from penstock.engine.state.capture_kernel import places_by_group, scatter

    places = pooled_empty(len(groups), np.int64)
    places_by_group(read_only(groups), np.zeros(int(groups.max()) + 1, np.int64), places)
    order: pa.Array | None = None
    columns = []
    for column in table.columns:
        values = _plain_values(column)
        if values is not None:
            ordered = pooled_empty(len(values), values.dtype)
            scatter(read_only(values), places, ordered)
            columns.append(pa.Array.from_buffers(column.type, len(ordered), [None, pa.py_buffer(ordered)]))
            continue
        if order is None:
            rows = pooled_empty(len(places), np.int64)
            scatter(read_only(np.arange(len(places))), places, rows)
            order = pa.array(rows)
        columns.append(column.take(order))
    return pa.table(columns, schema=table.schema)


def _plain_values(column: pa.ChunkedArray) -> npt.NDArray[np.unsignedinteger[Any]] | None:
    """A view of the values of a column as words; None where it has nulls, or other things than words of its own."""
    kind = column.type
    if not pa.types.is_primitive(kind) or column.null_count or column.num_chunks != 1:
        return None
    if kind.bit_width not in _WORDS:
        return None
    array = column.chunk(0)
    words = np.frombuffer(array.buffers()[1], _WORDS[kind.bit_width])
    view: npt.NDArray[np.unsignedinteger[Any]] = words[array.offset : array.offset + len(array)]
    return view


def share(
    snapshots: Sequence[OperatorSnapshot], subtask: int, parallelism: int, max_parallelism: int
) -> OperatorSnapshot:
    """What one of `parallelism` subtasks restores from the snapshots of all subtasks, in their order.

    Args:
        snapshots: of the old subtasks, which may have been more or fewer.
        subtask, parallelism: of the new subtask.
        max_parallelism: the same as when the snapshots were made.
    """
    names = dict.fromkeys(name for snapshot in snapshots for name in snapshot.tables)
    tables = {}
    for name in names:
        parts = [snapshot.tables[name] for snapshot in snapshots if name in snapshot.tables]
        redistribution = parts[0].redistribution
        data = _share_table(redistribution, [part.data for part in parts], subtask, parallelism, max_parallelism)
        if data.num_rows:
            tables[name] = StateTable(redistribution, data)
    held = [snapshot.watermark for snapshot in snapshots]
    furthest = max(held, default=MIN_TIMESTAMP)
    if len(held) == parallelism:
        return OperatorSnapshot(tables, held[subtask], furthest=furthest)
    # With the smallest of all, no punctual row is late.
    smallest = min(held, default=MIN_TIMESTAMP)
    groups = [key_group_range(old, len(held), max_parallelism) for old in range(len(held))]
    ahead = tuple((own, watermark) for own, watermark in zip(groups, held, strict=True) if watermark > smallest)
    return OperatorSnapshot(tables, smallest, ahead, furthest)


def _share_table(
    redistribution: Redistribution, parts: list[pa.Table], subtask: int, parallelism: int, max_parallelism: int
) -> pa.Table:
    match redistribution:
        case Redistribution.KEYED:
            owned = key_group_range(subtask, parallelism, max_parallelism)
            return pa.concat_tables([rows_of_groups(part, owned) for part in parts], promote_options="default")
        case Redistribution.SPLIT:
            together = pa.concat_tables(parts, promote_options="default")
            begin, end = (together.num_rows * (subtask + more) // parallelism for more in (0, 1))
            return together.slice(begin, end - begin)
        case Redistribution.UNION:
            return pa.concat_tables(parts, promote_options="default")
        case Redistribution.BROADCAST:
            return parts[subtask % len(parts)]
        case Redistribution.WHOLE:
            mine = parts[subtask::parallelism]
            return pa.concat_tables(mine, promote_options="default") if mine else parts[0].slice(0, 0)


def rows_of_groups(table: pa.Table, owned: range) -> pa.Table:
    """The rows of a table with the column `KEY_GROUP` whose key groups are in `owned`, in their order."""
    groups = table.column(KEY_GROUP).to_numpy()
    if not _are_in_order(groups):
        return table.filter(pa.array((groups >= owned.start) & (groups < owned.stop)))
    begin, end = np.searchsorted(groups, [owned.start, owned.stop])
    return table.slice(begin, end - begin)


def _are_in_order(groups: npt.NDArray[np.int32]) -> bool:
    return not (groups[1:] < groups[:-1]).any()
