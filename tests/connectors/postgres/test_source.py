"""Tables and queries as a source: order, positions, ranges, new rows; and as a table to look rows up in."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.connectors.postgres import PostgresLookup, PostgresSink, PostgresSource
from penstock.engine.clock import ManualClock
from penstock.engine.connectors import ConnectorContext, SourceReader, Wait
from penstock.engine.elements import Batch
from penstock.engine.errors import ConfigurationError, RecordError, RestoreError
from tests.connectors.postgres.tables import Database
from tests.connectors.reading import context, read_rows
from tests.draws import drawn


def _values(reader: SourceReader, column: str = "k", max_rows: int = 3) -> list[Any]:
    """What the reader gives up to its end or its first wait."""
    values: list[Any] = []
    while (batch := reader.next_batch(max_rows)) is not None and not isinstance(batch, Wait):
        values += batch.column(column).to_pylist()
    return values


@settings(max_examples=drawn(20), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    times=st.lists(st.integers(0, 3) | st.none(), max_size=12),
    pages=st.lists(st.integers(1, 5), min_size=1, max_size=4),
    ranges=st.lists(st.integers(0, 3), max_size=2).map(sorted),
)
def test_all_rows_come_once_in_their_order_also_from_positions(
    database: Database, times: list[int | None], pages: list[int], ranges: list[int]
) -> None:
    table = database.create("k serial primary key, at int")
    with database.connection.cursor() as cursor:
        cursor.executemany(f"INSERT INTO {table} (at) VALUES (%s)", [(at,) for at in times])  # type: ignore[arg-type]
    source = PostgresSource(database.dsn, table, column="at", ranges=ranges)
    found: list[tuple[Any, Any]] = []
    for split in source.splits(2):
        reader, turn = source.open(split, context()), 0
        while (batch := reader.next_batch(pages[turn % len(pages)])) is not None:
            assert isinstance(batch, pa.RecordBatch)
            assert batch.num_rows <= pages[turn % len(pages)]
            found += zip(batch.column("at").to_pylist(), batch.column("k").to_pylist(), strict=True)
            position = json.loads(json.dumps(reader.position()))
            reader.close()
            reader, turn = source.open_at(split, position, context()), turn + 1
        reader.close()
    assert found == sorted((at, key + 1) for key, at in enumerate(times) if at is not None)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("text", ["", "A", "a", "é", "日本"]),
        ("uuid", ["00000000-0000-0000-0000-00000000000a", "ffffffff-ffff-ffff-ffff-ffffffffffff"]),
        ("numeric(30,10)", ["-1.5", "0.0000000001", "12345678901234567890.5"]),
        ("date", ["0001-01-01", "2024-02-29", "9999-12-31"]),
        ("timestamp", ["0001-01-01 00:00:00", "2024-02-29 23:59:59.999999"]),
        ("timestamptz", ["2024-02-29 23:59:59.999999+00", "9999-12-31 23:59:59.999999+00"]),
        ("bigint", [str(-(2**63)), "0", str(2**63 - 1)]),
    ],
)
def test_every_type_of_column_gives_positions(database: Database, kind: str, values: list[str]) -> None:
    table = database.create(f'"My Key" {kind} unique')
    for value in values:
        database.connection.execute(f"INSERT INTO {table} VALUES (%s::{kind})", [value])  # type: ignore[arg-type]
    source = PostgresSource(database.dsn, table, column="My Key")
    (split,) = source.splits(1)
    position, found = None, 0
    while True:
        reader = source.open(split, context()) if position is None else source.open_at(split, position, context())
        rows = reader.next_batch(1)
        position = json.loads(json.dumps(reader.position()))
        reader.close()
        if rows is None:
            break
        found += 1
    assert found == len(values)


@pytest.mark.parametrize("rows", ["{}", "SELECT * FROM {}"])
@pytest.mark.parametrize("page", [1, 2, 5])
def test_a_null_in_a_tie_breaker_is_an_error_and_loses_no_row(database: Database, rows: str, page: int) -> None:
    table = database.create("at int, k int")
    database.run(f"INSERT INTO {table} VALUES (1, 1), (1, 2), (2, 1), (2, NULL), (2, 2), (3, 1)")
    source = PostgresSource(database.dsn, rows.format(table), column="at", tie_breaker="k")
    reader = source.open(source.splits(1)[0], context())
    with pytest.raises(RecordError, match=r"'test', subtask 0: postgres source: tie breaker 'k' is null in a row"):
        _values(reader, max_rows=page)
    reader.close()
    database.run(f"DELETE FROM {table} WHERE k IS NULL")
    assert len(read_rows(source, page)) == 5


def test_ranges_ascend_as_the_server_sorts(database: Database) -> None:
    table = database.create('k text COLLATE "C" unique')
    database.run(f"INSERT INTO {table} VALUES ('B'), ('a'), ('b')")
    source = PostgresSource(database.dsn, table, column="k", start_after="A", ranges=["Z", "a", "a"])
    assert [row["k"] for row in read_rows(source)] == ["B", "a", "b"]
    with pytest.raises(ConfigurationError, match="ranges must ascend, from start_after on: 'Z' comes behind 'a'"):
        PostgresSource(database.dsn, table, column="k", ranges=["a", "Z"])
    with pytest.raises(ConfigurationError, match="ranges must ascend"):
        PostgresSource(database.dsn, f"SELECT length(k) AS n FROM {table}", column="n", tie_breaker=(), ranges=[10, 9])


def test_a_server_that_gives_up_is_named_with_the_operator(database: Database) -> None:
    table = database.create("k serial primary key")
    dsn = f"{database.dsn}?options=-c%20statement_timeout%3D50"
    source = PostgresSource(database.dsn, f"SELECT k FROM {table}, pg_sleep(1)", column="k", tie_breaker=())
    source._dsn = dsn
    database.run(f"INSERT INTO {table} DEFAULT VALUES")
    reader = source.open(source.splits(1)[0], context())
    shown = f"{database.postgres.host}:{database.postgres.port}"
    with pytest.raises(
        ConnectionError, match=f"'test', subtask 0: postgres source: the query: {shown}/.*statement timeo"
    ):
        reader.next_batch(3)
    reader.close()


def test_new_rows_are_waited_for(database: Database) -> None:
    table = database.create("k serial primary key")
    database.run(f"INSERT INTO {table} SELECT FROM generate_series(1, 5)")
    clock = ManualClock()
    source = PostgresSource(database.dsn, table, column="k", start_after=1, poll="2s")
    assert not source.bounded
    (split,) = source.splits(4)
    reader = source.open(split, ConnectorContext("read", 0, 1, clock))
    assert _values(reader) == [2, 3, 4, 5]
    database.run(f"INSERT INTO {table} SELECT FROM generate_series(1, 2)")
    assert reader.next_batch(10) == Wait(2.0)
    clock.wait_until(2.0)
    assert _values(reader) == [6, 7]
    assert reader.next_batch(10) == Wait(4.0)
    reader.close()


@pytest.mark.parametrize(("kind", "old", "lag"), [("int", "1", 5), ("timestamptz", "now() - interval '1h'", "1m")])
def test_the_lag_leaves_the_newest_rows_alone(database: Database, kind: str, old: str, lag: Any) -> None:
    table = database.create(f"at {kind}, k int primary key")
    new = "now()" if kind == "timestamptz" else "7"
    database.run(f"INSERT INTO {table} VALUES ({old}, 1), ({new}, 3)")
    clock = ManualClock()
    source = PostgresSource(database.dsn, table, column="at", poll="1s", lag=lag)
    reader = source.open(source.splits(1)[0], ConnectorContext("read", 0, 1, clock))
    assert _values(reader) == [1]
    # A row that is committed late has a value below that of a row that was there before.
    late = "now() - interval '59m'" if kind == "timestamptz" else "2"
    database.run(f"INSERT INTO {table} VALUES ({late}, 2)")
    clock.wait_until(1.0)
    assert _values(reader) == [2]
    reader.close()


def test_a_query_with_its_own_columns(database: Database) -> None:
    table = database.create("k int, v text")
    database.run(f"INSERT INTO {table} VALUES (1, '10%'), (2, 'b')")
    query = f"SELECT k * 2 AS twice, v FROM {table} WHERE v LIKE '%\\%';"
    source = PostgresSource(database.dsn, query, column="twice", tie_breaker="v")
    assert read_rows(source) == [{"twice": 2, "v": "10%"}]
    assert source.describe() == "postgres(query by twice)"


def test_a_position_of_another_source_is_refused(database: Database) -> None:
    source = PostgresSource(database.dsn, database.create("k serial primary key"), column="k")
    (split,) = source.splits(1)
    for position in ({"row": 7}, {"after": ["1", "2"]}, {"after": [1]}, {"after": "1"}):
        with pytest.raises(RestoreError, match=r"must have 1 values of \(k\).*a uid of its own"):
            source.open_at(split, position, context())  # type: ignore[arg-type]


def test_a_connection_that_the_server_ends_is_made_again(database: Database) -> None:
    table = database.create("k serial primary key")
    database.run(f"INSERT INTO {table} SELECT FROM generate_series(1, 4)")
    source = PostgresSource(database.dsn + "?application_name=ended", table, column="k")
    reader = source.open(source.splits(1)[0], context())
    lookup = PostgresLookup(database.dsn + "?application_name=ended", table, keys="k")
    lookup.open(context())
    keys = pa.record_batch({"k": pa.array([4], pa.int32())})
    for _ in range(2):
        assert isinstance(reader.next_batch(2), pa.RecordBatch)
        assert lookup.lookup(keys).to_pylist() == [{"k": 4}]
        database.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'ended'")
    reader.close()
    lookup.close()


def test_several_keys_and_rows_of_one_key(database: Database) -> None:
    table = database.create("a text, b date, n int")
    database.run(f"INSERT INTO {table} VALUES ('x', '2024-01-01', 1), ('x', '2024-01-01', 2), ('y', '2024-01-01', 3)")
    lookup = PostgresLookup(database.dsn, table, keys=["b", "a"])
    assert lookup.keys == ("b", "a")
    lookup.open(context())
    keys = pa.record_batch({"b": pa.array(["2024-01-01"] * 2).cast(pa.date32()), "a": ["x", "z"]})
    assert sorted(lookup.lookup(keys)["n"].to_pylist()) == [1, 2]
    assert lookup.lookup(keys.slice(1)).to_pylist() == []
    lookup.close()


def test_a_dropped_table_fails_with_its_name(database: Database) -> None:
    table = database.create("k serial primary key")
    lookup = PostgresLookup(database.dsn, table, keys="k")
    lookup.open(context())
    database.run(f"DROP TABLE {table}")
    with pytest.raises(
        RecordError, match=f"'test', subtask 0: postgres lookup: rows of table '{table}' cannot be look"
    ):
        lookup.lookup(pa.record_batch({"k": pa.array([4], pa.int32())}))
    lookup.close()
    with pytest.raises(ConfigurationError, match=table):
        PostgresLookup(database.dsn, table, keys="k")


def test_names_are_taken_as_they_are_written(database: Database) -> None:
    table = database.create('"My %s Key" int primary key, "gro%wth ""x""" text')
    named = database.new_name("m%")
    sink = PostgresSink(database.dsn, table, markers=named)
    sink.prepare()
    for checkpoint, kind in enumerate((0, 2, 3), 1):
        writer = sink.open(context())
        rows = pa.record_batch({"My %s Key": pa.array([1, checkpoint], pa.int64()), 'gro%wth "x"': ["a", "5%"]})
        writer.write(Batch(rows, None, pa.array([0, kind], pa.int8())))
        sink.commit(writer.prepare(checkpoint), context())
    source = PostgresSource(database.dsn, table, column="My %s Key", start_after=0)
    lookup = PostgresLookup(database.dsn, table, keys=['gro%wth "x"', "My %s Key"])
    lookup.open(context())
    found = lookup.lookup(pa.record_batch({'gro%wth "x"': ["5%"], "My %s Key": pa.array([2], pa.int32())}))
    lookup.close()
    assert read_rows(source) == [{"My %s Key": 1, 'gro%wth "x"': "a"}, {"My %s Key": 2, 'gro%wth "x"': "5%"}]
    assert found.to_pylist() == [{"My %s Key": 2, 'gro%wth "x"': "5%"}]
