from __future__ import annotations

import pyarrow as pa
import pytest

from penstock.engine.errors import ConfigurationError
from penstock.engine.schemas import parse_schema, parse_type


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("int64", pa.int64()),
        ("string", pa.string()),
        ("timestamp[ms]", pa.timestamp("ms")),
        ("timestamp[ms, tz=UTC]", pa.timestamp("ms", tz="UTC")),
        ("timestamp[us, Europe/Paris]", pa.timestamp("us", tz="Europe/Paris")),
        ("decimal128(10, 2)", pa.decimal128(10, 2)),
        ("list<timestamp[ms, tz=UTC]>", pa.list_(pa.timestamp("ms", tz="UTC"))),
        ("struct<total: float64, n: int64>", pa.struct([("total", pa.float64()), ("n", pa.int64())])),
        (
            "struct<amount: decimal128(10, 2), of: list<struct<a: int64, b: string>>>",
            pa.struct(
                [
                    ("amount", pa.decimal128(10, 2)),
                    ("of", pa.list_(pa.struct([("a", pa.int64()), ("b", pa.string())]))),
                ]
            ),
        ),
        (pa.int8(), pa.int8()),
    ],
)
def test_types_are_known_by_name(text: pa.DataType | str, expected: pa.DataType) -> None:
    assert parse_type(text, "here") == expected


@pytest.mark.parametrize("bad", ["int65", "", "list<x>", "struct<a>", "struct<a: x>", "decimal128(99, 2)", list, None])
def test_other_types_are_refused(bad: object) -> None:
    with pytest.raises(ConfigurationError, match=r"here: .* is no type"):
        parse_type(bad, "here")


def test_schemas_are_plain() -> None:
    field = pa.field("a", pa.int64(), nullable=False, metadata={"k": "v"})
    plain = parse_schema(pa.schema([field], metadata={"k": "v"}), "here")
    assert plain.equals(pa.schema([("a", pa.int64())]), check_metadata=True)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({}, "no columns"),
        (["a"], "declared by a mapping"),
        ({1: "int64"}, "must be text"),
        ({"a": "x"}, "column 'a'"),
    ],
)
def test_bad_schemas_are_refused(bad: object, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        parse_schema(bad, "here")


@pytest.mark.parametrize(
    ("written", "kind"), [(int, pa.int64()), (float, pa.float64()), (str, pa.string()), (bool, pa.bool_())]
)
def test_python_types_are_types(written: type, kind: pa.DataType) -> None:
    assert parse_schema({"v": written}, "map") == pa.schema({"v": kind})
