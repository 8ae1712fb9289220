"""Tables of data lakes that exist already: `delta` and `iceberg`. Rows are appended exactly once; a version is read.

`registry.py` lists them beside the others. Options are spelled as those of their connectors for Flink.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.table_connectors.options import TableOptions
from penstock.table_connectors.typed_columns import TypedColumnsSpec
from penstock.tables.catalog.catalog import CatalogTable
from penstock.tables.catalog.connectors import ScannedTable, Stage, WrittenTable
from penstock.tables.lower.base import schema_of
from penstock.tables.plan.nodes import INSERT_ONLY, ChangelogMode, Columns

if TYPE_CHECKING:
    from penstock.connectors.lakes.snapshots import LakeSnapshot


class _Lake:
    """What both have: rows are appended, and one version is read."""

    __slots__ = ()

    def source_mode(self, table: CatalogTable) -> ChangelogMode:
        return INSERT_ONLY

    def bounded(self, table: CatalogTable) -> bool:
        return True

    def sink_mode(self, table: CatalogTable) -> ChangelogMode:
        return INSERT_ONLY


@dataclass(frozen=True, slots=True)
class DeltaTable(_Lake):
    """`delta`: rows are appended to a Delta table; the version that is there when a job is planned is read."""

    name: str = "delta"

    @property
    def options(self) -> Mapping[str, str]:
        return {"table-path": "a folder, or the URL of one in a bucket"}

    def sink(self, table: CatalogTable, columns: Columns) -> WrittenTable:
        from penstock.connectors.lakes.delta import DeltaSink

        options = TableOptions(table)
        path = options.required("table-path")
        with options.placed():
            return WrittenTable(DeltaSink(path))

    def scan(self, table: CatalogTable, columns: Columns) -> ScannedTable:
        from penstock.connectors.lakes.delta import delta_snapshot

        options = TableOptions(table)
        path = options.required("table-path")
        with options.placed():
            return _scanned(delta_snapshot(path), schema_of(columns))


@dataclass(frozen=True, slots=True)
class IcebergTable(_Lake):
    """`iceberg`: the same of an Iceberg table."""

    name: str = "iceberg"

    @property
    def options(self) -> Mapping[str, str]:
        return {
            "catalog-name": "of the catalog; default without it",
            "catalog-database": "the table's namespace; default without it",
            "catalog-table": "the table's name; that of CREATE TABLE without it",
            "catalog-type": "rest, hive, glue, dynamodb or sql; as pyiceberg is configured without it",
            "uri": "of the catalog",
            "warehouse": "of the catalog",
            "properties.*": "other properties of the catalog, as pyiceberg calls them",
        }

    def sink(self, table: CatalogTable, columns: Columns) -> WrittenTable:
        from penstock.connectors.lakes.iceberg import IcebergSink

        options = TableOptions(table)
        with options.placed():
            return WrittenTable(IcebergSink(*_iceberg(options)))

    def scan(self, table: CatalogTable, columns: Columns) -> ScannedTable:
        from penstock.connectors.lakes.iceberg import iceberg_snapshot

        options = TableOptions(table)
        with options.placed():
            return _scanned(iceberg_snapshot(*_iceberg(options)), schema_of(columns))


def _iceberg(options: TableOptions) -> tuple[str, str, dict[str, str]]:
    """The table's name with its namespace, the catalog's, and the catalog's properties."""
    properties = options.below("properties.")
    for option, key in (("catalog-type", "type"), ("uri", "uri"), ("warehouse", "warehouse")):
        if (value := options.get(option)) is not None:
            properties[key] = value
    database = options.get("catalog-database") or "default"
    own = options.get("catalog-table") or options.table.name.rpartition(".")[2]
    return f"{database}.{own}", options.get("catalog-name") or "default", properties


def _scanned(snapshot: LakeSnapshot, schema: pa.Schema) -> ScannedTable:
    """How the files of a version are read as a table."""
    from penstock.connectors.collection import CollectionSource
    from penstock.connectors.files.source import FileSource

    held = snapshot.columns(schema.names)
    if not snapshot.files:
        return ScannedTable(CollectionSource.of(schema.empty_table(), None))
    stage = Stage(TypedColumnsSpec(schema), schema)
    return ScannedTable(FileSource.of(snapshot.files, "parquet", held), stages=(stage,))
