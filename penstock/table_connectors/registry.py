"""The connectors that CREATE TABLE may name.

`tables_of` gives them to the tables of an environment. Options are spelled as those of Flink's connectors, where Flink
has one; a connector imports its client where a table is read or written.
"""

from __future__ import annotations

from typing import Final

from penstock.table_connectors.demo.blackhole import BlackHoleTable
from penstock.table_connectors.demo.datagen import DataGenTable
from penstock.table_connectors.demo.printed import PrintTable
from penstock.table_connectors.demo.sample import SampleTable
from penstock.table_connectors.files import FileTable
from penstock.table_connectors.kafka.tables import KafkaTable, UpsertKafkaTable
from penstock.table_connectors.live import LiveTable
from penstock.table_connectors.savepoint import SavepointTable
from penstock.table_connectors.stores.elasticsearch import ElasticsearchTable
from penstock.table_connectors.stores.jdbc import JdbcTable
from penstock.table_connectors.stores.lakes import DeltaTable, IcebergTable
from penstock.table_connectors.stores.redis import RedisTable
from penstock.tables.catalog.connectors import TableConnector

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
