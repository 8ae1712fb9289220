"""BITMAP and structured types: what their functions give, and what they refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import StreamEnvironment
from penstock.engine.errors import PenstockError, SqlValidationError
from penstock.tables.functions.roaring import bitmap_bytes, bitmap_numbers, shown_bitmap

_NUMBERS = st.lists(st.integers(0, 2**32 - 1) | st.integers(0, 70_000), max_size=20)
_RANGES = st.lists(st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 9_000)), max_size=3)


@given(_NUMBERS, _RANGES)
def test_sets_are_read_as_they_are_written(numbers: list[int], ranges: list[tuple[int, int]]) -> None:
    whole = [np.arange(start, min(start + count, 2**32)) for start, count in ranges]
    found = np.unique(np.concatenate([np.array(numbers, np.int64), *whole])).astype(np.uint32)
    assert bitmap_numbers(bitmap_bytes(found)).tolist() == found.tolist()


@pytest.mark.parametrize(
    ("data", "numbers"),
    [
        # By the specification: a container of runs (2 to 4, and 9), which others write, without offsets.
        ("3b300000 01 0000 0300 0200 0200 0200 0900 0000", [2, 3, 4, 9]),
        ("3a300000 01000000 0100 0100 10000000 0100 0500", [65_537, 65_541]),
        ("3a300000 00000000", []),
    ],
)
def test_the_form_of_others_is_read(data: str, numbers: list[int]) -> None:
    assert bitmap_numbers(bytes.fromhex(data)).tolist() == numbers


def test_what_is_no_bitmap_is_told() -> None:
    whole = bitmap_bytes(np.arange(5_000, dtype=np.uint32))
    for data in (b"", b"\0" * 8, whole[:-1]):
        with pytest.raises(ValueError, match="no Roaring bitmap"):
            bitmap_numbers(data)


def test_a_long_text_is_cut() -> None:
    text = shown_bitmap(bitmap_bytes(np.arange(200_000, dtype=np.uint32)))
    assert text.endswith(",...}")
    assert 0x80000 < len(text) < 0x80000 + 20


def _one(expressions: str, source: str = "") -> dict[str, Any]:
    table = StreamEnvironment(runtime="local", parallelism=1).sql(f"SELECT {expressions} {source}")
    assert table is not None
    return list(table.to_changelog().collect())[-1]


_A, _B = "BITMAP_BUILD(ARRAY[3, -1, 1, 3, CAST(NULL AS INT)])", "BITMAP_BUILD(ARRAY[3, 4])"


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        (f"BITMAP_TO_STRING({_A})", "{1,3,4294967295}"),
        (f"BITMAP_TO_ARRAY({_A})", [1, 3, -1]),
        (f"BITMAP_CARDINALITY({_A})", 3),
        (f"CAST(BITMAP_AND({_A}, {_B}) AS STRING)", "{3}"),
        (f"CAST(BITMAP_ANDNOT({_A}, {_B}) AS STRING)", "{1,4294967295}"),
        (f"CAST(BITMAP_OR({_A}, {_B}) AS STRING)", "{1,3,4,4294967295}"),
        (f"CAST(BITMAP_XOR({_A}, {_B}) AS STRING)", "{1,4,4294967295}"),
        (f"BITMAP_FROM_BYTES(BITMAP_TO_BYTES({_A})) = BITMAP_BUILD(ARRAY[-1, 3, 1])", True),
        # As Flink writes it: of three forms of a container the smallest.
        ("HEX(BITMAP_TO_BYTES(BITMAP_BUILD(ARRAY[1, 2, 3, 4, 5])))", "3B3000000100000400010001000400"),
        (f"BITMAP_AND({_A}, CAST(NULL AS BITMAP)) IS NULL", True),
        ("BITMAP_TO_STRING(BITMAP_BUILD(CAST(NULL AS ARRAY<INT>)))", None),
        (f"TYPEOF({_A})", "BITMAP NOT NULL"),
    ],
)
def test_bitmaps(expression: str, value: object) -> None:
    assert _one(f"{expression} AS v")["v"] == value


def test_bitmaps_of_groups() -> None:
    calls = (
        "CAST(BITMAP_BUILD_AGG(x) AS STRING) AS a, BITMAP_BUILD_CARDINALITY_AGG(x) AS b, "
        "CAST(BITMAP_BUILD_AGG(x) FILTER (WHERE x > 2) AS STRING) AS c, "
        "CAST(BITMAP_AND_AGG(BITMAP_BUILD(ARRAY[x, 7])) AS STRING) AS d, "
        "CAST(BITMAP_OR_AGG(BITMAP_BUILD(ARRAY[x, 7])) AS STRING) AS e, "
        "BITMAP_XOR_CARDINALITY_AGG(BITMAP_BUILD(ARRAY[x, 7])) AS f, BITMAP_BUILD_AGG(n) AS g"
    )
    # The last row of each k counts, so rows are taken back.
    rows = "(VALUES (1, 9), (1, 1), (2, 2), (3, 3)) AS t (k, x)"
    source = f"FROM (SELECT LAST_VALUE(x) AS x, CAST(NULL AS INT) AS n FROM {rows} GROUP BY k) AS u"
    assert _one(calls, source) == {
        "op": "+I", "a": "{1,2,3}", "b": 3, "c": "{3}", "d": "{7}", "e": "{1,2,3,7}", "f": 4, "g": None
    }  # fmt: skip


_BOB = "OBJECT_OF('org.User', 'name', 'Bob', 'age', 14, 'at', OBJECT_OF('org.Place', 'city', 'Berlin'))"
_NONE = "CAST(NULL AS STRUCTURED<'org.User', name STRING>)"


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        (f"{_BOB}", {"name": "Bob", "age": 14, "at": {"city": "Berlin"}}),
        (f"CAST({_BOB} AS STRING)", "(name=Bob, age=14, at=(city=Berlin))"),
        (f"OBJECT_UPDATE({_BOB}, 'name', 'Alice', 'age', 30).name", "Alice"),
        (f"TYPEOF(OBJECT_UPDATE({_BOB}, 'age', 30).at)", "STRUCTURED<'org.Place', city CHAR(6) NOT NULL> NOT NULL"),
        ("OBJECT_UPDATE(OBJECT_OF('a', 'x', 1), 'x', 'y').x", "y"),
        (f"OBJECT_UPDATE({_NONE}, 'name', 'Alice') IS NULL", True),
        ("OBJECT_OF('a', 'x', 1) = OBJECT_OF('a', 'x', 1)", True),
        ("CAST(ROW(1) AS STRUCTURED<'a', x STRING>).x", "1"),
    ],
)
def test_structured_types(expression: str, value: object) -> None:
    assert _one(f"{expression} AS v FROM (VALUES 1) AS t (n)")["v"] == value


@pytest.mark.parametrize(
    ("expression", "says"),
    [
        ("BITMAP_BUILD_AGG(1.5)", "BITMAP_BUILD_AGG takes INT, not DECIMAL"),
        ("BITMAP_OR_AGG(1)", "BITMAP_BUILD makes one of an array"),
        (f"{_A} < {_B}", "BITMAP has no order"),
        (f"MAX({_A})", "takes a value that has an order"),
        ("OBJECT_OF('a', 'x', 1, 'x', 2)", "the field 'x' stands twice"),
        ("OBJECT_OF('a')", "at least one"),
        ("OBJECT_OF('a', LOWER('X'), 1)", "must be a text in quotes"),
        ("OBJECT_UPDATE(OBJECT_OF('a', 'name', 1), 'nam', 2)", "did you mean 'name'"),
        ("OBJECT_UPDATE(ROW(1), 'x', 2)", "takes a structured type"),
        ("OBJECT_OF('a', 'x', 1) = OBJECT_OF('b', 'x', 1)", "cannot be compared"),
    ],
)
def test_what_does_not_fit_is_refused(expression: str, says: str) -> None:
    with pytest.raises(SqlValidationError, match=says):
        _one(f"{expression} AS v")


def test_connectors_have_bytes_for_bitmaps() -> None:
    env = StreamEnvironment(runtime="local")
    env.sql("CREATE TABLE t (b BITMAP) WITH ('connector' = 'datagen')")
    table = env.sql("SELECT * FROM t")
    assert table is not None
    with pytest.raises(SqlValidationError, match="declare it BYTES and compute BITMAP_FROM_BYTES"):
        list(table.collect())


def test_bytes_that_are_no_bitmap_fail_the_job() -> None:
    with pytest.raises(PenstockError, match="BITMAP_FROM_BYTES: these 2 bytes are no Roaring bitmap"):
        _one("BITMAP_FROM_BYTES(b) AS v", "FROM (VALUES X'0102') AS t (b)")
