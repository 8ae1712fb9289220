"""What the definition of a Kafka table says of its records: columns of keys, values and metadata, and their formats.

`sources.py` and `sinks.py` make the connector's parts of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from penstock.connectors.records.format import RecordFormat
from penstock.connectors.records.json_format import JsonFormat
from penstock.connectors.records.kept import ERROR_COLUMN, RAW_COLUMN
from penstock.table_connectors.formats.mending import JsonMend, MendedFormat
from penstock.table_connectors.formats.options import (
    DEBEZIUM,
    json_form,
    key_format,
    leaves_bad_out,
    record_format,
    value_format,
)
from penstock.table_connectors.kafka.choices import is_changes
from penstock.table_connectors.kafka.debezium import ENVELOPE
from penstock.table_connectors.kafka.formats import RenamedFormat
from penstock.table_connectors.kafka.rows import PLACE, BadRecords, RecordKeys
from penstock.table_connectors.options import TableOptions
from penstock.tables.catalog.catalog import CatalogTable
from penstock.tables.lower.base import schema_of
from penstock.tables.parse.table_statements import MetadataColumn
from penstock.tables.plan.nodes import Columns

PAYLOAD: Final = "payload"
"""The field that has Debezium's others, where they come with their schema."""
_READABLE: Final = ("topic", "partition", "headers", "offset", "timestamp")
_WRITABLE: Final = ("headers", "timestamp")
_TAKEN_ELSEWHERE: Final = ("bootstrap.servers", "group.id", "auto.offset.reset", "transaction.timeout.ms")


@dataclass(frozen=True, slots=True)
class KafkaRecords:
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
    def of(cls, table: CatalogTable, columns: Columns, key: tuple[str, ...]) -> KafkaRecords:
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

    def check_prefix(self) -> None:
        """That the key's columns begin with what is before their names in the table alone.

        Raises:
            SqlValidationError: one does not.
        """
        prefix = self.options.get("key.fields-prefix") or ""
        for name in self.key:
            if not name.startswith(prefix):
                raise self.options.invalid(
                    "key.fields-prefix", f"{name!r} does not begin with 'key.fields-prefix', {prefix!r}"
                )

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
        return RecordKeys(key, tuple(asked[what] for what in PLACE), bad_records(self.options, name, "key."))

    def value_format(self) -> RecordFormat:
        """The format of the value."""
        name, prefix = value_format(self.options)
        if name == DEBEZIUM:
            envelope = self.envelope(prefix)
            with self.options.placed():
                found = JsonFormat(envelope, json_form(self.options, f"{prefix}{DEBEZIUM}"))
            return MendedFormat(found, JsonMend(envelope)) if leaves_bad_out(self.options, name, prefix) else found
        return record_format(self.options, name, prefix, self.of_value, f"{self.subject}-value")

    def envelope(self, prefix: str) -> pa.Schema:
        """The fields of Debezium's records."""
        image = pa.struct(list(self.of_value))
        fields = [("before", image), ("after", image), ("op", pa.string())]
        if self.options.flag(f"{prefix}{DEBEZIUM}.schema-include"):
            return pa.schema([(PAYLOAD, pa.struct(fields))])
        return pa.schema(fields)


def row_records(table: CatalogTable, columns: Columns) -> KafkaRecords:
    """The records of a table of `kafka`."""
    options = TableOptions(table)
    named = options.get("key.fields")
    key = tuple(part for part in (named or "").split(";") if part)
    records = KafkaRecords.of(table, columns, key)
    for name in key:
        if name not in records.physical:
            known = ", ".join(records.physical)
            raise options.invalid("key.fields", f"'key.fields' names {name!r}, which is no column; there are {known}")
    records.check_prefix()
    if is_changes(table):
        for name in (*key, *records.metadata.values()):
            if name in (*ENVELOPE, PAYLOAD, ERROR_COLUMN, RAW_COLUMN):
                raise options.invalid(
                    "connector",
                    f"beside Debezium's fields no column of the key or of metadata can be {name!r}; rename it",
                )
    return records


def upsert_records(table: CatalogTable, columns: Columns) -> KafkaRecords:
    """The records of a table of `upsert-kafka`, whose key is the table's."""
    options = TableOptions(table)
    if not table.definition.primary_key:
        raise options.invalid(
            "connector", "'upsert-kafka' needs PRIMARY KEY (...) NOT ENFORCED: the columns of the record's key"
        )
    if value_format(options)[0] == DEBEZIUM:
        raise options.invalid("connector", f"{DEBEZIUM!r} holds changes already; write 'connector' = 'kafka'")
    records = KafkaRecords.of(table, columns, tuple(column.name for column in table.definition.primary_key))
    records.check_prefix()
    return records


def bad_records(options: TableOptions, name: str, prefix: str) -> BadRecords:
    """What becomes of a record that its format, whose options begin with `prefix`, cannot read."""
    return "leave out" if leaves_bad_out(options, name, prefix) else "fail"


def servers(options: TableOptions) -> str:
    """The brokers."""
    return options.required("properties.bootstrap.servers")


def client_options(options: TableOptions) -> dict[str, Any]:
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
