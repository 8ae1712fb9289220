"""The tables of an operator's states as RocksDB saves them, and as plain columns: each made of the other.

`row_states.py` restores by it what either backend saved.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from penstock.engine.columns import numbers_type, with_numbers
from penstock.engine.errors import StateError
from penstock.engine.operators.changelog.column_names import saved_names
from penstock.engine.operators.changelog.keyed_rows import RowsLayout
from penstock.engine.rows import batch_rows
from penstock.engine.state.capture import DELETED
from penstock.engine.state.keys.identity import coded, coded_columns
from penstock.engine.state.rocksdb.codec import pack
from penstock.engine.state.snapshot import KEY_GROUP, Redistribution, StateTable
from penstock.engine.state.state_tables import END, MAP_KEY, START, TOUCHED, VALUE

KEY: Final = "key_{}"
"""Names of key columns in RocksDB, which hold the codes of the keys."""


def key_schema(layout: RowsLayout) -> pa.Schema:
    """The key columns as RocksDB knows them."""
    codes = coded_columns([pa.array([], field.type) for field in layout.keys])
    return pa.schema([pa.field(KEY.format(place), column.type) for place, column in enumerate(codes)])


def row_tuples(columns: Sequence[pa.Array], count: int) -> list[tuple[object, ...]]:
    """The codes of each row's values, as Python's."""
    if not columns:
        return [()] * count
    names = [KEY.format(place) for place in range(len(columns))]
    batch = pa.RecordBatch.from_arrays([coded(column) for column in columns], names=names)
    return [tuple(row.values()) for row in batch_rows(batch)]


def map_keys(identity: Sequence[pa.Array], count: int) -> list[bytes]:
    """What tells the rows of one key apart in RocksDB."""
    return [pack(list(row)) for row in row_tuples([with_numbers(column) for column in identity], count)]


def saved_columns(rows: pa.RecordBatch | pa.Table, schema: pa.Schema) -> list[pa.Array]:
    """The columns of `schema` in a saved table."""
    return [rows.column(name) for name in saved_names(schema.names)]


def with_saved_names(table: pa.Table, layout: RowsLayout) -> pa.Table:
    """A table of a state, whose rows hold no changes, as it is saved now: older ones had `DELETED` as it is."""
    if DELETED not in layout.schema.names:
        return table
    (saved,) = saved_names([DELETED])
    return table.rename_columns([saved if name == DELETED else name for name in table.column_names])


def flat_table(table: pa.Table, layout: RowsLayout, where: str) -> pa.Table:
    """The rows of a saved state with a column for each of the layout's, by `saved_names`, and what was beside them.

    Raises:
        StateError: they have other columns.
    """
    if START in table.column_names:
        values = table.column(VALUE).combine_chunks()
        rows = pa.Table.from_batches([pa.RecordBatch.from_struct_array(chunk) for chunk in _chunks(values)])
        rows = rows.rename_columns(saved_names(rows.column_names))
        beside = [name for name in (KEY_GROUP, TOUCHED) if name in table.column_names]
        table = pa.table(
            {name: (table if name in beside else rows).column(name) for name in [*beside, *rows.column_names]}
        )
    expected = pa.schema(list(zip(saved_names(layout.schema.names), layout.schema.types, strict=True)))
    table = _with_times(with_saved_names(table, layout), expected)
    came = pa.schema([field for field in table.schema if field.name not in (KEY_GROUP, TOUCHED)])
    if came.names != expected.names or came.types != expected.types:
        raise StateError(
            f"{where}: state {layout.name!r} was saved with the columns ({_columns_text(came)}), and has "
            f"({_columns_text(expected)}) now; keep the query as it was, or start without this operator's state"
        )
    return table


def _with_times(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The rows with times again where numbers are in their place."""
    for place, name in enumerate(table.column_names):
        kind = schema.field(name).type if name in schema.names else None
        if kind is not None and table.column(name).type != kind and table.column(name).type == numbers_type(kind):
            table = table.set_column(place, name, table.column(name).cast(kind))
    return table


def stored_table(table: pa.Table, layout: RowsLayout) -> StateTable:
    """The flat rows of a state as RocksDB's backend restores them."""
    keys, identity, own = (
        [_one(column) for column in saved_columns(table, schema)]
        for schema in (layout.keys, layout.identity, layout.schema)
    )
    fields = list(numbers_type(pa.struct(list(layout.schema))))
    values = pa.StructArray.from_arrays([with_numbers(column) for column in own], fields=fields)
    columns = {
        KEY_GROUP: _one(table.column(KEY_GROUP)),
        **{KEY.format(place): coded(key) for place, key in enumerate(keys)},
        START: pa.nulls(len(table), pa.int64()),
        END: pa.nulls(len(table), pa.int64()),
        MAP_KEY: pa.array(map_keys(identity, len(table)), pa.binary()),
        VALUE: values,
    }
    if TOUCHED in table.column_names:
        columns[TOUCHED] = _one(table.column(TOUCHED))
    return StateTable(Redistribution.KEYED, pa.table(columns))


def _one(column: pa.ChunkedArray) -> pa.Array:
    combined = column.combine_chunks()
    return pa.concat_arrays(combined.chunks) if isinstance(combined, pa.ChunkedArray) else combined


def _chunks(column: pa.ChunkedArray | pa.Array) -> list[pa.Array]:
    return column.chunks if isinstance(column, pa.ChunkedArray) else [column]


def _columns_text(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name}: {field.type}" for field in schema)
