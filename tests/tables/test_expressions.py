"""What expressions give: types, nulls, casts, texts, times; one query for each family, as a user would write it."""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pytest

from penstock import StreamEnvironment
from penstock.engine.errors import JobFailedError, PenstockError, SqlError, SqlValidationError

_SPACED: Final = "2020-01-01 00:00:00.123456789"
_ISO: Final = _SPACED.replace(" ", "T")
_AT: Final = f"TIMESTAMP '{_SPACED}'"


_NESTED: Final = '{"a":' * 450 + "1" + "}" * 450


def value(expression: str, rows: str = "(VALUES (1)) AS t (x)") -> Any:
    """The value of an expression in the first row."""
    env = StreamEnvironment(runtime="local", parallelism=1)
    table = env.sql(f"SELECT {expression} AS v FROM {rows}")
    assert table is not None
    return next(iter(table.collect()))["v"]


@pytest.mark.parametrize("separator", [",", "é", ",,", "-"])
@pytest.mark.parametrize("place", [-1, 0, 1, 2, 9])
def test_the_same_part_of_many_texts_is_that_of_pythons_split(separator: str, place: int) -> None:
    texts = ["a,b,,c", "", ",", "éaé", None, "a", "aéb,c", ",,,"]
    env = StreamEnvironment(runtime="local", parallelism=1)
    env.tables.create_temporary_view("t", env.from_collection(pa.table({"x": texts})))
    table = env.sql(f"SELECT x, SPLIT_INDEX(x, '{separator}', {place}) AS part FROM t")
    assert table is not None
    for row in table.collect():
        parts = dict(enumerate(row["x"].split(separator))) if row["x"] else {}
        assert row["part"] == parts.get(place)


_CALLS: dict[str, Callable[[str], str | None]] = {
    "SPLIT_INDEX(x, ',', 1)": lambda text: dict(enumerate(text.split(","))).get(1) if text else None,
    "REGEXP_EXTRACT(x, 'b([0-9]*)', 1)": lambda text: text.partition("b")[2] or None,
    "REPLACE(x, 'b', 'cc')": lambda text: text.replace("b", "cc"),
    "REPLACE(x, '', '-')": lambda text: text.replace("", "-"),
    "REPLACE(x, x, 'b')": lambda text: text.replace(text, "b"),
}


@pytest.mark.parametrize("call", _CALLS)
@pytest.mark.parametrize("texts", [["a,b1", None, "a,b2", "", "a,b1"] * 9, ["a,b1", None, "b7"], [None, None]])
def test_texts_that_come_again_have_the_values_of_the_first(call: str, texts: list[str | None]) -> None:
    env = StreamEnvironment(runtime="local", parallelism=1)
    env.tables.create_temporary_view("t", env.from_collection(pa.table({"x": pa.array(texts, pa.string())})))
    table = env.sql(f"SELECT {call} AS v FROM t")
    assert table is not None
    assert [row["v"] for row in table.collect()] == [None if text is None else _CALLS[call](text) for text in texts]


