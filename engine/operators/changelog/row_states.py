"""The states of one changelog operator: by slot in memory, or in RocksDB, of which a batch's rows are in memory.

An operator declares its layouts, and before each batch says which keys it will touch. Snapshots hold a flat table for
each state, readable as it is; each backend restores what the other saved. All have key groups, so they rescale.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.engine.elements import MIN_TIMESTAMP, concat_record_batches
from penstock.engine.errors import StateError
from penstock.engine.operators.base import OperatorContext
from penstock.engine.operators.changelog.column_names import own_names, saved_names
from penstock.engine.operators.changelog.keyed_rows import KeyedRows, RowsLayout
from penstock.engine.operators.changelog.stored_rows import StoredStates
from penstock.engine.operators.changelog.stored_tables import flat_table, saved_columns, with_saved_names
from penstock.engine.operators.saved_aggregates import ANOTHER_UID
from penstock.engine.state.capture import DELETED, CaptureRequest, CaptureScope, OperatorCapture, TableCapture
from penstock.engine.state.changes import SLACK, ChangedSlots
from penstock.engine.state.keys.groups import key_groups
from penstock.engine.state.keys.identity import coded_columns
from penstock.engine.state.keys.index import Search
from penstock.engine.state.snapshot import KEY_GROUP, OperatorSnapshot, Redistribution, parts_of

Int64s = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

TOUCHED: Final = "__touched"
"""When a row was last written (int64 ms), in the tables of states with a time to live."""
NUMBER: Final = "__number"
"""The name of the column that puts rows in order of arrival, where no other column of a layout has it."""


class Storage(Protocol):
    """Where the rows of a state lie between batches."""

    def load(self, rows: KeyedRows, keys: Sequence[pa.Array], identity: Sequence[pa.Array] | None) -> None:
        """Read the rows of these keys, or these rows; they may repeat."""
        ...

    def save(self, rows: KeyedRows, written: Int64s, gone: KeyedRows) -> None:
        """Write the rows at the slots `written`, and delete those of `gone`."""
        ...


class RowState:
    """One state of an operator, with what has changed in it.

    Args:
        layout: its form.
        storage: where its rows lie between batches; None: they stay in memory.
    """

    def __init__(self, layout: RowsLayout, storage: Storage | None = None) -> None:
        self.layout = layout
        self.rows: Final = KeyedRows(layout)
        self._storage = storage
        self._now = 0
        self._next = 0
        self._changed = ChangedSlots()
        self._written: list[Int64s] = []
        self._gone: KeyedRows | None = None if storage is None else self._nothing()

    def _nothing(self) -> KeyedRows:
        return KeyedRows(replace(self.layout, values=pa.schema([]), ttl_ms=None))

    def begin(self, keys: Sequence[pa.Array], identity: Sequence[pa.Array] | None, now: int) -> None:
        """Get ready for a batch.

        Args:
            keys: key columns.
            identity: the rows that will be touched, where it is not all of those keys.
            now: the time (int64 ms), for states with a time to live.
        """
        self._now = now
        if self._storage is not None:
            self._storage.load(self.rows, keys, identity)
        else:
            self.remove(self.rows.expired(now))

    def end(self) -> None:
        """The batch has been handled."""
        if self._storage is None:
            return
        assert self._gone is not None
        written = np.unique(np.concatenate(self._written)) if self._written else np.empty(0, np.int64)
        self._storage.save(self.rows, written[self.rows.are_held(written)], self._gone)
        self.rows.clear()
        self._gone.clear()
        self._written.clear()

    def add(self, keys: Sequence[pa.Array], identity: Sequence[pa.Array] = ()) -> tuple[Int64s, Mask]:
        """The slots of rows that are written now; see `KeyedRows.add`."""
        slots, new = self.rows.add(keys, identity, now=self._now)
        self._mark(slots)
        return slots, new

    def enter(self, search: Search, chosen: Mask, own: Sequence[pa.Array]) -> Int64s:
        """The slots of rows that were searched for, and are written now; see `KeyedRows.enter`."""
        slots = self.rows.enter(search, chosen, own, now=self._now)
        self._mark(slots)
        return slots

    def write(self, slots: Int64s, name: str, values: pa.Array | Int64s) -> None:
        """Set a column of values of rows that were added, or renewed, in this batch."""
        self.rows.write(slots, name, values)

    def increase(self, slots: Int64s, name: str, amounts: Int64s) -> None:
        """Add to an int64 column of such rows, which may repeat; see `KeyedRows.increase`."""
        self.rows.increase(slots, name, amounts)

    def renew(self, slots: Int64s) -> None:
        """The rows at `slots` are written now."""
        self.rows.touch(slots, self._now)
        self._mark(slots)

    def _mark(self, slots: Int64s) -> None:
        if self._storage is None:
            self._changed.mark(slots, self.rows.end)
        else:
            self._written.append(slots)

    def remove(self, slots: Int64s) -> None:
        """Forget rows, each slot given once."""
        if not len(slots):
            return
        if self._gone is not None:
            layout = self.layout
            self._gone.add(self.rows.columns(slots, layout.keys.names), self.rows.columns(slots, layout.identity.names))
            if self._storage is None and len(self._gone) > len(self.rows) + SLACK:
                # More than there is: the next capture gives all.
                self._gone = None
                self._changed.forget()
        self.rows.remove(slots)

    def take_numbers(self, count: int) -> Int64s:
        """As many numbers, which grow with every call, to put rows in order of arrival."""
        first, self._next = self._next, self._next + count
        return np.arange(first, self._next)

    def capture(self, scope: CaptureScope, max_parallelism: int) -> TableCapture:
        """The state at a barrier, by reference; of a state in memory."""
        own = (*self.layout.keys.names, *self.layout.identity.names)
        can_track = bool(own) and not any(pa.types.is_nested(self.layout.schema.field(name).type) for name in own)
        changed = self._changed.take(scope, len(self.rows)) if can_track else None
        gone = self._gone
        if scope is not CaptureScope.COMPLETE and can_track:
            self._gone = self._nothing()
        if changed is None or gone is None:
            return self._captured(self.rows.slots(), None, own if can_track else (), max_parallelism)
        return self._captured(changed[self.rows.are_held(changed)], self._left(gone), own, max_parallelism)

    def _left(self, gone: KeyedRows) -> pa.Table:
        """The rows that have gone and not come back."""
        slots = gone.slots()
        columns = [gone.columns(slots, schema.names) for schema in (self.layout.keys, self.layout.identity)]
        table: pa.Table = gone.taken(slots)()
        return table.filter(pa.array(self.rows.find(*columns) < 0)) if len(slots) else table

    def _captured(
        self, slots: Int64s, gone: pa.Table | None, own: tuple[str, ...], max_parallelism: int
    ) -> TableCapture:
        taken = self.rows.taken(slots)
        touched = self.rows.touched(slots) if self.layout.ttl_ms is not None else None
        keys = self.layout.keys

        def table() -> pa.Table:
            made = _saved(taken())
            if touched is not None:
                made = made.append_column(TOUCHED, pa.array(touched))
            if gone is not None:
                made = made.append_column(DELETED, pa.array(np.zeros(len(made), np.bool_)))
                dead = _saved(gone).append_column(DELETED, pa.array(np.ones(len(gone), np.bool_)))
                made = pa.concat_tables([made, dead], promote_options="default")
            return with_key_groups(made, keys, max_parallelism)

        return TableCapture(Redistribution.KEYED, table, tuple(saved_names(own)), gone is not None)

    def restore(self, table: pa.Table, now: int) -> None:
        """Hold the rows of a flat table too.

        Args:
            table: with the columns of the layout, and maybe `TOUCHED`.
            now: when they were written, where that is not in the table.
        """
        self.number_behind(table)
        layout = self.layout
        for part in parts_of(with_saved_names(table, layout).combine_chunks()):
            for rows in part.to_batches():
                own = [saved_columns(rows, schema) for schema in (layout.keys, layout.identity)]
                slots, _ = self.rows.add(*own)
                for name, values in zip(layout.values.names, saved_columns(rows, layout.values), strict=True):
                    self.rows.write(slots, name, values)
                if layout.ttl_ms is not None:
                    has_times = TOUCHED in rows.schema.names
                    self.rows.set_times(slots, rows.column(TOUCHED).to_numpy() if has_times else now + 0 * slots)
        self._changed.begin()
        self._gone = self._nothing()

    def number_behind(self, table: pa.Table) -> None:
        """Number the rows that come behind all those of a table."""
        if self.layout.arrival is not None and table.num_rows:
            self._next = max(self._next, int(pc.max(table.column(self.layout.arrival)).as_py()) + 1)


class RowStates:
    """All states of one operator, by name, in the job's state backend.

    Args:
        context: of the operator.
        layouts: the form of each state; all have the same number of key columns, of the same types.

    Raises:
        ConfigurationError: the backend's package is not installed, or its folder cannot be made.
    """

    def __init__(self, context: OperatorContext, layouts: Sequence[RowsLayout]) -> None:
        self._context = context
        self._stored: StoredStates | None = None
        if context.config.state_backend == "rocksdb":
            self._stored = StoredStates(context, layouts)
        storages = {} if self._stored is None else self._stored.storages
        self._states = {layout.name: RowState(layout, storages.get(layout.name)) for layout in layouts}
        if self._stored is None:
            for state in self._states.values():
                context.metrics.count_keys(state.layout.name, state, lambda held: held.rows.keys)

    def __getitem__(self, name: str) -> RowState:
        return self._states[name]

    def begin(self, name: str, keys: Sequence[pa.Array], identity: Sequence[pa.Array] | None = None) -> RowState:
        """The state of a name, with the rows of a batch; see `RowState.begin`. `end` comes behind it."""
        state = self._states[name]
        state.begin(keys, identity, self._context.clock.now_ms())
        return state

    def end(self) -> None:
        """The batch has been handled."""
        for state in self._states.values():
            state.end()

    def capture(self, request: CaptureRequest, watermark: int = MIN_TIMESTAMP) -> OperatorCapture:
        """All states at a barrier, by reference."""
        if self._stored is not None:
            return self._stored.capture(request, watermark)
        now, most = self._context.clock.now_ms(), self._context.config.max_parallelism
        for state in self._states.values():
            state.begin([], None, now)
        tables = {name: state.capture(request.scope, most) for name, state in self._states.items()}
        return OperatorCapture(tables, watermark)

    def restore(self, snapshot: OperatorSnapshot) -> None:
        """Hold what the snapshot holds.

        Raises:
            StateError: it was made by another operator, or with other columns.
        """
        if strangers := sorted(snapshot.tables.keys() - self._states.keys()):
            raise StateError(
                f"{self._context.where}: the saved state holds {', '.join(strangers)}, and this operator keeps "
                f"{', '.join(self._states)}; {ANOTHER_UID}"
            )
        tables = {
            name: flat_table(table.data, self._states[name].layout, self._context.where)
            for name, table in snapshot.tables.items()
        }
        for name, table in tables.items():
            if self._stored is None:
                self._states[name].restore(table, self._context.clock.now_ms())
            else:
                self._states[name].number_behind(table)
        if self._stored is not None:
            self._stored.restore(tables)

    def close(self) -> None:
        """Release files and folders."""
        if self._stored is not None:
            self._stored.close()


def _saved(table: pa.Table) -> pa.Table:
    return table.rename_columns(saved_names(table.column_names))


def waiting_table(
    parts: Sequence[pa.RecordBatch], name: str, numbers: Int64s, keys: pa.Schema, max_parallelism: int
) -> pa.Table:
    """The saved table of rows that wait, with a number beside each in a column `name`, and their key groups."""
    rows = _saved(pa.Table.from_batches(parts)).append_column(name, pa.array(numbers))
    return with_key_groups(rows, keys, max_parallelism)


def waiting_rows(table: pa.Table, name: str) -> tuple[pa.RecordBatch, Int64s]:
    """The rows, one at least, and the numbers beside them that `waiting_table` was given."""
    numbers = table.column(name).to_numpy()
    rows = table.drop_columns([KEY_GROUP, name])
    rows = rows.rename_columns(own_names(rows.column_names))
    return concat_record_batches(rows.to_batches()), numbers


def with_key_groups(table: pa.Table, keys: pa.Schema, max_parallelism: int) -> pa.Table:
    """The rows of a saved table, which has the columns `keys`, with the column `KEY_GROUP` in front."""
    columns = [table.column(name).combine_chunks() for name in saved_names(keys.names)]
    plain = [pa.concat_arrays(column.chunks) if isinstance(column, pa.ChunkedArray) else column for column in columns]
    groups = key_groups(coded_columns(plain), max_parallelism) if plain else np.zeros(len(table), np.int32)
    return table.add_column(0, KEY_GROUP, pa.array(groups, pa.int32()))
