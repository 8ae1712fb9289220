"""Rows of CSV and JSON files that do not fit, kept as rows of their own: in their places, with what is wrong."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.connectors.files import csv_reader, json_reader
from penstock.connectors.files.source import FileSource
from penstock.engine.errors import BadRowError, ConfigurationError, RecordError
from tests.connectors.reading import context, read_rows
from tests.draws import drawn
from tests.engine.helpers import local_environment

SCHEMA = {"id": "int64", "name": "string", "at": "timestamp[ms]"}
CSV = b"\n".join(
    [
        b"id,name,at",
        b"1,ann,2024-01-01 00:00:00",
        b'x,"bob, or ""b""",2024-01-01 00:00:00',
        b"3",
        b"",
        b'4,"two',
        b'lines",',
        b"5,e,2024-01-01 00:00:00,more",
        b'6,"",soon',
        b"7,g,2024-01-01 00:00:00",
        b"",
    ]
)
LINES = [
    b'{"id": 1, "name": "ann"}',
    b"{oops",
    b'{"id": "x", "name": "bob"}',
    b"",
    b"null",
    b'{"id": 4, "name": "\xff"}',
    b'{"id": 5, "other": true}',
    b'{"id": 6, "name": "f"} {"id": 7}',
]


def _kept(path: Path, schema: Mapping[str, str] = SCHEMA, null_values: Sequence[str] = ("",)) -> FileSource:
    return FileSource.of(str(path), schema=dict(schema), null_values=null_values, bad_records="keep")


def _told(rows: list[dict[str, Any]], path: Path) -> list[tuple[Any, str | None, bytes | None]]:
    return [(row["id"], (row["error"] or "").removeprefix(f"{path}, ") or None, row["raw"]) for row in rows]


