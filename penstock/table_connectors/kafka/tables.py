"""Tables of Kafka's topics: `kafka`, whose records are rows or changes, and `upsert-kafka`, the last one of each key.

`registry.py` lists them beside the others. Options are spelled, and mean, what they do for Flink's connectors;
`sources.py` and `sinks.py` make the connector's parts of them, and are imported where a table is read or written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from penstock.table_connectors.formats.options import FORMAT_CHOICES, FORMAT_OPTIONS
from penstock.table_connectors.kafka.choices import ENDS, PARTITIONERS, STARTS, is_changes
from penstock.table_connectors.options import TableOptions
from penstock.tables.catalog.catalog import CatalogTable
from penstock.tables.catalog.connectors import ScannedTable, WrittenTable
from penstock.tables.plan.nodes import INSERT_ONLY, RETRACT, UPSERT, ChangelogMode, Columns

_OPTIONS: Final[Mapping[str, str]] = {
    "topic": "one, or several with ; between them; one to write to",
    "properties.bootstrap.servers": "host:port of some brokers, with commas between them",
    "properties.*": "the client's settings, such as properties.security.protocol or properties.sasl.mechanism",
    **FORMAT_OPTIONS,
    "key.fields-prefix": "before the names of the key's columns in the table, and not in the record",
    "value.fields-include": "ALL, or EXCEPT_KEY: whether the key's columns are in the value as well",
    "scan.bounded.mode": f"one of {', '.join(ENDS)}: where reading ends",
    "scan.bounded.specific-offsets": "partition:0,offset:42;partition:1,offset:300",
    "scan.bounded.timestamp-millis": "milliseconds since the epoch",
    "scan.topic-partition-discovery.interval": "how often to look for new partitions; 5 min without it",
    "sink.delivery-guarantee": "at-least-once, exactly-once or none",
    "sink.transactional-id-prefix": "what the ids of transactions begin with",
}
_ROW_OPTIONS: Final[Mapping[str, str]] = {
    "topic-pattern": "a regular expression of the topics to read",
    "key.fields": "the columns of the record's key, with ; between them",
    "scan.startup.mode": f"one of {', '.join(STARTS)}",
    "scan.startup.specific-offsets": "partition:0,offset:42;partition:1,offset:300",
    "scan.startup.timestamp-millis": "milliseconds since the epoch",
    "sink.partitioner": f"one of {', '.join(PARTITIONERS)}",
}

_UPSERT_OPTIONS: Final[Mapping[str, str]] = {
    "sink.buffer-flush.max-rows": "how many changes Flink puts together; here those of a batch are, without it",
    "sink.buffer-flush.interval": "for how long; the same",
}


def _is_bounded(table: CatalogTable) -> bool:
    return TableOptions(table).choice("scan.bounded.mode", ENDS, "unbounded") != "unbounded"


@dataclass(frozen=True, slots=True)
class KafkaTable:
    """`kafka`: records of topics, each a row; with `debezium-json`, each a change."""

    name: str = "kafka"

    @property
    def options(self) -> Mapping[str, str]:
        return {**_OPTIONS, **_ROW_OPTIONS}

    @property
    def choices(self) -> Mapping[str, Sequence[str]]:
        return FORMAT_CHOICES

    def source_mode(self, table: CatalogTable) -> ChangelogMode:
        return RETRACT if is_changes(table) else INSERT_ONLY

    def sink_mode(self, table: CatalogTable) -> ChangelogMode:
        return RETRACT if is_changes(table) else INSERT_ONLY

    def bounded(self, table: CatalogTable) -> bool:
        return _is_bounded(table)

    def times_by_split(self, table: CatalogTable) -> bool:
        return not is_changes(table)

    def scan(self, table: CatalogTable, columns: Columns) -> ScannedTable:
        from penstock.table_connectors.kafka.sources import scanned_changes, scanned_rows

        return (scanned_changes if is_changes(table) else scanned_rows)(table, columns)

    def sink(self, table: CatalogTable, columns: Columns) -> WrittenTable:
        from penstock.table_connectors.kafka.sinks import written_changes, written_rows

        return (written_changes if is_changes(table) else written_rows)(table, columns)


@dataclass(frozen=True, slots=True)
class UpsertKafkaTable:
    """`upsert-kafka`: the last record of each key is a row, and one without a value deletes it."""

    name: str = "upsert-kafka"

    @property
    def options(self) -> Mapping[str, str]:
        return {**_OPTIONS, **_UPSERT_OPTIONS}

    @property
    def choices(self) -> Mapping[str, Sequence[str]]:
        return FORMAT_CHOICES

    def source_mode(self, table: CatalogTable) -> ChangelogMode:
        return UPSERT

    def sink_mode(self, table: CatalogTable) -> ChangelogMode:
        return UPSERT

    def bounded(self, table: CatalogTable) -> bool:
        return _is_bounded(table)

    def scan(self, table: CatalogTable, columns: Columns) -> ScannedTable:
        from penstock.table_connectors.kafka.sources import scanned_upserts

        return scanned_upserts(table, columns)

    def sink(self, table: CatalogTable, columns: Columns) -> WrittenTable:
        from penstock.table_connectors.kafka.sinks import written_upserts

        return written_upserts(table, columns)
