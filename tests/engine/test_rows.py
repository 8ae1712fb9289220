"""Rows to Arrow and back: types from the declaration or the first values, the same in any cut into batches."""

from __future__ import annotations

import datetime as dt
import enum
import math
from collections import OrderedDict
from collections.abc import Callable
from decimal import Decimal
from itertools import pairwise
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.elements import concat_record_batches
from penstock.engine.errors import ConfigurationError, RecordError
from penstock.engine.rows import ColumnConverter, RowConverter, batch_rows, declared_schema, row_texts

UTC = dt.timezone.utc
WHERE = "operator 'map', subtask 2"


def convert(rows: list[Any], schema: pa.Schema | None = None) -> pa.RecordBatch:
    return RowConverter(schema, WHERE).convert(rows)


def column_type(value: object) -> pa.DataType:
    return convert([{"v": value}]).schema.field("v").type


# --- declared types -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("int64", pa.int64()),
        ("string", pa.string()),
        ("float64", pa.float64()),
        ("bool", pa.bool_()),
        ("timestamp[ms]", pa.timestamp("ms")),
        ("timestamp[ms, UTC]", pa.timestamp("ms", "UTC")),
        ("timestamp[us, tz=Europe/Berlin]", pa.timestamp("us", "Europe/Berlin")),
        ("decimal128(10, 2)", pa.decimal128(10, 2)),
        ("list<int64>", pa.list_(pa.int64())),
        (str(pa.list_(pa.timestamp("s", "UTC"))), pa.list_(pa.timestamp("s", "UTC"))),
        (pa.int8(), pa.int8()),
    ],
)
def test_types_are_declared_by_text_or_type(text: object, kind: pa.DataType) -> None:
    assert declared_schema({"v": text}, "map") == pa.schema([("v", kind)])


def test_a_schema_declares_itself_and_none_declares_nothing() -> None:
    schema = pa.schema([pa.field("v", pa.int64())])
    assert declared_schema(schema, "map") == schema
    assert declared_schema(None, "map") is None


@pytest.mark.parametrize(
    "returns",
    [
        {"v": "int65"},
        {"v": "timestamp[ms, Nowhere]"},
        {"v": "decimal128(99, 2)"},
        {"v": "list<>"},
        {"v": 5},
        {"v": list},
        {5: "int64"},
        {},
        ["v"],
        pa.schema([("v", pa.int64()), ("v", pa.int64())]),
    ],
)
def test_a_bad_declaration_is_refused(returns: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"^map: "):
        declared_schema(returns, "map")


def test_declared_columns_are_cast_and_stand_in_their_order() -> None:
    schema = declared_schema({"a": "int8", "b": "float32", "c": "timestamp[s, UTC]"}, "map")
    rows = [{"c": dt.datetime(2020, 1, 1, tzinfo=UTC), "b": 1, "a": None}, {"a": 5, "b": None, "c": None}]
    batch = convert(rows, schema)
    assert batch.schema == schema
    assert batch.to_pydict() == {
        "a": [None, 5],
        "b": [1.0, None],
        "c": [dt.datetime(2020, 1, 1, tzinfo=UTC), None],
    }


