"""The states of one changelog operator in RocksDB: for state that is larger than memory.

`RowStates` makes it where the job's backend is `"rocksdb"`. Each state is a map state of the operator's backend: before
a batch the rows that it touches are read into memory, and what has changed of them is written behind it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.engine.columns import numbers_type, with_numbers
from penstock.engine.operators.base import OperatorContext
from penstock.engine.operators.changelog.keyed_rows import KeyedRows, RowsLayout
from penstock.engine.operators.changelog.stored_tables import key_schema, map_keys, row_tuples, stored_table
from penstock.engine.operators.keyed import backend_context
from penstock.engine.rows import batch_rows
from penstock.engine.state.backend import KeyedStateBackend, MapState
from penstock.engine.state.backends import create_backend
from penstock.engine.state.capture import CaptureRequest, OperatorCapture
from penstock.engine.state.descriptors import MapStateDescriptor, StateTtl

Int64s = npt.NDArray[np.int64]


class StoredRows:
    """One state.

    Args:
        layout: its form.
        backend: holds it; its keys are bound.
    """

    def __init__(self, layout: RowsLayout, backend: KeyedStateBackend) -> None:
        self._layout = layout
        self._backend = backend
        ttl = None if layout.ttl_ms is None else StateTtl(layout.ttl_ms)
        self._kind = pa.struct(list(layout.schema))
        # Rows lie there as Python's, whose times have no nanoseconds.
        kept = numbers_type(self._kind)
        self._state: MapState = backend.map_state(MapStateDescriptor(layout.name, kept, key_type=pa.binary(), ttl=ttl))

    def load(self, rows: KeyedRows, keys: Sequence[pa.Array], identity: Sequence[pa.Array] | None) -> None:
        """Read the rows of these keys, or these rows; they may repeat."""
        rows.clear()
        count = len(keys[0]) if keys else len(identity[0]) if identity else 1
        of = row_tuples(keys, count)
        found: list[Any] = []
        if identity is None:
            for key in dict.fromkeys(of):
                self._move(key)
                found.extend(value for _, value in self._state.items())
        else:
            for key, map_key in dict.fromkeys(zip(of, map_keys(identity, count), strict=True)):
                self._move(key)
                found.append(self._state.get(map_key))
        self._backend.clear_current_key()
        values = pa.array([value for value in found if value is not None], self._kind)
        if len(values):
            self._hold(rows, pa.RecordBatch.from_struct_array(values))

    def _hold(self, rows: KeyedRows, held: pa.RecordBatch) -> None:
        layout = self._layout
        own = [[held.column(name) for name in schema.names] for schema in (layout.keys, layout.identity)]
        slots, _ = rows.add(*own)
        for name in layout.values.names:
            rows.write(slots, name, held.column(name))

    def _move(self, key: tuple[object, ...]) -> None:
        self._backend.set_current_key(key[0] if len(key) == 1 else key)

    def save(self, rows: KeyedRows, written: Int64s, gone: KeyedRows) -> None:
        """Write the rows at the slots `written`, and delete those of `gone`."""
        dead = gone.slots()
        for key, map_key in zip(*self._places(gone, dead), strict=True):
            self._move(key)
            self._state.remove(map_key)
        values = batch_rows(_with_numbers(rows.rows(written, self._layout.schema))) if len(written) else []
        for key, map_key, value in zip(*self._places(rows, written), values, strict=True):
            self._move(key)
            self._state.put(map_key, value)
        self._backend.clear_current_key()

    def _places(self, rows: KeyedRows, slots: Int64s) -> tuple[list[tuple[object, ...]], list[bytes]]:
        columns = [rows.columns(slots, schema.names) for schema in (self._layout.keys, self._layout.identity)]
        return row_tuples(columns[0], len(slots)), map_keys(columns[1], len(slots))


def _with_numbers(rows: pa.RecordBatch) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([with_numbers(column) for column in rows.columns], names=rows.schema.names)


class StoredStates:
    """All states of one operator, in one database.

    Args:
        context: of the operator.
        layouts: the form of each state, with the same key columns.

    Raises:
        ConfigurationError: the package of RocksDB is not installed, or its folder cannot be made.
    """

    def __init__(self, context: OperatorContext, layouts: Sequence[RowsLayout]) -> None:
        self._layouts = {layout.name: layout for layout in layouts}
        keys = key_schema(layouts[0])
        self._backend = create_backend("rocksdb", backend_context(context, keys.names))
        self._backend.bind_keys(keys)
        self.storages: Mapping[str, StoredRows] = {layout.name: StoredRows(layout, self._backend) for layout in layouts}

    def capture(self, request: CaptureRequest, watermark: int) -> OperatorCapture:
        """The database at a barrier."""
        held = self._backend.capture(request)
        return OperatorCapture(held.tables, watermark, held.native)

    def restore(self, tables: Mapping[str, pa.Table]) -> None:
        """Hold the rows of flat tables."""
        self._backend.restore({name: stored_table(table, self._layouts[name]) for name, table in tables.items()})

    def close(self) -> None:
        """Close the database and remove its folder."""
        self._backend.close()
