from __future__ import annotations

import bz2
import gzip
import json
import os
import pickle
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.connectors.files import csv_reader, json_reader
from penstock.connectors.files.source import FileSource
from penstock.engine.errors import ConfigurationError, RecordError
from tests.connectors.reading import context, read_batches, read_rows, read_table
from tests.draws import drawn
from tests.large import LARGE

TABLE = pa.table({"id": range(100), "name": [f"n{i}" if i % 7 else None for i in range(100)]})
ROWS = TABLE.to_pylist()


def _json(rows: list[dict[str, object]]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def _csv(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pc.write_csv(table, sink)
    return bytes(sink.getvalue())


def _write(path: Path, content: bytes) -> str:
    path.write_bytes(content)
    return str(path)


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    pq.write_table(TABLE, tmp_path / "t.parquet", row_group_size=30)
    return {
        "parquet": str(tmp_path / "t.parquet"),
        "csv": _write(tmp_path / "t.csv", _csv(TABLE)),
        "json": _write(tmp_path / "t.jsonl", _json(ROWS)),
    }


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_reader, "BLOCK_BYTES", 64)
    monkeypatch.setattr(json_reader, "BLOCK_BYTES", 64)


# What every format does


@pytest.mark.parametrize("kind", ["parquet", "csv", "json"])
@pytest.mark.parametrize("declared", [False, True])
def test_rows_come_as_written(files: dict[str, str], kind: str, declared: bool) -> None:
    schema = {"name": "string", "id": "int32"} if declared else None
    source = FileSource.of(files[kind], schema=schema)
    names = ["name", "id"] if declared else ["id", "name"]
    assert source.schema.names == names
    assert source.schema.field("id").type == (pa.int32() if declared else pa.int64())
    assert read_rows(source) == [{name: row[name] for name in names} for row in ROWS]


@pytest.mark.parametrize("kind", ["parquet", "csv", "json"])
@pytest.mark.parametrize("max_rows", [1, 7, 31])
def test_batch_size_changes_nothing(files: dict[str, str], kind: str, max_rows: int) -> None:
    source = FileSource.of(files[kind])
    assert read_rows(source, max_rows) == ROWS


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("kind", ["csv", "json"])
def test_block_borders_change_nothing(files: dict[str, str], kind: str) -> None:
    assert read_rows(FileSource.of(files[kind])) == ROWS


@pytest.mark.parametrize("kind", ["csv", "json"])
@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".zst"])
def test_compressed_files_are_read(files: dict[str, str], kind: str, suffix: str) -> None:
    plain = Path(files[kind]).read_bytes()
    packed = {
        ".gz": lambda: gzip.compress(plain[:100]) + gzip.compress(plain[100:]),
        ".bz2": lambda: bz2.compress(plain),
        ".zst": lambda: pa.Codec("zstd").compress(plain, asbytes=True),
    }[suffix]()
    path = _write(Path(files[kind] + suffix), packed)
    assert read_rows(FileSource.of(path)) == ROWS