def test_rows_of_csv_that_do_not_fit_stand_in_their_places(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(CSV)
    source = _kept(path)
    assert source.schema.names == ["id", "name", "at", "error", "raw"]
    header = "(the header is row 1)"
    rows = read_rows(source)
    assert _told(rows, path) == [
        (1, None, None),
        (
            None,
            f"row 3 {header}: column 'id': CSV conversion error to int64: invalid value 'x'",
            b'x,"bob, or ""b""",2024-01-01 00:00:00',
        ),
        (None, f"row 4 {header}: it has 1 fields, and the header 3", b"3"),
        (4, None, None),
        (None, f"row 6 {header}: it has 4 fields, and the header 3", b"5,e,2024-01-01 00:00:00,more"),
        (None, f"row 7 {header}: column 'at': CSV conversion error to timestamp[ms]: invalid value 'soon'", b"6,,soon"),
        (7, None, None),
    ]
    assert (rows[3]["name"], rows[3]["at"]) == ("two\nlines", None)


def test_lines_of_json_that_do_not_fit_stand_in_their_places(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(b"\n".join(LINES))
    told = _told(read_rows(_kept(path, {"id": "int64", "name": "string"})), path)
    assert [(n, raw) for n, _, raw in told] == [
        (1, None),
        (None, LINES[1]),
        (None, LINES[2]),
        (None, LINES[4]),
        (None, LINES[5]),
        (5, None),
        (None, LINES[7]),
    ]
    assert [reason.partition(":")[0] for _, reason, _ in told if reason] == [f"line {n}" for n in (2, 3, 5, 6, 8)]
    reasons = " ".join(reason for _, reason, _ in told if reason)
    for said in ("no valid JSON (Expecting property name", "field 'id' (int64)", "no JSON object", "no valid UTF-8"):
        assert said in reasons


@pytest.mark.parametrize(
    ("name", "text", "place"),
    [
        ("t.csv", "id,n\n1,1\n2,soon\nx,3\n", "row 3"),
        ("t.csv", "id,n\n1,1\nx,2\n3,3,more\n", "row 3"),
        ("t.jsonl", '{"id": 1}\n{"id": "x"}\nnull\n', "line 2"),
        ("t.jsonl", '{"id": 1}\n{oops}\nnull\n', "line 2"),
    ],
)
def test_the_first_bad_row_is_named_and_how_to_keep_it(tmp_path: Path, name: str, text: str, place: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(BadRowError, match=f"{path}, {place}[ :]") as failed:
        read_rows(FileSource.of(str(path), schema={"id": "int64", "n": "int64"} if "csv" in name else {"id": "int64"}))
    assert 'bad_records="keep"' in failed.value.remedy


def test_the_first_bad_line_is_named_where_columns_are_inferred(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text('{"id": 1}\n{oops}\nnull\n')
    with pytest.raises(BadRowError, match="line 2: no valid JSON"):
        FileSource.of(str(path))


def test_the_first_row_with_another_number_of_fields_is_named_where_columns_are_inferred(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("id,n\n1,1\n2,2,more\n3\n")
    with pytest.raises(
        BadRowError, match=rf"{path}, row 3 \(the header is row 1\): Expected 2 columns, got 3"
    ) as failed:
        FileSource.of(str(path))
    assert 'bad_records="keep"' in failed.value.remedy


def test_rows_with_too_many_fields_may_have_any_bytes(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(
        b"id,name,at,note\n1,J\xf6rg,,,x\n2,J\xf6rg,,\xff\n3,J\xc3\xb6rg,,keep\xe2\x82\nx,\xc3\xb6,,is kept\n"
    )
    rows = read_rows(_kept(path))
    assert [(row["id"], row["name"], row["raw"]) for row in rows] == [
        (None, None, b"1,J\xf6rg,,,x"),
        (None, None, b"2,J\xf6rg,,\xff"),
        (3, "J\xf6rg", None),
        (None, None, b"x,\xc3\xb6,,is kept"),
    ]
    assert "row 2 (the header is row 1): it has 5 fields" in rows[0]["error"]
    assert "row 3 (the header is row 1): column 'name'" in rows[1]["error"]


def test_rows_that_do_not_fit_are_given_a_block_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_reader, "BLOCK_BYTES", 1000)
    path, records = tmp_path / "t.csv", [f"{n},b,,more" if n % 50 else f"{n},b," for n in range(25_000)]
    path.write_text("id,name,at\n" + "".join(f"{record}\n" for record in records) + "1\n" * 25_000)
    source = _kept(path)
    reader = source.open_at(source.splits(1)[0], {"row": 0}, context())
    sizes, raw = [], []
    while isinstance(batch := reader.next_batch(1_000_000), pa.RecordBatch):
        sizes.append(batch.num_rows)
        raw += batch["raw"].to_pylist()
    reader.close()
    assert sizes[0] < 200
    assert max(sizes) <= 10_000
    assert raw == [record.encode() if n % 50 else None for n, record in enumerate(records)] + [b"1"] * 25_000


def test_a_file_of_bad_rows_only(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(b"id,name,at\n1\n2,b\n")
    assert [row["raw"] for row in read_rows(_kept(path))] == [b"1", b"2,b"]
    path.write_bytes(b"id,name,at\n")
    assert read_rows(_kept(path)) == []


def test_while_no_row_fits_what_is_held_of_them_is_hardly_more_than_the_file(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(b"id,name,at\n" + b"1,b\n" * 20_000)
    source = _kept(path)
    tracemalloc.start()
    try:
        reader = source.open_at(source.splits(1)[0], {"row": 0}, context())
        first = reader.next_batch(1000)
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    reader.close()
    assert isinstance(first, pa.RecordBatch)
    assert held < 20 * path.stat().st_size


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
@pytest.mark.parametrize("block", [16, 2**20])
def test_reading_goes_on_at_any_row(tmp_path: Path, kind: str, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (csv_reader, json_reader):
        monkeypatch.setattr(module, "BLOCK_BYTES", block)
    path = tmp_path / f"t.{kind}"
    path.write_bytes(CSV if kind == "csv" else b"\n".join(LINES))
    source = _kept(path, SCHEMA if kind == "csv" else {"id": "int64", "name": "string"})
    (split,) = source.splits(1)
    whole = read_rows(source)
    assert len(whole) == 7
    for row in range(len(whole) + 1):
        reader = source.open_at(split, {"row": row}, context())
        rest: list[dict[str, object]] = []
        while isinstance(batch := reader.next_batch(2), pa.RecordBatch):
            rest += batch.to_pylist()
        assert rest == whole[row:]
        reader.close()


_FIELDS = st.sampled_from(["1", "-2", "", "x", '"NA"', "NA", '""', '" 7"', "1.5", '"a,b"', '"a\nb"', '"a""b"', "é"])
_RECORDS = st.lists(st.lists(_FIELDS, min_size=1, max_size=3).map(",".join), max_size=12)


@settings(max_examples=drawn(40))
@given(_RECORDS, st.sampled_from([("",), ("NA", "")]))
def test_good_rows_of_csv_are_those_of_a_file_without_the_bad_ones(
    tmp_path_factory: pytest.TempPathFactory, records: list[str], null_values: tuple[str, ...]
) -> None:
    schema = {"n": "int64", "t": "string"}
    path = tmp_path_factory.mktemp("csv") / "t.csv"

    def alone(record: str) -> list[dict[str, Any]] | None:
        path.write_text(f"n,t\n{record}\n", encoding="utf-8")
        try:
            return read_rows(FileSource.of(str(path), schema=schema, null_values=null_values))
        except RecordError:
            return None

    expected = [alone(record) for record in records]
    path.write_text("n,t\n" + "".join(f"{record}\n" for record in records), encoding="utf-8")
    rows = read_rows(_kept(path, schema, null_values=null_values))
    assert [bool(row["error"]) for row in rows] == [one is None for one in expected if one != []]
    good = [{"n": row["n"], "t": row["t"]} for row in rows if row["error"] is None]
    assert good == [row for one in expected if one for row in one]


def test_bad_rows_have_no_event_time_and_hold_nothing_up(tmp_path: Path) -> None:
    import penstock as ps

    path = tmp_path / "t.jsonl"
    lines = [json.dumps({"k": "a", "at": at}) for at in (1_000, 2_000, 61_000)]
    path.write_text("\n".join([lines[0], '{"k": "a", "at": "late"}', *lines[1:]]))
    env = local_environment(1)
    in_order = ps.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner("at")
    source = _kept(path, {"k": "string", "at": "int64"})
    rows = env.from_source(source, "rows", in_order)
    windows = rows.filter(~ps.col("k").is_null()).key_by("k").window(ps.tumbling("1min")).aggregate(n=ps.count())
    assert sorted(row["n"] for row in windows.collect()) == [1, 2]


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("t.csv", {"bad_records": "skip"}, "must be 'fail' or 'keep', not 'skip'"),
        ("t.csv", {"bad_records": "keep"}, "needs `schema`"),
        ("t.csv", {"bad_records": "keep", "schema": {"id": "int64", "raw": "string"}}, "adds a column 'raw'"),
        ("t.parquet", {"bad_records": "keep", "schema": {"id": "int64"}}, "parquet has none"),
    ],
)
def test_what_cannot_be_kept_is_refused(tmp_path: Path, name: str, options: dict[str, Any], message: str) -> None:
    (tmp_path / name).write_bytes(CSV)
    with pytest.raises(ConfigurationError, match=message):
        FileSource.of(str(tmp_path / name), **options)


def test_a_file_without_the_columns_fails_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(b"id,at\n1,\n")
    with pytest.raises(RecordError, match="no column 'name'"):
        read_rows(_kept(tmp_path / "t.csv"))
