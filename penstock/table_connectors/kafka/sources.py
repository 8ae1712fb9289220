"""Makes sources of Kafka of the options of CREATE TABLE, and what stands between them and the table.

`tables.py` calls it where a table is read, with options that the connector knows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import pyarrow as pa

from penstock.connectors.kafka.offsets import KafkaOffsets
from penstock.connectors.kafka.source import KafkaSource
from penstock.connectors.records.format import RecordFormat
from penstock.connectors.records.kept import ERROR_COLUMN, RAW_COLUMN
from penstock.table_connectors.formats.options import remedy, value_format
from penstock.table_connectors.kafka.debezium import DebeziumRowsSpec
from penstock.table_connectors.kafka.formats import OP, RenamedFormat, TombstoneFormat
from penstock.table_connectors.kafka.offsets import end_of, start_of
from penstock.table_connectors.kafka.records import (
    PAYLOAD,
    KafkaRecords,
    bad_records,
    client_options,
    row_records,
    servers,
    upsert_records,
)
from penstock.table_connectors.kafka.rows import KEY, PLACE, RecordKeys, RecordRowsSpec
from penstock.table_connectors.typed_columns import TypedColumnsSpec
from penstock.tables.catalog.catalog import CatalogTable
from penstock.tables.catalog.connectors import ScannedTable, Stage
from penstock.tables.plan.nodes import Columns


def scanned_rows(table: CatalogTable, columns: Columns) -> ScannedTable:
    """How a table is read whose records are rows."""
    records = row_records(table, columns)
    options = records.options
    key = records.key_format()
    if options.get("value.fields-include") != "EXCEPT_KEY":
        # The value has the key's columns as well.
        key = None
    metadata = {what: _in_source(name) for what, name in records.metadata.items()}
    asked = metadata if key is None else _with_key(metadata)
    value = _distinct(records.value_format())
    if value_format(options)[0] != "raw":
        # As for Flink, a record without a value is a row of that format alone, which has one column.
        value = TombstoneFormat(value)
    source = _source(records, start_of(options), value, asked)
    keys = None if key is None else records.keys(key, asked)
    spec = RecordRowsSpec(records.schema, _names(records.schema, keys), keys, source.error_column)
    return ScannedTable(source, stages=(Stage(spec, records.schema),))


def scanned_changes(table: CatalogTable, columns: Columns) -> ScannedTable:
    """How a table is read whose records are Debezium's."""
    records = row_records(table, columns)
    options = records.options
    name, prefix = value_format(options)
    asked = _with_place(records.metadata)
    source = _source(records, start_of(options), TombstoneFormat(records.value_format()), asked)
    beside = [pa.field(name, source.schema.field(name).type) for name in records.metadata.values()]
    flat = pa.schema([*records.of_value, *beside, pa.field(OP, pa.string())])
    payload = PAYLOAD if PAYLOAD in records.envelope(prefix).names else None
    place = tuple(asked[what] for what in PLACE)
    rows = DebeziumRowsSpec(flat, payload, place, bad_records(options, name, prefix))
    schema = records.schema.append(pa.field(OP, pa.string()))
    return ScannedTable(source, OP, (Stage(rows, flat), Stage(TypedColumnsSpec(schema), schema)))


def scanned_upserts(table: CatalogTable, columns: Columns) -> ScannedTable:
    """How a table is read whose records are the last of their key."""
    records = upsert_records(table, columns)
    inner = records.key_format()
    assert inner is not None, "the table has a primary key"
    # The value may have the key's columns as well, but not where it is missing.
    key = RenamedFormat(inner, tuple(f"{KEY}.{name}" for name in records.key))
    asked = _with_key({what: _in_source(name) for what, name in records.metadata.items()})
    value = TombstoneFormat(_distinct(records.value_format()))
    source = _source(records, KafkaOffsets.earliest(), value, asked)
    schema = records.schema.append(pa.field(OP, pa.string()))
    keys = records.keys(key, asked)
    names = tuple(f"{KEY}.{name}" if name in records.key else _in_source(name) for name in schema.names)
    spec = RecordRowsSpec(schema, names, keys, source.error_column)
    return ScannedTable(source, OP, (Stage(spec, schema),))


def _source(
    records: KafkaRecords, start: KafkaOffsets, value: RecordFormat, metadata: Mapping[str, str]
) -> KafkaSource:
    options = records.options
    pattern, end = options.get("topic-pattern"), end_of(options)
    if pattern is not None and options.get("topic") is not None:
        raise options.invalid("topic-pattern", "give 'topic' or 'topic-pattern', not both")
    name, prefix = value_format(options)
    bad: Literal["fail", "keep"] = "keep" if bad_records(options, name, prefix) == "leave out" else "fail"
    discovery = options.duration_ms("scan.topic-partition-discovery.interval", 300_000)
    with options.placed():
        source = KafkaSource(
            servers(options),
            None if pattern is not None else options.required("topic").split(";"),
            format=value,
            topic_pattern=pattern,
            start=start,
            until=end,
            metadata=metadata,
            bad_records=bad,
            discovery_interval=None if end is not None or not discovery else f"{discovery}ms",
            commit_to=options.get("properties.group.id"),
            options=client_options(options),
        )
    return source.worded(f"table {options.table.name!r}: ", remedy(name, prefix))


def _in_source(column: str) -> str:
    """A column's name in the source, which gives bad records columns of its own."""
    return f"$value.{column}" if column in (ERROR_COLUMN, RAW_COLUMN) else column


def _distinct(value: RecordFormat) -> RecordFormat:
    """A format of values under the names of the source."""
    names = tuple(_in_source(name) for name in value.schema.names)
    return value if list(names) == value.schema.names else RenamedFormat(value, names)


def _names(schema: pa.Schema, keys: RecordKeys | None) -> tuple[str, ...]:
    """For each column of a table of rows, that of the source or of the key that it is."""
    of_key = () if keys is None else keys.format.schema.names
    return tuple(name if name in of_key else _in_source(name) for name in schema.names)


def _with_place(metadata: Mapping[str, str]) -> dict[str, str]:
    """The metadata of a table, and that which tells where a record is, by the source's columns."""
    return {**{what: f"${what}" for what in PLACE}, **metadata}


def _with_key(metadata: Mapping[str, str]) -> dict[str, str]:
    """The same with the record's key."""
    return {**_with_place(metadata), "key": KEY}
