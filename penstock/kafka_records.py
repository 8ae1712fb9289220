"""Makes sources and sinks of Kafka of the options of CREATE TABLE, and what stands between them and the table.

`kafka_tables.py` calls it where a table is read or written, with options that the connector knows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import pyarrow as pa

from penstock.connectors.kafka.offsets import KafkaOffsets
from penstock.connectors.kafka.partitioner import PartitionerName
from penstock.connectors.kafka.sink import KafkaSink
from penstock.connectors.kafka.source import KafkaSource
from penstock.connectors.records.format import RecordFormat
from penstock.connectors.records.json_format import JsonFormat
from penstock.kafka_rows import (
    KEY,
    OP,
    PLACE,
    BadRecords,
    DebeziumRowsSpec,
    EnvelopeSpec,
    RecordKeys,
    RecordRowsSpec,
    RenamedFormat,
    TombstoneFormat,
)
from penstock.kafka_tables import ENDS, PARTITIONERS, STARTS, is_changes
from penstock.record_tables import DEBEZIUM, key_format, leaves_bad_out, record_format, value_format
from penstock.table_options import TableOptions
from penstock.tables.catalog.catalog import CatalogTable
from penstock.tables.catalog.connectors import ScannedTable, Stage, WrittenTable
from penstock.tables.lower.changelogs import ToChangelogSpec
from penstock.tables.lower.lowering import schema_of
from penstock.tables.parse.table_statements import MetadataColumn
from penstock.tables.plan.nodes import Columns

_READABLE: Final = ("topic", "partition", "headers", "offset", "timestamp")
_WRITABLE: Final = ("headers", "timestamp")
_ENVELOPE: Final = ("before", "after", "op")
_PAYLOAD: Final = "payload"
_CODES: Final = {"INSERT": "+U", "UPDATE_AFTER": "+U", "DELETE": "-D"}
_TAKEN_ELSEWHERE: Final = ("bootstrap.servers", "group.id", "auto.offset.reset", "transaction.timeout.ms")


def scanned_rows(table: CatalogTable, columns: Columns) -> ScannedTable:
    """How a table is read whose records are rows."""
    records = _row_records(table, columns)
    options = records.options
    key = records.key_format()
    if options.get("value.fields-include") != "EXCEPT_KEY":
        # The value has the key's columns as well.
        key = None
    asked = dict(records.metadata) if key is None else _with_key(records.metadata)
    value = records.value_format()
    if value_format(options)[0] != "raw":
        # As for Flink, a record without a value is a row of that format alone, which has one column.
        value = TombstoneFormat(value)
    source = _source(records, _start(options), value, asked)
    keys = None if key is None else records.keys(key, asked)
    spec = RecordRowsSpec(records.schema, tuple(records.schema.names), keys, source.error_column)
    return ScannedTable(source, stages=(Stage(spec, records.schema),))


def scanned_changes(table: CatalogTable, columns: Columns) -> ScannedTable:
    """How a table is read whose records are Debezium's."""
    records = _row_records(table, columns)
    options = records.options
    name, prefix = value_format(options)
    asked = _with_place(records.metadata)
    source = _source(records, _start(options), TombstoneFormat(records.value_format()), asked)
    beside = [pa.field(name, source.schema.field(name).type) for name in records.metadata.values()]
    flat = pa.schema([*records.of_value, *beside, pa.field(OP, pa.string())])
    payload = _PAYLOAD if _PAYLOAD in records.envelope(prefix).names else None
    place = tuple(asked[what] for what in PLACE)
    rows = DebeziumRowsSpec(flat, payload, place, _bad(options, name, prefix))
    schema = records.schema.append(pa.field(OP, pa.string()))
    in_order = RecordRowsSpec(schema, tuple(schema.names))
    return ScannedTable(source, OP, (Stage(rows, flat), Stage(in_order, schema)))


def scanned_upserts(table: CatalogTable, columns: Columns) -> ScannedTable:
    """How a table is read whose records are the last of their key."""
    records = _upsert_records(table, columns)
    inner = records.key_format()
    assert inner is not None, "the table has a primary key"
    # The value may have the key's columns as well, but not where it is missing.
    key = RenamedFormat(inner, tuple(f"{KEY}.{name}" for name in records.key))
    asked = _with_key(records.metadata)
    source = _source(records, KafkaOffsets.earliest(), TombstoneFormat(records.value_format()), asked)
    schema = records.schema.append(pa.field(OP, pa.string()))
    names = tuple(f"{KEY}.{name}" if name in records.key else name for name in schema.names)
    spec = RecordRowsSpec(schema, names, records.keys(key, asked), source.error_column)
    return ScannedTable(source, OP, (Stage(spec, schema),))