_TYPES_OF_NUMBERS = "INT NOT NULLBIGINT NOT NULLDECIMAL(3, 1) NOT NULLDECIMAL(13, 1) NOT NULL"


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        ("7 / 2", 3),
        ("-7 / 2", -3),
        ("-7 % 3", -1),
        ("2147483647 + 1", -2147483648),
        ("1.5 + 2", Decimal("3.5")),
        ("CAST(1 AS DECIMAL(10, 2)) / 3", Decimal("0.3333333333333")),
        ("1.00 * 2.5", Decimal("2.500")),
        ("1e0 / 0", math.inf),
        ("POWER(2, 10)", 1024.0),
        ("POWER(0, -1)", math.inf),
        ("POWER(-10, 309)", -math.inf),
        ("LN(0)", -math.inf),
        ("LOG(10, 0)", -math.inf),
        ("COT(0)", math.inf),
        ("ROUND(2.675, 2)", Decimal("2.68")),
        ("ROUND(-2.5)", Decimal("-3")),
        ("CAST(ROUND(12.345, 2) AS STRING)", "12.35"),
        ("CAST(TRUNCATE(42.345, 2) AS STRING)", "42.34"),
        ("CAST(ROUND(125.5, -1) AS STRING)", "130"),
        ("TIMESTAMPADD(WEEK, 1, DATE '2003-01-02')", datetime.date(2003, 1, 9)),
        ("X'4142'", b"AB"),
        ("(TIMESTAMP '2020-01-01 08:00:11.5' - TIMESTAMP '2020-01-01 08:00:00') SECOND > INTERVAL '11' SECOND", True),
        ("CAST((DATE '2020-03-01' - DATE '2020-01-02') MONTH AS STRING)", "+0-01"),
        ("CAST((DATE '2020-01-01' - DATE '2020-01-03') DAY TO SECOND AS STRING)", "-2 00:00:00.000"),
        ("DATE '2020-01-01' + (TIMESTAMP '2020-01-04 00:00:00' - DATE '2020-01-01') DAY", datetime.date(2020, 1, 4)),
        ("URL_DECODE_RECURSIVE('a%252520b')", "a b"),
        ("UNIX_TIMESTAMP('1970-01-01 08:00:01.001 +0800', 'yyyy-MM-dd HH:mm:ss.SSS X')", 1),
        ("UNIX_TIMESTAMP('1970-01-01 08:00:01 +08', 'yyyy-MM-dd HH:mm:ss X')", 1),
        ("UNIX_TIMESTAMP('1970-01-01 08:00:01.001 +0800', 'yyyy-MM-dd HH:mm:ss.SSS')", 28801),
        ("UNIX_TIMESTAMP('1970-01-01 08:00:01.001', 'yyyy-MM-dd HH:mm:ss.SSS X')", -(2**63)),
        ("CAST(NULL AS STRING) IS JSON OR '{' IS JSON", False),
        ("CAST(SIGN(-3.5) AS STRING) || CAST(SIGN(CAST(0 AS DECIMAL(10, 2))) AS STRING)", "-1.00.00"),
        ("MAP_FROM_ENTRIES(ARRAY[ROW('a', 1), ROW('b', 2), ROW('a', 3)])", [("a", 3), ("b", 2)]),
        ("MAP_FROM_ENTRIES(ARRAY[ROW('a', 1), NULL])", None),
        ("GREATEST(TRUE, FALSE)", True),
        ("LEAST(CAST(1 AS BIGINT), 2.5)", Decimal("1.0")),
        ("x = 2 AND 1 / EXTRACT(YEAR FROM DATE '2024-01-31') > 0", False),
        ("TRY_CAST(ARRAY['a', 'b'] AS ARRAY<INT>)", None),
        ("MAP[ARRAY[1], 'a', ARRAY[1], 'b']", [([1], "b")]),
        ("MOD(7, 3)", 1),
        ("ABS(-5)", 5),
        ("1 = 1.0", True),
        ("CASE x WHEN 0, 1 THEN 'some' ELSE 'many' END", "some"),
        ("CAST('a' AS CHAR(3)) = 'a'", False),
        ("HASH_CODE('äöü€𝄞')", 1817984468),
        ("HASH_CODE('polygenelubricants')", -(2**31)),
        ("HASH_CODE(-5)", -5),
        ("HASH_CODE(CAST(5000000000 AS BIGINT))", 705032705),
        ("HASH_CODE(-1.5)", -464),
        ("HASH_CODE(CAST(-1.5 AS DOUBLE))", -1074266112),
        ("HASH_CODE(CAST(1.5 AS FLOAT))", 1069547520),
        ("HASH_CODE(DATE '1960-01-01')", -3653),
        ("HASH_CODE(TIME '10:00:00')", 36_000_000),
        ("HASH_CODE(TIMESTAMP '2020-01-01 00:00:00.123')", 1853241708),
        ("HASH_CODE(FALSE)", 1237),
        ("HASH_CODE(CAST(NULL AS STRING))", None),
        ("INET_ATON('1.2.3.4')", 16909060),
        ("INET_ATON('1.2.3')", 16908291),
        ("INET_ATON('127')", 127),
        ("INET_ATON('1.65535')", None),
        ("INET_ATON('1.2.3.4.5')", None),
        ("INET_NTOA(16909060)", "1.2.3.4"),
        ("INET_NTOA(4294967296)", None),
        ("'5.5' > 5", False),
        ("'5.5' > 5.4", True),
        ("x IN ('1', '2.0')", True),
        ("'01' IN (1, 2)", False),
        ("TIMESTAMP '2024-01-01 00:00:00' = '2024-01-01'", True),
        ("NULLIF(1, 1)", None),
        ("COALESCE(NULLIF(1, 1), 5)", 5),
        ("IF(1 > 2, 'a', 'bc')", "bc"),
        ("CASE WHEN x = 2 THEN 1 / 0 ELSE 9 END", 9),
        ("x = 2 AND 1 / 0 = 1", False),
        ("x IN (1, 2)", True),
        (f"x IN ({', '.join(map(str, range(2000)))})", True),
        ("x NOT BETWEEN 2 AND 5", True),
        ("CAST(NULL AS INT) IS NULL", True),
        ("CAST(NULL AS BOOLEAN) AND FALSE", False),
        ("CAST(NULL AS BOOLEAN) OR FALSE", None),
        ("CAST(NULL AS INT) IS NOT DISTINCT FROM CAST(NULL AS INT)", True),
        ("GREATEST(1, 3, 2)", 3),
        ("GREATEST(1, CAST(NULL AS INT))", None),
    ],
)
def test_numbers_and_conditions(expression: str, wanted: object) -> None:
    assert value(expression) == wanted


