"""Makes sinks of Kafka of the options of CREATE TABLE, and what stands between the table and them.

`tables.py` calls it where a table is written to, with options that the connector knows.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from penstock.connectors.kafka.partitioner import PartitionerName
from penstock.connectors.kafka.sink import KafkaSink
from penstock.connectors.records.format import RecordFormat
from penstock.table_connectors.formats.options import DEBEZIUM, value_format
from penstock.table_connectors.kafka.choices import PARTITIONERS
from penstock.table_connectors.kafka.debezium import EnvelopeSpec
from penstock.table_connectors.kafka.formats import OP, TombstoneFormat
from penstock.table_connectors.kafka.records import (
    PAYLOAD,
    KafkaRecords,
    client_options,
    row_records,
    servers,
    upsert_records,
)
from penstock.table_connectors.options import TableOptions
from penstock.tables.catalog.catalog import CatalogTable
from penstock.tables.catalog.connectors import Stage, WrittenTable
from penstock.tables.lower.changelogs import ToChangelogSpec
from penstock.tables.plan.nodes import Columns

_CODES: Final = {"INSERT": "+U", "UPDATE_AFTER": "+U", "DELETE": "-D"}


def written_rows(table: CatalogTable, columns: Columns) -> WrittenTable:
    """How a table is written to whose records are rows."""
    records = row_records(table, columns)
    return WrittenTable(_sink(records, records.value_format(), _partitioner(records.options)))


def written_changes(table: CatalogTable, columns: Columns) -> WrittenTable:
    """How a table is written to whose records are Debezium's."""
    records = row_records(table, columns)
    prefix = value_format(records.options)[1]
    envelope = records.envelope(prefix)
    if PAYLOAD in envelope.names:
        option = f"{prefix}{DEBEZIUM}.schema-include"
        raise records.options.invalid(option, f"INSERT INTO writes no schemas; leave {option!r} out")
    beside = [records.schema.field(name) for name in (*records.key, *records.metadata.values())]
    schema = pa.schema([*envelope, *beside])
    sink = _sink(records, records.value_format(), _partitioner(records.options))
    return WrittenTable(sink, (Stage(EnvelopeSpec(schema), schema),))


def written_upserts(table: CatalogTable, columns: Columns) -> WrittenTable:
    """How a table is written to whose records are the last of their key."""
    records = upsert_records(table, columns)
    schema = pa.schema([pa.field(OP, pa.string()), *records.schema])
    sink = _sink(records, TombstoneFormat(records.value_format()), "murmur2")
    return WrittenTable(sink, (Stage(ToChangelogSpec(_CODES, schema), schema),))


def _sink(records: KafkaRecords, value: RecordFormat, partitioner: PartitionerName) -> KafkaSink:
    options = records.options
    chosen = options.choice("sink.delivery-guarantee", ("at-least-once", "exactly-once", "none"), "at-least-once")
    topic = options.required("topic")
    if ";" in topic:
        raise options.invalid("topic", "INSERT INTO writes to one topic")
    with options.placed():
        return KafkaSink(
            servers(options),
            topic,
            format=value,
            guarantee="exactly-once" if chosen == "exactly-once" else "at-least-once",
            key=records.key_format(),
            headers=records.metadata.get("headers"),
            timestamp=records.metadata.get("timestamp"),
            partitioner=partitioner,
            transactional_id_prefix=options.get("sink.transactional-id-prefix") or "penstock",
            transaction_timeout=f"{options.number('properties.transaction.timeout.ms', 300_000)}ms",
            options=client_options(options),
        )


def _partitioner(options: TableOptions) -> PartitionerName:
    match options.choice("sink.partitioner", PARTITIONERS, "default"):
        case "fixed":
            return "fixed"
        case "round-robin":
            return "round-robin"
    return "murmur2"
