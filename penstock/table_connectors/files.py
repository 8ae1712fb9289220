"""Tables of files: `filesystem`, with the options of Flink's.

`registry.py` lists it beside the others. Files of a folder are read once, or looked for again and again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, Literal

import pyarrow as pa

from penstock.engine.connectors import LookupTable, Source
from penstock.engine.errors import BadTableRowError
from penstock.table_connectors.formats.options import (
    CSV_DELIMITER,
    FILE_FORMAT_OPTIONS,
    check_own,
    csv_marks,
    element_delimiter,
    leaves_bad_out,
)
from penstock.table_connectors.options import TableOptions
from penstock.tables.catalog.catalog import CatalogTable
from penstock.tables.catalog.connectors import ScannedTable, Stage, WrittenTable
from penstock.tables.catalog.loaded_tables import LoadedTable
from penstock.tables.lower.base import schema_of
from penstock.tables.parse.table_statements import MetadataColumn
from penstock.tables.plan.nodes import INSERT_ONLY, ChangelogMode, Columns

if TYPE_CHECKING:
    from penstock.connectors.files.readers import BadRecords
    from penstock.connectors.files.wording import Wording
    from penstock.table_connectors.formats.mended_rows import RowsOf

FileFormat = Literal["csv", "json", "parquet", "avro"]
_HEADER: Final = "csv.header"
_FORMATS: Final[tuple[FileFormat, ...]] = ("csv", "json", "parquet", "avro")


@dataclass(frozen=True, slots=True)
class FileTable:
    """`filesystem`: files of a folder, CSV, JSON lines, Parquet or Avro."""

    name: str = "filesystem"

    @property
    def options(self) -> Mapping[str, str]:
        return {
            "path": "a file, a folder or a pattern; INSERT INTO writes into a folder",
            "format": f"one of {', '.join(_FORMATS)}",
            "source.monitor-interval": "how often to look for new files; without it, those that are there are read",
            **FILE_FORMAT_OPTIONS,
            _HEADER: "'false': no line with the names of the columns stands before the rows, as in Flink",
        }

    @property
    def choices(self) -> Mapping[str, Sequence[str]]:
        return {"format": _FORMATS}

    def source_mode(self, table: CatalogTable) -> ChangelogMode:
        return INSERT_ONLY

    def sink_mode(self, table: CatalogTable) -> ChangelogMode:
        return INSERT_ONLY

    def bounded(self, table: CatalogTable) -> bool:
        return "source.monitor-interval" not in table.options

    def leaves_out(self, table: CatalogTable) -> bool:
        return table.options.get("format") == "parquet"

    def scan(self, table: CatalogTable, columns: Columns) -> ScannedTable:
        _refuse_metadata(table)
        if table.partitioned_by:
            raise table.source.unsupported(
                table.place_of("connector"),
                "columns of PARTITIONED BY are in the names of folders, which are not read; declare another table of "
                "the same path without them",
            )
        schema = schema_of(columns)
        source, rows = _read(TableOptions(table), schema)
        return ScannedTable(source, stages=() if rows is None else (_stage(rows, schema),))

    def sink(self, table: CatalogTable, columns: Columns) -> WrittenTable:
        from penstock.connectors.files.sink import FileSink

        _refuse_metadata(table)
        options = TableOptions(table)
        path, chosen, parts = options.required("path"), options.choice("format", _FORMATS), table.partitioned_by
        check_own(options, "", chosen)
        delimiter, header = _written(options), _has_header(options)
        schema = schema_of(columns)
        stages = _texts(options, schema) if chosen == "csv" else ()
        with options.placed():
            return WrittenTable(
                FileSink(path, chosen, mode="append", partition_by=parts, delimiter=delimiter, header=header),
                stages,
                overwriting=FileSink(
                    path, chosen, mode="overwrite", partition_by=parts, delimiter=delimiter, header=header
                ),
            )

    def lookup(self, table: CatalogTable, columns: Columns, keys: tuple[str, ...]) -> LookupTable:
        _refuse_metadata(table)
        schema = schema_of(columns)
        source, rows = _read(TableOptions(table), schema)
        return LoadedTable(source, schema, keys, None if rows is None else rows.of)


def _refuse_metadata(table: CatalogTable) -> None:
    for column in table.definition.columns:
        if isinstance(column, MetadataColumn):
            raise table.source.unsupported(
                column.at, f"column {column.name!r}: metadata of files is not supported; declare the table without it"
            )


def _read(options: TableOptions, schema: pa.Schema) -> tuple[Source, RowsOf | None]:
    """The files of a table, and what makes its columns of what they give; None: they give them."""
    path, chosen = options.required("path"), options.choice("format", _FORMATS)
    check_own(options, "", chosen)
    lenient = leaves_bad_out(options, chosen, "")
    bad: BadRecords = "keep" if lenient else "fail"
    with options.placed("path"):
        if chosen == "csv":
            from penstock.table_connectors.formats.mended_rows import CsvRows

            read = pa.schema([(name, pa.string()) for name in schema.names]) if lenient else _as_texts(schema)
            strict = None if lenient else options.table.name
            rows = CsvRows(schema, element_delimiter(options, ""), csv_marks(options, "").null, strict)
            return _source(options, path, chosen, read, bad), rows if lenient or read != schema else None
        source = _source(options, path, chosen, schema, bad)
    if not lenient:
        return source, None
    from penstock.table_connectors.formats.mended_rows import JsonRows

    return source, JsonRows(schema)


def _source(options: TableOptions, path: str, chosen: FileFormat, schema: pa.Schema, bad: BadRecords) -> Source:
    from penstock.connectors.files.source import FileSource

    monitor, marks = options.get("source.monitor-interval"), csv_marks(options, "")
    files = partial(
        FileSource.of,
        path,
        chosen,
        schema,
        tuple(dict.fromkeys(("", marks.null))),
        delimiter=marks.delimiter,
        quote=marks.quote,
        escape=marks.escape,
        header=_has_header(options),
        bad_records=bad,
    )
    source = files() if monitor is None else files(monitor=monitor)
    return source.worded(_wording(options.table))


def _wording(table: CatalogTable) -> Wording:
    from penstock.connectors.files.wording import Wording

    return Wording(
        owner=f"table {table.name!r}: ",
        delimiter=f"'{CSV_DELIMITER}' = '{{}}'",
        no_header=f"'{_HEADER}' = 'false'",
        columns="Columns are found by their names: give them in CREATE TABLE the names that they have in the file",
        foreign_text="",
        bad_row=BadTableRowError,
    )


def _has_header(options: TableOptions) -> bool:
    return options.choice(_HEADER, ("true", "false"), "true") == "true"


def _written(options: TableOptions) -> str:
    """The character between the fields of files that are written, of which the other marks are fixed."""
    marks = csv_marks(options, "")
    for option, is_usual in (
        ("csv.quote-character", marks.quote == '"'),
        ("csv.disable-quote-character", marks.quote is not None),
        ("csv.escape-character", marks.escape is None),
    ):
        if options.get(option) is not None and not is_usual:
            raise options.invalid(
                option, f'files are written with quotes of ", doubled within; {option!r} is for files that are read'
            )
    return marks.delimiter


def _as_texts(schema: pa.Schema) -> pa.Schema:
    """The columns as files of CSV have them: what has parts is a text."""
    from penstock.connectors.records.csv_parts import has_parts

    return pa.schema([field.with_type(pa.string()) if has_parts(field.type) else field for field in schema])


def _texts(options: TableOptions, schema: pa.Schema) -> tuple[Stage, ...]:
    """What makes the columns of files of CSV of a table's, where they are others."""
    texts = _as_texts(schema)
    if texts == schema:
        return ()
    from penstock.table_connectors.formats.mended_rows import CsvTexts

    return (_stage(CsvTexts(element_delimiter(options, "")), texts),)


def _stage(rows: RowsOf, schema: pa.Schema) -> Stage:
    from penstock.table_connectors.formats.mended_rows import MendedRowsSpec

    return Stage(MendedRowsSpec(rows), schema)