@pytest.mark.parametrize(
    ("kind", "value", "reason"),
    [
        (pa.int64(), 1.5, "float in a column of int64"),
        (pa.int64(), True, "bool in a column of int64"),
        (pa.int64(), np.True_, "bool in a column of int64"),
        (pa.int64(), "5", "str in a column of int64"),
        (pa.int64(), 2**63, "large"),
        (pa.int8(), 300, "300"),
        (pa.float64(), True, "bool in a column of double"),
        (pa.float64(), 2**60 + 1, "outside of the range"),
        (pa.bool_(), 1, "int in a column of bool"),
        (pa.string(), b"x", "bytes in a column of string"),
        (pa.string(), "\ud800", "surrogates"),
        (pa.binary(), "x", "str in a column of binary"),
        (pa.date32(), dt.datetime(2020, 1, 1), "datetime in a column of date32"),
        (pa.timestamp("ms"), dt.datetime(2020, 1, 1, 0, 0, 0, 1), "lose data"),
        (pa.timestamp("ms"), dt.datetime(2020, 1, 1, tzinfo=UTC), "with a time zone in a column"),
        (pa.timestamp("ms", "UTC"), dt.datetime(2020, 1, 1), "of type datetime in a column"),
        (pa.timestamp("ms"), 5, "int in a column of timestamp"),
        (pa.timestamp("ns"), dt.datetime(9999, 1, 1), "out of bounds"),
        (pa.duration("s"), dt.timedelta(milliseconds=1), "lose data"),
        (pa.time32("s"), dt.time(1, 2, 3, 4), "lose data"),
        (pa.decimal128(5, 2), Decimal("1.234"), "data loss"),
        (pa.decimal128(5, 2), 1.5, "float in a column of decimal"),
        (pa.list_(pa.int64()), [1, 2.5], "float in a column of int64"),
        (pa.list_(pa.timestamp("s")), [dt.datetime(2020, 1, 1, 0, 0, 0, 1)], "lose data"),
        (pa.list_(pa.int64()), 5, "int in a column of list"),
        (pa.struct([("a", pa.int64())]), {"a": 1, "b": 2}, "unknown key 'b'"),
        (pa.struct([("a", pa.int64())]), {"a": "x"}, "str in a column of int64"),
        (pa.dictionary(pa.int32(), pa.string()), 5, "int in a column of string"),
        (pa.null(), 5, "int in a column of null"),
        (pa.int64(), object(), "builtins.object has no Arrow type"),
    ],
)
def test_a_value_that_does_not_fit_its_declaration(kind: pa.DataType, value: object, reason: str) -> None:
    schema = pa.schema([("k", pa.int64()), ("v", kind)])
    with pytest.raises(RecordError) as caught:
        convert([{"k": 1, "v": None}, {"k": 2, "v": value}], schema)
    text = str(caught.value)
    assert text.startswith(f"{WHERE}: row 1, column 'v': ")
    assert reason in text
    assert f"declared type {kind}" in text
    assert "the row is {'k': 2" in text


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.float64(), 5),
        (pa.decimal128(5, 2), 5),
        (pa.dictionary(pa.int32(), pa.string()), "x"),
        (pa.large_string(), "x"),
        (pa.list_(pa.timestamp("s")), [dt.datetime(2020, 1, 1)]),
        (pa.struct([("a", pa.int64()), ("b", pa.date64())]), {"a": 1, "b": dt.date(2020, 1, 2)}),
        (pa.map_(pa.string(), pa.int64()), [("a", 1)]),
        (pa.time32("ms"), dt.time(1, 2, 3)),
    ],
)
def test_a_value_that_fits_its_declaration(kind: pa.DataType, value: object) -> None:
    batch = convert([{"v": value}, {"v": None}], pa.schema([("v", kind)]))
    assert batch.schema.field("v").type == kind
    assert batch["v"].to_pylist()[0] == value


def test_an_undeclared_key_is_refused() -> None:
    with pytest.raises(RecordError, match=r"row 1 has the key 'b', which is not among the declared columns a, c"):
        convert([{"a": 1, "c": 1}, {"a": 1, "b": 2}], declared_schema({"a": "int64", "c": "int64"}, "map"))


def test_a_declared_column_that_a_row_lacks_is_refused() -> None:
    schema = declared_schema({"a": "int64", "total": "int64"}, "map")
    with pytest.raises(RecordError, match=r"row 1 lacks the key 'total', which is declared.*as None where there is no"):
        convert([{"a": 1, "total": 1}, {"a": 1}], schema)


def test_null_in_a_column_declared_without() -> None:
    schema = pa.schema([pa.field("a", pa.int64(), nullable=False)])
    with pytest.raises(RecordError, match=r"row 1, column 'a'.*declared without nulls"):
        convert([{"a": 1}, {"a": None}], schema)


# --- inferred types -----------------------------------------------------------------------------------------


class Color(enum.IntEnum):
    RED = 7


class Label(str, enum.Enum):
    A = "a"


class Moment(dt.datetime):
    pass


