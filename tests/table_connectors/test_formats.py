"""The options of CSV and JSON: what is read where a part of a record is wrong, and how values are written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock import StreamEnvironment
from penstock.connectors.records.format import RecordFormat
from penstock.engine.errors import PenstockError, RecordError, SqlValidationError
from penstock.table_connectors.formats.options import record_format, value_format
from penstock.table_connectors.options import TableOptions
from penstock.tables.catalog.catalog import CatalogTable
from penstock.tables.lower.base import schema_of

_COLUMNS = "id INT, names ARRAY<STRING>, r ROW<a STRING, b INT>, at TIMESTAMP(3), raw BYTES"
_LENIENT = ("ignore-parse-errors", "true")


def _format(columns: str, name: str, *options: tuple[str, str]) -> RecordFormat:
    tables = StreamEnvironment(runtime="local").tables
    given = "".join(f", '{name}.{key}' = '{value}'" for key, value in options)
    tables.sql(
        f"CREATE TABLE t ({columns}) WITH ('connector' = 'http', 'url' = 'http://nowhere:1', "
        f"'format' = '{name}'{given})"
    )
    table = tables.catalog.find("t")
    assert isinstance(table, CatalogTable)
    read = TableOptions(table)
    return record_format(read, *value_format(read), schema_of(tables.table("t").plan.columns), "t")


def _read(form: RecordFormat, *records: bytes) -> tuple[list[dict[str, Any]], list[int]]:
    """The rows, and the places of what is none."""
    found = form.decode(pa.array(records, pa.large_binary()))
    return found.rows.to_pylist(), [one.index for one in found.bad]


def _written(form: RecordFormat, row: dict[str, Any]) -> str:
    return str(form.encode(pa.RecordBatch.from_pylist([row], form.schema))[0].as_py().decode())


def test_arrays_and_rows_are_one_field_of_csv() -> None:
    form = _format(_COLUMNS, "csv", ("array-element-delimiter", "|"))
    record = "1,a|b,x|,2020-01-02T03:04:05.000,aGk="
    rows, _ = _read(form, record.encode())
    assert (rows[0]["names"], rows[0]["r"], rows[0]["raw"]) == (["a", "b"], {"a": "x", "b": None}, b"hi")
    assert _written(form, rows[0]) == record
    assert _read(form, b"1,a,x|y,,", b"1,a,x|1|2,,") == ([], [0, 1])


def test_a_field_of_csv_that_cannot_be_read_is_null() -> None:
    form = _format(_COLUMNS, "csv", _LENIENT)
    good = b"1,a,x;1,2020-01-02 03:04:05,aGk="
    rows, bad = _read(form, b"x,,y;q,never,?", good, b"2", b"", b"1,a,x;1,,,6", b'"')
    assert bad == [3, 4, 5]
    assert rows[0] == {"id": None, "names": None, "r": {"a": "y", "b": None}, "at": None, "raw": None}
    assert (rows[1]["id"], rows[1]["raw"]) == (1, b"hi")
    assert rows[2] == {"id": 2, "names": None, "r": None, "at": None, "raw": None}


def test_fields_of_csv_are_converted_as_in_flink() -> None:
    form = _format("d DECIMAL(5, 2), b BOOLEAN, n INT, r ROW<a STRING, b INT>", "csv", _LENIENT)
    rows, bad = _read(form, b"1.235,yes,1,x", b"-1.2,TRUE,1_0,x;1;2", b"12345.6,true,1,y;z")
    assert not bad
    assert [str(row["d"]) for row in rows] == ["1.24", "-1.20", "None"]
    assert [row["b"] for row in rows] == [False, True, True]
    assert [row["n"] for row in rows] == [1, None, 1]
    assert [row["r"] for row in rows] == [{"a": "x", "b": None}, {"a": "x", "b": 1}, {"a": "y", "b": None}]


@pytest.mark.parametrize("record", [b"x,a\rb", b"x," + b"y" * 140_000])
def test_what_python_cannot_read_as_csv_is_left_out(record: bytes) -> None:
    form = _format("n INT, s STRING", "csv", _LENIENT)
    assert _read(form, b"1,a", record) == ([{"n": 1, "s": "a"}], [1])


def test_comments_of_csv_are_left_out() -> None:
    form = _format("a STRING, b STRING", "csv", _LENIENT, ("allow-comments", "true"))
    assert _read(form, b"1,2", b"# 3,4", b"5,6,7", b"8,9") == ([{"a": "1", "b": "2"}, {"a": "8", "b": "9"}], [1, 2])


def test_csv_may_have_another_null_no_quotes_and_escapes() -> None:
    form = _format("a STRING, b INT", "csv", ("null-literal", "n/a"))
    assert _read(form, b"n/a,n/a", b',1', b'"n/a",1')[0] == [
        {"a": None, "b": None}, {"a": "", "b": 1}, {"a": "n/a", "b": 1}]  # fmt: skip
    assert _written(form, {"a": "n/a", "b": None}) == '"n/a",n/a'
    bare = _format("a STRING, b INT", "csv", ("disable-quote-character", "true"), ("escape-character", "^"))
    assert _read(bare, b'"x^,",1')[0] == [{"a": '"x,"', "b": 1}]
    with pytest.raises(RecordError, match="without quotes, text cannot hold a delimiter"):
        _written(bare, {"a": "x,", "b": 1})


def test_a_field_of_json_that_cannot_be_read_is_null_and_others_are_converted() -> None:
    form = _format("id INT, s STRING, d DECIMAL(5, 2), l ARRAY<TIMESTAMP(3)>, m MAP<STRING, INT>", "json", _LENIENT)
    rows, bad = _read(
        form,
        b'{"id": "7", "s": 1.50, "d": "1.005", "l": ["2020-01-02 03:04:05", "?"], "m": {"a": "x", "b": 2}}',
        b"[1]",
        b"{",
        b'{"id": 1e40, "s": {"a": [1]}, "d": 1e9, "l": 3, "m": []}',
        b'{"id": 2}',
    )
    assert bad == [1, 2]
    assert [row["id"] for row in rows] == [7, None, 2]
    assert [row["s"] for row in rows] == ["1.50", '{"a":[1]}', None]
    assert [str(row["d"]) for row in rows] == ["1.01", "None", "None"]
    assert [[str(one) for one in row["l"] or ()] for row in rows] == [["2020-01-02 03:04:05", "None"], [], []]
    assert [row["m"] for row in rows] == [[("a", None), ("b", 2)], None, None]


_FINE = "t TIMESTAMP(3), u TIMESTAMP_LTZ(6), r ROW<t TIMESTAMP(3)>, l ARRAY<TIMESTAMP(3)>"
_CUT = "2020-01-02 03:04:05.678000 03:04:05.678901+00:00 03:04:05.678000 03:04:05.678000"


@pytest.mark.parametrize("lenient", [(), (_LENIENT,)])
def test_digits_of_times_that_columns_do_not_hold_are_cut_off(lenient: tuple[tuple[str, str], ...]) -> None:
    time = "2020-01-02 03:04:05.678901234"
    json_record = f'{{"t": "{time}", "u": "{time}Z", "r": {{"t": "{time}"}}, "l": ["{time}"]}}'
    short = '{"t": "2020-01-02T03:04:05", "u": "2020-01-02 03:04:05Z", "l": []}'
    for name, records in (("json", (json_record, short)), ("csv", (f"{time},{time}Z,{time},{time}", ",,,"))):
        rows, bad = _read(_format(_FINE, name, *lenient), *(record.encode() for record in records))
        assert not bad
        times = (rows[0]["t"], rows[0]["u"].time(), rows[0]["r"]["t"].time(), rows[0]["l"][0].time())
        assert " ".join(map(str, times)) == _CUT.replace("+00:00", "")
        assert len(rows) == 2


@pytest.mark.parametrize("name", ["json", "csv"])
def test_a_decimal_with_more_digits_than_its_column_is_none(name: str) -> None:
    columns = "d DECIMAL(5, 2), l ARRAY<DECIMAL(3, 1)>"
    records = {"json": ['{"d": 12345}', '{"l": [1, 123]}', '{"d": 123.4, "l": [12]}'],
               "csv": ["12345,", ",1;123", "123.4,12"]}[name]  # fmt: skip
    assert _read(_format(columns, name), *map(str.encode, records))[1] == [0, 1]
    rows, _ = _read(_format(columns, name, _LENIENT), *map(str.encode, records))
    assert [str(row["d"]) for row in rows] == ["None", "None", "123.40"]
    assert str(rows[1]["l"]) == "[Decimal('1.0'), None]"


@pytest.mark.parametrize("lenient", [(), (_LENIENT,)])
def test_lists_of_csv_may_all_be_null_or_have_parts_that_are(lenient: tuple[tuple[str, str], ...]) -> None:
    columns = "id INT, l ARRAY<INT>, r ROW<a STRING, b INT>"
    assert _read(_format(columns, "csv", *lenient), b"1,,")[0] == [{"id": 1, "l": None, "r": None}]
    rows, _ = _read(_format(columns, "csv", ("null-literal", "-"), *lenient), b"1,2;-,-;-")
    assert rows == [{"id": 1, "l": [2, None], "r": {"a": None, "b": None}}]


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (r'"\ud800"', {"n": None, "s": None, "d": None}),
        ("1e999999999", {"n": None, "s": "1e999999999", "d": None}),
        ("1e-999999999", {"n": 0, "s": "1e-999999999", "d": 0}),
        ("1e99999999999999999999", None),
        ('"1_0"', {"n": None, "s": "1_0", "d": None}),
        ("1e29", {"n": None, "s": "1e29", "d": 10**29}),
    ],
)
def test_odd_values_of_json_are_null(value: str, wanted: dict[str, Any] | None) -> None:
    form = _format("n BIGINT, s STRING, d DECIMAL(38, 0)", "json", _LENIENT)
    record = f'{{"n": {value}, "s": {value}, "d": {value}}}'
    assert _read(form, record.encode()) == (([], [0]) if wanted is None else ([wanted], []))


@pytest.mark.parametrize(
    ("record", "missing"),
    [
        ('{"id": null, "r": null, "l": null, "n": NaN}', None),
        ('{"id": 1, "r": {"a": null}, "l": [{"b": 1}, null], "n": 2, "more": 3}', None),
        ('{"id": 1, "r": {"a": 1}, "l": [], "n": Infinity}', None),
        (f'{{"id": null, "deep": {"[" * 2000}{"]" * 2000}}}', None),
        ("{}", "id"),
        ('{"r": {"a": 1}, "l": [], "n": 1.5}', "id"),
        ('{"id": 1, "r": {}, "l": [], "n": 1.5}', "r.a"),
        ('{"id": 1, "r": {"a": 1}, "l": [{"b": 1}, {"c": 1}], "n": 1.5}', "l.b"),
    ],
)
def test_a_field_that_must_be_there_may_be_null_and_not_missing(record: str, missing: str | None) -> None:
    form = _format("id INT, r ROW<a INT>, l ARRAY<ROW<b INT>>, n DOUBLE", "json", ("fail-on-missing-field", "true"))
    whole = b'{"id": 7, "r": {"a": 7}, "l": [], "n": 7}'
    found = form.decode(pa.array([whole, b"[]", record.encode(), None, whole], pa.large_binary()))
    lacking = [] if missing is None else [(2, f"there is no field '{missing}'; it may be null, but must be there")]
    assert [(one.index, one.reason) for one in found.bad][1:] == lacking
    assert found.bad[0].index == 1
    assert found.rows.column("id").to_pylist() == [
        7,
        *([] if missing else [None if "null" in record[:12] else 1]),
        None,
        7,
    ]


def test_json_is_written_in_the_form_that_is_asked_for() -> None:
    columns, row = "d DECIMAL(9, 8), at TIMESTAMP(3), r ROW<a INT, b INT>", {"d": None, "at": None, "r": {"a": 1}}
    usual = _format(columns, "json")
    assert _written(usual, row) == '{"d":null,"at":null,"r":{"a":1,"b":null}}'
    other = _format(
        columns, "json", ("timestamp-format.standard", "SQL"), ("encode.decimal-as-plain-number", "true"),
        ("encode.ignore-null-fields", "true"), ("map-null-key.mode", "DROP")
    )  # fmt: skip
    assert _written(other, row) == '{"r":{"a":1}}'
    read, _ = _read(other, b'{"d": "0.00000001", "at": "2020-01-02T03:04:05"}')
    assert _written(other, read[0]) == '{"d":0.00000001,"at":"2020-01-02 03:04:05.000"}'
    assert _read(other, _written(other, read[0]).encode())[0] == read


def test_flags_may_be_written_in_capitals() -> None:
    assert _read(_format("n INT", "json", ("ignore-parse-errors", "TRUE")), b'{"n": "x"}') == ([{"n": None}], [])


@pytest.mark.parametrize(
    ("name", "options", "says"),
    [
        ("csv", (("allow-comments", "true"),), "needs 'csv.ignore-parse-errors' = 'true'"),
        ("csv", (("disable-quote-character", "true"), ("quote-character", "x")), "there is no such character"),
        ("csv", (("escape-character", '"'),), "cannot both be"),
        ("json", (("map-null-key.mode", "DORP"),), "did you mean 'DROP'"),
        ("json", (("fail-on-missing-field", "true"), _LENIENT), "'json.ignore-parse-errors' says the contrary"),
    ],
)
def test_options_that_mean_nothing_are_refused(name: str, options: tuple[tuple[str, str], ...], says: str) -> None:
    with pytest.raises(SqlValidationError, match=says):
        _format("a STRING", name, *options)


def _table(path: Path, name: str, columns: str, *options: tuple[str, str]) -> StreamEnvironment:
    env = StreamEnvironment(runtime="local", parallelism=1)
    given = "".join(f", '{name}.{key}' = '{value}'" for key, value in options)
    env.sql(
        f"CREATE TABLE t ({columns}) WITH ('connector' = 'filesystem', 'path' = '{path}', 'format' = '{name}'{given})"
    )
    return env


def _rows(env: StreamEnvironment, query: str) -> list[dict[str, Any]]:
    table = env.sql(query)
    assert table is not None
    return list(table.collect())


def test_files_of_csv_have_the_form_that_the_options_say(tmp_path: Path) -> None:
    form = (("field-delimiter", ";"), ("header", "false"))
    env = _table(tmp_path / "t", "csv", "id INT, name STRING", *form)
    env.sql("INSERT INTO t VALUES (1, 'a;b'), (2, CAST(NULL AS STRING))")
    env.execute()
    (file,) = (tmp_path / "t").iterdir()
    assert sorted(file.read_text().splitlines()) == ['1;"a;b"', "2;"]
    rows = [{"id": 1, "name": "a;b"}, {"id": 2, "name": None}]
    assert _rows(_table(tmp_path / "t", "csv", "id INT, name STRING", *form), "SELECT * FROM t ORDER BY id") == rows
    file.write_text("1|a;b\n2|\n")
    read = _table(file, "csv", "id INT, name STRING", ("field-delimiter", "|"), *form[1:], ("escape-character", "^"))
    assert _rows(read, "SELECT * FROM t") == rows
    with pytest.raises(SqlValidationError, match=r"files are written with quotes of .*'csv.escape-character' is for"):
        read.sql("INSERT INTO t VALUES (1, 'a')")


def test_files_of_csv_may_have_fields_that_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("other,id,l\n,1,1;2\n,x,3;y\nz,4\n,-,\n")
    env = _table(path, "csv", "id INT, l ARRAY<INT>", _LENIENT, ("null-literal", "-"))
    assert _rows(env, "SELECT * FROM t") == [
        {"id": 1, "l": [1, 2]}, {"id": None, "l": [3, None]}, {"id": None, "l": None}]  # fmt: skip
    looked_up = (
        "SELECT l FROM (SELECT PROCTIME() AS p) AS q JOIN t FOR SYSTEM_TIME AS OF q.p ON t.id = 1 WHERE l IS NOT NULL"
    )
    assert _rows(env, looked_up) == [{"l": [1, 2]}]
    path.write_text("id,l\n1,x\n")
    strict = _table(path, "csv", "id INT, l ARRAY<INT>")
    with pytest.raises(PenstockError, match=r"table 't': column 'l': 'x' cannot be read"):
        _rows(strict, "SELECT * FROM t")


@pytest.mark.parametrize("name", ["csv", "json"])
def test_digits_that_columns_do_not_hold_are_cut_off_times_and_not_off_decimals(name: str, tmp_path: Path) -> None:
    path = tmp_path / f"t.{name}"
    time = "2020-01-02 03:04:05"
    given = [(f"{time}.1", "1.5"), (f"{time}.678901", "2.5"), (f"{time}.678901234", "12345")]
    lines = [f'{{"t": "{at}", "d": {d}}}' if name == "json" else f"{at},{d}" for at, d in given]
    header = ["t,d"] if name == "csv" else []
    path.write_text("".join(f"{line}\n" for line in (*header, *lines[:2])))
    read = _rows(_table(path, name, "t TIMESTAMP(3), d DECIMAL(5, 2)"), "SELECT t FROM t")
    assert [str(row["t"]) for row in read] == [f"{time}.100000", f"{time}.678000"]
    path.write_text("".join(f"{line}\n" for line in (*header, *lines)))
    with pytest.raises(PenstockError, match=r"(line|row) \d.*does not fit in precision"):
        _rows(_table(path, name, "t TIMESTAMP(3), d DECIMAL(5, 2)"), "SELECT t FROM t")
    lenient = _rows(_table(path, name, "t TIMESTAMP(3), d DECIMAL(5, 2)", _LENIENT), "SELECT t, d FROM t")
    assert [(str(row["t"])[-7:], str(row["d"])) for row in lenient][1:] == [(".678000", "2.50"), (".678000", "None")]


def test_arrays_and_rows_are_written_to_files_of_csv(tmp_path: Path) -> None:
    env = _table(tmp_path / "t", "csv", "id INT, l ARRAY<INT>, r ROW<a STRING, b BYTES>")
    env.sql("INSERT INTO t VALUES (1, ARRAY[1, 2], ROW('x', CAST('hi' AS BYTES))), (2, CAST(NULL AS ARRAY<INT>), NULL)")
    env.execute()
    (part,) = (file for file in (tmp_path / "t").iterdir() if file.is_file() and not file.name.startswith(("_", ".")))
    assert part.read_text().splitlines() == ['"id","l","r"', '1,"1;2","x;aGk="', "2,,"]
    assert _rows(env, "SELECT * FROM t")[0] == {"id": 1, "l": [1, 2], "r": {"a": "x", "b": b"hi"}}


def test_files_of_json_may_have_fields_that_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text('{"id": 1, "s": "a"}\nnothing\n{"id": "x", "s": 2}\n{"id": "3"}\n')
    env = _table(path, "json", "id INT, s STRING", _LENIENT)
    assert _rows(env, "SELECT * FROM t") == [{"id": 1, "s": "a"}, {"id": None, "s": "2"}, {"id": 3, "s": None}]