@pytest.mark.parametrize("kind", ["csv", "json"])
@pytest.mark.parametrize(
    "damage", [lambda data: data[: len(data) // 2], lambda data: data[:-4], lambda data: b"no gzip"]
)
def test_damaged_compression_is_an_error(files: dict[str, str], kind: str, damage: object) -> None:
    data = damage(gzip.compress(Path(files[kind]).read_bytes()))  # type: ignore[operator]
    path = _write(Path(files[kind] + ".gz"), data)
    source = FileSource.of(path, schema={"id": "int64", "name": "string"})
    with pytest.raises(RecordError, match=r"t\.\w+\.gz: cannot be read: .*whole"):
        read_rows(source)


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_an_empty_file_has_no_rows(tmp_path: Path, kind: str) -> None:
    path = _write(tmp_path / f"e.{kind}", b"")
    assert read_rows(FileSource.of(path, schema={"id": "int64"})) == []
    with pytest.raises(ConfigurationError, match=r"no rows to infer the columns from; declare `schema`"):
        FileSource.of(path)
    _write(tmp_path / f"f.{kind}", {"csv": b"id\n5\n", "json": b'{"id":5}\n'}[kind])
    assert read_rows(FileSource.of(tmp_path)) == [{"id": 5}]


def test_an_empty_parquet_file_has_no_splits(tmp_path: Path) -> None:
    pq.write_table(TABLE.slice(0, 0), tmp_path / "e.parquet")
    assert read_rows(FileSource.of(tmp_path)) == []


@pytest.mark.parametrize("kind", ["csv", "json"])
@LARGE
def test_a_large_record(tmp_path: Path, kind: str, large: int) -> None:
    big = b"x" * large
    content = {
        "csv": b'id,name\n1,a\n2,"' + big + b'"\n3,b\n',
        "json": b'{"id":1,"name":"a"}\n{"id":2,"name":"' + big + b'"}\n{"id":3,"name":"b"}',
    }[kind]
    path = _write(tmp_path / f"big.{kind}", content)
    table = read_table(FileSource.of(path), max_rows=1)
    assert table["id"].to_pylist() == [1, 2, 3]
    assert len(table["name"][1].as_buffer()) == len(big)


@pytest.mark.parametrize("kind", ["parquet", "csv", "json"])
def test_missing_column_and_vanished_file(files: dict[str, str], kind: str) -> None:
    path = files[kind]
    if kind != "json":
        with pytest.raises(RecordError, match=rf"{path}: no column 'delay'; the file has 'id', 'name'"):
            read_rows(FileSource.of(path, schema={"id": "int64", "delay": "int64"}))
    source = FileSource.of(path)
    os.unlink(path)
    with pytest.raises(RecordError, match=f"{path}: cannot be read"):
        read_rows(source)


def test_a_csv_file_without_a_line_of_names(tmp_path: Path) -> None:
    path = _write(tmp_path / "plain.csv", b"1,ann\n2,bob\n")
    with pytest.raises(
        RecordError, match="row 1: the first line of a CSV file names its columns, and '1', 'ann' has none"
    ):
        read_rows(FileSource.of(path, schema={"id": "int64", "name": "string"}))


def test_sources_are_picklable_and_described(files: dict[str, str]) -> None:
    source = FileSource.of(list(files.values())[:1] * 2)
    assert source.describe() == "files(t.parquet, parquet)"
    assert read_rows(pickle.loads(pickle.dumps(source))) == ROWS
    assert source.bounded


# Which files


def test_patterns_directories_and_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("b.csv", "a.csv", "sub/deep/c.csv", ".hidden.csv", "_SUCCESS", "[x].csv"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        _write(tmp_path / name, f"v\n{name}\n".encode())

    def found(*paths: str | Path) -> list[object]:
        return [row["v"] for row in read_rows(FileSource.of(paths))]

    assert found(tmp_path) == ["[x].csv", "a.csv", "b.csv"]
    assert found(tmp_path / "?.csv") == ["a.csv", "b.csv"]
    assert found(tmp_path / "**" / "*.csv") == ["[x].csv", "a.csv", "b.csv", "sub/deep/c.csv"]
    assert found(tmp_path / "b.csv", tmp_path / "*.csv") == ["b.csv", "[x].csv", "a.csv"]
    assert found(tmp_path / "[x].csv") == ["[x].csv"]
    monkeypatch.chdir(tmp_path)
    source = FileSource.of("a.csv")
    assert source.paths == (str(tmp_path / "a.csv"),)
    assert source.describe() == "files(a.csv, csv)"
    assert FileSource.of("?.csv").describe() == "files(a.csv and 1 more, csv)"


def test_splits_do_not_depend_on_parallelism(files: dict[str, str]) -> None:
    for kind, count in (("parquet", 4), ("csv", 1), ("json", 1)):
        source = FileSource.of(files[kind])
        ids = [split.split_id for split in source.splits(1)]
        assert len(ids) == count
        assert ids == [split.split_id for split in source.splits(8)]
        assert len(set(ids)) == count


@pytest.mark.parametrize(
    ("paths", "options", "message"),
    [
        ("nothing-*.csv", {}, r"'nothing-\*\.csv' matches no file"),
        ("empty", {}, "'empty' matches no file"),
        ([], {}, "no paths"),
        ([5], {}, "a path must be text or a Path"),
        ("ftp://user:pw@host/x.csv", {}, "ftp://host: no storage is called 'ftp'"),
        ("a.txt", {}, r"a\.txt does not tell its format .*pass format="),
        ("a.*", {}, "is csv and .* is json"),
        ("a.csv", {"format": "xml"}, "no format 'xml'"),
        ("a.csv", {"schema": {"v": "int65"}}, "'int65' is no type"),
        ("a.csv", {"schema": {}}, "no columns"),
        ("a.csv", {"schema": {"v": "list<int64>"}}, "column 'v': CSV fields cannot be read as list"),
        (
            "a.json",
            {"schema": {"v": pa.map_(pa.date32(), pa.int64())}},
            "column 'v': JSON values cannot be read as map",
        ),
        ("a.csv", {"null_values": "NA"}, "null_values must be a list"),
        ("p.parquet.gz", {}, "Parquet file cannot be read through compression"),
    ],
)
def test_what_cannot_be_used_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, paths: object, options: dict[str, object], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    for name in ("a.csv", "a.json", "a.txt", "p.parquet.gz"):
        _write(tmp_path / name, b"v\n1\n")
    if paths == "a.*":
        (tmp_path / "a.txt").unlink()
    with pytest.raises(ConfigurationError, match=message):
        FileSource.of(paths, **options)  # type: ignore[arg-type]


def test_an_explicit_format_overrules_the_name(tmp_path: Path) -> None:
    path = _write(tmp_path / "data.txt.gz", gzip.compress(b"v\n1\n"))
    assert read_rows(FileSource.of(path, format="csv")) == [{"v": 1}]


# Parquet


def test_other_parquet_types_are_cast_if_no_value_changes(tmp_path: Path) -> None:
    pq.write_table(pa.table({"v": pa.array([1], pa.int64())}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"v": pa.array([2], pa.int8())}), tmp_path / "b.parquet")
    assert read_rows(FileSource.of(tmp_path)) == [{"v": 1}, {"v": 2}]
    pq.write_table(pa.table({"v": ["x"]}), tmp_path / "c.parquet")
    with pytest.raises(RecordError, match=r"c\.parquet, row group 0, column 'v': string cannot become int64"):
        read_rows(FileSource.of(tmp_path))
    pq.write_table(pa.table({"v": [300]}), tmp_path / "a.parquet")
    with pytest.raises(RecordError, match=r"a\.parquet, .* column 'v': int64 cannot become int8 .*300"):
        read_rows(FileSource.of(tmp_path, schema={"v": "int8"}))


def test_texts_come_as_the_dictionaries_of_the_first_file(tmp_path: Path) -> None:
    few = pa.table({"few": ["a", "b", None] * 200, "many": [f"text {n}" for n in range(600)], "n": range(600)})
    for number, coded in enumerate((True, False)):
        pq.write_table(few, tmp_path / f"{number}.parquet", use_dictionary=coded)
    columns = {"few": "string", "many": "string", "n": "int64"}
    plain = FileSource.of(tmp_path, schema=columns)
    source = plain.with_dictionaries()
    assert source.schema.field("few").type == pa.dictionary(pa.int32(), pa.string())
    assert source.schema.field("many").type == pa.string()
    assert read_table(source).cast(plain.schema) == read_table(plain) == pa.concat_tables([few, few])
    assert source.as_parquet() == plain.as_parquet() is not None
    assert FileSource.of(tmp_path / "1.parquet", schema=columns).with_dictionaries().schema == plain.schema


def test_a_column_new_in_a_later_file_must_be_decided_on(tmp_path: Path) -> None:
    pq.write_table(pa.table({"v": [1]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"w": [5], "v": [2]}), tmp_path / "b.parquet")
    with pytest.raises(RecordError, match=r"b\.parquet: column 'w' is not in the schema inferred.*declare"):
        read_rows(FileSource.of(tmp_path))
    assert read_rows(FileSource.of(tmp_path, schema={"v": "int64"})) == [{"v": 1}, {"v": 2}]


def test_no_parquet_file(tmp_path: Path) -> None:
    path = _write(tmp_path / "a.parquet", b"PAR1 but not really")
    with pytest.raises(RecordError, match=rf"{path}: cannot be read"):
        FileSource.of(path)


# CSV


def test_csv_nulls_quotes_and_newlines(tmp_path: Path) -> None:
    path = _write(tmp_path / "a.csv", b'\xef\xbb\xbfid,text\n1,\n2,""\n\n3,"a ""b"",\nc"\n,NA\n')
    assert read_rows(FileSource.of(path)) == [
        {"id": 1, "text": None},
        {"id": 2, "text": ""},
        {"id": 3, "text": 'a "b",\nc'},
        {"id": None, "text": "NA"},
    ]
    assert read_rows(FileSource.of(path, null_values=["", "NA"]))[3] == {"id": None, "text": None}


def test_csv_types_are_pinned_by_the_first_block(tmp_path: Path) -> None:
    _write(tmp_path / "a.csv", b"id,ts,empty\n1,2024-01-01 00:00:00,\n")
    _write(tmp_path / "b.csv", b"empty,id,ts\n7,2,2024-01-01 00:00:00.5\n")
    source = FileSource.of(tmp_path)
    assert source.schema.types == [pa.int64(), pa.timestamp("ms"), pa.string()]
    assert read_rows(source)[1]["empty"] == "7"
    _write(tmp_path / "c.csv", b"id,ts,empty\nx,,\n")
    with pytest.raises(RecordError, match=r"c\.csv, row 2 .*column 'id': .*'x'; .* inferred.*declare"):
        read_rows(FileSource.of(tmp_path))


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"a,x\n", r"row 102 \(the header is row 1\): column 'id': .*int64.*'x'; correct the value"),
        (b"a,1,2\n", r"row 102 \(the header is row 1\): it has 3 fields, and the header 2; correct the row"),
        (b"\xff,1\n", r"row 102 .*column 'name': .*invalid UTF8"),
    ],
)
def test_bad_csv_rows_are_named(tmp_path: Path, line: bytes, message: str) -> None:
    good = b"a,1\n" * 100
    path = _write(tmp_path / "a.csv", b"name,id\n" + good + line + good)
    with pytest.raises(RecordError, match=rf"{path}, {message}"):
        read_rows(FileSource.of(path, schema={"id": "int64", "name": "string"}))


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("text", ["\r\n", "\r\r\n", "\n\r"])
@pytest.mark.parametrize("line_end", [b"\r\n", b"\n", b"\r"])
def test_line_ends_in_quotes_survive_block_borders(tmp_path: Path, text: str, line_end: bytes) -> None:
    for length in range(70):
        values = ["x" * length + text, "y" * 100, text]
        rows = [b'1,"' + value.encode() + b'"' for value in values]
        path = _write(tmp_path / "a.csv", line_end.join([b"id,v", *rows]))
        assert [row["v"] for row in read_rows(FileSource.of(path))] == values