def written_rows(table: CatalogTable, columns: Columns) -> WrittenTable:
    """How a table is written to whose records are rows."""
    records = _row_records(table, columns)
    return WrittenTable(_sink(records, records.value_format(), _partitioner(records.options)))


def written_changes(table: CatalogTable, columns: Columns) -> WrittenTable:
    """How a table is written to whose records are Debezium's."""
    records = _row_records(table, columns)
    prefix = value_format(records.options)[1]
    envelope = records.envelope(prefix)
    if _PAYLOAD in envelope.names:
        option = f"{prefix}{DEBEZIUM}.schema-include"
        raise records.options.invalid(option, f"INSERT INTO writes no schemas; leave {option!r} out")
    beside = [records.schema.field(name) for name in (*records.key, *records.metadata.values())]
    schema = pa.schema([*envelope, *beside])
    sink = _sink(records, records.value_format(), _partitioner(records.options))
    return WrittenTable(sink, (Stage(EnvelopeSpec(schema), schema),))


def written_upserts(table: CatalogTable, columns: Columns) -> WrittenTable:
    """How a table is written to whose records are the last of their key."""
    records = _upsert_records(table, columns)
    schema = pa.schema([pa.field(OP, pa.string()), *records.schema])
    sink = _sink(records, TombstoneFormat(records.value_format()), "murmur2")
    return WrittenTable(sink, (Stage(ToChangelogSpec(_CODES, schema), schema),))


@dataclass(frozen=True, slots=True)
class _Records:
    """What a table's definition says of its records.

    Args:
        options: of the table.
        schema: all its physical columns, and those of metadata.
        metadata: the column of each metadata key, of those that are read or written.
        key: the columns of the record's key, in its order; none without a key.
    """

    options: TableOptions
    schema: pa.Schema
    metadata: Mapping[str, str]
    key: tuple[str, ...]

    @classmethod
    def of(cls, table: CatalogTable, columns: Columns, key: tuple[str, ...]) -> _Records:
        """The records of a table, whose key has these columns.

        Raises:
            SqlValidationError: metadata that records do not have.
        """
        metadata: dict[str, str] = {}
        for column in table.definition.columns:
            if isinstance(column, MetadataColumn):
                what = column.key or column.name
                if what not in _READABLE or what in metadata:
                    problem = "is asked for twice" if what in metadata else "is no metadata of Kafka's records"
                    raise table.source.invalid(column.at, f"{what!r} {problem}; there are {', '.join(_READABLE)}")
                if what not in _WRITABLE and not column.virtual:
                    raise table.source.invalid(
                        column.at, f"{what!r} cannot be written; declare {column.name} METADATA VIRTUAL"
                    )
                metadata[what] = column.name
        schema = schema_of(columns)
        # Virtual ones are not among the columns that are written.
        there = {what: name for what, name in metadata.items() if name in schema.names}
        return cls(TableOptions(table), schema, there, key)

    @property
    def physical(self) -> list[str]:
        """The columns that are no metadata."""
        return [name for name in self.schema.names if name not in self.metadata.values()]

    @property
    def of_value(self) -> pa.Schema:
        """The columns of the record's value."""
        included = self.options.choice("value.fields-include", ("ALL", "EXCEPT_KEY"), "ALL")
        out = self.key if included == "EXCEPT_KEY" else ()
        names = [name for name in self.physical if name not in out]
        if not names:
            raise self.options.invalid("value.fields-include", "no column is left for the record's value")
        return pa.schema([self.schema.field(name) for name in names])

    @property
    def subject(self) -> str:
        """The topic, for the names of subjects of a schema registry."""
        return self.options.get("topic") or "topic"

    def key_format(self) -> RecordFormat | None:
        """The format of the key, by the names of the table's columns; None without one."""
        name = key_format(self.options)
        if not self.key:
            if name is not None:
                raise self.options.invalid("key.format", "'key.format' needs 'key.fields': the columns of the key")
            return None
        if name is None:
            raise self.options.invalid("key.fields", "a table with a key needs the option 'key.format'")
        prefix = self.options.get("key.fields-prefix") or ""
        inner = record_format(
            self.options,
            name,
            "key.",
            pa.schema([self.schema.field(one).with_name(one.removeprefix(prefix)) for one in self.key]),
            f"{self.subject}-key",
        )
        return inner if not prefix else RenamedFormat(inner, self.key)

    def keys(self, key: RecordFormat, asked: Mapping[str, str]) -> RecordKeys:
        """How keys are read by their format, of a source that was asked for this metadata."""
        name = key_format(self.options)
        assert name is not None, "keys have a format"
        return RecordKeys(key, tuple(asked[what] for what in PLACE), _bad(self.options, name, "key."))

    def value_format(self) -> RecordFormat:
        """The format of the value."""
        name, prefix = value_format(self.options)
        if name == DEBEZIUM:
            with self.options.placed():
                return JsonFormat(self.envelope(prefix))
        return record_format(self.options, name, prefix, self.of_value, f"{self.subject}-value")

    def envelope(self, prefix: str) -> pa.Schema:
        """The fields of Debezium's records."""
        image = pa.struct(list(self.of_value))
        fields = [("before", image), ("after", image), ("op", pa.string())]
        if self.options.flag(f"{prefix}{DEBEZIUM}.schema-include"):
            return pa.schema([(_PAYLOAD, pa.struct(fields))])
        return pa.schema(fields)