@pytest.mark.parametrize(
    ("value", "kind", "stored"),
    [
        (1, pa.int64(), 1),
        (1.5, pa.float64(), 1.5),
        ("a", pa.string(), "a"),
        (b"a", pa.binary(), b"a"),
        (bytearray(b"a"), pa.binary(), b"a"),
        (True, pa.bool_(), True),
        (dt.date(2020, 1, 2), pa.date32(), dt.date(2020, 1, 2)),
        (dt.datetime(1, 1, 1), pa.timestamp("us"), dt.datetime(1, 1, 1)),
        (Moment(2020, 1, 1, tzinfo=UTC), pa.timestamp("us", "UTC"), dt.datetime(2020, 1, 1, tzinfo=UTC)),
        (
            dt.datetime(2020, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=2))),
            pa.timestamp("us", "UTC"),
            dt.datetime(2019, 12, 31, 22, tzinfo=UTC),
        ),
        (dt.time(1, 2, 3, 4), pa.time64("us"), dt.time(1, 2, 3, 4)),
        (dt.timedelta(days=1, microseconds=1), pa.duration("us"), dt.timedelta(days=1, microseconds=1)),
        (Decimal("1.5"), pa.decimal128(38, 18), Decimal("1.5")),
        ([1, None, 2], pa.list_(pa.int64()), [1, None, 2]),
        ((1, 2), pa.list_(pa.int64()), [1, 2]),
        ([["a"], []], pa.list_(pa.list_(pa.string())), [["a"], []]),
        ({"a": 1, "b": [1.5]}, pa.struct([("a", pa.int64()), ("b", pa.list_(pa.float64()))]), {"a": 1, "b": [1.5]}),
        (np.int8(5), pa.int64(), 5),
        (np.float32(0.5), pa.float64(), 0.5),
        (np.bool_(True), pa.bool_(), True),
        (np.str_("a"), pa.string(), "a"),
        (np.datetime64("2020-01-01T00:00:00.000000000"), pa.timestamp("us"), dt.datetime(2020, 1, 1)),
        (np.datetime64("2020-01-01"), pa.date32(), dt.date(2020, 1, 1)),
        (np.timedelta64(1, "s"), pa.duration("us"), dt.timedelta(seconds=1)),
        (np.datetime64("NaT"), pa.null(), None),
        (np.array([1, 2], np.int8), pa.list_(pa.int64()), [1, 2]),
        ({"a": [np.float64(1)]}, pa.struct([("a", pa.list_(pa.float64()))]), {"a": [1.0]}),
        (Color.RED, pa.int64(), 7),
        (Label.A, pa.string(), "a"),
        (None, pa.null(), None),
    ],
)
def test_the_type_of_a_first_value(value: object, kind: pa.DataType, stored: object) -> None:
    batch = convert([{"v": value}])
    assert batch.schema.field("v").type == kind
    assert batch["v"].to_pylist() == [stored]


def test_names_and_order_are_those_of_the_first_row() -> None:
    batch = convert([{"b": 1, "a": 2}, {"a": 3, "b": 4}])
    assert batch.to_pydict() == {"b": [1, 4], "a": [2, 3]}


def test_a_column_takes_its_type_when_a_value_comes() -> None:
    converter = RowConverter(None, WHERE)
    assert converter.convert([{"v": None, "n": {"a": None, "b": []}}]).schema.field("v").type == pa.null()
    second = converter.convert([{"v": 1.5, "n": {"a": 1, "b": ["x"]}}])
    assert second.schema == pa.schema(
        [("v", pa.float64()), ("n", pa.struct([("a", pa.int64()), ("b", pa.list_(pa.string()))]))]
    )
    assert converter.convert([{"v": None, "n": None}]).schema == second.schema == converter.schema


@pytest.mark.parametrize(
    ("first", "second", "reason"),
    [
        (1, 1.5, "float"),
        (1.5, 1, "int"),
        (1, True, "bool"),
        (1, "a", "str"),
        ("a", b"a", "bytes"),
        (dt.date(2020, 1, 1), dt.datetime(2020, 1, 1), "datetime"),
        (dt.datetime(2020, 1, 1), dt.datetime(2020, 1, 1, tzinfo=UTC), "time zone"),
        ([1], 1, "int"),
        ([1], [1.5], "float"),
        ([[1]], [["a"]], "str"),
        ({"a": 1}, {"a": 1.5}, "float"),
        ({"a": 1}, {"a": 1, "b": 2}, "keys"),
        ({"a": 1}, {}, "keys"),
        (1, 2**63, "large"),
        (Decimal("1.5"), Decimal("1e-20"), "data loss"),
        (1, {1, 2}, "builtins.set has no Arrow type"),
    ],
)
def test_what_mixes_is_an_error_in_one_batch_and_across_batches(first: object, second: object, reason: str) -> None:
    rows: list[Any] = [{"v": first}, {"v": None}, {"v": second}]
    for cut in range(3):
        converter = RowConverter(None, WHERE)
        with pytest.raises(RecordError) as caught:
            [converter.convert(part) for part in (rows[:cut], rows[cut:])]
        text = str(caught.value)
        assert f"row {2 - cut}, column 'v': " in text
        assert reason in text
        assert "returns={'v': 'float64'}" in text


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"a": 1}, {"b": 1}], "row 1 has the key 'b', unlike the rows before"),
        ([{"a": 1, "b": 2}, {"a": 1}], "row 1 lacks the key 'b'.*declare the columns with returns"),
        ([{"a": 1}, 5], r"row 1 is 5 \(int\), not a dict; return a dict"),
        ([None], "row 0 is None"),
        ([{}], "empty dict"),
        ([{5: 1}], "the key 5; a column's name is a text"),
        ([{"a": {5: 1}}], "a key that is no text"),
    ],
)
def test_rows_that_are_no_rows(rows: list[Any], message: str) -> None:
    with pytest.raises(RecordError, match=message):
        convert(rows)


