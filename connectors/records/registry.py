"""Avro behind the header of a Confluent schema registry: a zero byte, four bytes of schema id, the datum.

Connectors call it. Records of any registered schema become the columns of one, by Avro's schema resolution.
"""

from __future__ import annotations

import struct
from typing import Any, Final, Protocol

import pyarrow as pa

from penstock.connectors.records.avro_format import AvroCodec, AvroSchemaLike
from penstock.connectors.records.batches import Row, decode_each, error_text, load_library
from penstock.connectors.records.format import Decoded, RecordFormat
from penstock.engine.errors import ConfigurationError, PenstockError, RecordError

_FORM: Final = "Avro records with a schema registry"
_HEADER: Final = struct.Struct(">bI")
_UNKNOWN_SCHEMA: Final = 40403


class SchemaRegistry(Protocol):
    """Where schemas are kept by number. Picklable; connects when it is first asked."""

    def schema(self, schema_id: int) -> str:
        """The schema of that number, as JSON text.

        Raises:
            RecordError: there is none; the record that names it is bad.
            PenstockError: the registry cannot be asked; the job fails, and may be restarted.
        """

    def register(self, subject: str, schema: str) -> int:
        """The number of the schema under `subject`, where it is registered if it is not yet.

        Raises:
            ConfigurationError: the registry refuses it, such as for compatibility.
        """


class ConfluentSchemaRegistry:
    """A registry with Confluent's REST interface, by the confluent-kafka library.

    Args:
        url: such as `http://localhost:8081`.
        user: name for basic authentication; None: none.
        password: its password; in no message and no text of this object.

    Example:
        >>> ConfluentSchemaRegistry("http://localhost:8081")
        ConfluentSchemaRegistry('http://localhost:8081')
    """

    def __init__(self, url: str, user: str | None = None, password: str | None = None) -> None:
        if not url.startswith(("http://", "https://")):
            raise ConfigurationError("schema registry: the URL must start with http:// or https://")
        if "@" in url:
            raise ConfigurationError("schema registry: give user and password as arguments, not in the URL")
        if (user is None) != (password is None):
            raise ConfigurationError("schema registry: give both user and password, or neither")
        self._url, self._user, self._password = url, user, password
        self._client: Any = None

    def __reduce__(self) -> tuple[type[ConfluentSchemaRegistry], tuple[str, str | None, str | None]]:
        return ConfluentSchemaRegistry, (self._url, self._user, self._password)

    def __repr__(self) -> str:
        return f"ConfluentSchemaRegistry({self._url!r})"

    def schema(self, schema_id: int) -> str:
        library = self._library()
        try:
            return str(self._connected(library).get_schema(schema_id).schema_str)
        except library.error.SchemaRegistryError as error:
            if error.error_code == _UNKNOWN_SCHEMA:
                raise RecordError(f"the schema registry has no schema {schema_id}") from None
            raise self._failure(error) from None
        except Exception as error:  # those of its HTTP client, of which it has had several
            raise self._failure(error) from None

    def register(self, subject: str, schema: str) -> int:
        library = self._library()
        try:
            return int(self._connected(library).register_schema(subject, library.Schema(schema, "AVRO")))
        except library.error.SchemaRegistryError as error:
            raise ConfigurationError(
                f"schema registry {self._url}: subject {subject!r}: {error.error_message}; change the schema or the "
                "subject's compatibility"
            ) from None
        except Exception as error:  # those of its HTTP client, of which it has had several
            raise self._failure(error) from None

    def _library(self) -> Any:
        return load_library("confluent_kafka.schema_registry", "registry", _FORM)

    def _connected(self, library: Any) -> Any:
        if self._client is None:
            settings = {"url": self._url}
            if self._user is not None:
                settings["basic.auth.user.info"] = f"{self._user}:{self._password}"
            self._client = library.SchemaRegistryClient(settings)
        return self._client

    def _failure(self, error: Exception) -> PenstockError:
        text = error_text(error)
        if self._password:
            text = text.replace(self._password, "***")
        return PenstockError(f"schema registry {self._url}: {text}; check the address, the user and the server")


class RegistryAvroFormat(RecordFormat):
    """Avro records that carry the number of their schema in a registry, as Confluent's serializers write them.

    Decoding reads each record by the schema that it was written by and gives the columns of `schema`, which must be
    compatible (fields added with a default, removed, or widened). Records without the header, of an unknown or
    incompatible schema, or cut off are bad. Types, tombstones and rows of nulls are as with `AvroFormat`.

    Args:
        schema: the schema of the columns, and of what is written.
        registry: where schemas are kept.
        subject: under which encoding registers `schema`; Confluent's default is the topic with `-value` behind.

    Raises:
        ConfigurationError: no Avro record schema, or fastavro is missing.
    """

    def __init__(self, schema: AvroSchemaLike, registry: SchemaRegistry, subject: str | None = None) -> None:
        self._codec = AvroCodec(schema)
        self._registry = registry
        self._subject = subject
        self._writers: dict[int, AvroCodec] = {}
        self._own_id: int | None = None

    def __reduce__(self) -> tuple[type[RegistryAvroFormat], tuple[str, SchemaRegistry, str | None]]:
        return RegistryAvroFormat, (self._codec.text, self._registry, self._subject)

    @property
    def schema(self) -> pa.Schema:
        return self._codec.schema

    def decode(self, values: pa.LargeBinaryArray) -> Decoded:
        unknown: dict[int, str] = {}
        for schema_id in {_schema_id(value.as_py()) for value in values}:
            if schema_id is not None and schema_id not in self._writers:
                self._load(schema_id, unknown)

        def decode_one(value: bytes) -> Row:
            schema_id = _schema_id(value)
            if schema_id is None:
                raise ValueError("no header of a schema registry (a zero byte and four bytes of schema id)")
            if schema_id in unknown:
                raise ValueError(unknown[schema_id])
            return self._codec.read(value, _HEADER.size, self._writers[schema_id])

        return decode_each(values, self.schema, decode_one)

    def _load(self, schema_id: int, unknown: dict[int, str]) -> None:
        try:
            schema = self._registry.schema(schema_id)
        except RecordError as error:
            unknown[schema_id] = error_text(error)
            return
        try:
            self._writers[schema_id] = AvroCodec(schema)
        except ConfigurationError as error:
            unknown[schema_id] = error_text(error)

    def encode(self, rows: pa.RecordBatch) -> pa.LargeBinaryArray:
        if self._own_id is None:
            if self._subject is None:
                raise ConfigurationError(f"{_FORM}: give the subject to write under, such as 'orders-value'")
            self._own_id = self._registry.register(self._subject, self._codec.text)
        return self._codec.write_all(rows, _HEADER.pack(0, self._own_id))

    def describe(self) -> str:
        return "avro with schema registry"


def _schema_id(value: bytes | None) -> int | None:
    """The number in the header, or None without one."""
    if value is None or len(value) < _HEADER.size or value[0]:
        return None
    return int(_HEADER.unpack_from(value)[1])
