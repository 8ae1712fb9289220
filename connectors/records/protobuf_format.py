"""The Protobuf format: a record is one message in Protobuf's binary encoding.

Connectors call it. The message type travels as its descriptors, so that no generated code is needed where it is read.
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

from penstock.connectors.records.batches import (
    Row,
    as_values,
    decode_each,
    encode_failure,
    error_text,
    fit_rows,
    load_library,
)
from penstock.connectors.records.format import Decoded, RecordFormat
from penstock.connectors.records.protobuf_fields import MessageFields
from penstock.engine.errors import ConfigurationError

_FORM: Final = "Protobuf records"
_EXTRA: Final = "protobuf"


class ProtobufFormat(RecordFormat):
    """One message a record.

    Columns are the fields: a message is a struct, a repeated field a list, a map a map, an enum the name of its value
    (its number, as text, where it has no name); `google.protobuf.Timestamp` is `timestamp[us, tz=UTC]` and `Duration`
    `duration[us]` (nanoseconds are cut off), and the wrappers such as `Int64Value` are nullable columns. A field that
    is not set is null where the message can tell, otherwise it is the type's zero; unknown fields are ignored. A null
    value (a tombstone) is a row of nulls. A null is written as a field that is not set, and a row whose columns are all
    null as an empty message, never as a tombstone.

    Args:
        descriptors: a serialized `FileDescriptorSet` that has the message's file and all that it imports, as `protoc
            --include_imports --descriptor_set_out` writes it.
        message: full name of the message type, such as `shop.Order`.

    Raises:
        ConfigurationError: no descriptors, no such message, a message within itself, or protobuf is missing.

    Example:
        `ProtobufFormat(Path("shop.desc").read_bytes(), "shop.Order")`, or from generated code
        `ProtobufFormat.for_message(shop_pb2.Order)`.
    """

    def __init__(self, descriptors: bytes, message: str) -> None:
        self._descriptors, self._message = descriptors, message
        descriptor = _find(descriptors, message)
        self._class = load_library("google.protobuf.message_factory", _EXTRA, _FORM).GetMessageClass(descriptor)
        self._fields = MessageFields(descriptor, _FORM)
        if not self._fields.kind.num_fields:
            raise ConfigurationError(f"{_FORM}: message {message!r} has no fields, which would be the columns")
        self._schema = pa.schema(list(self._fields.kind))

    def __reduce__(self) -> tuple[type[ProtobufFormat], tuple[bytes, str]]:
        return ProtobufFormat, (self._descriptors, self._message)

    @classmethod
    def for_message(cls, message: Any) -> ProtobufFormat:
        """The format of a message class of generated code.

        Args:
            message: the class, such as `shop_pb2.Order`.
        """
        library = load_library("google.protobuf.descriptor_pb2", _EXTRA, _FORM)
        files = library.FileDescriptorSet()
        added: set[str] = set()

        def add(file: Any) -> None:
            if file.name not in added:
                added.add(file.name)
                for imported in file.dependencies:
                    add(imported)
                file.CopyToProto(files.file.add())

        add(message.DESCRIPTOR.file)
        return cls(files.SerializeToString(), message.DESCRIPTOR.full_name)

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def decode(self, values: pa.LargeBinaryArray) -> Decoded:
        return decode_each(values, self._schema, self._read)

    def _read(self, value: bytes) -> Row:
        message = self._class()
        message.ParseFromString(value)
        if not message.IsInitialized():
            raise ValueError(f"required fields are missing: {', '.join(message.FindInitializationErrors())}")
        return self._fields.read(message)

    def encode(self, rows: pa.RecordBatch) -> pa.LargeBinaryArray:
        rows = fit_rows(rows, self._schema, _FORM)
        try:
            return as_values(self._write(rows))
        except Exception as error:  # protobuf raises errors of its own beside TypeError and ValueError
            raise encode_failure(rows, self._write, _FORM, error) from error

    def _write(self, rows: pa.RecordBatch) -> list[bytes]:
        written = []
        for row in rows.to_pylist(maps_as_pydicts="strict"):
            message = self._class()
            self._fields.write(message, row)
            written.append(message.SerializeToString())
        return written

    def describe(self) -> str:
        return f"protobuf {self._message}"


def _find(descriptors: bytes, message: str) -> Any:
    library = load_library("google.protobuf.descriptor_pb2", _EXTRA, _FORM)
    pool = load_library("google.protobuf.descriptor_pool", _EXTRA, _FORM).DescriptorPool()
    try:
        for file in library.FileDescriptorSet.FromString(descriptors).file:
            pool.Add(file)
        return pool.FindMessageTypeByName(message)
    except KeyError:
        raise ConfigurationError(f"{_FORM}: the descriptors have no message {message!r}") from None
    except Exception as error:  # protobuf raises errors of its own beside TypeError
        raise ConfigurationError(
            f"{_FORM}: the descriptors cannot be used ({error_text(error)}); give a FileDescriptorSet with all imports"
        ) from error
