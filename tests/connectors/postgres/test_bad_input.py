"""Tables that change while a job runs, large values, and servers that take no writes."""

from __future__ import annotations

import contextlib

import pyarrow as pa
import pytest

from penstock.connectors.postgres import PostgresLookup, PostgresSink, PostgresSource
from penstock.engine.errors import ConfigurationError, PenstockError, RecordError
from tests.connectors.postgres.tables import Database, context, rows
from tests.large import LARGE


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("DROP COLUMN v", 'column "v" .*does not exist'),
        ("ALTER COLUMN v TYPE int USING 0", "invalid input"),
        ("ADD COLUMN w int NOT NULL", 'null value in column "w"'),
    ],
)
def test_a_table_that_changes_under_the_sink(database: Database, change: str, message: str) -> None:
    table = database.create("k bigint primary key, v text")
    sink = PostgresSink(database.dsn, table, markers=database.new_name("m"))
    sink.check(pa.schema({"k": pa.int64(), "v": pa.string()}))
    sink.prepare()
    writer = sink.open(context())
    database.run(f"ALTER TABLE {table} {change}")
    with pytest.raises(PenstockError, match=f"'out', subtask 0: .*{message}"):  # noqa: PT012
        writer.write(rows({"k": [1], "v": ["a"]}))
        sink.commit(writer.prepare(1), context())
    writer.close()
    assert database.ask(f"SELECT * FROM {table}") == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("DROP COLUMN v", 'column "v" does not exist'),
        ("ALTER COLUMN v TYPE text", "column 'v': a value is no int32"),
        ("ADD COLUMN w text DEFAULT 'new'", None),
        ("DROP COLUMN v, ADD COLUMN w int DEFAULT 0", 'column "v" does not exist'),
    ],
)
def test_a_table_that_changes_under_the_source(database: Database, change: str, message: str | None) -> None:
    table = database.create("k bigint primary key, v int")
    database.run(f"INSERT INTO {table} SELECT n, n FROM generate_series(1, 10) AS n")
    source = PostgresSource(database.dsn, table, column="k")
    (split,) = source.splits(1)
    with contextlib.closing(source.open(split, context())) as reader:
        assert isinstance(reader.next_batch(3), pa.RecordBatch)
        database.run(f"ALTER TABLE {table} {change}")
        if message is None:
            batch = reader.next_batch(100)
            assert isinstance(batch, pa.RecordBatch)
            assert batch["v"].to_pylist() == [4, 5, 6, 7, 8, 9, 10]
        else:
            with pytest.raises(RecordError, match=f"'out', subtask 0: .*{message}"):
                reader.next_batch(100)


@LARGE
def test_large_values(database: Database, large: int) -> None:
    table = database.create("k bigint primary key, v text")
    sink = PostgresSink(database.dsn, table, markers=database.new_name("m"))
    sink.prepare()
    writer = sink.open(context())
    writer.write(rows({"k": [1, 2], "v": ["x" * large, "y"]}))
    sink.commit(writer.prepare(1), context())
    writer.close()
    source = PostgresSource(database.dsn, table, column="k")
    (split,) = source.splits(1)
    reader = source.open(split, context())
    batch = reader.next_batch(100)
    assert isinstance(batch, pa.RecordBatch)
    assert [len(text) for text in batch["v"].to_pylist()] == [large, 1]
    reader.close()
    lookup = PostgresLookup(database.dsn, table, keys="k")
    lookup.open(context())
    assert len(lookup.lookup(pa.record_batch({"k": [1]}))["v"][0].as_py()) == large
    lookup.close()
    database.run(f"DROP TABLE {table}")


def test_a_server_that_takes_no_writes(database: Database) -> None:
    table, user = database.create("k bigint primary key"), database.new_name("standby")
    markers = database.new_name("m")
    PostgresSink(database.dsn, table, markers=markers).prepare()
    database.run(f"CREATE ROLE {user} LOGIN PASSWORD 'guest'")
    database.run(f"GRANT SELECT, INSERT, UPDATE ON {table}, {markers} TO {user}")
    database.run(f"ALTER ROLE {user} SET default_transaction_read_only = on")
    dsn = f"postgresql://{user}:guest@{database.postgres.host}:{database.postgres.port}/postgres"
    sink = PostgresSink(dsn, table, markers=markers)
    with pytest.raises(ConfigurationError, match=f"user '{user}' may only read in database"):
        sink.check(None)
    with pytest.raises((PenstockError, ConnectionError), match="read-only transaction"):  # noqa: PT012
        sink.prepare()
        writer = sink.open(context())
        writer.write(rows({"k": [1]}))
        sink.commit(writer.prepare(1), context())