@pytest.mark.parametrize("bits", [8, 64])
@pytest.mark.parametrize("divisor", [1, 3, 12, 127, -1, -5, -127])
def test_remainders_have_the_sign_of_what_is_divided(bits: int, divisor: int) -> None:
    least = -(2 ** (bits - 1))
    numbers = [least, least + 1, -13, -1, 0, 1, 13, -least - 1]
    kind = {8: "TINYINT", 64: "BIGINT"}[bits]
    env = StreamEnvironment(runtime="local", parallelism=1)
    rows = pa.table({"n": pa.array(numbers, pa.int8() if bits == 8 else pa.int64())})
    env.tables.create_temporary_view("t", env.from_collection(rows))
    table = env.sql(f"SELECT n, n % CAST({divisor} AS {kind}) AS r FROM t")
    assert table is not None
    for row in table.collect():
        assert row["r"] == abs(row["n"]) % abs(divisor) * (-1 if row["n"] < 0 else 1)


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        ("CAST(1.0e10 AS STRING)", "1.0E10"),
        ("CAST(0.1e0 AS STRING)", "0.1"),
        ("CAST(1 = 1 AS STRING)", "TRUE"),
        ("CAST('12.9' AS INT)", 12),
        ("CAST(' 7 ' AS BIGINT)", 7),
        ("TRY_CAST('x' AS INT)", None),
        ("CAST(3.99e0 AS INT)", 3),
        ("CAST(1e20 AS INT)", 2147483647),
        ("CAST(2.345 AS DECIMAL(10, 2))", Decimal("2.35")),
        ("CAST(12345 AS DECIMAL(3, 0))", None),
        (f"CAST('{'9' * 38}' AS DECIMAL(38, 0))", Decimal("9" * 38)),
        ("CAST('abc' AS VARCHAR(2))", "ab"),
        ("CAST('a' AS CHAR(3))", "a  "),
        ("CAST('yes' AS BOOLEAN)", True),
        ("CAST(TIMESTAMP '2024-02-29 12:34:56.789' AS DATE)", datetime.date(2024, 2, 29)),
        ("CAST(TIMESTAMP '2024-02-29 12:34:56.789' AS STRING)", "2024-02-29 12:34:56.789"),
        ("CAST('2024-02-29' AS DATE)", datetime.date(2024, 2, 29)),
        ("CAST(ARRAY[1, 2] AS STRING)", "[1, 2]"),
        ("CAST(ROW(1, 'a') AS STRING)", "(1, a)"),
        ("CAST(MAP['a', 1] AS STRING)", "{a=1}"),
    ],
)
def test_casts(expression: str, wanted: object) -> None:
    assert value(expression) == wanted


