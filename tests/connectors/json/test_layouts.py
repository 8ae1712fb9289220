"""Records that are read by their layout give the rows, and the refusals, of Arrow's parser."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.connectors.files.json_reader import json_chunks
from penstock.connectors.files.readers import Columns
from penstock.connectors.json import layouts
from penstock.connectors.json.layouts import Layouts
from penstock.connectors.records import JsonFormat
from penstock.connectors.records.batches import as_texts
from penstock.engine.errors import RecordError
from tests.draws import drawn

SCHEMA = {
    "i": "int64",
    "small": "int8",
    "d": "float64",
    "f": "float32",
    "b": "bool",
    "s": "string",
    "t": "timestamp[us]",
    "z": "timestamp[ms, UTC]",
    "day": "date32",
    "in": pa.struct([("x", pa.int64()), ("y", pa.string())]),
}

NUMBERS = st.one_of(
    st.integers(-(2**65), 2**65).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.sampled_from(["0", "-0", "01", "1.", ".5", "-", "1e5", "1E+400", "NaN", "-0.0", "0.1", "127", "128", "9" * 310]),
)
TIMES = st.one_of(
    st.datetimes().map(lambda time: json.dumps(time.isoformat())),
    st.sampled_from(['"2020-01-01"', '"2020-01-01T00:00:00Z"', '"2020-01-01 00:00:00+02:00"', '"2020-13-01"', '"x"']),
)
VALUES = st.one_of(
    NUMBERS,
    TIMES,
    st.text().map(json.dumps),
    st.text().map(lambda text: json.dumps(text, ensure_ascii=False)),
    st.sampled_from(["null", "true", "false", "nul", "{}", "[]", '[1, "a"]', '{"x": 1}', '{"x": 1, "x": 2}', '"\x01"']),
)
FIT = {
    "i": st.integers(-5, 5).map(str),
    "small": st.integers(-128, 127).map(str),
    "d": st.sampled_from(["0.5", "1", "-0.25", "1234567890.12345678"]),
    "f": st.sampled_from(["0.1", "16777217", "3"]),
    "b": st.sampled_from(["true", "false", "null"]),
    "s": st.text(st.characters(exclude_characters='"\\', exclude_categories=["Cc", "Cs"])).map('"{}"'.format),
    "t": st.sampled_from(['"2020-01-01T10:00:00"', '"1969-12-31T23:59:59.999"', '"2021-02-03T04:05:06Z"']),
    "z": st.sampled_from(['"2020-01-01T10:00:00Z"', '"2021-02-03T04:05:06+01:00"', '"2021-02-03T04:05:06"']),
    "day": st.sampled_from(['"2020-01-01"', "null"]),
    "in": st.sampled_from(['{"x": 1, "y": "a"}', '{"x": null, "y": "b"}', "null"]),
    "other": st.sampled_from(["1", '"a"', "null"]),
    'odd  " \\: {': st.just("0"),
    "nested": st.sampled_from(['{"p": [1, {"q": 2}], "r": {}}', '{"p": [3, {"q": "z"}], "r": {}}']),
}


@st.composite
def batches(draw: st.DrawFn) -> list[bytes | None]:
    """Records of one layout, some of them with another value, space or byte, or no record at all."""
    names = draw(st.lists(st.sampled_from(sorted(FIT)), unique=True, max_size=6))
    colons, commas = st.sampled_from([":", ": ", " :\t"]), st.sampled_from([",", ", ", "\n,", f",{' ' * 19}"])
    colon, comma, end = draw(colons), draw(commas), "}"
    records: list[bytes | None] = []
    for _ in range(draw(st.integers(1, 6))):
        values = {name: draw(FIT[name]) for name in names}
        how = draw(st.sampled_from(["as it is"] * 6 + ["value", "space", "absent", "order", "twice", "byte", "null"]))
        if how == "value" and names:
            values[draw(st.sampled_from(names))] = draw(VALUES)
        fields = [f"{json.dumps(name)}{colon}{value}" for name, value in values.items()]
        if how == "absent":
            fields = fields[1:]
        if how == "order":
            fields.reverse()
        if how == "twice":
            fields += fields[:1]
        if how == "space":
            colon, comma, end = draw(colons), draw(commas), draw(st.sampled_from(["}", f"{' ' * 9}}}", "} \r"]))
        record = ("{" + comma.join(fields) + end).encode("utf-8", "surrogatepass")
        if how == "byte":
            at = draw(st.integers(0, len(record) - 1))
            record = record[:at] + draw(st.binary(max_size=2)) + record[at + 1 :]
        records.append(None if how == "null" else record)
    return records


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layouts, "WORTHWHILE_RECORDS", 0)
    layouts._loader.wait()


class _ByArrow(JsonFormat):
    """The same format without layouts."""

    def _read_values(self, values: pa.LargeBinaryArray) -> pa.RecordBatch:
        return self._read_any(as_texts(values))


@settings(max_examples=drawn(40))
@given(st.lists(batches(), min_size=1, max_size=3))
def test_rows_and_refusals_are_those_of_the_general_parser(given_batches: list[list[bytes | None]]) -> None:
    fast, plain = JsonFormat(SCHEMA), _ByArrow(SCHEMA)
    for records in given_batches:
        values = pa.array(records, pa.large_binary())
        found, wanted = fast.decode(values), plain.decode(values)
        assert found.bad == wanted.bad
        assert repr(found.rows.to_pylist()) == repr(wanted.rows.to_pylist())
        found.rows.validate(full=True)


def test_records_of_several_layouts_keep_their_order() -> None:
    records = [b'{"i": 1, "s": "a"}', b'{"s":"b"}', b'{"i": 2, "s": "c\\n"}', b'{"i": 3, "s": "d"}', b'{"s":"e"}']
    decoded = JsonFormat({"i": "int64", "s": "string"}).decode(pa.array(records * 3, pa.large_binary()))
    rows = [(1, "a"), (None, "b"), (2, "c\n"), (3, "d"), (None, "e")]
    assert [(row["i"], row["s"]) for row in decoded.rows.to_pylist()] == rows * 3


def test_what_is_read_by_layout_never_reaches_the_general_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(JsonFormat, "_read_any", lambda *_: pytest.fail("Arrow parsed a record that has the layout"))
    records = [
        f'{{"id": {i}, "geo": {{"lat": {i}.5, "tags":{" " * (i % 7)}["a", {i}]}}, "name": "n{i}"}}'.ljust(80).encode()
        for i in range(99)
    ]
    decoded = JsonFormat({"id": "int64", "name": "string", "geo": pa.struct([("lat", pa.float64())])}).decode(
        pa.array(records, pa.large_binary())
    )
    assert decoded.rows.to_pylist() == [{"id": i, "name": f"n{i}", "geo": {"lat": i + 0.5}} for i in range(99)]


@pytest.mark.parametrize("kind", ["int64", "uint64", "int16"])
def test_whole_numbers_are_read_up_to_the_ends_of_their_types(kind: str) -> None:
    ends = [2**15, 2**16, 10**18, 10**19, 2**63, 2**64]
    numbers = sorted({sign * (end + step) for end in ends for step in (-1, 0, 1) for sign in (1, -1)})
    for number in numbers:
        records = pa.array([f'{{"i": {one}}}'.encode() for one in (7, number, -1, "null", "1.5")], pa.large_binary())
        found, wanted = (of({"i": kind}).decode(records) for of in (JsonFormat, _ByArrow))
        assert found.rows.equals(wanted.rows)
        assert found.bad == wanted.bad


@pytest.mark.parametrize("stop", ['"', "\\n", "\x1f"])
def test_a_text_ends_where_arrow_ends_it_however_long_it_is(stop: str) -> None:
    # Those that end with a quote fit the layout; the other two stops are Arrow's, and the last is no JSON.
    texts = ["é\x7f" * (size // 3) + "a" * (size % 3) for size in range(140)]
    records = [f'{{"s": "{text}{stop if stop != chr(34) else ""}", "i": {n}}}'.encode() for n, text in enumerate(texts)]
    decoded = JsonFormat({"s": "string", "i": "int64"}).decode(pa.array(records, pa.large_binary()))
    if stop == "\x1f":
        assert len(decoded.bad) == len(records)
    else:
        wanted = [text + ("\n" if stop != '"' else "") for text in texts]
        assert decoded.rows.to_pydict() == {"s": wanted, "i": list(range(len(texts)))}


@pytest.mark.parametrize("size", [0, 3, 31, 32, 70])
@pytest.mark.parametrize("field", ["s", "nobody wants it"])
def test_a_value_that_is_no_utf_8_makes_its_record_bad(field: str, size: int) -> None:
    texts = [b"a" * size, "\u00e9".encode() * size + b"a", b"a" * size + b"\xe9 and more of it", b"b" * size]
    records = pa.array([b'{"%s": "%s", "i": 1}' % (field.encode(), text) for text in texts], pa.large_binary())
    decoded = JsonFormat({"s": "string", "i": "int64"}).decode(records)
    assert [(bad.index, "no valid UTF-8" in bad.reason) for bad in decoded.bad] == [(2, True)]
    assert decoded.rows.column("i").to_pylist() == [1, 1, 1]


def test_white_space_within_a_name_is_part_of_it() -> None:
    names = ["a b", "a  b", 'a" b', 'a"  b', "a\\ b", "a\\  b"]
    for spaced, other in pairwise(names):
        records = [json.dumps({name: i}).encode() for i, name in enumerate([spaced, spaced, other, spaced])]
        decoded = JsonFormat({spaced: "int64"}).decode(pa.array(records, pa.large_binary()))
        assert decoded.rows.column(0).to_pylist() == [0, 1, None, 3]


def test_records_without_a_common_layout_are_soon_left_to_the_general_parser() -> None:
    schema = pa.schema([("x", pa.int64())])
    assert rows_behind(Layouts(schema), tried=7) == [{"x": 122}] * 10
    assert rows_behind(Layouts(schema), tried=8) is None


def rows_behind(known: Layouts, tried: int) -> list[Any] | None:
    """What comes of records that have one behind so many batches of records that have none."""
    starts = np.arange(0, 100, 10)
    for _ in range(tried):
        assert known.read(np.frombuffer(b'{"x": 1e2}' * 10, np.uint8), starts, starts + 10) is None
    fitted = known.read(np.frombuffer(b'{"x": 122}' * 10, np.uint8), starts, starts + 10)
    return None if fitted is None else fitted.rows.to_pylist()


@pytest.mark.parametrize("zones", [["Z", "Z", "Z"], ["", "Z", "+01:00"]])
def test_times_with_and_without_zones_in_one_file_are_read_as_by_arrow(tmp_path: Path, zones: list[str]) -> None:
    path = tmp_path / "rows.json"
    path.write_text("".join(f'{{"t": "2020-01-01T10:00:00{zone}"}}\n' for zone in zones))
    (rows,) = json_chunks(str(path), Columns(pa.schema([("t", pa.timestamp("ms"))]), declared=True))
    assert [time.hour for time in rows["t"].to_pylist()] == [9 if zone == "+01:00" else 10 for zone in zones]


@pytest.mark.parametrize("declared", [True, False])
@pytest.mark.parametrize("ending", ["\n", "\r\n", "\n\n"])
def test_a_file_is_read_by_layout_as_by_arrow(tmp_path: Path, declared: bool, ending: str) -> None:
    path = tmp_path / "rows.json"
    lines: list[Any] = [json.dumps({"i": i, "s": f"row {i}"}) for i in range(50)]
    lines[7] = '{"s": "escaped \\" quote", "i": 7}'
    path.write_bytes(ending.join(lines).encode())
    columns = Columns(pa.schema([("i", pa.int64()), ("s", pa.string())]), declared=declared)
    rows = pa.Table.from_batches(list(json_chunks(str(path), columns))).to_pylist()
    assert rows == [json.loads(line) for line in lines]


def test_a_field_that_an_inferred_schema_lacks_is_refused_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    path.write_text("".join(f'{{"i": {i}, "new": {i}}}\n' for i in range(9)))
    with pytest.raises(RecordError, match="'new' is not in the schema"):
        list(json_chunks(str(path), Columns(pa.schema([("i", pa.int64())]), declared=False)))