def _properties(options: TableOptions) -> dict[str, Any]:
    """The client's settings, spelled as it spells them, with numbers and booleans as such."""
    given = [key for key in options.below("properties.") if key not in _TAKEN_ELSEWHERE]
    if "sasl.jaas.config" in given:
        raise options.invalid(
            "properties.sasl.jaas.config",
            "there is no Java here; give 'properties.sasl.plain.username' and 'properties.sasl.plain.password'",
        )
    return {key.replace(".", "_"): _property(options, f"properties.{key}") for key in given}


def _property(options: TableOptions, option: str) -> str | int | bool:
    # A password may be of digits alone, so names tell which settings are numbers.
    if option.endswith((".ms", ".bytes", ".size")):
        return options.number(option, 0)
    return options.flag(option) if option == "properties.check.crcs" else options.get(option) or ""


def _servers(options: TableOptions) -> str:
    return options.required("properties.bootstrap.servers")


def _specific(options: TableOptions, option: str) -> KafkaOffsets:
    """`partition:0,offset:42;partition:1,offset:300` of one topic."""
    topic, found = options.get("topic"), {}
    if not topic or ";" in topic:
        raise options.invalid(option, f"{option!r} is of one topic; give one in 'topic', or begin and end otherwise")
    for part in options.required(option).strip(";").split(";"):
        pair = dict(piece.partition(":")[::2] for piece in part.split(","))
        if set(pair) != {"partition", "offset"} or not all(value.isdigit() for value in pair.values()):
            raise options.invalid(option, f"{option!r} is written as partition:0,offset:42;partition:1,offset:300")
        found[topic, int(pair["partition"])] = int(pair["offset"])
    return KafkaOffsets.of(found)


def _group(options: TableOptions, option: str) -> str:
    why = f"reading from the offsets of a group ({option!r}: 'group-offsets', which it is where it is not set)"
    return options.required("properties.group.id", f"{why}, instead of 'earliest-offset' for example,")


def _start(options: TableOptions) -> KafkaOffsets:
    mode = options.choice("scan.startup.mode", STARTS, "group-offsets")
    if mode == "earliest-offset":
        return KafkaOffsets.earliest()
    named = _named(options, "scan.startup", mode)
    if named is not None:
        return named
    reset: Literal["earliest", "latest", "none"] = options.choice(
        "properties.auto.offset.reset", ("earliest", "latest", "none"), "none"
    )
    return KafkaOffsets.committed(_group(options, "scan.startup.mode"), None if reset == "none" else reset)


def _end(options: TableOptions) -> KafkaOffsets | None:
    mode = options.choice("scan.bounded.mode", ENDS, "unbounded")
    if mode == "group-offsets":
        raise options.invalid("scan.bounded.mode", "reading cannot end at a group's offsets; take another mode")
    return _named(options, "scan.bounded", mode)


def _named(options: TableOptions, prefix: str, mode: str) -> KafkaOffsets | None:
    """The offsets of a mode in which reading may begin and end alike; None for others."""
    match mode:
        case "latest-offset":
            return KafkaOffsets.latest()
        case "timestamp":
            option = f"{prefix}.timestamp-millis"
            options.required(option, "the mode 'timestamp'")
            return KafkaOffsets.at_timestamp(options.number(option, 0))
        case "specific-offsets":
            return _specific(options, f"{prefix}.specific-offsets")
    return None


