"""Rows that users give as state, checked, and as the tables that operators restore.

The editor calls it. What it makes is laid out as the engine's own snapshots are; what does not fit is refused with the
operator, the state and the column, before anything is written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.engine.errors import PenstockError, StateError, nearest
from penstock.engine.operators.windows.window_aggregate import WINDOW_END, WINDOW_START, WINDOW_TYPE
from penstock.engine.state.descriptors import KeyedDescriptor, ListStateDescriptor, MapStateDescriptor
from penstock.engine.state.keys.groups import check_key_column
from penstock.engine.state.snapshot import Redistribution, StateTable, keyed_table
from penstock.engine.state.state_tables import END, MAP_KEY, START, VALUE, StateTables
from penstock.savepoints.layout import TIME, fitted, numbers, plain_table
from penstock.savepoints.shown import python_rows, value_text

_TIME: Final = "__time"
_NUMBER: Final = "__number"
_ROWS: Final = "__rows"
_WINDOW: Final = ((WINDOW_START, START), (WINDOW_END, END))


def keyed_state_table(
    place: str,
    keys: Sequence[str],
    descriptor: KeyedDescriptor,
    data: object,
    columns: tuple[str, str],
    max_parallelism: int,
) -> StateTable:
    """A keyed table of the rows of `data`.

    Args:
        place: operator and state, for messages.
        keys: the key columns.
        descriptor: of the state.
        data: see `SavepointEditor.keyed_state`.
        columns: the columns with the values and with the keys of maps.
        max_parallelism: number of key groups.
    """
    value, map_key = columns
    types = value_types(descriptor)
    own = {value: types[VALUE], **({map_key: types[MAP_KEY]} if MAP_KEY in types else {})}
    table = plain_table(data, place, own)
    windows = [name for name, _ in _WINDOW if name in table.column_names and name not in keys]
    _check_columns(place, table, [*keys, *own], [name for name, _ in _WINDOW])
    if len(windows) == 1:
        raise StateError(f"{place}: give both {WINDOW_START} and {WINDOW_END}, or neither")
    stored = _keyed_columns(place, keys, table)
    naming = StateTables(keys, max_parallelism, place)
    if MAP_KEY in types:
        stored[naming.column_name(MAP_KEY)] = _values(place, table, map_key, types[MAP_KEY])
    stored[naming.column_name(VALUE)] = _values(place, table, value, types[VALUE])
    identity = [*keys, START, END, *([naming.column_name(MAP_KEY)] if MAP_KEY in types else [])]
    rows = pa.table(stored)
    check_unique(place, rows, identity)
    return keyed_table(rows, keys, max_parallelism)


def timers_table(place: str, keys: Sequence[str], data: object, max_parallelism: int) -> StateTable:
    """A keyed table of timers, registered in this order: key columns and `time`, and the window's bounds if any."""
    table = plain_table(data, place, {})
    _check_columns(place, table, [*keys, TIME], [name for name, _ in _WINDOW])
    stored = _keyed_columns(place, keys, table)
    stored[_TIME] = _milliseconds(place, table, TIME)
    if stored[_TIME].null_count:
        raise StateError(f"{place}: column {TIME!r} has nulls; give each timer its time")
    check_unique(place, pa.table(stored), list(stored))
    return keyed_table(pa.table({**stored, _NUMBER: numbers(table.num_rows)}), keys, max_parallelism)


def list_table(place: str, descriptor: ListStateDescriptor, values: object, kind: Redistribution) -> StateTable:
    """A table of the values of a list that belongs to no key."""
    if not isinstance(descriptor, ListStateDescriptor) or descriptor.ttl is not None:
        raise StateError(f"{place}: declare it by a ListStateDescriptor without ttl, not by {descriptor!r:.200}")
    own = {VALUE: descriptor.value_type}
    if isinstance(values, list | tuple | pa.Array | pa.ChunkedArray):
        values = {VALUE: values}
    table = plain_table(values, place, own)
    _check_columns(place, table, [VALUE], [])
    return StateTable(kind, pa.table({VALUE: _values(place, table, VALUE, descriptor.value_type)}))


