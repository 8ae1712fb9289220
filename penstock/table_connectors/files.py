"""Tables of files: `filesystem`, with the options of Flink's.

`registry.py` lists it beside the others. Files of a folder are read once, or looked for again and again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from penstock.engine.connectors import LookupTable
from penstock.table_connectors.options import TableOptions
from penstock.tables.catalog.catalog import CatalogTable
from penstock.tables.catalog.connectors import ScannedTable, WrittenTable
from penstock.tables.catalog.loaded_tables import LoadedTable
from penstock.tables.lower.base import schema_of
from penstock.tables.plan.nodes import INSERT_ONLY, ChangelogMode, Columns

FileFormat = Literal["csv", "json", "parquet", "avro"]
_FORMATS: Final[tuple[FileFormat, ...]] = ("csv", "json", "parquet", "avro")


@dataclass(frozen=True, slots=True)
class FileTable:
    """`filesystem`: files of a folder, CSV, JSON lines, Parquet or Avro."""

    name: str = "filesystem"

    @property
    def options(self) -> Mapping[str, str]:
        return {
            "path": "a file, a folder or a pattern; INSERT INTO writes into a folder",
            "format": f"one of {', '.join(_FORMATS)}",
            "source.monitor-interval": "how often to look for new files; without it, those that are there are read",
        }

    def source_mode(self, table: CatalogTable) -> ChangelogMode:
        return INSERT_ONLY

    def sink_mode(self, table: CatalogTable) -> ChangelogMode:
        return INSERT_ONLY

    def bounded(self, table: CatalogTable) -> bool:
        return "source.monitor-interval" not in table.options

    def scan(self, table: CatalogTable, columns: Columns) -> ScannedTable:
        from penstock.connectors.files.source import FileSource

        if table.partitioned_by:
            raise table.source.unsupported(
                table.place_of("connector"),
                "columns of PARTITIONED BY are in the names of folders, which are not read; declare another table of "
                "the same path without them",
            )
        options = TableOptions(table)
        path, chosen = options.required("path"), options.choice("format", _FORMATS)
        monitor = table.options.get("source.monitor-interval")
        schema = schema_of(columns)
        with options.placed("path"):
            if monitor is None:
                return ScannedTable(FileSource.of(path, chosen, schema))
            return ScannedTable(FileSource.of(path, chosen, schema, monitor=monitor))

    def sink(self, table: CatalogTable, columns: Columns) -> WrittenTable:
        from penstock.connectors.files.sink import FileSink

        options = TableOptions(table)
        path, chosen, parts = options.required("path"), options.choice("format", _FORMATS), table.partitioned_by
        with options.placed():
            return WrittenTable(
                FileSink(path, chosen, mode="append", partition_by=parts),
                overwriting=FileSink(path, chosen, mode="overwrite", partition_by=parts),
            )

    def lookup(self, table: CatalogTable, columns: Columns, keys: tuple[str, ...]) -> LookupTable:
        return LoadedTable(self.scan(table, columns).source, schema_of(columns), keys)