def test_collections_are_cast_in_a_part_of_a_batch() -> None:
    env = StreamEnvironment(runtime="local", parallelism=1)
    lists = pa.array([[1], None, [2, None]], pa.list_(pa.int32()))
    maps = pa.array([[("a", 1)], None, [("b", 2)]], pa.map_(pa.string(), pa.int32()))
    env.tables.create_temporary_view("t", env.from_collection(pa.table({"l": lists, "m": maps})))
    casts = "CAST(l AS ARRAY<BIGINT>) AS l, CAST(m AS MAP<STRING, BIGINT>) AS m"
    table = env.sql(f"SELECT {casts} FROM (SELECT * FROM t LIMIT 10 OFFSET 1)")
    assert table is not None
    assert [(row["l"], row["m"]) for row in table.collect()] == [(None, None), ([2, None], [("b", 2)])]


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        ("'a' || 'b'", "ab"),
        ("UPPER('straße')", "STRASSE"),
        ("SUBSTRING('hello' FROM 2 FOR 3)", "ell"),
        ("SUBSTRING('hello', -3)", "llo"),
        ("TRIM(BOTH 'x' FROM 'xxaxx')", "a"),
        ("TRIM(LEADING FROM '  a ')", "a "),
        ("POSITION('l' IN 'hello')", 3),
        ("OVERLAY('xxxxx' PLACING 'ab' FROM 2 FOR 3)", "xabx"),
        ("LPAD('7', 3, '0')", "007"),
        ("ASCII('é') * 1000 + ASCII('A')", -60935),
        ("CHR(65) || CHR(321) || CHR(-5)", "AA"),
        ("REGEXP_REPLACE('foobar', 'oo|ar', '')", "fb"),
        ("REGEXP_EXTRACT('foothebar', 'foo(.*?)(bar)', 1)", "the"),
        ("SPLIT_INDEX('a,b,c', ',', 1)", "b"),
        ("'a_c' LIKE 'a!_c' ESCAPE '!'", True),
        ("'abc' LIKE 'a_c'", True),
        ("'50%' SIMILAR TO '50!%' ESCAPE '!'", True),
        ("'500' SIMILAR TO '50!%' ESCAPE '!'", False),
        ("'abab' SIMILAR TO '(ab)+'", True),
        # These are answers of Flink 2.3.
        ("REGEXP_REPLACE('abc', '(b)', '[$1]')", "a[$1]c"),
        ("OVERLAY('' PLACING 'XX' FROM 2)", ""),
        ("SPLIT_INDEX('', 'l', 0)", None),
        ("STR_TO_MAP('hel', 'l', 'e')", [("h", "")]),
        ("STR_TO_MAP('')", []),
        ("ENCODE('ab', 'UTF-16')", b"\xfe\xff\x00a\x00b"),
        ("DECODE(ENCODE('é', 'UTF-16'), 'UTF-16')", "é"),
        ("UNHEX('  ')", None),
        ("TO_BASE64(X'6162')", "YWI="),
        ("N'é'", "é"),
        ("U&'\\00e9\\+01F600' || U&'!0041' UESCAPE '!' || _UTF8'b'", "é😀Ab"),
        (
            "TYPEOF(-2147483648) || TYPEOF(-9223372036854775808) || TYPEOF(0.1 + 0.2) || TYPEOF(1 * 1.5)",
            _TYPES_OF_NUMBERS,
        ),
        ("TRY_CAST(ARRAY['1', 'x'] AS ARRAY<INT>)", None),
        ("TRY_CAST(MAP['a', 'x'] AS MAP<STRING, INT>)", None),
        ("TRY_CAST('nan' AS DOUBLE)", None),
        ("TRY_CAST('-Infinity' AS DOUBLE)", -math.inf),
        ("""PARSE_JSON('{"b": 1.50, "a": [1, 1e3, null, "é", 2.0]}')""", '{"a":[1,1000.0,null,"é",2],"b":1.5}'),
        ("""JSON_STRING(PARSE_JSON('{"a": [1, 2]}')['a'][2])""", "2"),
        ("""PARSE_JSON('{"a": 1}')['b'] IS NULL""", True),
        ("""TRY_PARSE_JSON('{"a": 1, "a": 2}') IS NULL""", True),
        ("""PARSE_JSON('{"a": 1, "a": 2}', TRUE)""", '{"a":2}'),
        ("TRY_PARSE_JSON('x')", None),
        ("CAST(TO_TIMESTAMP_LTZ(1234567890123456789, 9) AS STRING)", "2009-02-13 23:31:30.123456789"),
        ("CAST(TO_TIMESTAMP_LTZ(-12345, 4) AS STRING)", "1969-12-31 23:59:58.7655"),
        ("CAST(TO_TIMESTAMP_LTZ('12:30:00.1234567', 'HH:mm:ss.SSSSSSS') AS STRING)", "1970-01-01 12:30:00.1234567"),
        ("CAST(TO_TIMESTAMP_LTZ(0.57e0, 0) AS STRING)", "1970-01-01 00:00:00.570"),
        ("CAST(TO_TIMESTAMP_LTZ(-0.0015, 0) AS STRING)", "1970-01-01 00:00:00.000"),
        ("CAST(TO_TIMESTAMP_LTZ(253402300799, 0) AS STRING)", "9999-12-31 23:59:59.000"),
        ("TO_TIMESTAMP_LTZ(253402300800, 0)", None),
        ("TO_TIMESTAMP_LTZ(9223372036854775807, 0)", None),
        ("TO_TIMESTAMP_LTZ(1e300, 0)", None),
        ("TO_TIMESTAMP_LTZ(CAST('NaN' AS DOUBLE), 3)", None),
        ("TO_TIMESTAMP_LTZ('9999-12-31 23:59:59.123456789', 'yyyy-MM-dd HH:mm:ss.SSSSSSSSS')", None),
        ("CAST(TIMESTAMP '1960-01-01 00:00:00.123456789' AS STRING)", "1960-01-01 00:00:00.123456789"),
        ("REGEXP_EXTRACT_ALL('a', '(')", None),
        ("'abc' NOT LIKE '%d%'", True),
        ("CONCAT_WS('-', 'a', CAST(NULL AS STRING), 'b')", "a-b"),
        ("INITCAP('hello world')", "Hello World"),
        ("MD5('a')", "0cc175b9c0f1b6a831c399e269772661"),
        ("CHAR_LENGTH('日本')", 2),
        ("JSON_VALUE('{\"a\": {\"b\": [1, 2]}}', '$.a.b[1]')", "2"),
        ("JSON_EXISTS('{\"a\": null}', '$.a')", True),
        (f"JSON_VALUE('{'[' * 3000}{']' * 3000}', '$[0]')", None),
        ("PARSE_URL('http://[::1', 'HOST')", None),
        (r"'<' || LTRIM(U&' \0009 a \0009 ') || '>'", "<\t a \t >"),
        (r"'<' || RTRIM(U&' \0009 a \0009 ') || '>'", "< \t a \t>"),
        (r"'<' || BTRIM(U&' \0009 a \0009 ') || '>'", "<\t a \t>"),
        ("BTRIM('xyaxy', 'yx')", "a"),
        ("SPLIT_INDEX('a,b', -1, 0)", None),
        ("SPLIT_INDEX('a,b', 300, 0)", None),
        ("PRINTF('%c', 1114112)", None),
        ("PRINTF('%c', 55296)", "?"),
        ("UNIX_TIMESTAMP('1970-01-01 08:00:01 +99:99', 'yyyy-MM-dd HH:mm:ss XXX')", -(2**63)),
        ("CAST(1.7e308 AS DECIMAL(38, 10))", None),
        ("REGEXP_EXTRACT_ALL('a1b2', '[a-z]')", None),
        ("REGEXP_EXTRACT_ALL('a1b2', '[a-z]', 0)", ["a", "b"]),
        ("REGEXP_EXTRACT_ALL('a1b2', '([a-z])')", ["a", "b"]),
        ("REGEXP_EXTRACT_ALL('a1b2', '([a-z])', -1)", None),
        (r"""JSON_VALUE('{"a":"hi \ud83d"}', '$.a')""", "hi ?"),
        (r"""JSON_VALUE('{"a":"hi \ud83d"}', '$.a' NULL ON EMPTY)""", "hi ?"),
        (r"""JSON_VALUE('{"a":"\ude00x\ud83d\ude00"}', '$.a')""", "?x😀"),
        (r"""JSON_QUERY('{"a":["hi \ud83d"]}', '$.a')""", '["hi ?"]'),
        (r"""JSON_QUERY('{"a":["hi \ud83d"]}', '$.a' RETURNING ARRAY<STRING>)""", ["hi ?"]),
        (r"""JSON_QUERY('{"a":{"\ud83d":1}}', '$.a')""", '{"?":1}'),
        (r"""JSON_UNQUOTE('"hi \ud83d"')""", "hi ?"),
        (r"""JSON_OBJECT('k' VALUE JSON('"hi \ud83d"'))""", '{"k":"hi ?"}'),
        (r"""JSON_STRING(PARSE_JSON('"hi \ud83d"'))""", '"hi ?"'),
        ("PRINTF('%s %.1f', CAST(0.1 AS FLOAT), CAST(0.1 AS FLOAT))", "0.1 0.1"),
        # Of these Flink has values.
        ("PRINTF('%.900f', CAST(1 AS DOUBLE))", None),
        ("FROM_UNIXTIME(253402300800)", None),
        ("FROM_UNIXTIME(9223372036854775807)", None),
        ("CONVERT_TZ('9999-12-31 23:00:00', 'UTC', 'Asia/Tokyo')", None),
        ("TRY_CAST('9999-01-01' AS TIMESTAMP(9))", None),
    ],
)
def test_texts(expression: str, wanted: object) -> None:
    assert value(expression) == wanted


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        ("EXTRACT(YEAR FROM TIMESTAMP '2024-02-29 12:34:56')", 2024),
        ("DAYOFWEEK(DATE '2024-02-29')", 5),
        ("TIMESTAMP '2024-01-31 00:00:00' + INTERVAL '1' MONTH", datetime.datetime(2024, 2, 29)),
        ("DATE '2024-02-28' + INTERVAL '2' DAY", datetime.date(2024, 3, 1)),
        ("TIMESTAMPDIFF(DAY, DATE '2024-02-28', DATE '2024-03-01')", 2),
        ("TIMESTAMPDIFF(MONTH, DATE '2024-01-31', DATE '2024-02-29')", 1),
        ("TIMESTAMPADD(HOUR, 25, TIMESTAMP '2024-01-01 00:00:00')", datetime.datetime(2024, 1, 2, 1)),
        ("FLOOR(TIMESTAMP '2024-02-29 12:34:56' TO HOUR)", datetime.datetime(2024, 2, 29, 12)),
        ("DATE_FORMAT(TIMESTAMP '2024-02-29 12:34:56', 'yyyy/MM/dd HH')", "2024/02/29 12"),
        ("TO_TIMESTAMP('2024-02-29 12:34:56')", datetime.datetime(2024, 2, 29, 12, 34, 56)),
        ("TO_TIMESTAMP('29.02.2024', 'dd.MM.yyyy')", datetime.datetime(2024, 2, 29)),
        ("TO_TIMESTAMP('soon')", None),
        ("FROM_UNIXTIME(0)", "1970-01-01 00:00:00"),
        ("CONVERT_TZ('2024-07-01 12:00:00', 'UTC', 'Europe/Berlin')", "2024-07-01 14:00:00"),
        ("CAST(CAST(-99.99 AS DECIMAL(10, 2)) AS DOUBLE)", -99.99),
        ("CAST(CAST(0.001 AS DECIMAL(38, 18)) AS DOUBLE)", 0.001),
        ("CAST(0.5 AS BOOLEAN)", True),
        ("EXTRACT(MILLISECOND FROM TIMESTAMP '2020-01-01 00:00:58.123')", 123),
        ("EXTRACT(MICROSECOND FROM TIMESTAMP '2020-01-01 00:00:58.123')", 123_000),
        ("EXTRACT(NANOSECOND FROM TIMESTAMP '2020-01-01 00:00:58.123')", 123_000_000),
        ("CAST(CEIL(TIMESTAMP '1970-01-01 00:00:00' TO MONTH) AS STRING)", "1970-01-01 00:00:00"),
        ("CAST(CEIL(TIMESTAMP '1970-01-02 00:00:00.001' TO YEAR) AS STRING)", "1971-01-01 00:00:00.000"),
        ("CAST(FLOOR(DATE '2000-12-31' TO CENTURY) AS STRING)", "1901-01-01"),
        ("CAST(FLOOR(TIMESTAMP '2020-01-31 23:59:58' TO DECADE) AS STRING)", "2020-01-01 00:00:00"),
        ("CAST(ROUND(CAST(127 AS TINYINT), -1) AS STRING)", "-126"),
        ("CAST(ROUND(9223372036854775807, -1) AS STRING)", "-9223372036854775806"),
        ("CAST(ROUND(9223372036854775807, -19) AS STRING)", "-8446744073709551616"),
        ("CAST(ROUND(-9223372036854775807, 0) AS STRING)", "-9223372036854775807"),
        ("CAST(ROUND(9223372036854775807, -20) AS STRING)", "0"),
        ("CAST(ROUND(2147483647, -30) AS STRING)", "0"),
        ("CAST(ROUND(CAST('99999999999999999999999999999999999999' AS DECIMAL(38, 0)), -1) AS STRING)", None),
        ("CAST(ROUND(CAST('9999999999999999999999999999999999999.9' AS DECIMAL(38, 1))) AS STRING)", f"1{'0' * 37}"),
        ("CAST(ROUND(CAST(0.5 AS DECIMAL(38, 38)), -200) AS STRING)", "0"),
        ("CAST(TRUNCATE(CAST(0.5 AS DECIMAL(38, 38)), -1) AS STRING)", "0"),
        ("CAST(FLOOR(CAST('-9999999999999999999999999999999999999.9' AS DECIMAL(38, 1))) AS STRING)", f"-1{'0' * 37}"),
        ("CAST(CEIL(CAST('0.50000000000000000000000000000000000001' AS DECIMAL(38, 38))) AS STRING)", "1"),
        ("CAST(CEIL(CAST('99999999999999999999999999999999999999' AS DECIMAL(38, 0))) AS STRING)", "9" * 38),
        ("ROUND(1E300, 20)", 1e300),
        ("ROUND(1.5E0, -400)", 0.0),
        ("CAST(ROUND(CAST(1.5 AS FLOAT), 100) AS DOUBLE)", 1.5),
        ("CAST(CEIL(CAST(99999999.99 AS DECIMAL(10, 2))) AS STRING)", "100000000"),
        ("CAST(FLOOR(CAST(-0.99 AS DECIMAL(2, 2))) AS STRING)", "-1"),
        ("CAST(CEIL(DATE '1970-01-01' TO DECADE) AS STRING)", "1980-01-01"),
        ("CAST(CEIL(DATE '1999-12-31' TO MILLENNIUM) AS STRING)", "2001-01-01"),
        ("TO_DATE('2020-01-31 23:59:58.123')", datetime.date(2020, 1, 31)),
        ("TO_DATE('x') IS NULL", True),
        ("DATE_FORMAT(TIMESTAMP '2020-05-31 23:59:58', 'QQ Q G')", "02 2 AD"),
        ("DATE_FORMAT(DATE '2024-12-29', 'YYYY-ww e k')", "2025-01 1 24"),
        ("DATE_FORMAT(TIMESTAMP '9999-12-31 00:00:00', 'w')", "1"),
        ("DATE_FORMAT(TIMESTAMP '0001-01-01 00:00:00', 'YYYY-ww')", "0001-01"),
        ("TO_TIMESTAMP('9999-12-31 24:00:00')", None),
        ("EXTRACT(HOUR FROM INTERVAL '-1 02:03' DAY TO MINUTE)", -2),
        ("TYPEOF(CAST(1 AS DECIMAL(10, 2)) * 2)", "DECIMAL(21, 2) NOT NULL"),
        ("TYPEOF(ARRAY[x], TRUE)", "ARRAY<INT NOT NULL> NOT NULL"),
    ],
)
def test_times(expression: str, wanted: object) -> None:
    assert value(expression) == wanted


