"""Formats of single records: how the bytes of a message become columns, and rows become bytes.

Sources and sinks of logs, sockets and HTTP call them. A format is described by a picklable object and imports its
library where it is used.
"""

from penstock.connectors.records.avro_format import AvroFormat
from penstock.connectors.records.csv_format import CsvFormat
from penstock.connectors.records.format import BadRecord, Decoded, RecordFormat
from penstock.connectors.records.json_format import JsonFormat
from penstock.connectors.records.protobuf_format import ProtobufFormat
from penstock.connectors.records.raw import RawFormat
from penstock.connectors.records.registry import ConfluentSchemaRegistry, RegistryAvroFormat, SchemaRegistry

__all__ = [
    "AvroFormat",
    "BadRecord",
    "ConfluentSchemaRegistry",
    "CsvFormat",
    "Decoded",
    "JsonFormat",
    "ProtobufFormat",
    "RawFormat",
    "RecordFormat",
    "RegistryAvroFormat",
    "SchemaRegistry",
]