def test_any_mapping_is_a_row() -> None:
    assert convert([OrderedDict(a=1), MappingProxyType({"a": 2}), {"a": 3}]).to_pydict() == {"a": [1, 2, 3]}


def test_no_rows_make_no_rows() -> None:
    assert convert([]).num_rows == 0
    assert convert([], pa.schema([("a", pa.int64())])).schema.names == ["a"]


SCALARS = st.one_of(
    st.none(),
    st.integers(-5, 5),
    st.sampled_from([0.5, math.inf]),
    st.text("ab", max_size=2),
    st.booleans(),
    st.sampled_from([Decimal("1.5"), Decimal("20.25"), dt.datetime(2020, 1, 1), dt.date(2020, 1, 1)]),
)
MIXED = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=3,
)
ALIKE = st.sampled_from(
    [
        st.none() | st.integers(-5, 5),
        st.none() | st.lists(st.none() | st.integers(-5, 5), max_size=2),
        st.none() | st.fixed_dictionaries({"a": st.none() | st.lists(st.none() | st.booleans(), max_size=1)}),
        st.sampled_from([Decimal("1.5"), Decimal("20.25"), None]),
        MIXED,
    ]
)


def outcome(rows: list[dict[str, Any]], cuts: list[int]) -> pa.RecordBatch | None:
    """The rows in one batch, having gone through a converter in parts; None where one was refused."""
    converter = RowConverter(None, WHERE)
    edges = [0, *sorted(cuts), len(rows)]
    try:
        parts = [converter.convert(rows[a:b]) for a, b in pairwise(edges) if a < b]
    except RecordError:
        return None
    return concat_record_batches(parts)


@given(ALIKE.flatmap(lambda values: st.lists(values, min_size=1, max_size=6)), st.lists(st.integers(0, 6)))
def test_the_outcome_does_not_depend_on_the_cuts(values: list[Any], cuts: list[int]) -> None:
    rows = [{"v": value} for value in values]
    whole = outcome(rows, [])
    parts = outcome(rows, [min(cut, len(rows)) for cut in cuts])
    if whole is None or parts is None:
        assert whole is parts
    else:
        assert parts.schema == whole.schema
        assert parts == whole


# --- Arrow to rows ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "array",
    [
        pa.array([1, None, 3], pa.int8()),
        pa.array([1.5, None]),
        pa.array(["a", None]),
        pa.array(["a", None, "a"]).dictionary_encode(),
        pa.array([b"a", None], pa.large_binary()),
        pa.array([True, None]),
        pa.array([0, None, -1, 253402300799999], pa.timestamp("ms")),
        pa.array([0, None, 253402300799999999], pa.timestamp("us", "UTC")),
        pa.array([-62135596800, None], pa.timestamp("s", "UTC")),
        pa.array([1_600_000_000_000, None], pa.timestamp("ms", "America/New_York")),
        pa.array([0, None, -719162, 2932896], pa.date32()),
        pa.array([86_400_000, None], pa.date64()),
        pa.array([1, None, 86_399_999_999], pa.time64("us")),
        pa.array([1, None], pa.time32("s")),
        pa.array([1, None, -(10**12)], pa.duration("ms")),
        pa.array([Decimal("1.50"), None]),
        pa.array([[1, None], [], None]),
        pa.array([{"a": 1, "b": None}, None]),
        pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int64())),
        pa.nulls(2),
        pa.array([(1, 2, 3)], pa.month_day_nano_interval()),
    ],
)
def test_rows_have_the_values_that_arrow_gives(array: pa.Array) -> None:
    for part in (array, array.slice(1)):
        batch = pa.RecordBatch.from_arrays([part, part], names=["a", "b"])
        assert batch_rows(batch) == batch.to_pylist()