def test_csv_text_that_is_not_utf8_is_named_not_taken_for_bytes(tmp_path: Path) -> None:
    path = tmp_path / "names.csv"
    path.write_bytes(b"n,name\n1,ann\n2,M\xfcller\n")
    with pytest.raises(RecordError, match=r"names\.csv, row 3 .*column 'name': b'M.xfcller' is not UTF-8; .*iconv"):
        FileSource.of(path)
    declared = FileSource.of(path, schema={"name": "binary"})
    assert read_rows(declared) == [{"name": b"ann"}, {"name": b"M\xfcller"}]


def test_csv_header_problems(tmp_path: Path) -> None:
    path = _write(tmp_path / "a.csv", b"v,v\n1,2\n")
    with pytest.raises(ConfigurationError, match="column 'v' occurs twice"):
        FileSource.of(path)
    with pytest.raises(RecordError, match=f"{path}: column 'v' occurs twice"):
        read_rows(FileSource.of(path, schema={"v": "int64"}))
    path = _write(tmp_path / "b.csv", b"\xff\xfe\n1\n")
    with pytest.raises(RecordError, match=f"{path}, row 1: the header line cannot be read"):
        FileSource.of(path)


@settings(max_examples=drawn(40))
@given(
    rows=st.lists(
        st.tuples(st.none() | st.integers(-5, 5), st.none() | st.text('ab",\n \r', max_size=90)), max_size=12
    ),
    max_rows=st.integers(1, 5),
)
def test_csv_and_json_equal_what_was_written(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[int | None, str | None]], max_rows: int
) -> None:
    schema = pa.schema([("id", pa.int64()), ("text", pa.string())])
    table = pa.Table.from_pylist([{"id": number, "text": text} for number, text in rows], schema)
    folder = tmp_path_factory.mktemp("files")
    for content, name in ((_csv(table), "a.csv"), (_json(table.to_pylist()), "a.json")):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(csv_reader, "BLOCK_BYTES", 50)
            patch.setattr(json_reader, "BLOCK_BYTES", 10)
            source = FileSource.of(_write(folder / name, content), schema=schema)
            assert read_rows(source, max_rows) == table.to_pylist()