def broadcast_table(place: str, descriptor: MapStateDescriptor, entries: object) -> StateTable:
    """A table of the entries of a broadcast map."""
    if not isinstance(descriptor, MapStateDescriptor) or descriptor.ttl is not None:
        raise StateError(f"{place}: declare it by a MapStateDescriptor without ttl, not by {descriptor!r:.200}")
    own = value_types(descriptor)
    if isinstance(entries, Mapping):
        entries = [{MAP_KEY: key, VALUE: value} for key, value in entries.items()]
    table = plain_table(entries, place, own)
    _check_columns(place, table, [MAP_KEY, VALUE], [])
    rows = pa.table({name: _values(place, table, name, kind) for name, kind in own.items()})
    check_unique(place, rows, [MAP_KEY])
    return StateTable(Redistribution.BROADCAST, rows)


def value_types(descriptor: KeyedDescriptor) -> dict[str, pa.DataType]:
    """The types of the state's own columns."""
    if isinstance(descriptor, MapStateDescriptor):
        return {MAP_KEY: descriptor.map_key_type, VALUE: descriptor.value_type}
    is_list = isinstance(descriptor, ListStateDescriptor)
    return {VALUE: pa.list_(descriptor.value_type) if is_list else descriptor.value_type}


def check_unique(place: str, rows: pa.Table, identity: Sequence[str]) -> None:
    """Make sure that no two rows are of the same key (and window, and key of the map).

    Raises:
        StateError: some are; shows the first.
    """
    numbered = rows.select(list(identity)).append_column(_ROWS, pa.array(np.arange(rows.num_rows)))
    counted = numbered.group_by(list(identity), use_threads=False).aggregate([(_ROWS, "count")])
    twice = counted.filter(pc.greater(counted.column(f"{_ROWS}_count"), 1))
    if twice.num_rows:
        first = python_rows(twice.select(list(identity)).slice(0, 1))[0]
        raise StateError(
            f"{place}: {twice.num_rows} keys come more than once, such as {_shown(first)}; give each of them one row"
        )


def _shown(row: Mapping[str, Any]) -> str:
    return ", ".join(f"{name.lstrip('_')}={value_text(value)}" for name, value in row.items() if value is not None)


def _check_columns(place: str, table: pa.Table, needed: Sequence[str], optional: Sequence[str]) -> None:
    names = table.column_names
    expected = f"the columns are ({', '.join(needed)})"
    for name in needed:
        if name not in names:
            raise StateError(f"{place}: the data has no column {name!r}{nearest(name, names)}; {expected}")
    for name in names:
        if name not in needed and name not in optional:
            raise StateError(
                f"{place}: column {name!r} is neither a key nor the state's{nearest(name, needed)}; {expected}: drop "
                "or rename it"
            )


def _keyed_columns(place: str, keys: Sequence[str], table: pa.Table) -> dict[str, pa.ChunkedArray]:
    """The key columns, and the bounds of the windows, null where there are none."""
    stored: dict[str, pa.ChunkedArray] = {}
    for key in keys:
        try:
            check_key_column(table.schema, key, place)
        except PenstockError as error:
            raise StateError(str(error)) from error
        if table.column(key).null_count:
            raise StateError(
                f"{place}: key column {key!r} has nulls; leave these rows out, since no row has such a key"
            )
        stored[key] = table.column(key)
    for name, own in _WINDOW:
        present = name in table.column_names and name not in keys
        stored[own] = (
            _milliseconds(place, table, name) if present else pa.chunked_array([pa.nulls(len(table), pa.int64())])
        )
    return stored


def _milliseconds(place: str, table: pa.Table, name: str) -> pa.ChunkedArray:
    """A column of times, which may be timestamps or milliseconds since the epoch."""
    column = table.column(name)
    if pa.types.is_integer(column.type):
        column = column.cast(pa.int64())
    return fitted(column, WINDOW_TYPE, f"{place}: column {name!r}").cast(pa.int64())


def _values(place: str, table: pa.Table, name: str, kind: pa.DataType) -> pa.ChunkedArray:
    column = fitted(table.column(name), kind, f"{place}: column {name!r}")
    if column.null_count:
        raise StateError(f"{place}: column {name!r} has nulls, which no state keeps; leave these rows out")
    return column