def test_whole_microseconds_of_a_column_in_nanoseconds() -> None:
    array = pa.array([5000, None], pa.timestamp("ns"))
    rows = batch_rows(pa.RecordBatch.from_arrays([array, array.cast(pa.int64()).cast(pa.duration("ns"))], ["t", "d"]))
    assert rows[0] == {"t": dt.datetime(1970, 1, 1, 0, 0, 0, 5), "d": dt.timedelta(microseconds=5)}
    assert type(rows[0]["t"]) is dt.datetime


@pytest.mark.parametrize("within", [lambda kind: pa.list_(kind), lambda kind: pa.map_(pa.int64(), kind)])
def test_whole_microseconds_within_a_column(within: Callable[[pa.DataType], pa.DataType]) -> None:
    kind = within(pa.timestamp("ns"))
    value: Any = [5000] if pa.types.is_list(kind) else [(1, 5000)]
    array = pa.array([value, None], within(pa.int64())).cast(kind)
    (first, second) = batch_rows(pa.RecordBatch.from_arrays([array], ["t"]))
    found = first["t"][0] if pa.types.is_list(kind) else first["t"][0][1]
    assert (type(found), found, second["t"]) == (dt.datetime, dt.datetime(1970, 1, 1, 0, 0, 0, 5), None)


def test_times_of_pandas_are_datetimes_and_lose_nothing() -> None:
    assert convert([{"at": pd.Timestamp(5000)}, {"at": pd.NaT}])["at"].to_pylist() == [
        dt.datetime(1970, 1, 1, 0, 0, 0, 5),
        None,
    ]
    with pytest.raises(RecordError, match=r"row 1, column 'at': Timestamp\(.*\): .* has more than microseconds"):
        convert([{"at": pd.Timestamp(5000)}, {"at": pd.Timestamp(5001)}])


@pytest.mark.parametrize(
    "array",
    [
        pa.array([1], pa.timestamp("ns")),
        pa.array([1], pa.duration("ns")),
        pa.array([1], pa.time64("ns")),
        pa.array([253402300800], pa.timestamp("s")),
        pa.array([253402300800], pa.timestamp("s", "UTC")),
        pa.array([2932897], pa.date32()),
        pa.array([-719163], pa.date32()),
        pa.array([[1]], pa.list_(pa.timestamp("ns"))),
        pa.array([{"of": 1}], pa.struct([("of", pa.duration("ns"))])),
        pa.array([[253402300800]], pa.list_(pa.timestamp("s", "UTC"))),
    ],
)
def test_times_that_python_cannot_hold_are_errors(array: pa.Array) -> None:
    with pytest.raises(RecordError, match=r"operator 'map', subtask 2: column 'at' is .*Python cannot hold"):
        batch_rows(pa.RecordBatch.from_arrays([array], names=["at"]), WHERE)


@given(st.lists(st.fixed_dictionaries({"a": st.none() | st.integers(-9, 9), "b": st.text(), "c": st.floats(-1, 1)})))
def test_rows_survive_the_way_to_arrow_and_back(rows: list[dict[str, Any]]) -> None:
    assert batch_rows(convert(rows)) == rows


def test_a_column_alone_reports_the_row_it_was_computed_from() -> None:
    converter = ColumnConverter("n", None, WHERE)
    converter.convert([1])
    with pytest.raises(RecordError, match=r"row 0, column 'n': 'x'.*the row is \{'word': 'y'\}"):
        converter.convert(["x"], [{"word": "y"}])


def test_rows_are_shown_whole_and_as_arrow_prints_them_where_python_cannot_hold_them() -> None:
    at = pa.array([0, 2**52], pa.timestamp("ms"))
    first, second = row_texts(pa.record_batch({"at": at, "text": ["x" * 1000, "y"]}))
    assert first == str({"at": dt.datetime(1970, 1, 1), "text": "x" * 1000})
    assert second.startswith("pyarrow.RecordBatch at: timestamp[ms]")
    assert list(row_texts(pa.record_batch({"n": [1, 2]}))) == ["{'n': 1}", "{'n': 2}"]


def test_a_time_inside_of_a_column_that_python_cannot_hold_is_told_too() -> None:
    batch = pa.record_batch({"times": pa.array([[2**52]], pa.list_(pa.timestamp("ms")))})
    with pytest.raises(RecordError, match="column 'times' is list"):
        batch_rows(batch, WHERE)
    assert next(row_texts(batch)).startswith("pyarrow.RecordBatch times: list")
