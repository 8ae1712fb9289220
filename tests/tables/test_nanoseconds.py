"""Times with nanoseconds in collections and aggregates; of times of day no more than milliseconds: as Flink 2.3."""

from __future__ import annotations

import pytest

from penstock import StreamEnvironment

_AT = "TIMESTAMP '2020-01-01 00:00:00.123456789'"
_TEXT = "2020-01-01 00:00:00.123456789"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (f"ARRAY[{_AT}]", f"[{_TEXT}]"),
        (f"ARRAY[{_AT}][1]", _TEXT),
        (f"ARRAY_CONTAINS(ARRAY[{_AT}], {_AT})", "TRUE"),
        (f"MAP['a', {_AT}]", f"{{a={_TEXT}}}"),
        (f"MAP['a', {_AT}]['a']", _TEXT),
        (f"ROW({_AT})", f"({_TEXT})"),
        (f"ROW({_AT}) = ROW(TIMESTAMP '2020-01-01 00:00:00.123456788')", "FALSE"),
        (f"ARRAY[{_AT}] = ARRAY[{_AT}]", "TRUE"),
        ("TIMESTAMP '1900-01-01 00:00:00.1234567'", "1900-01-01 00:00:00.1234567"),
        ("TIME '12:00:00.123456789'", "12:00:00.123"),
        ("TYPEOF(TIME '12:00:00.1234')", "TIME(3) NOT NULL"),
        ("CAST('12:00:00.123456' AS TIME(6))", "12:00:00.123"),
        ("TYPEOF(CAST('12:00:00.1' AS TIME(9)))", "TIME(3) NOT NULL"),
    ],
)
def test_a_value_has_the_digits_of_its_type(value: str, text: str) -> None:
    table = StreamEnvironment(runtime="local").sql(f"SELECT CAST({value} AS STRING) AS text FROM (VALUES 1) AS t (n)")
    assert table is not None
    assert [row["text"] for row in table.collect()] == [text]


_EARLY = "TIMESTAMP '1969-12-31 23:59:58.765432'"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (f"CAST({_EARLY} AS TIMESTAMP(6))", "1969-12-31 23:59:58.765432"),
        (f"CAST({_EARLY} AS TIMESTAMP(5))", "1969-12-31 23:59:58.76543"),
        (f"CAST({_EARLY} AS TIMESTAMP(3))", "1969-12-31 23:59:58.765"),
        (f"CAST({_EARLY} AS TIMESTAMP(1))", "1969-12-31 23:59:58.8"),
        (f"CAST({_EARLY} AS TIMESTAMP(0))", "1969-12-31 23:59:59"),
        (f"CAST(CAST({_EARLY} AS TIMESTAMP_LTZ(3)) AS TIMESTAMP(3))", "1969-12-31 23:59:58.765"),
        ("TO_TIMESTAMP('1969-12-31 23:59:58.765432', 'yyyy-MM-dd HH:mm:ss.SSSSSS')", "1969-12-31 23:59:58.765"),
        ("CAST(CAST(NULL AS TIMESTAMP(6)) AS TIMESTAMP(3)) IS NULL", "TRUE"),
    ],
)
def test_before_1970_less_than_a_millisecond_is_cut_off_towards_the_past(value: str, text: str) -> None:
    """And tenths of seconds towards 1970, as Flink's `DateTimeUtils.truncate` does."""
    table = StreamEnvironment(runtime="local").sql(f"SELECT CAST({value} AS STRING) AS text FROM (VALUES 1) AS t (n)")
    assert table is not None
    assert [row["text"] for row in table.collect()] == [text]


def test_elements_of_a_column_keep_their_nanoseconds() -> None:
    env = StreamEnvironment(runtime="local")
    rows = f"(VALUES (1, ARRAY[{_AT}])) AS t (n, a)"
    table = env.sql(f"SELECT CAST(b AS STRING) AS text FROM {rows} CROSS JOIN UNNEST(a) AS u (b)")
    assert table is not None
    assert [row["text"] for row in table.collect()] == [_TEXT]


_ROWS = f"(VALUES (1, {_AT}), (2, TIMESTAMP '2020-01-01 00:00:00.123456788'), (3, {_AT})) AS t (n, a)"
_LESS = _TEXT[:-1] + "8"


@pytest.mark.parametrize(
    ("aggregate", "text"),
    [
        ("ARRAY_AGG(a)", f"[{_TEXT}, {_LESS}, {_TEXT}]"),
        ("ARRAY_AGG(DISTINCT a)", f"[{_TEXT}, {_LESS}]"),
        ("ARRAY_AGG(CAST(a AS TIMESTAMP_LTZ(9)))", f"[{_TEXT}, {_LESS}, {_TEXT}]"),
        ("ARRAY_AGG(ROW(a))", f"[({_TEXT}), ({_LESS}), ({_TEXT})]"),
        ("FIRST_VALUE(MAP[a, n])", f"{{{_TEXT}=1}}"),
        ("COUNT(DISTINCT ARRAY[a])", "2"),
        ("MIN(a)", _LESS),
        ("LAST_VALUE(a)", _TEXT),
    ],
)
def test_aggregates_keep_nanoseconds(aggregate: str, text: str) -> None:
    # Of several subtasks, rows of groups would come in any order.
    env = StreamEnvironment(runtime="local", parallelism=1)
    for query in (
        f"SELECT {aggregate} AS x FROM {_ROWS}",
        f"SELECT x FROM (SELECT n, {aggregate} OVER (ORDER BY n) AS x FROM {_ROWS}) AS t WHERE n = 3",
        f"SELECT {aggregate} AS x FROM (SELECT n, MAX(a) AS a FROM {_ROWS} GROUP BY n) AS t",
    ):
        table = env.sql(f"SELECT CAST(x AS STRING) AS text FROM ({query}) AS t")
        assert table is not None
        assert [row["text"] for row in table.collect()][-1] == text


def test_multisets_and_distinct_arrays_keep_nanoseconds() -> None:
    env = StreamEnvironment(runtime="local")
    for query, texts in (
        (f"SELECT COLLECT(a) AS x FROM {_ROWS}", [f"{{{_LESS}=1, {_TEXT}=2}}"]),
        (f"SELECT DISTINCT ARRAY[a] AS x FROM {_ROWS}", [f"[{_LESS}]", f"[{_TEXT}]"]),
    ):
        table = env.sql(f"SELECT CAST(x AS STRING) AS text FROM ({query}) AS t")
        assert table is not None
        assert sorted(row["text"] for row in table.collect()) == texts