def test_each_row_may_have_its_own_digits() -> None:
    rows = "(VALUES (1, 0), (1500, 3), (-1500000, 6), (1, 10), (1, CAST(NULL AS INT))) AS t (n, digits)"
    table = StreamEnvironment(runtime="local", parallelism=1).sql(
        f"SELECT CAST(TO_TIMESTAMP_LTZ(n, digits) AS STRING) AS v FROM {rows}"
    )
    assert table is not None
    assert [row["v"] and row["v"][11:] for row in table.collect()] == [
        "00:00:01.000", "00:00:01.500", "23:59:58.500", None, None]  # fmt: skip


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        ("ARRAY[1, 2, 3][2]", 2),
        ("ARRAY[1, 2][5]", None),
        ("CARDINALITY(ARRAY[1, 2])", 2),
        ("MAP['a', 1, 'b', 2]['b']", 2),
        ("ARRAY_CONTAINS(ARRAY['a'], 'a')", True),
        ("ARRAY_DISTINCT(ARRAY[1, 1, 2])", [1, 2]),
        ("MAP_KEYS(MAP['a', 1])", ["a"]),
    ],
)
def test_collections(expression: str, wanted: object) -> None:
    assert value(expression) == wanted


def test_the_session_has_a_time_zone() -> None:
    env = StreamEnvironment(runtime="local", parallelism=1)
    env.sql("SET 'table.local-time-zone' = 'Europe/Berlin'")
    table = env.sql("SELECT CAST(TO_TIMESTAMP_LTZ(0, 3) AS STRING) AS local, FROM_UNIXTIME(0) AS text_of")
    assert table is not None
    assert list(table.collect()) == [{"local": "1970-01-01 01:00:00.000", "text_of": "1970-01-01 01:00:00"}]


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        ("JSON_OBJECT('b' VALUE 1, KEY 'a' VALUE 'x')", '{"a":"x","b":1}'),
        ("JSON_OBJECT('a' VALUE CAST(NULL AS INT))", '{"a":null}'),
        ("JSON_OBJECT('a' VALUE CAST(NULL AS INT) ABSENT ON NULL)", "{}"),
        ("JSON_OBJECT('k' VALUE JSON_ARRAY(x, JSON_OBJECT()), 'l' VALUE JSON('[1, 2]'))", '{"k":[1,{}],"l":[1,2]}'),
        ("JSON_OBJECT('k' VALUE JSON_STRING(x))", '{"k":"1"}'),
        (f"JSON_OBJECT('k' VALUE ARRAY[{_AT}])", '{"k":["2020-01-01T00:00:00.123456789"]}'),
        (f"JSON_ARRAY({_AT}, MAP['k', ROW({_AT})])", f'["{_ISO}",{{"k":{{"EXPR$0":"{_ISO}"}}}}]'),
        (f"JSON_OBJECT(KEY {_AT} VALUE MAP[{_AT}, 1])", f'{{"{_SPACED}":{{"{_SPACED}":1}}}}'),
        (f"JSON_STRING(CAST({_AT} AS TIMESTAMP_LTZ(9)))", f'"{_ISO}Z"'),
        (f"JSON_ARRAYAGG({_AT})", f'["{_ISO}"]'),
        (f"JSON_OBJECTAGG(KEY {_AT} VALUE {_AT})", f'{{"{_SPACED}":"{_ISO}"}}'),
        ("JSON_STRING(CAST(TIMESTAMP '1969-12-31 23:59:59' AS TIMESTAMP(9)))", '"1969-12-31T23:59:59"'),
        ("JSON_STRING(TIMESTAMP '1969-12-31 23:59:59.0000001')", '"1969-12-31T23:59:59.0000001"'),
        ("JSON_ARRAY(1.50, 'é', NULL, TIMESTAMP '2020-01-01 10:00:00')", '[1.50,"é","2020-01-01T10:00:00"]'),
        ("JSON_ARRAY(ARRAY[1, NULL], x'01', MAP['z', ROW(1)] NULL ON NULL)", '[[1,null],"AQ==",{"z":{"EXPR$0":1}}]'),
        ("JSON_ARRAY()", "[]"),
        ("""JSON_VALUE('{"a": 7}', '$.a' RETURNING INT) + 1""", 8),
        ("""JSON_VALUE('{"a": 7}', 'lax $.b' RETURNING INT NULL ON EMPTY DEFAULT 3 ON ERROR)""", None),
        ("""JSON_VALUE('{"a": 7}', '$.b' RETURNING INT NULL ON EMPTY DEFAULT 3 ON ERROR)""", 3),
        ("""JSON_VALUE('{"a": 7}', 'lax $.b' DEFAULT 3 ON EMPTY)""", "3"),
        ("""JSON_VALUE('{"a.b": [0.998]}', '$.["a.b"][-1]' RETURNING DOUBLE)""", 0.998),
        ("""JSON_VALUE('{"a": [7]}', '$.a' DEFAULT 'many' ON ERROR)""", "many"),
        ("""JSON_VALUE('{', '$.a' DEFAULT 3 ON EMPTY DEFAULT 'none' ON ERROR)""", "none"),
        ("""JSON_QUERY('{"a": 7}', '$.a' WITH WRAPPER)""", "[7]"),
        ("""JSON_QUERY('{"a": [7]}', '$.a' WITH CONDITIONAL ARRAY WRAPPER)""", "[7]"),
        ("""JSON_QUERY('{"a": 7}', '$.a' WITHOUT WRAPPER)""", None),
        ("""JSON_QUERY('{"a": {}}', '$.a' WITH CONDITIONAL WRAPPER)""", "[{}]"),
        ("""JSON_QUERY('{"a": [{"c": "é"}, {}, {"c": [1]}]}', 'lax $.a[*].c')""", '["é",[1]]'),
        ("""JSON_QUERY('{"a": ["b", 1, {}, null]}', '$.a' RETURNING ARRAY<STRING>)""", ["b", "1", "{}", None]),
        ("""JSON_QUERY('{}', 'lax $.a' EMPTY OBJECT ON EMPTY ERROR ON ERROR)""", "{}"),
        ("""JSON_QUERY('{}', '$.a' ERROR ON EMPTY EMPTY ARRAY ON ERROR)""", "[]"),
        ("""JSON_EXISTS('{}', '$.b') OR JSON_EXISTS('{', 'lax $')""", False),
        ("""JSON_EXISTS('{}', '$.b' TRUE ON ERROR) AND JSON_EXISTS('{"a": [{"b": 1}]}', '$.a[0].b')""", True),
        ("""JSON_EXISTS('{}', '$.b' UNKNOWN ON ERROR)""", None),
        ("JSON_QUOTE('é/')", '"\\u00e9\\/"'),
        ("""JSON_VALUE('{"a": 1e99999999999999999999}', '$.a')""", None),
        ("""'{"a": 1e99999999999999999999}' IS JSON""", False),
        (f"JSON_QUERY('{_NESTED}', '$')", _NESTED),
    ],
)
def test_json(expression: str, wanted: object) -> None:
    assert value(expression) == wanted


