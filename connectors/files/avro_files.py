"""Avro object container files: written by the file sink, read by the file source.

`encoders.py` and `source.py` call it; fastavro is imported where a file is opened. Times travel as numbers, so that no
date is beyond what Python's types hold. Every column may be null.

Source: https://avro.apache.org/docs/1.12.0/specification/#object-container-files
"""

from __future__ import annotations

import contextlib
import io
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO, Final

import pyarrow as pa

from penstock.connectors.files.formats import open_file
from penstock.connectors.files.readers import Chunks, Columns, reading
from penstock.connectors.records.avro_types import AvroTypes, avro_types, nullable, physical
from penstock.connectors.records.batches import load_library
from penstock.engine.errors import ConfigurationError, RecordError
from penstock.engine.schemas import plain_schema

_FORM: Final = "Avro files"
_EXTRA: Final = "avro"
_CODECS: Final = {"none": "null", "deflate": "deflate", "bz2": "bzip2", "zstd": "zstandard", "snappy": "snappy"}
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_CHUNK_ROWS: Final = 16_384
_TIMESTAMPS: Final = {"s": "millis", "ms": "millis", "us": "micros", "ns": "nanos"}
_SIMPLE: Final[Mapping[pa.DataType, Any]] = {
    pa.null(): "null",
    pa.bool_(): "boolean",
    **dict.fromkeys((pa.int8(), pa.int16(), pa.int32(), pa.uint8(), pa.uint16()), "int"),
    **dict.fromkeys((pa.int64(), pa.uint32()), "long"),
    **dict.fromkeys((pa.float16(), pa.float32()), "float"),
    pa.float64(): "double",
    **dict.fromkeys((pa.string(), pa.large_string(), pa.string_view()), "string"),
    **dict.fromkeys((pa.binary(), pa.large_binary(), pa.binary_view()), "bytes"),
    pa.date32(): {"type": "int", "logicalType": "date"},
    pa.date64(): {"type": "int", "logicalType": "date"},
    pa.time32("s"): {"type": "int", "logicalType": "time-millis"},
    pa.time32("ms"): {"type": "int", "logicalType": "time-millis"},
    pa.time64("us"): {"type": "long", "logicalType": "time-micros"},
}


def avro_refusal(field: pa.Field) -> str | None:
    """Why Avro files cannot hold the column (may be empty), or None if they can."""
    try:
        avro_record({field.name: field.type}, "row")
    except ValueError as error:
        return f" ({error})" if str(error) else ""
    return None


def avro_record(fields: Mapping[str, pa.DataType], name: str) -> dict[str, Any]:
    """The Avro record of columns; ValueError names what cannot be stored."""
    parts = []
    for field, kind in fields.items():
        if not _NAME.fullmatch(field):
            raise ValueError(f"{field!r} is no name in Avro: letters, digits and _ alone")
        parts.append({"name": field, "type": _nullable(kind, f"{name}_{field}"), "default": None})
    return {"type": "record", "name": name, "fields": parts}


def _nullable(kind: pa.DataType, name: str) -> Any:
    stored = _stored(kind, name)
    return "null" if stored == "null" else ["null", stored]


def _stored(kind: pa.DataType, name: str) -> Any:
    if kind in _SIMPLE:
        return _SIMPLE[kind]
    if pa.types.is_dictionary(kind):
        return _stored(kind.value_type, name)
    if pa.types.is_timestamp(kind):
        prefix = "timestamp" if kind.tz is not None else "local-timestamp"
        return {"type": "long", "logicalType": f"{prefix}-{_TIMESTAMPS[kind.unit]}"}
    if pa.types.is_decimal(kind):
        return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return {"type": "array", "items": _nullable(kind.value_type, name)}
    if pa.types.is_map(kind) and pa.types.is_string(kind.key_type):
        return {"type": "map", "values": _nullable(kind.item_type, name)}
    if pa.types.is_struct(kind):
        return avro_record({field.name: field.type for field in kind}, name)
    raise ValueError


def check_compression(compression: str) -> None:
    """Whether files can be written with the compression here.

    Args:
        compression: a key of `_CODECS`.

    Raises:
        ConfigurationError: fastavro is missing, or what it needs for the compression.
    """
    load_library("fastavro", _EXTRA, _FORM)
    from fastavro.write import Writer

    codec = _CODECS[compression]
    try:
        # It looks for the codec's library no sooner than it writes a block.
        probe = Writer(io.BytesIO(), "null", codec=codec)
        probe.write(None)
        probe.flush()
    except ValueError as error:
        raise ConfigurationError(
            f"file sink: Avro with compression {compression!r} needs a library that is not installed ({error}): "
            f"pip install 'fastavro[{codec}]', on every node, or choose another compression"
        ) from error