def _source(records: _Records, start: KafkaOffsets, value: RecordFormat, metadata: Mapping[str, str]) -> KafkaSource:
    options = records.options
    pattern, end = options.get("topic-pattern"), _end(options)
    if pattern is not None and options.get("topic") is not None:
        raise options.invalid("topic-pattern", "give 'topic' or 'topic-pattern', not both")
    name, prefix = value_format(options)
    bad: Literal["fail", "keep"] = "keep" if _bad(options, name, prefix) == "leave out" else "fail"
    discovery = options.duration_ms("scan.topic-partition-discovery.interval", 300_000)
    with options.placed():
        return KafkaSource(
            _servers(options),
            None if pattern is not None else options.required("topic").split(";"),
            format=value,
            topic_pattern=pattern,
            start=start,
            until=end,
            metadata=metadata,
            bad_records=bad,
            discovery_interval=None if end is not None or not discovery else f"{discovery}ms",
            commit_to=options.get("properties.group.id"),
            options=_properties(options),
        )


def _sink(records: _Records, value: RecordFormat, partitioner: PartitionerName) -> KafkaSink:
    options = records.options
    chosen = options.choice("sink.delivery-guarantee", ("at-least-once", "exactly-once", "none"), "at-least-once")
    topic = options.required("topic")
    if ";" in topic:
        raise options.invalid("topic", "INSERT INTO writes to one topic")
    with options.placed():
        return KafkaSink(
            _servers(options),
            topic,
            format=value,
            guarantee="exactly-once" if chosen == "exactly-once" else "at-least-once",
            key=records.key_format(),
            headers=records.metadata.get("headers"),
            timestamp=records.metadata.get("timestamp"),
            partitioner=partitioner,
            transactional_id_prefix=options.get("sink.transactional-id-prefix") or "penstock",
            transaction_timeout=f"{options.number('properties.transaction.timeout.ms', 300_000)}ms",
            options=_properties(options),
        )


def _with_place(metadata: Mapping[str, str]) -> dict[str, str]:
    """The metadata of a table, and that which tells where a record is, by the source's columns."""
    return {**{what: f"${what}" for what in PLACE}, **metadata}


def _with_key(metadata: Mapping[str, str]) -> dict[str, str]:
    """The same with the record's key."""
    return {**_with_place(metadata), "key": KEY}


def _bad(options: TableOptions, name: str, prefix: str) -> BadRecords:
    return "leave out" if leaves_bad_out(options, name, prefix) else "fail"


def _partitioner(options: TableOptions) -> PartitionerName:
    match options.choice("sink.partitioner", PARTITIONERS, "default"):
        case "fixed":
            return "fixed"
        case "round-robin":
            return "round-robin"
    return "murmur2"


def _row_records(table: CatalogTable, columns: Columns) -> _Records:
    options = TableOptions(table)
    named = options.get("key.fields")
    key = tuple(part for part in (named or "").split(";") if part)
    records = _Records.of(table, columns, key)
    prefix = options.get("key.fields-prefix") or ""
    for name in key:
        if name not in records.physical:
            known = ", ".join(records.physical)
            raise options.invalid("key.fields", f"'key.fields' names {name!r}, which is no column; there are {known}")
        if not name.startswith(prefix):
            raise options.invalid("key.fields", f"{name!r} does not begin with 'key.fields-prefix', {prefix!r}")
    if is_changes(table):
        for name in (*key, *records.metadata.values()):
            if name in (*_ENVELOPE, _PAYLOAD):
                raise options.invalid("connector", f"beside Debezium's fields no column can be {name!r}; rename it")
    return records


def _upsert_records(table: CatalogTable, columns: Columns) -> _Records:
    options = TableOptions(table)
    if not table.definition.primary_key:
        raise options.invalid(
            "connector", "'upsert-kafka' needs PRIMARY KEY (...) NOT ENFORCED: the columns of the record's key"
        )
    if value_format(options)[0] == DEBEZIUM:
        raise options.invalid("connector", f"{DEBEZIUM!r} holds changes already; write 'connector' = 'kafka'")
    return _Records.of(table, columns, tuple(column.name for column in table.definition.primary_key))
