"""Reads one row group of a Parquet file.

The file source calls it with a path and the number of the row group. Columns come with the source's types: a
file whose types differ is cast where no value changes by it, and refused where one would.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.connectors.files.formats import open_file
from penstock.connectors.files.object_store import is_url
from penstock.connectors.files.readers import Chunks, Columns, reading
from penstock.engine.errors import RecordError
from penstock.engine.schemas import plain_schema

_CHUNK_ROWS: Final = 65_536
_BLOCK_BYTES: Final = 1 << 20
_CODED_BYTES: Final = 3
"""Texts that take no more bytes than this each, before compression, are numbers of a dictionary in the file."""


def infer_parquet_schema(path: str) -> pa.Schema:
    """The columns in the file's footer.

    Raises:
        RecordError: no Parquet file.
    """
    with reading(path):
        return plain_schema(pq.read_schema(open_file(path)), f"files: {path}")


def columns_of(path: str) -> dict[str, pa.DataType] | None:
    """The names and types in the file's footer; None where a name is there twice, or the file cannot be read."""
    try:
        schema = pq.read_schema(open_file(path))
    except (pa.ArrowException, OSError):
        return None
    return {field.name: field.type for field in schema} if len(set(schema.names)) == len(schema) else None


def coded_texts(path: str) -> set[str]:
    """The columns of texts that the file has as numbers of a dictionary; none where it cannot be read."""
    try:
        footer = pq.read_metadata(open_file(path))
    except (pa.ArrowException, OSError):
        return set()
    groups = [footer.row_group(group) for group in range(footer.num_row_groups)]
    sizes = Counter(
        {
            footer.schema.column(place).path: sum(group.column(place).total_uncompressed_size for group in groups)
            for place in range(footer.num_columns)
        }
    )
    texts = [field.name for field in footer.schema.to_arrow_schema() if pa.types.is_string(field.type)]
    return {name for name in texts if 0 < sizes[name] <= _CODED_BYTES * footer.num_rows}


def count_row_groups(path: str) -> int:
    """How many row groups the file has; 0 where it has no rows.

    Raises:
        RecordError: no Parquet file.
    """
    with reading(path):
        return int(pq.read_metadata(open_file(path)).num_row_groups)


def whole_parquet_chunks(path: str, columns: Columns, row: int = 0) -> Chunks:
    """The rows of all row groups from number `row` (from 0) on; errors as of `parquet_chunks`."""
    with reading(path):
        footer = pq.read_metadata(open_file(path))
    for group in range(footer.num_row_groups):
        rows = footer.row_group(group).num_rows
        if row < rows:
            yield from parquet_chunks(path, group, columns, row)
        row = max(0, row - rows)


def parquet_chunks(path: str, row_group: int, columns: Columns, row: int = 0) -> Chunks:
    """The rows of row group `row_group` from number `row` (from 0) on, at most 65,536 at a time.

    Raises:
        RecordError: unreadable, a column is missing or new, or a value does not fit the source's type.
    """
    with reading(path), open_file(path) as opened:
        footer = pq.read_metadata(opened)
        present = footer.schema.to_arrow_schema().names
        columns.check(path, present)
        names = columns.schema.names
        coded = [field.name for field in columns.schema if pa.types.is_dictionary(field.type)]
        # Of an object all columns are asked for at once, of a file block by block.
        is_object = is_url(path)
        block = 0 if is_object else _BLOCK_BYTES
        file = pq.ParquetFile(opened, metadata=footer, pre_buffer=is_object, buffer_size=block, read_dictionary=coded)
        batches = file.iter_batches(
            batch_size=_CHUNK_ROWS,
            row_groups=[row_group],
            columns=None if len(names) == len(present) else names,
            use_threads=False,
        )
        skip = row
        for read in batches:
            batch = read.slice(min(skip, read.num_rows))
            skip -= read.num_rows - batch.num_rows
            if not batch.num_rows:
                continue
            arrays = [_cast(path, row_group, batch.column(field.name), field, columns) for field in columns.schema]
            yield pa.RecordBatch.from_arrays(arrays, schema=columns.schema)


def _cast(path: str, row_group: int, array: pa.Array, field: pa.Field, columns: Columns) -> pa.Array:
    if array.type.equals(field.type):
        return array
    coded = pa.types.is_dictionary(field.type)
    kind = field.type.value_type if coded else field.type
    try:
        # Another file may have no texts here, but what becomes one.
        return array.cast(kind).dictionary_encode().cast(field.type) if coded else array.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise RecordError(
            f"{path}, row group {row_group}, column {field.name!r}: {array.type} cannot become {kind} "
            f"({error}); {columns.remedy}"
        ) from error