# JSON lines


def test_json_blank_lines_missing_fields_and_line_ends(tmp_path: Path) -> None:
    path = _write(tmp_path / "a.json", b'\xef\xbb\xbf\n  \n{"a":1,"b":"x"}\r\n\t{"b":null} \n\n{"a":3}')
    assert read_rows(FileSource.of(path)) == [{"a": 1, "b": "x"}, {"a": None, "b": None}, {"a": 3, "b": None}]


def test_json_types(tmp_path: Path) -> None:
    row = (
        b'{"t":"2024-01-02T03:04:05.678Z","d":"2024-01-02","c":"10:11:12.5","y":"AAH/","m":"1.25","u":90,'
        b'"l":[null,1],"s":{"x":1},"k":"p","f":1}\n'
    )
    schema = {
        "t": "timestamp[ms, tz=UTC]",
        "d": "date32",
        "c": "time64[us]",
        "y": "binary",
        "m": "decimal128(10, 2)",
        "u": "duration[s]",
        "l": "list<int64>",
        "s": pa.struct([("x", pa.int64())]),
        "k": pa.dictionary(pa.int8(), pa.string()),
        "f": "float64",
    }
    values = read_rows(FileSource.of(_write(tmp_path / "a.json", row * 2 + b"{}\n"), schema=schema))
    assert [str(value) for value in values[1].values()] == [
        "2024-01-02 03:04:05.678000+00:00",
        "2024-01-02",
        "10:11:12.500000",
        "b'\\x00\\x01\\xff'",
        "1.25",
        "0:01:30",
        "[None, 1]",
        "{'x': 1}",
        "p",
        "1.0",
    ]
    assert set(values[2].values()) == {None}


