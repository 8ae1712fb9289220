"""What the readers of all formats share: batches of the right size, column checks, and errors with the file.

Each format is a generator of record batches of any size that holds its file open; `ChunkedReader` turns such
a generator into the engine's reader. A generator keeps one block of the file in memory, never the whole file.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import pyarrow as pa

from penstock.connectors.files.wording import OF_PROGRAMS, Wording
from penstock.connectors.records.kept import KEPT_FIELDS
from penstock.engine.connectors import Position, SourceReader, row_position
from penstock.engine.errors import FileColumnsError, RecordError, nearest

BLOCK_BYTES: Final = 2 * 1024 * 1024
"""How much of a text file is read and parsed at once; a longer record makes its own block larger."""
LARGEST_RECORD_BYTES: Final = 1024 * 1024 * 1024

BadRecords: TypeAlias = Literal["fail", "keep"]
"""What becomes of a row that does not fit: an error, or a row of its own with what is wrong (`records.kept`)."""
Chunks: TypeAlias = Generator[pa.RecordBatch, None, None]


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns that a source reads from each of its files.

    Args:
        schema: their names and types.
        declared: whether the user declared them; otherwise they were inferred from the first file, and a
            column that the first file did not have is an error rather than ignored.
        wording: of messages.
    """

    schema: pa.Schema
    declared: bool
    wording: Wording = OF_PROGRAMS

    def check(self, path: str, present: Sequence[str]) -> None:
        """Whether a file with the columns `present` can be read.

        Raises:
            FileColumnsError: a column is missing, occurs twice, or is new in a source whose schema was inferred.
        """
        for name in self.schema.names:
            if name not in present:
                raise FileColumnsError(
                    f"{path}: no column {name!r}{nearest(name, present)}; the file has "
                    f"{', '.join(map(repr, present)) or 'no columns'}. {self.wording.columns}"
                )
            if present.count(name) > 1:
                raise FileColumnsError(f"{path}: column {name!r} occurs twice; rename one of them")
        unknown = [name for name in present if name not in self.schema.names]
        if unknown and not self.declared:
            raise FileColumnsError(
                f"{path}: column {unknown[0]!r} is not in the schema inferred from the first file; "
                "declare `schema`, with the column to read it or without to ignore it"
            )

    @property
    def kept_schema(self) -> pa.Schema:
        """The columns where bad rows are kept: those of what is wrong stand behind these."""
        return pa.schema([*self.schema, *KEPT_FIELDS])

    @property
    def remedy(self) -> str:
        """What to do about a value that does not fit its column."""
        if self.declared:
            return "correct the value, or declare another type for the column"
        return "the type was inferred from the beginning of the first file: declare `schema` if it is too narrow"


class ChunkedReader(SourceReader):
    """Cuts the chunks of a generator into batches, without copying.

    Args:
        chunks: the rows of the split from number `row` on.
        row: how many rows were read before.
    """

    def __init__(self, chunks: Chunks, row: int = 0) -> None:
        self._chunks = chunks
        self._row = row
        self._chunk: pa.RecordBatch | None = None
        self._offset = 0

    def next_batch(self, max_rows: int) -> pa.RecordBatch | None:
        while self._chunk is None or self._offset == self._chunk.num_rows:
            # The old chunk is let go before the next one is made: one at a time is in memory.
            self._chunk, self._offset = None, 0
            self._chunk = next(self._chunks, None)
            if self._chunk is None:
                return None
        batch = self._chunk.slice(self._offset, max_rows)
        self._offset += batch.num_rows
        self._row += batch.num_rows
        return batch

    def position(self) -> Position:
        return row_position(self._row)

    def close(self) -> None:
        self._chunks.close()
        self._chunk = None


@contextlib.contextmanager
def reading(path: str) -> Iterator[None]:
    """Turns what Arrow and the system raise on an unreadable file into a `RecordError` that names it."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise RecordError(
            f"{path}: cannot be read: {str(error).rstrip('.')}. Check that the file is whole, of the right format and "
            "compression, and readable from every node"
        ) from error


def widen_inferred(schema: pa.Schema) -> pa.Schema:
    """The inferred columns with the types that later rows are likely to need.

    A column of nulls becomes text, and whole seconds become milliseconds.
    """
    return pa.schema([(field.name, _widen(field.type)) for field in schema])


def _widen(inferred: pa.DataType) -> pa.DataType:
    if pa.types.is_null(inferred):
        return pa.string()
    if pa.types.is_timestamp(inferred) and inferred.unit == "s":
        return pa.timestamp("ms", tz=inferred.tz)
    if pa.types.is_list(inferred):
        return pa.list_(_widen(inferred.value_type))
    if pa.types.is_struct(inferred):
        return pa.struct([(inferred[i].name, _widen(inferred[i].type)) for i in range(inferred.num_fields)])
    return inferred
