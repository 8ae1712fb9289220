"""How the files of a source are read: format, columns and the form of CSV, the same for all of them.

`source.py` and `watching.py` hold one `FileReading`, which opens a file at a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import get_args

import pyarrow as pa

from penstock.connectors.files.avro_files import avro_chunks, infer_avro_schema
from penstock.connectors.files.csv_form import CsvForm
from penstock.connectors.files.csv_reader import check_csv_types, infer_csv_schema
from penstock.connectors.files.formats import FileFormat, compression_of, detect_format, parse_format
from penstock.connectors.files.json_reader import check_json_types, infer_json_schema, json_chunks
from penstock.connectors.files.kept_csv import kept_csv_chunks, strict_csv_chunks
from penstock.connectors.files.parquet_reader import infer_parquet_schema, parquet_chunks, whole_parquet_chunks
from penstock.connectors.files.readers import BadRecords, Chunks, Columns
from penstock.connectors.files.wording import Wording
from penstock.connectors.records.kept import ERROR_COLUMN, RAW_COLUMN
from penstock.engine.errors import ConfigurationError
from penstock.engine.schemas import SchemaLike, parse_schema


@dataclass(frozen=True, slots=True)
class FileReading:
    """Reads files of one format and with the same columns.

    Args:
        format: of all files.
        columns: what is read of each.
        form: of CSV.
        bad_records: what becomes of rows that do not fit.
    """

    format: FileFormat
    columns: Columns
    form: CsvForm
    bad_records: BadRecords = "fail"

    @classmethod
    def of(
        cls,
        files: Sequence[str],
        file_format: str | None,
        schema: SchemaLike | None,
        form: CsvForm,
        bad_records: BadRecords = "fail",
    ) -> FileReading:
        """How to read `files`, whose format and columns are found out where they are not given.

        Raises:
            ConfigurationError: formats differ or cannot be told, a type that the format cannot give, nothing to
                infer the columns from, or bad rows that cannot be kept.
            RecordError: the file to infer the columns from cannot be read.
        """
        known = _common_format(files) if file_format is None else parse_format(file_format, "files")
        if known in (FileFormat.PARQUET, FileFormat.AVRO):
            _refuse_compressed(files, known)
        _check_form(form, known, schema)
        _check_bad_records(bad_records, known, schema)
        if schema is None:
            columns = Columns(_infer(files, known, form), declared=False)
        else:
            columns = Columns(parse_schema(schema, "files"), declared=True)
        if known is FileFormat.CSV:
            check_csv_types(columns.schema)
        elif known is FileFormat.JSON:
            check_json_types(columns.schema)
        if bad_records == "keep":
            _check_further(columns)
        return cls(known, columns, form, bad_records)

    def with_dictionaries(self, names: AbstractSet[str]) -> FileReading:
        """As this, but with these columns, which are texts, as dictionaries of int32."""
        coded = pa.dictionary(pa.int32(), pa.string())
        fields = [field.with_type(coded) if field.name in names else field for field in self.columns.schema]
        return replace(self, columns=replace(self.columns, schema=pa.schema(fields)))

    @property
    def schema(self) -> pa.Schema:
        """The columns of the rows."""
        return self.columns.kept_schema if self.bad_records == "keep" else self.columns.schema

    @property
    def error_column(self) -> str | None:
        """The column that says what is wrong with a row; None where bad ones are not kept."""
        return ERROR_COLUMN if self.bad_records == "keep" else None

    def worded(self, wording: Wording) -> FileReading:
        """The same, with other words in its messages."""
        return replace(self, columns=replace(self.columns, wording=wording))

    def chunks(self, path: str, row: int, row_group: int | None = None) -> Chunks:
        """The rows of a file, or of one row group of a Parquet file, from number `row` (from 0) on."""
        chunks, wording = self._chunks(path, row, row_group), self.columns.wording
        return wording.placed(chunks) if wording.owner else chunks

    def _chunks(self, path: str, row: int, row_group: int | None) -> Chunks:
        match self.format:
            case FileFormat.CSV if self.bad_records == "keep":
                return kept_csv_chunks(path, self.columns, self.form, row)
            case FileFormat.CSV:
                return strict_csv_chunks(path, self.columns, self.form, row)
            case FileFormat.JSON:
                return json_chunks(path, self.columns, row, self.bad_records)
            case FileFormat.AVRO:
                return avro_chunks(path, self.columns, row)
            case FileFormat.PARQUET if row_group is not None:
                return parquet_chunks(path, row_group, self.columns, row)
            case _:
                return whole_parquet_chunks(path, self.columns, row)


def _common_format(files: Sequence[str]) -> FileFormat:
    if not files:
        raise ConfigurationError("files: no file is there that could tell the format; pass `format` and `schema`")
    first = detect_format(files[0])
    for path in files[1:]:
        if (other := detect_format(path)) is not first:
            raise ConfigurationError(
                f"files: {files[0]} is {first.value} and {path} is {other.value}; read each format as its own source"
            )
    return first


def _refuse_compressed(files: Sequence[str], file_format: FileFormat) -> None:
    name = "a Parquet" if file_format is FileFormat.PARQUET else "an Avro"
    for path in files:
        if compression_of(path) is not None:
            raise ConfigurationError(
                f"files: {path}: {name} file cannot be read through compression; decompress it first"
            )


def _check_form(form: CsvForm, file_format: FileFormat, schema: SchemaLike | None) -> None:
    if file_format is not FileFormat.CSV:
        if replace(form, null_values=()) != CsvForm(null_values=()):
            raise ConfigurationError(
                f"files: delimiter, quote, escape and header are of CSV; {file_format.value} has none: leave them out"
            )
    elif not form.header and schema is None:
        raise ConfigurationError("files: header=False needs `schema`, which names the columns in their order")


def _check_bad_records(bad_records: str, file_format: FileFormat, schema: SchemaLike | None) -> None:
    if bad_records not in get_args(BadRecords):
        raise ConfigurationError(f"files: bad_records must be 'fail' or 'keep', not {bad_records!r}")
    if bad_records == "fail":
        return
    if file_format not in (FileFormat.CSV, FileFormat.JSON):
        raise ConfigurationError(f"files: bad_records='keep' is for CSV and JSON lines; {file_format.value} has none")
    if schema is None:
        raise ConfigurationError("files: bad_records='keep' needs `schema`: its types tell which rows are bad")


def _check_further(columns: Columns) -> None:
    if taken := [name for name in (ERROR_COLUMN, RAW_COLUMN) if name in columns.schema.names]:
        raise ConfigurationError(
            f"files: bad_records='keep' adds a column {taken[0]!r}, which `schema` has already; leave it out there"
        )


def _infer(files: Sequence[str], file_format: FileFormat, form: CsvForm) -> pa.Schema:
    if not files:
        raise ConfigurationError("files: no file is there to infer the columns from; declare `schema`")
    if file_format is FileFormat.PARQUET:
        return infer_parquet_schema(files[0])
    if file_format is FileFormat.AVRO:
        return infer_avro_schema(files[0])
    for path in files:
        is_csv = file_format is FileFormat.CSV
        schema = infer_csv_schema(path, form) if is_csv else infer_json_schema(path)
        if schema is not None:
            return schema
    raise ConfigurationError(
        f"files: {files[0]}{' and all others' if len(files) > 1 else ''} have no rows to infer the columns "
        "from; declare `schema`"
    )
