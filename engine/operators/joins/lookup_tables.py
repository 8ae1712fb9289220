"""Lookup tables in memory, for data that does not change while the job runs.

Users give them to `lookup_join`. A lookup takes no longer for a large table than for a small one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.engine.aggregates.accumulators import plain
from penstock.engine.columns import mask_of
from penstock.engine.connectors import ConnectorContext, LookupTable
from penstock.engine.elements import table_to_record_batch
from penstock.engine.errors import ConfigurationError
from penstock.engine.operators.join_columns import Int64s, same_keys
from penstock.engine.operators.joins.join_buffers import KeySegment, codes_are_keys, key_codes, spread
from penstock.engine.schemas import SchemaLike, parse_schema
from penstock.engine.state.keys.groups import check_key_column


class ArrowTable(LookupTable):
    """The rows of an Arrow table. Rows with a null key are never found.

    Args:
        table: a `pa.Table` or `pa.RecordBatch`.
        keys: the column, or columns, that it is looked up by.

    Raises:
        ConfigurationError: no table, or no key.
        MissingColumnError, ColumnTypeError: a key that is not there, or cannot be a key.

    Example:
        >>> ArrowTable(pa.table({"id": [1, 2], "name": ["Ada", "Bo"]}), keys="id").keys
        ('id',)
    """

    def __init__(self, table: pa.Table | pa.RecordBatch, keys: str | Sequence[str]) -> None:
        if not isinstance(table, pa.Table | pa.RecordBatch):
            raise ConfigurationError(
                f"lookup table: takes a pyarrow Table or RecordBatch, not {type(table).__name__}; "
                "make one with pa.Table.from_pandas(...) or pa.Table.from_pylist(...)"
            )
        self._keys = (keys,) if isinstance(keys, str) else tuple(keys)
        if not self._keys:
            raise ConfigurationError("lookup table: name at least one key column")
        for key in self._keys:
            check_key_column(table.schema, key, "lookup table")
        whole = pa.Table.from_batches([table]) if isinstance(table, pa.RecordBatch) else table
        rows = table_to_record_batch(whole.combine_chunks())
        self._rows = pa.RecordBatch.from_arrays([plain(column) for column in rows.columns], rows.schema.names)

    @property
    def schema(self) -> pa.Schema:
        return self._rows.schema

    @property
    def keys(self) -> Sequence[str]:
        return self._keys

    def open(self, context: ConnectorContext) -> None:
        known = np.ones(self._rows.num_rows, np.bool_)
        for column in self._key_columns(self._rows):
            known &= column.is_valid().to_numpy(zero_copy_only=False)
        rows = self._rows.filter(pa.array(known))
        codes = key_codes(self._key_columns(rows))
        self._index = KeySegment.sort(rows, codes, np.zeros(len(codes), np.int64)) if rows.num_rows else None
        if self._index is not None:
            self._index.address()

    def lookup(self, keys: pa.RecordBatch) -> pa.RecordBatch:
        index = self._index
        if index is None:
            return self._rows.slice(0, 0)
        wanted = self._key_columns(keys)
        probes, begins, ends = index.of_codes(key_codes(wanted))
        certain = codes_are_keys([key.type for key in wanted])
        places: list[Int64s] = [np.empty(0, np.int64)]
        for of, found in spread(begins, ends):
            if certain:
                places.append(found)
                continue
            equal = same_keys(wanted, probes[of], self._key_columns(index.rows), found)
            places.append(found[mask_of(equal)])
        return index.rows.take(pa.array(np.concatenate(places)))

    def _key_columns(self, rows: pa.RecordBatch) -> list[pa.Array]:
        return [rows.column(key) for key in self._keys]


class DictTable(ArrowTable):
    """A dict from key to row.

    Args:
        rows: by key (a tuple where there are several key columns), the other columns of the row as a dict.
        keys: the name of the key column, or names.
        schema: the columns, keys included, where they are not to be inferred.

    Raises:
        ConfigurationError: a value that is no dict, a key of the wrong length, or values that do not fit the columns.

    Example:
        >>> DictTable({1: {"name": "Ada"}, 2: {"name": "Bo"}}, keys="id").schema.names
        ['id', 'name']
    """

    def __init__(
        self, rows: Mapping[Any, Mapping[str, Any]], keys: str | Sequence[str], schema: SchemaLike | None = None
    ) -> None:
        names = (keys,) if isinstance(keys, str) else tuple(keys)
        whole = [{**_key_values(key, names), **_row(key, row)} for key, row in rows.items()]
        columns = None if schema is None else parse_schema(schema, "lookup table")
        if not whole and columns is None:
            raise ConfigurationError(
                "lookup table: it has no row to infer columns from; declare them with schema={...}"
            )
        try:
            table = pa.Table.from_pylist(whole, columns)
        except (pa.ArrowException, ValueError, TypeError) as error:
            raise ConfigurationError(
                f"lookup table: the values of a column do not fit one type ({error}); declare it with schema={{...}}"
            ) from error
        super().__init__(table, names)


def _key_values(key: Any, names: Sequence[str]) -> dict[str, Any]:
    values = (key,) if len(names) == 1 else key
    if not isinstance(values, tuple) or len(values) != len(names):
        raise ConfigurationError(
            f"lookup table: the key {key!r:.200} is not a tuple of {len(names)} values ({', '.join(names)})"
        )
    return dict(zip(names, values, strict=True))


def _row(key: Any, row: Any) -> Mapping[str, Any]:
    if not isinstance(row, Mapping):
        raise ConfigurationError(
            f"lookup table: the row of key {key!r:.200} is {row!r:.200}, not a dict of its columns"
        )
    return row