def test_the_values_of_a_group_are_json() -> None:
    table = StreamEnvironment(runtime="local", parallelism=1).sql(
        """SELECT k, JSON_ARRAYAGG(v) AS items, JSON_OBJECTAGG(KEY v VALUE w) FILTER (WHERE v > 1) AS members
        FROM (VALUES ('a', 1, 'x'), ('a', 2, CAST(NULL AS STRING)), ('b', 3, 'z')) AS t (k, v, w) GROUP BY k"""
    )
    assert table is not None
    rows = {row["k"]: (row["items"], row["members"]) for row in table.to_changelog().collect()}
    assert rows == {"a": ("[1,2]", '{"2":null}'), "b": ("[3]", '{"3":"z"}')}


@pytest.mark.parametrize(
    "expression", ["""JSON_VALUE('{}', 'lax $.a' ERROR ON EMPTY)""", "JSON_OBJECT(CAST(NULL AS STRING) VALUE x)"]
)
def test_json_that_cannot_be_made_fails_the_job_with_the_row(expression: str) -> None:
    with pytest.raises(JobFailedError, match=r"JSON_.* in row \{"):
        value(expression)


def test_a_variance_of_whole_numbers_is_cut_off_and_goes_as_far_as_its_type() -> None:
    env = StreamEnvironment(runtime="local", parallelism=1)
    table = env.sql("SELECT VAR_POP(x) AS v, STDDEV_SAMP(x) AS s FROM (VALUES 1, 1000000, 2000000000) AS t (x)")
    assert table is not None
    *_, last = table.to_changelog().collect()
    assert (last["v"], last["s"]) == (2**31 - 1, 1_154_411_971)


