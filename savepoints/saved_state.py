"""One state of a savepoint as its users look at it: Arrow tables, single keys, a batch at a time.

`SavedOperator` makes it; the editor and the comparison read by it too. Each file is read when its rows are asked for,
whole or by key groups, and is refused unless its length and SHA-256 are as written.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from penstock.engine.checkpointing.handles import SegmentHandle, TableHandle
from penstock.engine.errors import StateError, nearest
from penstock.engine.state.capture import DELETED
from penstock.engine.state.keys.groups import key_groups
from penstock.engine.state.snapshot import KEY_GROUP, Redistribution, rows_of_groups
from penstock.savepoints.far_times import printable
from penstock.savepoints.history import merge_rows
from penstock.savepoints.key_values import check_of_one_key, value_of_key
from penstock.savepoints.layout import Layout, StateKind, layout_of, shown_name
from penstock.savepoints.live_rows import rows_of_keys, rows_with
from penstock.savepoints.segments import read_segment
from penstock.savepoints.spark_frames import frame_of_parts
from penstock.savepoints.storage import BlobStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_BATCH_ROWS: Final = 65_536


@dataclass(frozen=True, slots=True)
class Part:
    """What one subtask has of a state, and which key groups of it count (None: the state has no keys)."""

    subtask: int
    table: TableHandle
    owned: range | None


class SavedState:
    """One state of an operator, over all subtasks.

    Args:
        uid: the operator's.
        stored_name: the name of its tables.
        parts: what each subtask has of it, in their order.
        max_parallelism: number of key groups.
        blobs: the folder of its files.

    Example:
        `read(path).operator("totals").state("total").to_pandas()`
    """

    def __init__(
        self, uid: str, stored_name: str, parts: Sequence[Part], max_parallelism: int, blobs: BlobStore
    ) -> None:
        self.uid = uid
        self.stored_name = stored_name
        self.redistribution = parts[0].table.redistribution
        is_broadcast = self.redistribution is Redistribution.BROADCAST
        self._parts = parts[:1] if is_broadcast else parts
        self._all_parts = parts
        self._max_parallelism = max_parallelism
        self._blobs = blobs
        self._layout: Layout | None = None

    def __repr__(self) -> str:
        return f"SavedState({self.name!r} of operator {self.uid!r}: {self.kind.value})"

    @property
    def name(self) -> str:
        """The name that it was declared by, or what people call it."""
        return shown_name(self.stored_name)

    @property
    def place(self) -> str:
        """How messages name it."""
        return f"{self._blobs.url}: operator {self.uid!r}, state {self.name!r}"

    @property
    def kind(self) -> StateKind:
        """What it holds."""
        return self.layout.kind

    @property
    def key_columns(self) -> tuple[str, ...]:
        """The key columns; empty where there are none, or they are not known (rows that operators keep)."""
        return self.layout.keys

    @property
    def identity(self) -> tuple[str, ...]:
        """The columns of `to_arrow` that tell rows apart; empty where equal rows may come several times."""
        return self.layout.identity

    @property
    def schema(self) -> pa.Schema:
        """The columns of `to_arrow`."""
        return self.layout.schema

    @property
    def key_groups(self) -> range:
        """All key groups of a keyed state; empty for others."""
        return range(self._max_parallelism if self.redistribution is Redistribution.KEYED else 0)

    @property
    def nbytes(self) -> int:
        """Bytes of all its files; several subtasks or checkpoints may share one."""
        segments = [segment for part in self._all_parts for segment in part.table.segments]
        files = {file for segment in segments for file in (segment.file, segment.keys) if file is not None}
        return sum({file.path: file.length for file in files}.values())

    @property
    def stored_rows(self) -> int:
        """Rows in its files: at least `rows`, and more where later segments replace rows of earlier ones."""
        return sum(segment.rows for part in self._parts for segment in part.table.segments)

    @property
    def rows(self) -> int:
        """How many there are: one a key (and window), or entry of a map, or value of a list without keys.

        Known from the manifest, unless segments must be merged first (incremental checkpoints).
        """
        return sum(self._count(part) for part in self._parts)

    def _count(self, part: Part) -> int:
        table, owned = part.table, part.owned
        is_plain = table.expiry is None and (len(table.segments) <= 1 or not table.identity)
        if is_plain and all(owned is None or _within(segment, owned) for segment in table.segments):
            return sum(segment.rows for segment in table.segments)
        return int(self._rows_of(part, owned).num_rows)

    def to_arrow(self) -> pa.Table:
        """All rows: key columns, start and end of the window where there are windows, `map_key`, `value`.

        Times are timestamps (ms, UTC). Values behind a serializer are its bytes.

        Raises:
            CheckpointCorruptError: a file is not as it was written (names it).
        """
        return self.layout.show(self.raw())

    def to_pandas(self) -> Any:
        """`to_arrow` as a pandas DataFrame; times beyond the years 1 to 9999 are the last, or the first, of these."""
        return printable(self.to_arrow()).to_pandas()

    def to_spark(self, session: SparkSession) -> DataFrame:
        """All rows as a Spark DataFrame, with a partition for each old subtask, whose files the executors read.

        Types that Spark does not have become wider ones: unsigned integers the next larger signed ones, uint64 a
        decimal, and times microseconds (nanoseconds are rounded down).

        Args:
            session: such as `env.spark_session()`; its executors import Penstock and reach the savepoint's folder.

        Raises:
            ConfigurationError: `session` is none, or Spark has no type for a column (names it).

        Example:
            `read(path).operator("totals").state("total").to_spark(env.spark_session()).where("value > 100")`
        """
        # Its layout, which the first file tells, goes with the state to the executors.
        return frame_of_parts(session, self.layout.schema, len(self._parts), self._batches_of, self.place)

    def raw(self) -> pa.Table:
        """All rows as they are stored and restored, with `__key_group` and other columns of the engine's own."""
        return self._joined(self._rows_of(part, part.owned) for part in self._parts)

    def of_groups(self, groups: range) -> pa.Table:
        """The rows of some key groups, as `to_arrow`; only files that have some of them are read."""
        (rows,) = self.shares([groups])
        return rows

    def shares(self, shares: Iterable[range]) -> Iterator[pa.Table]:
        """The rows of some key groups after others, each as `to_arrow`.

        Args:
            shares: key groups, ascending. A file that has rows of several shares is read once.
        """
        held: dict[str, pa.Table] = {}

        def read_once(segment: SegmentHandle) -> pa.Table:
            if segment.file.path not in held:
                held[segment.file.path] = self._read(segment)
            return held[segment.file.path]

        for groups in shares:
            wanted = [(part, _common(part.owned, groups)) for part in self._parts if part.owned is not None]
            rows = self._joined(self._rows_of(part, owned, read_once) for part, owned in wanted if len(owned))
            yield self.layout.show(rows)
            for part in self._parts:
                for segment in part.table.segments:
                    if segment.last_group < groups.stop:
                        held.pop(segment.file.path, None)

    def of_subtask(self, subtask: int) -> pa.Table:
        """The rows of one old subtask, as `raw`."""
        return self._joined(self._rows_of(part, part.owned) for part in self._all_parts if part.subtask == subtask)

    def batches(self, max_rows: int = _BATCH_ROWS) -> Iterator[pa.RecordBatch]:
        """All rows, as `to_arrow`, a few at a time: no more than the files of one old subtask are in memory."""
        for number in range(len(self._parts)):
            yield from self._batches_of(number, max_rows)

    def _batches_of(self, number: int, max_rows: int = _BATCH_ROWS) -> Iterator[pa.RecordBatch]:
        part = self._parts[number]
        tables = [self._read(segment) for segment in part.table.segments]
        for owned in _pieces(part, max_rows) if tables else ():
            shares = tables if owned is None else [rows_of_groups(table, owned) for table in tables]
            merged = merge_rows(shares, part.table.identity, part.table.expiry)
            yield from self.layout.show(self._conformed(merged)).to_batches(max_chunksize=max_rows)

    def keys(self) -> pa.Table:
        """The distinct keys.

        Raises:
            StateError: the state has none.
        """
        self._check_keyed()
        return self.to_arrow().select(list(self.layout.keys)).group_by(list(self.layout.keys)).aggregate([])

    def where(self, /, **columns: Any) -> pa.Table:
        """The rows whose columns have the given values, or one of several given as a list.

        Where all key columns are given, only files with the key groups of these keys are read.

        Raises:
            StateError: no such column, or a value that does not fit its type.

        Example:
            `state.where(user="ann")`, `state.where(user=["ann", "bob"])`
        """
        wanted = {name: self._values_of(name, given) for name, given in columns.items()}
        keys = self.layout.keys
        if keys and all(name in wanted for name in keys):
            keyed = list(itertools.product(*(wanted[name] for name in keys)))
            arrays = [pa.array([key[i].as_py() for key in keyed], wanted[name].type) for i, name in enumerate(keys)]
            found = self.of_keys(pa.RecordBatch.from_arrays(arrays, names=list(keys)))
        else:
            found = self.to_arrow()
        for name, values in wanted.items():
            found = rows_with(found, name, values)
        return found

    def _values_of(self, name: str, given: Any) -> pa.Array:
        names = self.schema.names
        if name not in names:
            raise StateError(f"{self.place} has no column {name!r}{nearest(name, names)}; it has {', '.join(names)}")
        values = list(given) if isinstance(given, list | tuple | set | pa.Array) else [given]
        try:
            return pa.array(values, self.schema.field(name).type)
        except (pa.ArrowException, ValueError, TypeError) as error:
            kind = self.schema.field(name).type
            raise StateError(f"{self.place}: {given!r:.200} does not fit column {name!r} of {kind}: {error}") from error

    def of_keys(self, keys: pa.RecordBatch) -> pa.Table:
        """The rows of some keys, as `to_arrow`; only files with the key groups of these keys are read.

        Args:
            keys: the key columns, in their order and types.

        Raises:
            StateError: the state has no keys, or others.
        """
        self._check_keyed()
        if tuple(keys.schema.names) != self.layout.keys:
            raise StateError(f"{self.place} has the keys ({', '.join(self.layout.keys)}); give a value of each")
        groups = sorted(set(key_groups(keys.columns, self._max_parallelism).tolist())) if keys.num_rows else []
        tables = list(self.shares(range(group, group + 1) for group in groups))
        found = pa.concat_tables(tables, promote_options="default") if tables else self.schema.empty_table()
        return rows_of_keys(found, keys)

    def get(self, *key: Any) -> Any:
        """What the state of one key holds: the value, the list, the map as a dict, the accumulators of an aggregate as
        a dict by their columns; None where there is nothing.

        Args:
            key: the value of each key column.

        Raises:
            StateError: the state belongs to windows, or has no keys that are known; `where` serves both.
        """
        self._check_keyed()
        check_of_one_key(self.layout, key, self.place, "where(...)")
        return value_of_key(self.layout, self.where(**dict(zip(self.layout.keys, key, strict=True))))

    def _check_keyed(self) -> None:
        if not self.layout.keys:
            raise StateError(f"{self.place} is {self.kind.value} state, which has no keys; use to_arrow()")

    @property
    def layout(self) -> Layout:
        """How its table is shown."""
        if self._layout is None:
            segments = [segment for part in self._parts for segment in part.table.segments]
            held = sorted((s for s in segments if s.rows), key=lambda s: s.file.length) or segments[:1]
            sample = self._unmarked(self._read(held[0])) if held else pa.table({})
            if any(pa.types.is_null(kind) for kind in sample.schema.types):
                # A column had nothing but nulls so far in some segments, and got its type in others.
                sample = merge_rows([self._unmarked(self._read(segment).slice(0, 1)) for segment in held], ())
            self._layout = layout_of(self.stored_name, self.redistribution, sample)
        return self._layout

    def _rows_of(
        self, part: Part, owned: range | None, read: Callable[[SegmentHandle], pa.Table] | None = None
    ) -> pa.Table:
        segments = part.table.segments
        if owned is not None:
            segments = tuple(segment for segment in segments if _overlaps(segment, owned))
        tables = [(read or self._read)(segment) for segment in segments]
        if not tables:
            return self._empty()
        shares = tables if owned is None else [rows_of_groups(table, owned) for table in tables]
        return self._conformed(merge_rows(shares, part.table.identity, part.table.expiry))

    def _read(self, segment: SegmentHandle) -> pa.Table:
        return read_segment(self._blobs, segment)

    def _empty(self) -> pa.Table:
        group = [pa.field(KEY_GROUP, pa.int32())] if self.redistribution is Redistribution.KEYED else []
        return pa.schema([*group, *self.layout.stored]).empty_table()

    def _conformed(self, table: pa.Table) -> pa.Table:
        """The rows with the columns of all: some may have had nothing but nulls in these segments."""
        empty = self._empty()
        return table if table.schema == empty.schema else pa.concat_tables([empty, table], promote_options="default")

    def _unmarked(self, table: pa.Table) -> pa.Table:
        """The rows of a segment without what says which of them are gone, where its rows are changes."""
        marks = [DELETED] if self._parts[0].table.identity and DELETED in table.column_names else []
        return table.drop_columns(marks)

    def _joined(self, tables: Iterable[pa.Table]) -> pa.Table:
        held = [table for table in tables if table.num_rows]
        return pa.concat_tables(held, promote_options="default") if held else self._empty()


def _within(segment: SegmentHandle, owned: range) -> bool:
    return segment.rows == 0 or (segment.first_group in owned and segment.last_group in owned)


def _overlaps(segment: SegmentHandle, owned: range) -> bool:
    is_apart = segment.first_group >= owned.stop or 0 <= segment.last_group < owned.start
    return segment.rows > 0 and not is_apart


def _common(owned: range, groups: range) -> range:
    return range(max(owned.start, groups.start), min(owned.stop, groups.stop))


def _pieces(part: Part, max_rows: int) -> Iterator[range | None]:
    """Key groups that have about so many rows together."""
    if part.owned is None:
        yield None
        return
    rows = sum(segment.rows for segment in part.table.segments)
    step = max(1, len(part.owned) * max_rows // max(rows, 1))
    for start in range(part.owned.start, part.owned.stop, step):
        yield range(start, min(start + step, part.owned.stop))
