"""CSV files of other forms: other characters between and around fields, and no line that names the columns."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.connectors.files.sink import FileSink
from penstock.connectors.files.source import FileSource
from penstock.engine.elements import Batch
from penstock.engine.errors import BadRowError, ConfigurationError, RecordError
from penstock.environment import StreamEnvironment
from tests.connectors.reading import context, read_rows

SCHEMA = {"id": "int64", "name": "string"}
ROWS = [{"id": 1, "name": "ann; or,\tb"}, {"id": 2, "name": None}]


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ('id;name\n1;"ann; or,\tb"\n2;\n', {"delimiter": ";"}),
        ('id\tname\n1\t"ann; or,\tb"\n2\t\n', {"delimiter": "\t"}),
        ('1,"ann; or,\tb"\n2,\n', {"header": False}),
        ("\n1;'ann; or,\tb'\n2;\n", {"delimiter": ";", "quote": "'", "header": False}),
        ("id|name\n1|ann; or,\tb\n2|\n", {"delimiter": "|", "quote": None}),
        ("id,name\n1,ann; or\\,\tb\n2,\n", {"quote": None, "escape": "\\"}),
    ],
)
@pytest.mark.parametrize("bad_records", ["fail", "keep"])
def test_files_are_read_by_their_form(tmp_path: Path, text: str, form: dict[str, Any], bad_records: Any) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text)
    read = read_rows(FileSource.of(path, schema=SCHEMA, bad_records=bad_records, **form))
    assert [{name: row[name] for name in SCHEMA} for row in read] == ROWS
    if form.get("header", True) and bad_records == "fail":
        assert read_rows(FileSource.of(path, **form)) == ROWS


def test_a_stream_of_files_takes_the_form(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("1;a\n2;b\n")
    env = StreamEnvironment(runtime="local", parallelism=1)
    stream = env.from_files(str(path), schema=SCHEMA, delimiter=";", header=False)
    assert list(stream.collect()) == [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]


def test_without_a_header_rows_are_counted_from_the_first_line(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("1;a\nx;b\n3;c;d\n4;e\n")
    form: dict[str, Any] = {"schema": SCHEMA, "delimiter": ";", "header": False}
    with pytest.raises(BadRowError, match=rf"{path}, row 2: column 'id': .*'x'"):
        read_rows(FileSource.of(path, **form))
    kept = read_rows(FileSource.of(path, bad_records="keep", **form))
    assert [(row["id"], row["raw"]) for row in kept] == [(1, None), (None, b"x;b"), (None, b"3;c;d"), (4, None)]
    assert kept[2]["error"] == f"{path}, row 3: it has 3 fields, and the schema 2"


def test_a_file_that_begins_with_a_row_is_told_how_to_read_it(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("1,a\n")
    with pytest.raises(RecordError, match=r"'1', 'a' has none of id, name; header=False reads files without such"):
        read_rows(FileSource.of(path, schema=SCHEMA))


@pytest.mark.parametrize(
    ("name", "form", "problem"),
    [
        ("a.csv", {"delimiter": ";;"}, "delimiter must be one ASCII character"),
        ("a.csv", {"delimiter": "\u2192"}, "delimiter must be one ASCII character"),
        ("a.csv", {"delimiter": 1}, "delimiter must be one ASCII character"),
        ("a.csv", {"delimiter": '"'}, "delimiter and quote cannot both be"),
        ("a.csv", {"header": "no"}, "header must be True or False"),
        ("a.csv", {"header": False}, "header=False needs `schema`"),
        ("a.json", {"delimiter": ";"}, "are of CSV; json has none"),
        ("a.parquet", {"header": False}, "are of CSV; parquet has none"),
    ],
)
def test_forms_that_there_are_not_are_refused(tmp_path: Path, name: str, form: dict[str, Any], problem: str) -> None:
    (tmp_path / name).write_text("id,name\n")
    with pytest.raises(ConfigurationError, match=problem):
        FileSource.of(tmp_path / name, **form)


@given(
    rows=st.lists(st.lists(st.text('ab;,|\t"\\ \u00fc', min_size=1, max_size=5), min_size=2, max_size=2), max_size=20),
    delimiter=st.sampled_from(",;\t|"),
    quote=st.sampled_from(['"', None]),
    header=st.booleans(),
)
def test_any_rows_are_those_that_python_wrote(
    tmp_path_factory: pytest.TempPathFactory, rows: list[list[str]], delimiter: str, quote: str | None, header: bool
) -> None:
    text = io.StringIO()
    escape = "\\" if quote is None else None
    quoting = csv.QUOTE_NONE if quote is None else csv.QUOTE_MINIMAL
    writer = csv.writer(text, delimiter=delimiter, quotechar=quote, escapechar=escape, quoting=quoting)
    writer.writerows([["a", "b"], *rows] if header else rows)
    path = tmp_path_factory.mktemp("form") / "t.csv"
    path.write_text(text.getvalue(), newline="")
    form: dict[str, Any] = {"delimiter": delimiter, "quote": quote, "escape": escape, "header": header}
    for bad_records in ("fail", "keep"):
        source = FileSource.of(path, schema={"a": "string", "b": "string"}, bad_records=bad_records, **form)
        assert [[row["a"], row["b"]] for row in read_rows(source)] == rows


def test_what_is_written_with_a_form_is_read_with_it(tmp_path: Path) -> None:
    sink = FileSink(tmp_path, "csv", delimiter=";", header=False)
    writer = sink.open(context())
    writer.write(Batch(pa.RecordBatch.from_pylist(ROWS)))
    sink.commit(writer.prepare(0), context())
    writer.close()
    (file,) = tmp_path.iterdir()
    assert file.read_text() == '1;"ann; or,\tb"\n2;\n'
    assert read_rows(FileSource.of(file, schema=SCHEMA, delimiter=";", header=False)) == ROWS


@pytest.mark.parametrize("delimiter", [" ", "-", ":", ".", "e", "1"])
def test_nothing_is_written_between_fields_that_may_stand_in_them_without_quotes(
    tmp_path: Path, delimiter: str
) -> None:
    with pytest.raises(ConfigurationError, match="may stand in numbers and times"):
        FileSink(tmp_path, "csv", delimiter=delimiter)


def test_the_first_row_may_be_long_where_there_is_no_header(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(f"1,{'a' * 200_000}\n")
    (row,) = read_rows(FileSource.of(path, schema=SCHEMA, header=False))
    assert row == {"id": 1, "name": "a" * 200_000}


def test_a_sink_of_another_format_has_no_form(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="delimiter and header are of CSV; leave them out, as json has none"):
        FileSink(tmp_path, "json", header=False)
