"""The types of what functions and operators give, with lengths and whether null comes out: as Flink 2.3 answers."""

from __future__ import annotations

import pytest

from penstock import StreamEnvironment

_GIVEN = (
    "(VALUES (CAST('a' AS STRING), CAST('a' AS VARCHAR(3)), CAST(1.5 AS DECIMAL(10, 2)), ARRAY[1])) AS t (s, v, d, a)"
)
_NULL = "CAST(NULL AS INT)"


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        ("UPPER('abc')", "CHAR(3) NOT NULL"),
        ("INITCAP(s)", "STRING NOT NULL"),
        ("'a' || 'bc'", "CHAR(3) NOT NULL"),
        ("v || 'x'", "VARCHAR(4) NOT NULL"),
        ("s || 'x'", "STRING NOT NULL"),
        ("CONCAT('a', 'bc')", "STRING NOT NULL"),
        ("SUBSTRING('abc', 2)", "VARCHAR(3)"),
        ("SUBSTRING(X'0102', 2)", "VARBINARY(2)"),
        ("LEFT('abc', 2)", "VARCHAR(3)"),
        ("TRIM(BOTH 'a' FROM 'abc')", "VARCHAR(3) NOT NULL"),
        ("LTRIM('abc')", "VARCHAR(3) NOT NULL"),
        ("RTRIM(s)", "STRING NOT NULL"),
        ("OVERLAY('abc' PLACING 'x' FROM 2)", "VARCHAR(4) NOT NULL"),
        ("REPLACE('abc', 'a', 'b')", "STRING NOT NULL"),
        ("REVERSE('abc')", "STRING"),
        ("MD5('a')", "CHAR(32) NOT NULL"),
        ("SHA256(s)", "CHAR(64) NOT NULL"),
        ("CASE WHEN d > 1 THEN 'a' ELSE 'bcd' END || '!'", "VARCHAR(4) NOT NULL"),
        ("POSITION('a' IN s)", "INT NOT NULL"),
        ("SPLIT('a,b', ',')", "ARRAY<STRING> NOT NULL"),
        ("ARRAY['a', 'bcd']", "ARRAY<VARCHAR(3) NOT NULL> NOT NULL"),
        (f"ARRAY[1, {_NULL}]", "ARRAY<INT> NOT NULL"),
        ("MAP['a', 1]", "MAP<CHAR(1) NOT NULL, INT NOT NULL> NOT NULL"),
        ("ROW('a', 1)", "ROW<EXPR$0 CHAR(1) NOT NULL, EXPR$1 INT NOT NULL> NOT NULL"),
        ("MAP_KEYS(MAP['a', 1])", "ARRAY<CHAR(1) NOT NULL> NOT NULL"),
        ("ARRAY_CONTAINS(a, 1)", "BOOLEAN NOT NULL"),
        ("ARRAY_APPEND(a, 2)", "ARRAY<INT NOT NULL> NOT NULL"),
        (f"ARRAY_APPEND(a, {_NULL})", "ARRAY<INT>"),
        ("ARRAY_MAX(a)", "INT"),
        ("FLOOR(d)", "DECIMAL(10, 0) NOT NULL"),
        ("CEIL(d)", "DECIMAL(10, 0) NOT NULL"),
        ("ROUND(d)", "DECIMAL(9, 0) NOT NULL"),
        ("FROM_UNIXTIME(1)", "STRING"),
        ("INET_NTOA(1)", "STRING"),
        ("HASH_CODE(s)", "INT NOT NULL"),
        ("ELT(1, 'a', 'bcd')", "VARCHAR(3)"),
        ("ELT(1, X'01', X'0203')", "VARBINARY(2)"),
        ("SHA2('a', 256)", "VARCHAR(128) NOT NULL"),
        ("LPAD('hi', 4, '?')", "STRING NOT NULL"),
        ("REGEXP_REPLACE('a', 'b', 'c')", "STRING NOT NULL"),
        ("FROM_BASE64('aGk=')", "STRING NOT NULL"),
        ("CONCAT_WS(',', 'a')", "STRING NOT NULL"),
        ("CONCAT_WS(',', CAST(NULL AS STRING))", "STRING"),
        ("JSON_QUOTE('a')", "STRING NOT NULL"),
        ("IS_DIGIT('1')", "BOOLEAN NOT NULL"),
        ("STARTSWITH(X'0102', X'01')", "BOOLEAN NOT NULL"),
        ("UUID()", "CHAR(36) NOT NULL"),
        ("TO_TIMESTAMP_LTZ(1, 0)", "TIMESTAMP_LTZ(3)"),
        ("TO_TIMESTAMP_LTZ(1, 6)", "TIMESTAMP_LTZ(6)"),
        ("TO_TIMESTAMP_LTZ('x', 'ss.SSSSSSSSS')", "TIMESTAMP_LTZ(9)"),
        ("BITMAP_TO_ARRAY(BITMAP_BUILD(a))", "ARRAY<INT> NOT NULL"),
    ],
)
def test_types_are_those_of_flink(expression: str, wanted: str) -> None:
    table = StreamEnvironment(runtime="local").sql(f"SELECT {expression} AS v FROM {_GIVEN}")
    assert table is not None
    assert str(table.columns["v"]) == wanted


def test_a_multiset_of_a_group_may_be_empty_and_is_never_null() -> None:
    rows = "(VALUES (1, 5), (1, 5), (2, CAST(NULL AS INT))) AS t (k, n)"
    table = StreamEnvironment(runtime="local").sql(f"SELECT k, COLLECT(n) AS v FROM {rows} GROUP BY k")
    assert table is not None
    assert str(table.columns["v"]) == "MULTISET<INT> NOT NULL"
    assert {row["k"]: row["v"] for row in table.to_changelog().collect()} == {1: [(5, 2)], 2: []}


def test_percentiles_are_rounded_as_in_flink() -> None:
    table = StreamEnvironment(runtime="local").sql(
        "SELECT PERCENTILE(n, ARRAY[0.1, 0.9]) AS v FROM (VALUES -11, -2, 5, 9, 9, 10, 12) AS t (n)"
    )
    assert table is not None
    assert list(table.to_changelog().collect())[-1]["v"] == [-5.599999999999999, 10.8]


def test_equal_grouping_sets_are_told_apart() -> None:
    sets = "GROUPING SETS ((a), (a), (b))"
    table = StreamEnvironment(runtime="local").sql(
        f"SELECT a, b, GROUP_ID() AS id, COUNT(*) AS n FROM (VALUES (1, 2)) AS t (a, b) GROUP BY {sets}"
    )
    assert table is not None
    found = sorted(tuple(row.values())[1:] for row in table.to_changelog().collect() if row["a"] is not None)
    assert found == [(1, None, 0, 1), (1, None, 1, 1)]