def test_json_inference(tmp_path: Path) -> None:
    first = b'{"i":1,"f":1.5,"n":null,"l":[null],"s":{"x":null},"t":"2024-01-02T03:04:05"}\n'
    path = _write(tmp_path / "a.json", first)
    assert FileSource.of(path).schema.types == [
        pa.int64(),
        pa.float64(),
        pa.string(),
        pa.list_(pa.string()),
        pa.struct([("x", pa.string())]),
        pa.timestamp("ms"),
    ]


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"a":1,}', "no valid JSON"),
        (b'{"a":1', "no valid JSON"),
        (b'{"a":1}x', "no valid JSON"),
        (b'{"a":1} {"a":2}', "no valid JSON"),
        (b'{"a":1} null {"a":2}', "no valid JSON"),
        (b"null", "no JSON object"),
        (b"[1]", "no JSON object"),
        (b'"a"', "no JSON object"),
        (b'{"b":"\xff"}', r"no valid UTF-8 \(invalid start byte at byte 7 of the line\)"),
        (b'{"a":"x"}', r"field 'a' \(int64\): .*from number to string; the type was inferred"),
        (b'{"a":1.5}', r"field 'a' \(int64\): .*1\.5"),
        (b'{"a":99999999999999999999}', r"field 'a' \(int64\)"),
        (b'{"b":{}}', r"field 'b' \(string\)"),
        (b'{"a":1,"new":2}', "field 'new' is not in the schema inferred .*declare `schema`"),
        (b'{"a":1,"a":2}', "field 'a' .*twice"),
        (b'{"a":1,"b":1e400}', r"field 'b' \(string\)"),
        (b'{"a":1,"b":"x","new":1e400}', "field 'new': Number too big"),
        (b'{"a":' + b"[" * 100_000 + b"}", "JSON"),
    ],
)
@pytest.mark.parametrize("before", [0, 1, 500])
def test_bad_json_lines_are_named(tmp_path: Path, line: bytes, reason: str, before: int) -> None:
    first = _write(tmp_path / "a.json", b'{"a":1,"b":"x"}\n')
    good = b'{"a":1,"b":"x"}\n'
    bad = _write(tmp_path / "b.json", good * before + b"\n" + line + b"\n" + good * 3)
    source = FileSource.of([first, bad])
    with pytest.raises(RecordError, match=rf"{bad}, line {before + 2}: .*{reason}") as caught:
        read_rows(source)
    start = line[:50].decode(errors="backslashreplace")
    assert f"The line starts with: {start}" in str(caught.value)
    assert len(str(caught.value)) < 1000 + len(bad)


_MAPS: Final = {
    "d": pa.decimal128(30, 10),
    "m": pa.map_(pa.string(), pa.int64()),
    "n": pa.map_(pa.int32(), pa.list_(pa.struct([("in", pa.map_(pa.string(), pa.date32()))]))),
}


