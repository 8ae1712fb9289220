"""A table that is looked up in memory: all rows of a source that ends, read when the job starts.

Connectors whose data cannot be asked by key give it for joins AS OF PROCTIME; changes of the data are not seen.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from penstock.engine.connectors import ConnectorContext, LookupTable, Source, Wait
from penstock.engine.errors import ConfigurationError
from penstock.engine.operators.joins.lookup_tables import ArrowTable

_AT_ONCE = 65_536


@dataclass
class LoadedTable(LookupTable):
    """All rows of a source.

    Args:
        source: bounded.
        columns: its columns.
        by: the columns that rows are looked up by.
        made: makes the columns of what the source gives; None: it gives them.
    """

    source: Source
    columns: pa.Schema
    by: tuple[str, ...]
    made: Callable[[pa.RecordBatch], pa.RecordBatch] | None = None
    _rows: ArrowTable | None = field(default=None, repr=False)

    @property
    def schema(self) -> pa.Schema:
        return self.columns

    @property
    def keys(self) -> Sequence[str]:
        return self.by

    def open(self, context: ConnectorContext) -> None:
        """Read all rows.

        Raises:
            ConfigurationError: the source does not end.
        """
        if not self.source.bounded:
            raise ConfigurationError(
                f"lookup of {self.source.describe()}: its rows do not end, so they cannot be read before the first "
                "lookup; look up a table whose data is bounded"
            )
        batches = []
        for split in self.source.splits(1):
            reader = self.source.open(split, context)
            try:
                while (batch := reader.next_batch(_AT_ONCE)) is not None:
                    if not isinstance(batch, Wait):
                        batches.append(batch if self.made is None else self.made(batch))
            finally:
                reader.close()
        self._rows = ArrowTable(pa.Table.from_batches(batches, self.columns), self.by)
        self._rows.open(context)

    def lookup(self, keys: pa.RecordBatch) -> pa.RecordBatch | pa.Table:
        assert self._rows is not None, "open comes first"
        return self._rows.lookup(keys)


@dataclass
class RenamedLookup(LookupTable):
    """A table with other names for its columns, and its keys once more in front of them.

    A join keeps the keys of its left side; of a left row without a partner those of the right are null.

    Args:
        table: what is looked up.
        key_names: for its keys, in their order.
        columns: which of its columns follow, by name.
        names: for these.
    """

    table: LookupTable
    key_names: tuple[str, ...]
    columns: tuple[str, ...]
    names: tuple[str, ...]

    @property
    def schema(self) -> pa.Schema:
        own = self.table.schema
        keys = [own.field(key).with_name(name) for key, name in zip(self.table.keys, self.key_names, strict=True)]
        rest = [own.field(column).with_name(name) for column, name in zip(self.columns, self.names, strict=True)]
        return pa.schema([*keys, *rest])

    @property
    def keys(self) -> Sequence[str]:
        return self.key_names

    def open(self, context: ConnectorContext) -> None:
        # Subtasks have shallow copies of this one, and what is opened must be of each alone.
        self.table = copy.copy(self.table)
        self.table.open(context)

    def lookup(self, keys: pa.RecordBatch) -> pa.RecordBatch | pa.Table:
        found = self.table.lookup(pa.RecordBatch.from_arrays(keys.columns, list(self.table.keys)))
        chosen = [found.column(name) for name in (*self.table.keys, *self.columns)]
        return pa.Table.from_arrays(chosen, [*self.key_names, *self.names])

    def close(self) -> None:
        self.table.close()
