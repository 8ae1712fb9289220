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
    ],
)
def test_types_are_those_of_flink(expression: str, wanted: str) -> None:
    table = StreamEnvironment(runtime="local").sql(f"SELECT {expression} AS v FROM {_GIVEN}")
    assert table is not None
    assert str(table.columns["v"]) == wanted