def test_qualify_knows_the_names_of_select() -> None:
    env = StreamEnvironment(runtime="local", parallelism=1)
    query = "SELECT x, ROW_NUMBER() OVER (ORDER BY x DESC) AS n FROM (VALUES 3, 5) AS t (x) QUALIFY n = 1 AND x > 1"
    table = env.sql(query)
    assert table is not None
    *_, last = table.to_changelog().collect()
    assert last["x"] == 5


def test_a_key_of_json_may_have_a_colon_behind_it() -> None:
    assert value("JSON_OBJECT('a': 1, KEY 'b' VALUE 2)") == '{"a":1,"b":2}'


def test_all_fields_of_a_row_are_columns() -> None:
    env = StreamEnvironment(runtime="local", parallelism=1)
    env.sql("CREATE VIEW v AS SELECT CAST(ROW(1, ROW('x', TRUE)) AS ROW<a INT, b ROW<c STRING, d BOOLEAN>>) AS r")
    table = env.sql("SELECT r.*, v.r.b.* FROM v")
    assert table is not None
    assert list(table.collect()) == [{"a": 1, "b": {"c": "x", "d": True}, "c": "x", "d": True}]
    for wrong, says in (("r.a.*", "which has no fields"), ("q.*", "no table 'q' in FROM")):
        with pytest.raises(SqlError, match=says):
            env.sql(f"SELECT {wrong} FROM v")


