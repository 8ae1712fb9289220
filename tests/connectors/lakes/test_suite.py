"""The Iceberg and Delta sinks keep the rules of the connector API."""

from __future__ import annotations

from pathlib import Path

import deltalake
import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog

from penstock.connectors.lakes import DeltaSink, IcebergSink
from penstock.engine.clock import Clock, ManualClock
from penstock.engine.connectors import TransactionalSink
from penstock.testing.connector_suite import TransactionalSinkSuite
from tests.draws import drawn


class TestDeltaSink(TransactionalSinkSuite):
    """Partitioned by a column, so that rows of a checkpoint are in several files."""

    seeds = (1,)
    most_crashes = drawn(6)

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.folder, self.tables = tmp_path, 0

    def rows(self, first: int, count: int) -> pa.Table:
        rows = super().rows(first, count)
        shards = [number % 2 for number in range(first, first + count)]
        return rows.append_column("shard", pa.array(shards, pa.int64()))

    def sink(self) -> TransactionalSink:
        self.tables += 1
        path, columns = self.folder / str(self.tables), deltalake.Schema.from_arrow(self.rows(0, 0).schema)
        deltalake.DeltaTable.create(path, columns, partition_by=["shard"])
        return DeltaSink(path)

    def read_back(self, sink: TransactionalSink) -> pa.Table:
        assert isinstance(sink, DeltaSink)
        return deltalake.DeltaTable(sink.table).to_pyarrow_table()

    def clock(self) -> Clock:
        return ManualClock()


class TestIcebergSink(TransactionalSinkSuite):
    seeds = (1,)
    most_crashes = drawn(6)

    @pytest.fixture(autouse=True)
    def _catalog(self, tmp_path: Path) -> None:
        warehouse = f"file://{tmp_path}/warehouse"
        self.properties = {"type": "sql", "uri": f"sqlite:///{tmp_path}/lake.db", "warehouse": warehouse}
        self.tables = 0
        with load_catalog("lake", **self.properties) as catalog:
            catalog.create_namespace("db")

    def sink(self) -> TransactionalSink:
        self.tables += 1
        with load_catalog("lake", **self.properties) as catalog:
            catalog.create_table(f"db.t{self.tables}", self.rows(0, 0).schema)
        return IcebergSink(f"db.t{self.tables}", "lake", self.properties)

    def read_back(self, sink: TransactionalSink) -> pa.Table:
        assert isinstance(sink, IcebergSink)
        with load_catalog("lake", **self.properties) as catalog:
            return catalog.load_table(sink.table).scan().to_arrow()

    def clock(self) -> Clock:
        return ManualClock()
