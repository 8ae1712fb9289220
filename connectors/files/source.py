"""The file source: which files, of which format, with which columns.

Programs build one by `FileSource.of`; the engine asks it for splits and opens a reader for each. The columns and their
types are fixed when it is built, and so is the list of files, unless the directory is watched (`watching.py`).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, overload

import pyarrow as pa

from penstock.connectors.files.csv_form import CsvForm
from penstock.connectors.files.file_reading import FileReading
from penstock.connectors.files.formats import FileFormat
from penstock.connectors.files.listing import FilePath, find_paths, is_pattern, places_of
from penstock.connectors.files.object_store import dataset_of, is_url
from penstock.connectors.files.parquet_reader import coded_texts, columns_of, count_row_groups
from penstock.connectors.files.readers import BadRecords, ChunkedReader
from penstock.connectors.files.watching import Watch, WatchedFiles
from penstock.connectors.files.wording import Wording
from penstock.engine.connectors import (
    ConnectorContext,
    Dataset,
    ParquetFiles,
    Position,
    Source,
    SourceReader,
    Split,
    row_of,
)
from penstock.engine.durations import Duration, parse_duration
from penstock.engine.errors import ConfigurationError, RecordError
from penstock.engine.schemas import SchemaLike, without_dictionaries

__all__ = ["FilePath", "FileSource", "FileSplit"]

_REMEMBERED: Final = "7d"
Format = Literal["parquet", "csv", "json", "avro"]


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

    CSV, JSON lines and Avro are read in one split a file, Parquet in one a row group. The paths must mean the same
    files on every node. Objects of a bucket are read as files are; credentials, region and end point come from the
    environment (`AWS_...`, `GOOGLE_...`, `AZURE_...`) on every node.
    """

    def __init__(self, paths: Sequence[str], files: FileReading) -> None:
        if not isinstance(files, FileReading):
            raise ConfigurationError("FileSource: FileSource.of builds it, as in FileSource.of('flights/*.csv', 'csv')")
        self._paths = tuple(paths)
        self._files = files

    @overload
    @classmethod
    def of(
        cls,
        paths: FilePath | Sequence[FilePath],
        format: Format | None = None,
        schema: SchemaLike | None = None,
        null_values: Sequence[str] = ("",),
        *,
        delimiter: str = ",",
        quote: str | None = '"',
        escape: str | None = None,
        header: bool = True,
        bad_records: BadRecords = "fail",
    ) -> FileSource: ...

    @overload
    @classmethod
    def of(
        cls,
        paths: FilePath | Sequence[FilePath],
        format: Format | None = None,
        schema: SchemaLike | None = None,
        null_values: Sequence[str] = ("",),
        *,
        delimiter: str = ",",
        quote: str | None = '"',
        escape: str | None = None,
        header: bool = True,
        bad_records: BadRecords = "fail",
        monitor: Duration,
        readers: int = 1,
        remember: Duration = _REMEMBERED,
    ) -> WatchedFiles: ...

    @classmethod
    def of(
        cls,
        paths: FilePath | Sequence[FilePath],
        format: Format | None = None,  # noqa: A002 - the word users look for
        schema: SchemaLike | None = None,
        null_values: Sequence[str] = ("",),
        *,
        delimiter: str = ",",
        quote: str | None = '"',
        escape: str | None = None,
        header: bool = True,
        bad_records: BadRecords = "fail",
        monitor: Duration | None = None,
        readers: int = 1,
        remember: Duration = _REMEMBERED,
    ) -> FileSource | WatchedFiles:
        """A source of all rows of the files, of those that are there or, with `monitor`, also of those that come.

        With `monitor` the source has no end. Each file is read once, also after a failure and at another parallelism,
        in the order of their last changes. A file is left alone while its name begins with `.` or `_` (in patterns:
        with `.`), or while it changes: it is read once two looks have found it the same, so it is best written under a
        hidden name and renamed. An object in a bucket is whole as soon as it is there. A file that has been read must
        not be changed; if it is, it is not read again. Files that were changed last more than `remember` before the
        newest that was read are ignored, so that the list of files that were read, which is in each checkpoint, does
        not grow for ever.

        Args:
            paths: files, directories (their files whose names do not start with `.` or `_`) or glob patterns
                (`**` for any depth), also as URLs (`s3://bucket/folder/*.csv`, `gs://...`, `az://...`); the files of
                each are read in the order of their names.
            format: of all files; None to tell it from their suffixes (`.parquet`, `.csv`, `.json`, `.jsonl`, `.avro`).
                A second suffix tells the compression of CSV and JSON lines: `.gz`, `.bz2`, `.zst`.
            schema: the columns to read, with their types (as in `penstock.engine.schemas.parse_type`);
                others are ignored. None to infer them: from the footer or header of the first Parquet or Avro file, or
                from the first 2 MiB of the first CSV or JSON lines file with rows. After that, a column or value that
                does not fit is an error.
            null_values: CSV only: the unquoted texts that mean null; other formats have their own.
            delimiter: CSV only: the character between fields, such as `";"` or `"\\t"`.
            quote: CSV only: the character around fields, which is doubled within; None where there are none.
            escape: CSV only: the character before one that is meant as it is, such as a backslash; None: there is none.
            header: CSV only: whether the first line names the columns. False where it is a row: `schema` then names
                the columns, all of them, in their order.
            bad_records: CSV and JSON lines only, of which `schema` must be given: `"fail"` to fail the job with file
                and row; `"keep"` to give a row that does not fit as one of nulls with two more columns: `error`
                (string, null for good rows: file, row, column and what is wrong) and `raw` (binary, null for good
                rows: the line, of CSV the fields of the row). A filter sends them elsewhere, or drops them. With
                watermarks at the source, they have no event time, and hold nothing up. A file without the header or
                the columns of `schema` fails the job all the same.
            monitor: how often to look for new files; None to read those that are there and end.
            readers: with `monitor`, how many readers share the files, by hash of their paths; the most subtasks that
                can take part. Must stay the same when the job resumes from a savepoint. Each has its own watermark:
                with more than one, give the watermark strategy an idleness, since one may have no files.
            remember: with `monitor`, how long files that were read are known.

        Raises:
            ConfigurationError: no file, formats that differ or cannot be told, a type that the format cannot
                give, nothing to infer the schema from, or a bucket that cannot be read.
            RecordError: the file to infer the schema from cannot be read.

        Example:
            >>> FileSource.of("flights/*.csv.gz", schema={"carrier": "string", "delay": "int64"})
            >>> FileSource.of("s3://lake/orders", "json", schema={"id": "int64"}, monitor="10s")
            >>> FileSource.of("umsatz.csv", schema={"datum": "date32", "euro": "string"}, delimiter=";", header=False)
        """
        form = CsvForm(delimiter, quote, escape, header, null_values)
        places = places_of(paths)
        if monitor is None:
            files = _existing_files(places)
            return cls(files, FileReading.of(files, format, schema, form, bad_records))
        watch = _watch_of(places, monitor, readers, remember)
        reading = FileReading.of(_watched_files(places), format, schema, form, bad_records)
        return WatchedFiles(watch, reading)

    def worded(self, wording: Wording) -> FileSource:
        """The same source, with other words in its messages."""
        return FileSource(self._paths, self._files.worded(wording))

    @property
    def schema(self) -> pa.Schema:
        return self._files.schema

    @property
    def error_column(self) -> str | None:
        return self._files.error_column

    @property
    def paths(self) -> tuple[str, ...]:
        """The absolute paths of the files, in the order in which they are read."""
        return self._paths

    def splits(self, parallelism: int) -> Sequence[FileSplit]:
        if self._files.format is not FileFormat.PARQUET:
            return [FileSplit(path) for path in self._paths]
        try:
            return [FileSplit(path, group) for path in self._paths for group in range(count_row_groups(path))]
        except RecordError as error:
            raise self._files.columns.wording.of(error) from error

    def open(self, split: Split, context: ConnectorContext) -> SourceReader:
        assert isinstance(split, FileSplit)
        return ChunkedReader(self._files.chunks(split.path, 0, split.row_group))

    def open_at(self, split: Split, position: Position, context: ConnectorContext) -> SourceReader:
        """Resume at a row: those before it are read again and dropped, if possible without making columns of them."""
        assert isinstance(split, FileSplit)
        row = row_of(position, f"files: split {split.split_id!r}")
        return ChunkedReader(self._files.chunks(split.path, row, split.row_group), row)

    def as_parquet(self) -> ParquetFiles | None:
        if self._files.format is not FileFormat.PARQUET or any(map(is_url, self._paths)):
            return None
        wanted = {field.name: field.type for field in without_dictionaries(self.schema)}
        for path in self._paths:
            present = columns_of(path)
            # What is cast, missing or too much is left to our own reader, which names the file.
            if present is None or not wanted.items() <= present.items():
                return None
            if len(present) > len(wanted) and not self._files.columns.declared:
                return None
        return ParquetFiles(self._paths)

    def with_dictionaries(self) -> FileSource:
        """This source, with those texts as dictionaries that its first file has so; files of Parquet alone do."""
        if self._files.format is not FileFormat.PARQUET:
            return self
        texts = {field.name for field in self.schema if pa.types.is_string(field.type)}
        coded = texts & coded_texts(self._paths[0]) if texts else texts
        return FileSource(self._paths, self._files.with_dictionaries(coded)) if coded else self

    @property
    def datasets(self) -> Sequence[Dataset]:
        if len(self._paths) == 1:
            return (dataset_of(self._paths[0]),)
        return [dataset_of(folder) for folder in dict.fromkeys(map(os.path.dirname, self._paths))]

    def describe(self) -> str:
        first = os.path.basename(self._paths[0])
        more = f" and {len(self._paths) - 1} more" if len(self._paths) > 1 else ""
        return f"files({first}{more}, {self._files.format.value})"