class AvroFile:
    """A container file that is being written.

    Args:
        file: where to.
        schema: the columns.
        compression: a key of `_CODECS`.

    Raises:
        ConfigurationError: fastavro is missing, or what it needs for the compression.
    """

    def __init__(self, file: BinaryIO, schema: pa.Schema, compression: str) -> None:
        check_compression(compression)
        from fastavro.write import Writer

        self._names = schema.names
        record = avro_record({field.name: field.type for field in schema}, "row")
        types = avro_types(record, _FORM)
        self._stored = [physical(nullable(field.type)) for field in types.columns]
        self._logical = [nullable(field.type) for field in types.columns]
        self._writer = Writer(file, record, codec=_CODECS[compression])

    def write(self, rows: pa.RecordBatch) -> None:
        """Add rows.

        Raises:
            pa.ArrowInvalid, ValueError, OverflowError: Avro cannot hold a value.
        """
        columns = [
            column.cast(logical).cast(stored)
            for column, logical, stored in zip(rows.columns, self._logical, self._stored, strict=True)
        ]
        stored_rows = pa.RecordBatch.from_arrays(columns, names=self._names)
        for row in stored_rows.to_pylist(maps_as_pydicts="strict"):
            self._writer.write(row)

    def flush(self) -> None:
        """Write what is left."""
        self._writer.flush()


def infer_avro_schema(path: str) -> pa.Schema:
    """The columns in the file's header.

    Raises:
        RecordError: no Avro file, or a type that no column can have.
    """
    _, types = _open(path)
    return plain_schema(pa.schema([(field.name, nullable(field.type)) for field in types.columns]), f"files: {path}")


def avro_chunks(path: str, columns: Columns, row: int = 0) -> Chunks:
    """The rows of the file from number `row` (from 0) on, at most 16,384 at a time.

    Raises:
        RecordError: unreadable, a column is missing or new, or a value does not fit the source's type.
    """
    blocks, types = _open(path)
    columns.check(path, types.columns.names)
    from fastavro import parse_schema, schemaless_reader

    parsed = parse_schema(types.physical)
    first, skip = 0, row
    rows: list[dict[str, Any]] = []
    while True:
        with reading(path), _decoding(path, first):
            block = next(blocks, None)
            if block is None:
                break
            if skip >= block.num_records:
                skip -= block.num_records
                first += block.num_records
                continue
            decoded: list[Any] = [schemaless_reader(block.bytes_, parsed) for _ in range(block.num_records)]
        first += block.num_records
        rows += decoded[skip:]
        skip = 0
        if len(rows) >= _CHUNK_ROWS:
            yield from _batches(path, rows, types, columns)
            rows = []
    yield from _batches(path, rows, types, columns)


def _open(path: str) -> tuple[Any, AvroTypes]:
    fastavro = load_library("fastavro", _EXTRA, _FORM)
    with reading(path), _decoding(path, 0):
        blocks = fastavro.block_reader(open_file(path))
        header = json.loads(blocks.metadata["avro.schema"])
    try:
        return blocks, avro_types(header, f"files: {path}")
    except ConfigurationError as error:
        raise RecordError(str(error)) from error


@contextlib.contextmanager
def _decoding(path: str, first: int) -> Iterator[None]:
    """Turns what fastavro raises, errors of all kinds, into a `RecordError` that names the file and the block."""
    try:
        yield
    except (OSError, RecordError):
        raise
    except Exception as error:
        raise RecordError(
            f"{path}: the rows from number {first + 1} on are no Avro: {error or type(error).__name__}; check that the "
            "file is whole and an Avro object container file"
        ) from error


def _batches(path: str, rows: list[dict[str, Any]], types: AvroTypes, columns: Columns) -> Chunks:
    by_name = {field.name: nullable(field.type) for field in types.columns}
    for start in range(0, len(rows), _CHUNK_ROWS):
        part = rows[start : start + _CHUNK_ROWS]
        arrays = []
        for field in columns.schema:
            kind = by_name[field.name]
            try:
                array = pa.array([row[field.name] for row in part], physical(kind)).cast(kind)
                arrays.append(array.cast(field.type))
            except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
                raise RecordError(
                    f"{path}, column {field.name!r}: {kind} cannot become {field.type} ({error}); {columns.remedy}"
                ) from error
        yield pa.RecordBatch.from_arrays(arrays, schema=columns.schema)