@pytest.mark.usefixtures("small_blocks")
def test_maps_are_objects(tmp_path: Path) -> None:
    rows = b"""
        {"m": {"a": 1, "b": null, "a": 3}, "d": 12345678901234567890.1234567891, "other": {"x": [{}]}}
        {"m": {}, "n": {"7": [{"in": {"d": "2024-01-02"}}, {"in": null}, null], "-8": []}}
        {"m": null, "n": {"9": null}, "d": "1.5"}
    """
    path = _write(tmp_path / "a.json", rows)
    assert read_rows(FileSource.of(path, schema=_MAPS)) == [
        {"m": [("a", 3), ("b", None)], "n": None, "d": Decimal("12345678901234567890.1234567891")},
        {"m": [], "n": [(7, [{"in": [("d", date(2024, 1, 2))]}, {"in": None}, None]), (-8, [])], "d": None},
        {"m": None, "n": [(9, None)], "d": Decimal("1.5000000000")},
    ]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"m": [["a", 1]]}', r"field 'm' \(map<string, int64>\): a list is no map"),
        (b'{"m": 5}', r"field 'm' \(map<string, int64>\)"),
        (b'{"m": {"a": "x"}}', r"field 'm' \(map<string, int64>\)"),
        (b'{"n": {"x": []}}', "field 'n' .*'x'"),
    ],
)
def test_what_is_no_map_is_named(tmp_path: Path, line: bytes, reason: str) -> None:
    path = _write(tmp_path / "a.json", b'{"m": {"a": 1}}\n' + line)
    with pytest.raises(RecordError, match=f"line 2: {reason}"):
        read_rows(FileSource.of(path, schema=_MAPS))


def test_only_of_builds_a_source() -> None:
    with pytest.raises(ConfigurationError, match=r"FileSource\.of builds it"):
        FileSource("a.csv", "csv")  # type: ignore[arg-type]


def test_unknown_json_fields_are_ignored_under_a_declared_schema(tmp_path: Path) -> None:
    path = _write(tmp_path / "a.json", b'{"a":1,"new":{"x":[1]}}\n{"new":5}\n')
    assert read_rows(FileSource.of(path, schema={"a": "int64"})) == [{"a": 1}, {"a": None}]


def test_a_nested_unknown_field_is_named_by_its_path(tmp_path: Path) -> None:
    first = _write(tmp_path / "a.json", b'{"s":{"x":1},"l":[{"y":1}]}\n')
    for line, name in ((b'{"s":{"z":1}}\n', r"s\.z"), (b'{"l":[{"y":1},{"q":1}]}\n', r"l\.q")):
        bad = _write(tmp_path / "b.json", line)
        with pytest.raises(RecordError, match=f"line 1: field '{name}' is not in the schema"):
            read_rows(FileSource.of([first, bad]))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"a":1}\n{"a":x}\n', "line 2: no valid JSON"),
        (b"\nnull\n", "line 2: no JSON object"),
        (b'{"a":1}\n{"a":"x"}\n', "cannot be inferred.*from number to string.*declare `schema`"),
        (b'{"a":"\xff"}\n', "line 1: no valid UTF-8"),
    ],
)
def test_json_that_cannot_be_inferred_from(tmp_path: Path, content: bytes, message: str) -> None:
    path = _write(tmp_path / "a.json", content)
    with pytest.raises(RecordError, match=message):
        FileSource.of(path)


def test_memory_stays_bounded_by_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_reader, "BLOCK_BYTES", 1000)
    monkeypatch.setattr(csv_reader, "BLOCK_BYTES", 1000)
    many = pa.table({"id": range(5000)})
    for content, name in ((_csv(many), "a.csv"), (_json(many.to_pylist()), "a.json")):
        source = FileSource.of(_write(tmp_path / name, content))
        assert all(batch.num_rows < 400 for batch in read_batches(source))


def test_a_closed_reader_lets_go_of_its_file(files: dict[str, str]) -> None:
    for kind, path in files.items():
        source = FileSource.of(path)
        reader = source.open(source.splits(1)[0], context())
        reader.next_batch(1)
        assert _open_files(path), kind
        reader.close()
        assert not _open_files(path), kind


def _open_files(path: str) -> list[str]:
    links = [Path("/proc/self/fd", fd) for fd in os.listdir("/proc/self/fd")]
    return [os.readlink(link) for link in links if link.is_symlink() and os.readlink(link) == path]
