"""The file formats, and how a file's name tells its format and its compression.

Called by the file source where it is built, and by its readers where they open a file, on a disk or in a bucket. What
a file is follows from its name alone.
"""

from __future__ import annotations

import enum
from pathlib import PurePath
from typing import Final

import pyarrow as pa

from penstock.connectors.files.object_store import is_url
from penstock.engine.errors import ConfigurationError


class FileFormat(enum.Enum):
    """A format that files are read and written in; the value is its name and the suffix of written files."""

    PARQUET = "parquet"
    CSV = "csv"
    JSON = "json"
    """JSON lines: one object a line."""
    AVRO = "avro"
    """Avro object container files."""


_SUFFIXES: Final = {
    ".parquet": FileFormat.PARQUET,
    ".pq": FileFormat.PARQUET,
    ".csv": FileFormat.CSV,
    ".json": FileFormat.JSON,
    ".jsonl": FileFormat.JSON,
    ".ndjson": FileFormat.JSON,
    ".avro": FileFormat.AVRO,
}
_COMPRESSIONS: Final = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}


def parse_format(name: str, where: str) -> FileFormat:
    """The format called `name`.

    Raises:
        ConfigurationError: no such format.
    """
    try:
        return FileFormat(name)
    except ValueError:
        raise ConfigurationError(
            f"{where}: no format {name!r}; choose {', '.join(repr(known.value) for known in FileFormat)}"
        ) from None


def detect_format(path: str) -> FileFormat:
    """The format that the file's name shows: `flights.csv.gz` is CSV.

    Raises:
        ConfigurationError: the name shows none.
    """
    suffixes = [suffix.lower() for suffix in PurePath(path).suffixes]
    if suffixes and suffixes[-1] in _COMPRESSIONS:
        suffixes.pop()
    if not suffixes or suffixes[-1] not in _SUFFIXES:
        raise ConfigurationError(
            f"files: the name of {path} does not tell its format (known: {', '.join(_SUFFIXES)}, each also "
            f"with {', '.join(_COMPRESSIONS)}); pass format='csv', 'json', 'parquet' or 'avro'"
        )
    return _SUFFIXES[suffixes[-1]]


def compression_of(path: str) -> str | None:
    """Arrow's name of the compression that the file's suffix shows, or None for a plain file."""
    return _COMPRESSIONS.get(PurePath(path).suffix.lower())


def suffix_of_compression(name: str) -> str:
    """The suffix of files with that compression, in Arrow's name; empty for none."""
    return next((suffix for suffix, compression in _COMPRESSIONS.items() if compression == name), "")


def open_file(path: str) -> pa.NativeFile:
    """The file's bytes as they are, which can be read from anywhere in it.

    Args:
        path: of a file of this machine, or the URL of an object.

    Raises:
        OSError: the file cannot be opened.
    """
    if is_url(path):
        from penstock.connectors.files.bucket_reader import open_object

        return open_object(path)
    return pa.OSFile(path, "rb")


def open_stream(path: str) -> pa.NativeFile:
    """The file's bytes, decompressed as its suffix says.

    Raises:
        OSError: the file cannot be opened.
    """
    if is_url(path):
        file, compression = open_file(path), compression_of(path)
        return file if compression is None else pa.CompressedInputStream(file, compression)
    return pa.input_stream(path, compression=compression_of(path))
