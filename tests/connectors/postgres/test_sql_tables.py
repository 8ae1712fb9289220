"""Tables of SQL with the connector `jdbc`, on a server."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest

from penstock import StreamEnvironment
from penstock.engine.errors import SqlValidationError
from tests.connectors.postgres.tables import Database

_ITEMS = (
    "CREATE TABLE items (id INT, made TIMESTAMP(3), price DECIMAL(12, 2), name STRING, PRIMARY KEY (id) NOT ENFORCED) "
)


def _with(database: Database, table: str, more: str = "") -> str:
    parts = urlsplit(database.dsn)
    url = f"jdbc:postgresql://{parts.hostname}:{parts.port}{parts.path}"
    password = "" if parts.password is None else f", 'password' = '{parts.password}'"
    options = f"'url' = '{url}', 'table-name' = '{table}', 'username' = '{parts.username}'{password}{more}"
    return f"WITH ('connector' = 'jdbc', {options})"


def test_a_table_is_read_looked_up_and_kept_up_to_date(database: Database) -> None:
    items = database.create("id integer PRIMARY KEY, name text, price numeric(10, 2), made timestamp")
    totals = database.create("name text PRIMARY KEY, n bigint")
    database.run(
        f"INSERT INTO {items} VALUES (1, 'pen', 1.50, '2024-01-02 03:04:05'), (2, 'cup', 4, NULL), (3, 'pen', 2, NULL)"
    )
    env = StreamEnvironment(runtime="local", parallelism=2)
    ranges = ", 'scan.partition.column' = 'id', 'scan.partition.num' = '2', 'scan.partition.lower-bound' = '1', "
    ranges += "'scan.partition.upper-bound' = '3'"
    env.sql(_ITEMS + _with(database, items, ranges))
    rows = env.sql("SELECT id, name, price, EXTRACT(MINUTE FROM made) AS minute FROM items")
    assert rows is not None
    assert sorted((row["id"], row["name"], str(row["price"]), row["minute"]) for row in rows.collect()) == [
        (1, "pen", "1.50", 4),
        (2, "cup", "4.00", None),
        (3, "pen", "2.00", None),
    ]
    env = StreamEnvironment(runtime="local", parallelism=1)
    env.sql(_ITEMS + _with(database, items))
    env.sql("CREATE TABLE totals (name STRING, n BIGINT, PRIMARY KEY (name) NOT ENFORCED) " + _with(database, totals))
    env.sql("CREATE VIEW orders AS SELECT *, PROCTIME() AS now FROM (VALUES (1), (3), (2), (9)) AS t (item)")
    env.sql(
        "INSERT INTO totals SELECT i.name, COUNT(*) FROM orders o "
        "JOIN items FOR SYSTEM_TIME AS OF o.now AS i ON o.item = i.id GROUP BY i.name"
    )
    env.execute()
    assert sorted(database.ask(f"SELECT * FROM {totals}")) == [("cup", 1), ("pen", 2)]


def test_rows_that_the_order_does_not_tell_apart_are_read_once_each_or_refused(database: Database) -> None:
    orders = database.create("id integer PRIMARY KEY, customer integer, held boolean")
    database.run(f"INSERT INTO {orders} SELECT n, 7, true FROM generate_series(1, 5) AS n")
    by = ", 'scan.partition.column' = 'customer'"
    env = StreamEnvironment(runtime="local", parallelism=1, max_batch_rows=2)
    env.sql("CREATE TABLE orders (id INT, customer INT NOT NULL) " + _with(database, orders, by))
    rows = env.sql("SELECT id FROM orders")
    assert rows is not None
    assert sorted(row["id"] for row in rows.collect()) == [1, 2, 3, 4, 5]
    env.sql("CREATE TABLE customers (customer INT NOT NULL) " + _with(database, orders, by))
    with pytest.raises(SqlValidationError, match="rows of one 'customer' cannot be told apart; declare PRIMARY KEY"):
        env.sql("SELECT * FROM customers").rows()
    env.sql("CREATE TABLE nullable (id INT, customer INT) " + _with(database, orders, by))
    with pytest.raises(SqlValidationError, match="rows whose 'customer' is null would not be read"):
        env.sql("SELECT * FROM nullable").rows()
    by = ", 'scan.partition.column' = 'id'"
    env.sql("CREATE TABLE ids (id INT) " + _with(database, orders, by))
    rows = env.sql("SELECT id FROM ids")
    assert rows is not None
    assert [row["id"] for row in rows.collect()] == [1, 2, 3, 4, 5]