def _existing_files(places: Mapping[str, str]) -> list[str]:
    """The absolute paths of all files, each once."""
    found: dict[str, None] = {}
    for place, given in places.items():
        files = _listed(place)
        if not files and not (is_url(place) or is_pattern(place) or os.path.isdir(place)):
            raise ConfigurationError(f"files: {given!r} is not there (it was looked for as {place})")
        if not files:
            raise ConfigurationError(
                f"files: {given!r} matches no file (it was looked for as {place}); of a folder, those in its own "
                "folders are not read: give a pattern for them, such as 'folder/**/*.parquet'"
            )
        found.update(dict.fromkeys(files))
    return list(found)


def _watched_files(places: Iterable[str]) -> list[str]:
    """The files that are there already, which may be none."""
    found: list[str] = []
    for place in places:
        if not (is_url(place) or is_pattern(place) or os.path.exists(place)):
            raise ConfigurationError(f"files: {place} is not there to be watched; create the directory before the job")
        found += _listed(place)
    return found


def _listed(place: str) -> list[str]:
    try:
        return find_paths(place)
    except OSError as error:
        raise ConfigurationError(f"files: {place} cannot be listed: {error}") from error


def _watch_of(places: Iterable[str], monitor: Duration, readers: int, remember: Duration) -> Watch:
    every = parse_duration(monitor, "files: monitor")
    if every < 1:
        raise ConfigurationError("files: monitor must be at least a millisecond, such as '10s'")
    if isinstance(readers, bool) or not isinstance(readers, int) or readers < 1:
        raise ConfigurationError(f"files: readers must be a number of at least 1, not {readers!r}")
    return Watch(tuple(places), every, readers, parse_duration(remember, "files: remember"))
