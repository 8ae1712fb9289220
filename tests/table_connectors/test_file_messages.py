"""What a user of SQL is told of files that do not fit their table: the table, the place, and the options of SQL."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock import StreamEnvironment
from penstock.engine.errors import JobFailedError, PenstockError, SqlValidationError
from penstock.error_report import report

_PRICES = "id INT, name STRING, price DOUBLE"


def _told(folder: Path, text: str, columns: str, options: str = "'format' = 'csv'") -> str:
    """What the command line shows of the failure of a query over a file."""
    path = folder / "rows.txt"
    path.write_bytes(text.encode("latin-1"))
    env = StreamEnvironment(runtime="local", parallelism=1)
    env.sql(f"CREATE TABLE prices ({columns}) WITH ('connector' = 'filesystem', 'path' = '{path}', {options})")
    table = env.sql("SELECT * FROM prices")
    assert table is not None
    with pytest.raises(PenstockError) as raised:
        list(table.collect())
    shown = report(raised.value)
    assert f"table 'prices': {path}" in shown or "table 'prices': column 'tags'" in shown
    for word in ("bad_records", "delimiter=", "header=", "schema`", "in the program"):
        assert word not in shown
    return shown


def test_a_bad_number_is_named_with_table_file_row_and_option(tmp_path: Path) -> None:
    shown = _told(tmp_path, "id,name,price\n1,a,2.5\n2,b,3\n3,c,oops\n", _PRICES)
    assert "row 4 (the header is row 1): column 'price'" in shown
    assert "'csv.ignore-parse-errors' = 'true'" in shown


def test_a_column_that_the_header_lacks_is_named_with_the_nearest(tmp_path: Path) -> None:
    shown = _told(tmp_path, "id,name,price\n1,a,2.5\n", "id INT, pric DOUBLE")
    assert "no column 'pric' (did you mean 'price'?); the file has 'id', 'name', 'price'" in shown
    assert "CREATE TABLE" in shown


@pytest.mark.parametrize(("mark", "given"), [(";", ";"), ("\t", "\\t"), ("|", "|")])
def test_another_delimiter_is_found_in_the_header(tmp_path: Path, mark: str, given: str) -> None:
    shown = _told(tmp_path, "id,name,price\n1,a,2.5\n".replace(",", mark), _PRICES)
    assert f"'csv.field-delimiter' = '{given}'" in shown
    path = tmp_path / "rows.txt"
    env = StreamEnvironment(runtime="local", parallelism=1)
    env.sql(
        f"CREATE TABLE prices ({_PRICES}) WITH ('connector' = 'filesystem', 'path' = '{path}', 'format' = 'csv', "
        f"'csv.field-delimiter' = '{given}')"
    )
    table = env.sql("SELECT name FROM prices")
    assert table is not None
    assert list(table.collect()) == [{"name": "a"}]


def test_a_first_line_that_is_a_row_leads_to_the_option_for_it(tmp_path: Path) -> None:
    assert "'csv.header' = 'false'" in _told(tmp_path, "1,a,2.5\n2,b,3\n", _PRICES)


def test_texts_that_are_no_utf8_lead_to_no_schema_of_python(tmp_path: Path) -> None:
    shown = _told(tmp_path, "id,name\n1,M\xfcller\n", "id INT, name STRING")
    assert "row 2" in shown
    assert "iconv" in shown


def test_a_bad_part_of_an_array_is_shown(tmp_path: Path) -> None:
    shown = _told(tmp_path, "id,tags\n1,1;2\n2,1;x\n", "id INT, tags ARRAY<INT>")
    assert "'1;x' cannot be read" in shown
    assert "'csv.ignore-parse-errors' = 'true'" in shown


def test_a_line_that_is_no_json_is_named_with_its_option(tmp_path: Path) -> None:
    shown = _told(tmp_path, '{"id": 1}\n{"id": "x"}\n', "id INT", "'format' = 'json'")
    assert "line 2: field 'id'" in shown
    assert "json.ignore-parse-errors" in shown


def test_a_file_of_another_format_names_the_table(tmp_path: Path) -> None:
    assert "cannot be read: Parquet" in _told(tmp_path, "id\n1\n", "id INT", "'format' = 'parquet'")


def test_files_that_come_are_named_with_their_table(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("id\n1\nx\n")
    env = StreamEnvironment(runtime="local", parallelism=1)
    env.sql(
        f"CREATE TABLE ids (id INT) WITH ('connector' = 'filesystem', 'path' = '{tmp_path}', 'format' = 'csv', "
        "'source.monitor-interval' = '1 ms')"
    )
    table = env.sql("SELECT * FROM ids LIMIT 5")
    assert table is not None
    with pytest.raises(JobFailedError, match=r"table 'ids': .*rows\.csv, row 3 "):
        list(table.collect())


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ("'connector' = 'filesystem', 'path' = 'x', 'format' = 'orc'", "takes csv, json, parquet, avro, not 'orc'"),
        ("'connector' = 'filesystem', 'path' = 'x', 'format' = 'jsn'", "did you mean 'json'"),
        ("'connector' = 'filesystem', 'fromat' = 'json'", "no option 'fromat' (did you mean 'format'?)"),
        ("'connector' = 'kafka', 'topic' = 't', 'value.format' = 'orc'", "takes json, csv, avro"),
        ("'connector' = 'http', 'url' = 'http://nowhere', 'format' = 'xml'", "takes json, csv"),
    ],
)
def test_create_table_refuses_what_no_connector_takes(options: str, says: str) -> None:
    env = StreamEnvironment(runtime="local", parallelism=1)
    with pytest.raises(SqlValidationError) as raised:
        env.sql(f"CREATE TABLE t (id INT) WITH ({options})")
    assert says in str(raised.value)
