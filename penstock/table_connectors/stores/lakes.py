"""Tables of data lakes that exist already: `delta` and `iceberg`, to which rows are appended exactly once.

`registry.py` lists them beside the others. Options are spelled as those of their connectors for Flink.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.table_connectors.options import TableOptions
from penstock.tables.catalog.catalog import CatalogTable
from penstock.tables.catalog.connectors import WrittenTable
from penstock.tables.plan.nodes import INSERT_ONLY, ChangelogMode, Columns


@dataclass(frozen=True, slots=True)
class DeltaTable:
    """`delta`: rows are appended to a Delta table."""

    name: str = "delta"

    @property
    def options(self) -> Mapping[str, str]:
        return {"table-path": "a folder, or the URL of one in a bucket"}

    def sink_mode(self, table: CatalogTable) -> ChangelogMode:
        return INSERT_ONLY

    def sink(self, table: CatalogTable, columns: Columns) -> WrittenTable:
        from penstock.connectors.lakes.delta import DeltaSink

        options = TableOptions(table)
        path = options.required("table-path")
        with options.placed():
            return WrittenTable(DeltaSink(path))


@dataclass(frozen=True, slots=True)
class IcebergTable:
    """`iceberg`: rows are appended to an Iceberg table."""

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

    def sink_mode(self, table: CatalogTable) -> ChangelogMode:
        return INSERT_ONLY

    def sink(self, table: CatalogTable, columns: Columns) -> WrittenTable:
        from penstock.connectors.lakes.iceberg import IcebergSink

        options, properties = TableOptions(table), TableOptions(table).below("properties.")
        for option, key in (("catalog-type", "type"), ("uri", "uri"), ("warehouse", "warehouse")):
            if (value := options.get(option)) is not None:
                properties[key] = value
        database = options.get("catalog-database") or "default"
        own = options.get("catalog-table") or table.name.rpartition(".")[2]
        with options.placed():
            return WrittenTable(IcebergSink(f"{database}.{own}", options.get("catalog-name") or "default", properties))
