"""What a user reads where PostgreSQL cannot be used as asked."""

from __future__ import annotations

import pickle
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from penstock.connectors.postgres import PostgresLookup, PostgresSink, PostgresSource
from penstock.engine.errors import ConfigurationError, PenstockError, RecordError
from tests.connectors.postgres.tables import Database, context, rows

ROWS = pa.schema([("k", pa.int64()), ("v", pa.string())])
SECRET = "s3cret-pa55"

USES: list[Callable[[str], Any]] = [
    lambda dsn: PostgresSink(dsn, "t").check(ROWS),
    lambda dsn: PostgresSource(dsn, "t", column="k"),
    lambda dsn: PostgresLookup(dsn, "t", keys="k"),
]


@pytest.mark.parametrize("use", USES)
def test_a_server_that_is_not_there_is_named_at_once(use: Callable[[str], Any]) -> None:
    with pytest.raises(ConfigurationError, match=r"cannot be used at 127\.0\.0\.1:1/shop: .*refused") as caught:
        use(f"postgresql://app:{SECRET}@127.0.0.1:1/shop")
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("use", USES)
def test_without_its_package_it_says_how_to_install_it(
    use: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'penstock\[postgres\]'"):
        use("postgresql://127.0.0.1:1/shop")


def test_where_its_package_is_missing_a_sink_from_elsewhere_is_described(monkeypatch: pytest.MonkeyPatch) -> None:
    sink = PostgresSink("postgresql://127.0.0.1:1/shop", "t")
    monkeypatch.setitem(sys.modules, "psycopg", None)
    assert "t" in sink.describe()
    assert sink.datasets
    with pytest.raises(ConfigurationError, match=r"pip install 'penstock\[postgres\]'"):
        sink.prepare()


def test_a_server_that_never_answers_is_named_within_ten_seconds() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        began = time.monotonic()
        with pytest.raises(ConfigurationError, match=f"cannot be used at 127.0.0.1:{port}/d: .*timeout"):
            PostgresSink(f"host=127.0.0.1 port={port} dbname=d connect_timeout=2", "t").check(ROWS)
        assert time.monotonic() - began < 10


@pytest.mark.parametrize("use", USES)
def test_a_wrong_password_is_said_and_not_shown(
    database: Database, use: Callable[[str], Any], capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ConfigurationError, match="password authentication failed") as caught:
        use(database.dsn.replace(database.postgres.password, SECRET))
    written = capfd.readouterr()
    assert caught.value.__cause__ is None
    assert SECRET not in str(caught.value) + repr(caught.value) + written.out + written.err


@pytest.mark.parametrize(
    "dsn",
    [
        f"postgresql://app:{SECRET}@x@db/shop",
        f"postgresql://app:{SECRET}/x@db/shop",
        f"host=db pasword={SECRET}",
        f"mysql://app:{SECRET}@db/shop",
        "",
    ],
)
def test_a_dsn_that_cannot_be_read_is_not_shown(dsn: str) -> None:
    with pytest.raises(ConfigurationError, match="the dsn cannot be read; give postgresql://") as caught:
        PostgresSink(dsn, "t")
    assert SECRET not in str(caught.value)


def test_neither_texts_nor_plans_show_the_password(database: Database) -> None:
    table = database.create("k bigint primary key, v text")
    sink = PostgresSink(database.dsn, table)
    source = PostgresSource(database.dsn, table, column="k")
    shown = [repr(sink), sink.describe(), repr(source), source.describe()]
    assert not any(database.postgres.password in one for one in shown)
    assert (sink.describe(), source.describe()) == (f"postgres({table}, upsert)", f"postgres({table} by k)")
    assert pickle.loads(pickle.dumps(sink)) == sink
    assert pickle.loads(pickle.dumps(source)).schema == source.schema


def test_a_missing_table_is_named_with_the_nearest(database: Database) -> None:
    table = database.create("k int")
    for use in USES:
        with pytest.raises(ConfigurationError, match="no table 't'"):
            use(database.dsn)
    with pytest.raises(ConfigurationError, match=f"no table '{table}x'.*did you mean '{table}'"):
        PostgresSink(database.dsn, f"{table}x").check(ROWS)
    with pytest.raises(ConfigurationError, match="no table 'pg_table', or"):
        PostgresSink(database.dsn, "pg_table").check(ROWS)


@pytest.mark.parametrize(
    ("columns", "arguments", "schema", "message"),
    [
        ("k bigint primary key", {}, ROWS, "column 'v' is not in table"),
        ("k bigint primary key, v2 text", {}, ROWS, r"column 'v' is not in table '\w+' \(did you mean 'v2'"),
        ("k bigint primary key, v text, w int not null", {}, ROWS, "no column 'w', which table '.*' needs"),
        ("k bigint, v text", {}, ROWS, "has no primary key; give keys"),
        ("k bigint, v text", {"keys": "k"}, ROWS, r"no unique index of \(k\).*CREATE UNIQUE INDEX"),
        ("k bigint, v text", {"keys": ["x"]}, ROWS, "has no column 'x' to be a key"),
        ("a int primary key, k bigint, v text", {}, ROWS, "no column 'a'"),
        ("k bigint primary key, v text generated always as ('x') stored", {}, ROWS, "made by the server alone"),
        ("k bigint primary key, v int", {}, ROWS, "'v' is string in the stream and integer in the table"),
        ("k bigint primary key, penstock_deleted bool", {}, None, "has a column 'penstock_deleted'; rename it"),
    ],
)
def test_a_table_that_does_not_fit(
    database: Database, columns: str, arguments: dict[str, Any], schema: pa.Schema | None, message: str
) -> None:
    sink = PostgresSink(database.dsn, database.create(columns), **arguments)
    with pytest.raises(PenstockError, match=message):
        sink.check(schema)


def test_rows_that_no_plan_knew_are_checked_as_they_come(database: Database) -> None:
    sink = PostgresSink(database.dsn, database.create("k bigint primary key"))
    sink.check(None)
    with pytest.raises(ConfigurationError, match="column 'w' is not in table"):
        sink.open(context()).write(rows({"k": [1], "w": [2]}))


def test_rows_with_other_columns_than_those_before(database: Database) -> None:
    table = database.create("k bigint primary key, v text, n numeric")
    sink = PostgresSink(database.dsn, table)
    for other in ({"k": [2]}, {"v": ["b"], "k": [2]}):
        writer = sink.open(context())
        writer.write(rows({"k": [1], "v": ["a"]}))
        writer.write(rows({"k": pa.array([1], pa.int16()), "v": ["a"]}))
        with pytest.raises(
            RecordError, match=f"'out', subtask 0: .*'{table}': the first rows had the columns k int64, v string, and"
        ):
            writer.write(rows(other))
        writer.close()


def test_a_null_key_and_a_deletion_that_is_appended(database: Database) -> None:
    table = database.create("k bigint unique, v int")
    with pytest.raises(RecordError, match="column 'k': a key is null"):
        PostgresSink(database.dsn, table, keys="k").open(context()).write(rows({"k": pa.array([None], pa.int64())}))
    with pytest.raises(RecordError, match=r"is an update or a deletion, .* is appended to"):
        PostgresSink(database.dsn, table, mode="append").open(context()).write(rows({"k": [1]}, [3]))


def test_a_user_without_the_right_to_write(database: Database) -> None:
    table, user = database.create("k bigint primary key, v text"), database.new_name("guest")
    database.run(f"CREATE ROLE {user} LOGIN PASSWORD 'guest'")
    dsn = f"postgresql://{user}:guest@{database.postgres.host}:{database.postgres.port}/postgres"
    sink = PostgresSink(dsn, table, markers=database.new_name("m"))
    with pytest.raises(ConfigurationError, match=f"user '{user}' may not INSERT on table '{table}'; GRANT it"):
        sink.check(ROWS)
    database.run(f"GRANT SELECT, INSERT, UPDATE ON {table} TO {user}")
    sink.check(ROWS)
    with pytest.raises(ConfigurationError, match="permission denied"):
        sink.prepare()
    # Deleting takes a right of its own only where a row is deleted.
    PostgresSink(database.dsn, table, markers=sink.markers).prepare()
    with pytest.raises(ConfigurationError, match=f"user '{user}' may not SELECT on table '{sink.markers}'; GRANT it"):
        sink.check(ROWS)
    database.run(f"GRANT SELECT, INSERT, UPDATE ON {sink.markers} TO {user}")
    sink.check(ROWS)
    sink.prepare()
    writer = sink.open(context())
    writer.write(rows({"k": [1], "v": ["a"]}))
    sink.commit(writer.prepare(1), context())
    assert database.ask(f"SELECT * FROM {table}") == [(1, "a")]


def test_a_user_without_the_right_to_temporary_tables(database: Database) -> None:
    other, user = database.new_name("d"), database.new_name("guest")
    database.run(f"CREATE DATABASE {other}")
    database.run(f"REVOKE TEMPORARY ON DATABASE {other} FROM PUBLIC")
    database.run(f"CREATE ROLE {user} LOGIN PASSWORD 'guest'")
    with psycopg.connect(f"{database.dsn.rpartition('/')[0]}/{other}", autocommit=True) as connection:
        connection.execute("CREATE TABLE t (k bigint primary key, v text)")
        connection.execute("GRANT SELECT, INSERT, UPDATE ON t TO public")
    dsn = f"postgresql://{user}:guest@{database.postgres.host}:{database.postgres.port}/{other}"
    with pytest.raises(ConfigurationError, match=f"user '{user}' may make no temporary tables in database '{other}'"):
        PostgresSink(dsn, "t").check(ROWS)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda dsn: PostgresSink(dsn, "t", mode="merge"), "no mode 'merge'"),  # type: ignore[arg-type]
        (lambda dsn: PostgresSink(dsn, "t", mode="append", keys="k"), "rows that are appended have no keys"),
        (lambda dsn: PostgresSink(dsn, "t", stuck_timeout="0ms"), "stuck_timeout must be"),
        (lambda dsn: PostgresLookup(dsn, "t", keys=()), "name at least one key"),
        (lambda dsn: PostgresSource(dsn, "t", column="k", ranges=[1], poll="1s"), "ranges are for bounded"),
        (lambda dsn: PostgresSource(dsn, "t", column="k", lag=1), "lag is for endless"),
    ],
)
def test_arguments_that_cannot_be_used(make: Callable[[str], Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        make("host=localhost")


def test_source_arguments_that_do_not_fit_the_table(database: Database) -> None:
    table = database.create("k bigint, at timestamptz, v jsonb")
    for arguments, message in [
        ({"column": "x"}, "no primary key"),
        ({"column": "x", "tie_breaker": ()}, "has no column 'x'"),
        ({"column": "k"}, "no primary key to tell rows apart"),
        ({"column": "v", "tie_breaker": ()}, "is jsonb, by which rows are not ordered"),
        ({"column": "at", "tie_breaker": (), "poll": "1s", "lag": 5}, "lag is a duration where"),
        ({"column": "k", "tie_breaker": (), "poll": "1s", "lag": "5s"}, "lag is a duration where"),
        ({"column": "k", "tie_breaker": (), "ranges": [9, 10, 5]}, "ranges must ascend.*'5' comes behind '10'"),
        ({"column": "k", "tie_breaker": (), "ranges": [5], "start_after": 6}, "'5' comes behind '6'"),
    ]:
        with pytest.raises(ConfigurationError, match=message):
            PostgresSource(database.dsn, table, **arguments)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="give tie_breaker="):
        PostgresSource(database.dsn, f"SELECT k FROM {table}", column="k")
    with pytest.raises(ConfigurationError, match='column "y" does not exist'):
        PostgresSource(database.dsn, f"SELECT y FROM {table}", column="k")
    with pytest.raises(ConfigurationError, match=r"syntax error .*a text with a blank is taken for a query"):
        PostgresSource(database.dsn, "my table", column="k")
    with pytest.raises(ConfigurationError, match="no column 'kk'"):
        PostgresLookup(database.dsn, table, keys="k", columns=["kk"])
    with pytest.raises(ConfigurationError, match="no column 'k', or it is not among columns"):
        PostgresLookup(database.dsn, table, keys="k", columns=["at"])


def test_importing_the_connector_is_light() -> None:
    code = "import sys, penstock.connectors.postgres; print('psycopg' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