@pytest.mark.parametrize(
    ("other", "wanted"),
    [
        ("TIME '03:30:00', INTERVAL '2' HOUR", True),
        ("TIME '05:30:00', TIME '03:55:00'", True),
        ("TIME '04:00:00', INTERVAL '2' HOUR", False),
        ("TIME '01:00:00', CAST(NULL AS TIME)", None),
    ],
)
def test_periods_overlap(other: str, wanted: bool | None) -> None:
    assert value(f"(TIME '02:55:00', INTERVAL '1' HOUR) OVERLAPS ({other})") is wanted


def test_approximate_counts_are_exact() -> None:
    table = StreamEnvironment(runtime="local", parallelism=1).sql(
        "SELECT APPROX_COUNT_DISTINCT(v) FILTER (WHERE v > 1) AS n FROM (VALUES (1), (2), (2), (3)) AS t (v)"
    )
    assert table is not None
    assert list(table.to_changelog().collect())[-1]["n"] == 2


def test_fields_of_a_row_in_brackets() -> None:
    assert value("(ROW(x, 'a')).EXPR$1") == "a"


@pytest.mark.parametrize(
    "expression", ["1 / (x - 1)", "CAST('abc' || CAST(x AS STRING) AS INT)", "ELEMENT(ARRAY[x, x])"]
)
def test_a_value_that_cannot_be_computed_fails_the_job_with_the_row(expression: str) -> None:
    with pytest.raises((JobFailedError, PenstockError), match="in row"):
        value(expression)


def test_values_that_are_not_needed_are_not_computed() -> None:
    rows = "(VALUES (0), (2)) AS t (x)"
    env = StreamEnvironment(runtime="local", parallelism=1)
    table = env.sql(f"SELECT x FROM {rows} WHERE x <> 0 AND 10 / x = 5")
    assert table is not None
    assert list(table.collect()) == [{"x": 2}]


_ENTRIES = ", ".join(
    f"(CAST(ARRAY[ROW({key}, 1)] AS ARRAY<ROW<k STRING, v INT>>))" for key in ("'a'", "CAST(NULL AS STRING)")
)


@pytest.mark.parametrize(
    ("condition", "rows"),
    [
        ("CARDINALITY(x) = 1 AND ELEMENT(x) = 'a'", "(ARRAY['a']), (ARRAY['a', 'b'])"),
        ("CARDINALITY(x) = 1 AND MAP_FROM_ARRAYS(x, ARRAY[7])['a'] = 7", "(ARRAY['a']), (ARRAY['a', 'b'])"),
        ("x[1].k IS NOT NULL AND MAP_FROM_ENTRIES(x)['a'] = 1", _ENTRIES),
        ("x IS NOT NULL AND MAP[x, 7]['a'] = 7", "('a'), (CAST(NULL AS STRING))"),
        ("x[1] <> 'b' AND CAST(x AS ARRAY<INT>)[1] = 5", "(ARRAY['5']), (ARRAY['b'])"),
        ("""x <> '[]' AND JSON_STRING(TRY_PARSE_JSON(x)['a']) = '1'""", """('{"a":1}'), ('[]')"""),
    ],
)
def test_functions_that_may_fail_are_asked_where_they_are_needed(condition: str, rows: str) -> None:
    env = StreamEnvironment(runtime="local", parallelism=1)
    table = env.sql(f"SELECT COUNT(*) AS n FROM (VALUES {rows}) AS t (x) WHERE {condition}")
    assert table is not None
    assert list(table.to_changelog().collect())[-1]["n"] == 1


def test_a_regular_expression_that_is_none_names_the_row() -> None:
    with pytest.raises(JobFailedError, match=r"unterminated subpattern.* in row \{.*use TRY_CAST or CASE"):
        value("STR_TO_MAP('a=1', UPPER('('))")
    with pytest.raises(SqlValidationError, match=r"column 26: STR_TO_MAP: '\(' is no regular expression"):
        value("STR_TO_MAP('a=1', '(')")


@pytest.mark.parametrize(("operator", "wanted"), [("OR", [7]), ("AND", [])])
def test_thousands_of_conditions_may_be_joined(operator: str, wanted: list[int]) -> None:
    conditions = f" {operator} ".join(f"x = {number}" for number in range(2_000))
    table = StreamEnvironment(runtime="local", parallelism=1).sql(
        f"SELECT x FROM (VALUES (7), (-1)) AS t (x) WHERE {conditions}"
    )
    assert table is not None
    assert [row["x"] for row in table.collect()] == wanted
