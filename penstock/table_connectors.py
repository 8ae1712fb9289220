"""The connectors that CREATE TABLE may name: how the options of each become a source or a sink.

`StreamEnvironment.tables` takes them. The options are spelled as those of Flink's connectors, where Flink has one.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final, Literal

from penstock.demo_tables import DataGenTable, PrintTable
from penstock.engine.changelog import ANY_MODE
from penstock.engine.changelog import ChangelogMode as EngineMode
from penstock.engine.connectors import ConnectorContext, LookupTable, Sink, SinkWriter
from penstock.engine.elements import Batch
from penstock.jdbc_tables import JdbcTable
from penstock.kafka_tables import KafkaTable, UpsertKafkaTable
from penstock.lake_tables import DeltaTable, IcebergTable
from penstock.live_tables import LiveTable
from penstock.savepoint_tables import SavepointTable
from penstock.store_tables import ElasticsearchTable, RedisTable
from penstock.table_options import TableOptions
from penstock.tables.catalog.catalog import CatalogTable
from penstock.tables.catalog.connectors import ScannedTable, TableConnector, WrittenTable
from penstock.tables.catalog.loaded_tables import LoadedTable
from penstock.tables.lower.lowering import schema_of
from penstock.tables.plan.nodes import INSERT_ONLY, RETRACT, ChangelogMode, Columns

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
        path = TableOptions(table).required("path")
        chosen = TableOptions(table).choice("format", _FORMATS)
        monitor = table.options.get("source.monitor-interval")
        schema = schema_of(columns)
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


class _NoRows(SinkWriter):
    def write(self, batch: Batch) -> None:
        """Forget the rows."""


@dataclass(frozen=True, slots=True)
class _BlackHole(Sink):
    def open(self, context: ConnectorContext) -> SinkWriter:
        return _NoRows()

    def describe(self) -> str:
        return "blackhole"

    @property
    def changelog_modes(self) -> AbstractSet[EngineMode]:
        return ANY_MODE


@dataclass(frozen=True, slots=True)
class BlackHoleTable:
    """`blackhole`: takes all changes, and forgets them."""

    name: str = "blackhole"

    @property
    def options(self) -> Mapping[str, str]:
        return {}

    def source_mode(self, table: CatalogTable) -> None:
        return None

    def sink_mode(self, table: CatalogTable) -> ChangelogMode:
        return RETRACT

    def bounded(self, table: CatalogTable) -> bool:
        return True

    def scan(self, table: CatalogTable, columns: Columns) -> ScannedTable:
        raise NotImplementedError("source_mode says that it cannot be read")

    def sink(self, table: CatalogTable, columns: Columns) -> WrittenTable:
        return WrittenTable(_BlackHole())

    def lookup(self, table: CatalogTable, columns: Columns, keys: tuple[str, ...]) -> None:
        return None


@dataclass(frozen=True, slots=True)
class SampleTable:
    """`sample`: real data to try queries on."""

    name: str = "sample"

    @property
    def options(self) -> Mapping[str, str]:
        return {"data": "flights: the 336,776 departures from New York in 2013 (pip install 'penstock[examples]')"}

    def source_mode(self, table: CatalogTable) -> ChangelogMode:
        return INSERT_ONLY

    def sink_mode(self, table: CatalogTable) -> None:
        return None

    def bounded(self, table: CatalogTable) -> bool:
        return True

    def scan(self, table: CatalogTable, columns: Columns) -> ScannedTable:
        from penstock.connectors.collection import CollectionSource
        from penstock.sample_data import departures

        if TableOptions(table).required("data") != "flights":
            raise table.source.invalid(table.place_of("data"), "the sample data is 'flights'")
        rows = departures()
        for column in columns:
            if column.name not in rows.column_names:
                known = ", ".join(rows.column_names)
                raise table.source.invalid(table.at, f"the flights have no column {column.name!r}; they have {known}")
        schema = schema_of(columns)
        return ScannedTable(CollectionSource.of(rows.select(schema.names).cast(schema), None))

    def sink(self, table: CatalogTable, columns: Columns) -> WrittenTable:
        raise NotImplementedError("sink_mode says that it cannot be written to")

    def lookup(self, table: CatalogTable, columns: Columns, keys: tuple[str, ...]) -> LookupTable:
        return LoadedTable(self.scan(table, columns).source, schema_of(columns), keys)


CONNECTORS: Final[tuple[TableConnector, ...]] = (
    FileTable(),
    BlackHoleTable(),
    SampleTable(),
    DataGenTable(),
    PrintTable(),
    KafkaTable(),
    UpsertKafkaTable(),
    JdbcTable(),
    RedisTable(),
    ElasticsearchTable(),
    DeltaTable(),
    IcebergTable(),
    LiveTable("socket"),
    LiveTable("http"),
    LiveTable("websocket"),
    SavepointTable(),
)
"""All of them."""
