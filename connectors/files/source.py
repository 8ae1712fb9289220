"""The file source: which files, of which format, with which columns.

Programs build one by `FileSource.of`; the engine asks it for splits and opens a reader for each. Everything
about it is
fixed when it is built: the list of files, the columns and their types.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

import pyarrow as pa

from penstock.connectors.files.csv_reader import check_csv_types, csv_chunks, infer_csv_schema
from penstock.connectors.files.formats import FileFormat, compression_of, detect_format, parse_format
from penstock.connectors.files.json_reader import check_json_types, infer_json_schema, json_chunks
from penstock.connectors.files.parquet_reader import count_row_groups, infer_parquet_schema, parquet_chunks
from penstock.connectors.files.readers import ChunkedReader, Chunks, Columns
from penstock.connectors.positions import row_of
from penstock.engine.connectors import ConnectorContext, Position, Source, SourceReader, Split
from penstock.engine.errors import ConfigurationError
from penstock.engine.schemas import SchemaLike, parse_schema

FilePath: TypeAlias = "str | os.PathLike[str]"


@dataclass(frozen=True, slots=True)
class FileSplit:
    """A file, or one row group of a Parquet file."""

    path: str
    row_group: int | None = None

    @property
    def split_id(self) -> str:
        return self.path if self.row_group is None else f"{self.path}#{self.row_group}"


class FileSource(Source):
    """Reads files that are there when the program is built. Built by `FileSource.of`.

    CSV and JSON lines are read in one split a file, Parquet in one a row group. The paths must mean the same
    files on every node.
    """

    def __init__(
        self, paths: Sequence[str], file_format: FileFormat, columns: Columns, null_values: tuple[str, ...]
    ) -> None:
        self._paths = tuple(paths)
        self._format = file_format
        self._columns = columns
        self._null_values = null_values

    @classmethod
    def of(
        cls,
        paths: FilePath | Sequence[FilePath],
        format: Literal["parquet", "csv", "json"] | None = None,  # noqa: A002 - the word users look for
        schema: SchemaLike | None = None,
        null_values: Sequence[str] = ("",),
    ) -> FileSource:
        """A source of all rows of the files.

        Args:
            paths: files, directories (their files whose names do not start with `.` or `_`) or glob patterns
                (`**` for any depth); the files of each are read in the order of their names.
            format: of all files; None to tell it from their suffixes (`.parquet`, `.csv`, `.json`, `.jsonl`).
                A second suffix tells the compression of CSV and JSON lines: `.gz`, `.bz2`, `.zst`.
            schema: the columns to read, with their types (as in `penstock.engine.schemas.parse_type`);
                others are ignored. None to infer them: from the footer of the first Parquet file, or from the
                first 2 MiB of the first CSV or JSON lines file with rows. After that, a column or value that
                does not fit is an error.
            null_values: CSV only: the unquoted texts that mean null; other formats have their own.

        Raises:
            ConfigurationError: no file, formats that differ or cannot be told, a type that the format cannot
                give, or nothing to infer the schema from.
            RecordError: the file to infer the schema from cannot be read.

        Example:
            >>> FileSource.of("flights/*.csv.gz", schema={"carrier": "string", "delay": "int64"})
        """
        files = _find_files(paths)
        file_format = _common_format(files) if format is None else parse_format(format, "files")
        if file_format is FileFormat.PARQUET:
            _refuse_compressed_parquet(files)
        nulls = _check_null_values(null_values)
        if schema is None:
            columns = Columns(_infer(files, file_format, nulls), declared=False)
        else:
            columns = Columns(parse_schema(schema, "files"), declared=True)
        if file_format is FileFormat.CSV:
            check_csv_types(columns.schema)
        elif file_format is FileFormat.JSON:
            check_json_types(columns.schema)
        return cls(files, file_format, columns, nulls)

    @property
    def schema(self) -> pa.Schema:
        return self._columns.schema

    @property
    def paths(self) -> tuple[str, ...]:
        """The absolute paths of the files, in the order in which they are read."""
        return self._paths

    def splits(self, parallelism: int) -> Sequence[FileSplit]:
        if self._format is not FileFormat.PARQUET:
            return [FileSplit(path) for path in self._paths]
        return [FileSplit(path, group) for path in self._paths for group in range(count_row_groups(path))]

    def open(self, split: Split, context: ConnectorContext) -> SourceReader:
        assert isinstance(split, FileSplit)
        return ChunkedReader(self._chunks(split, 0))

    def open_at(self, split: Split, position: Position, context: ConnectorContext) -> SourceReader:
        """Go on at a row: those before it are read again and dropped, without making columns of them where possible."""
        assert isinstance(split, FileSplit)
        row = row_of(position, f"files: split {split.split_id!r}")
        return ChunkedReader(self._chunks(split, row), row)

    def describe(self) -> str:
        first = os.path.basename(self._paths[0])
        more = f" and {len(self._paths) - 1} more" if len(self._paths) > 1 else ""
        return f"files({first}{more}, {self._format.value})"

    def _chunks(self, split: FileSplit, row: int) -> Chunks:
        if split.row_group is not None:
            return parquet_chunks(split.path, split.row_group, self._columns, row)
        if self._format is FileFormat.CSV:
            return csv_chunks(split.path, self._columns, self._null_values, row)
        return json_chunks(split.path, self._columns, row)


def _find_files(paths: FilePath | Sequence[FilePath]) -> list[str]:
    """The absolute paths of all files, each once."""
    given = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    if not given:
        raise ConfigurationError("files: no paths; give at least one file, directory or pattern")
    found: dict[str, None] = {}
    for path in given:
        found.update(dict.fromkeys(_expand(path)))
    return list(found)


def _expand(path: FilePath) -> list[str]:
    if not isinstance(path, (str, os.PathLike)):
        raise ConfigurationError(f"files: a path must be text or a Path, not {path!r}")
    text = os.fspath(path)
    if "://" in text:
        raise ConfigurationError(f"files: {text} is a URL; give the path of a file that every node can open")
    absolute = os.path.abspath(os.path.expanduser(text))
    if os.path.isdir(absolute):
        files = [str(file) for file in Path(absolute).iterdir() if file.is_file() and file.name[0] not in "._"]
    elif os.path.isfile(absolute):
        files = [absolute]
    else:
        files = [match for match in glob.glob(absolute, recursive=True) if os.path.isfile(match)]
    if not files:
        raise ConfigurationError(f"files: {text!r} matches no file (it was looked for as {absolute})")
    return sorted(files)


def _common_format(files: Sequence[str]) -> FileFormat:
    first = detect_format(files[0])
    for path in files[1:]:
        if (other := detect_format(path)) is not first:
            raise ConfigurationError(
                f"files: {files[0]} is {first.value} and {path} is {other.value}; read each format as its own source"
            )
    return first


def _refuse_compressed_parquet(files: Sequence[str]) -> None:
    for path in files:
        if compression_of(path) is not None:
            raise ConfigurationError(
                f"files: {path}: a Parquet file cannot be read through compression; decompress it first"
            )


def _check_null_values(null_values: Sequence[str]) -> tuple[str, ...]:
    if isinstance(null_values, str) or not all(isinstance(text, str) for text in null_values):
        raise ConfigurationError(f"files: null_values must be a list of texts, not {null_values!r}")
    return tuple(null_values)


def _infer(files: Sequence[str], file_format: FileFormat, null_values: tuple[str, ...]) -> pa.Schema:
    if file_format is FileFormat.PARQUET:
        return infer_parquet_schema(files[0])
    for path in files:
        is_csv = file_format is FileFormat.CSV
        schema = infer_csv_schema(path, null_values) if is_csv else infer_json_schema(path)
        if schema is not None:
            return schema
    raise ConfigurationError(
        f"files: {files[0]}{' and all others' if len(files) > 1 else ''} have no rows to infer the columns "
        "from; declare `schema`"
    )
