"""Statements that are wrong: each message names the place, what is wrong, and what to do."""

from __future__ import annotations

import pytest

from penstock import StreamEnvironment
from penstock.engine.errors import SqlError, SqlSyntaxError, SqlUnsupportedError, SqlValidationError
from penstock.tables.environment import TableEnvironment

_TABLES = """
CREATE TABLE orders (
  id INT, item STRING, price DECIMAL(10, 2), tags ARRAY<STRING>, buyer ROW<name STRING, age INT>, at TIMESTAMP(3),
  WATERMARK FOR at AS at - INTERVAL '5' SECOND
) WITH ('connector' = 'filesystem', 'path' = 'orders', 'format' = 'json');
CREATE TABLE items (item STRING, weight DOUBLE, made TIMESTAMP(3))
WITH ('connector' = 'filesystem', 'path' = 'items', 'format' = 'json');
CREATE TABLE totals (item STRING, total DECIMAL(38, 2))
WITH ('connector' = 'filesystem', 'path' = 't', 'format' = 'json');
CREATE TABLE strict (item STRING NOT NULL, n BIGINT NOT NULL) WITH ('connector' = 'blackhole');
"""
_FILES = "WITH ('connector' = 'filesystem', 'path' = 'x', 'format' = 'csv')"
_WINDOW = "SELECT * FROM TABLE({}(TABLE {}, DESCRIPTOR({}), {}))"

BAD: tuple[tuple[type[SqlError], str, int, str], ...] = (
    # What is no SQL
    (SqlSyntaxError, "SELCT id FROM orders", 1, "did you mean 'SELECT'"),
    (SqlSyntaxError, "SELECT id, FROM orders", 12, "expected an expression in SELECT, but there is 'FROM'"),
    (SqlSyntaxError, "SELECT FROM orders", 8, "expected an expression in SELECT"),
    (SqlSyntaxError, "SELECT id FROM orders WHERE", 28, "expected an expression, but there is the end of the text"),
    (SqlSyntaxError, "SELECT id FROM orders GROUP id", 29, "expected BY"),
    (SqlSyntaxError, "SELECT CASE WHEN id > 1 item END FROM orders", 25, "expected THEN behind the condition of WHEN"),
    (SqlSyntaxError, "SELECT CASE id WHEN 1 THEN 2 FROM orders", 30, "expected END at the end of CASE"),
    (SqlSyntaxError, "SELECT CAST(id INT) FROM orders", 16, "expected AS behind the value of CAST"),
    (SqlSyntaxError, "SELECT CAST(id AS INTEGR) FROM orders", 19, "'INTEGR' is no type (did you mean 'INTEGER'?)"),
    (SqlSyntaxError, "SELECT 'abc FROM orders", 8, "no closing quote"),
    (SqlSyntaxError, "SELECT X'4' FROM orders", 9, "two digits each, such as X'45F0'"),
    (SqlSyntaxError, 'SELECT "id" FROM orders', 8, "names in backticks"),
    (SqlSyntaxError, "SELECT `id FROM orders", 8, "no closing quote (`)"),
    (SqlSyntaxError, "SELECT id /* all FROM orders", 11, "this comment has no end"),
    (SqlSyntaxError, "SELECT id FROM orders JOIN items", 33, "expected ON or USING"),
    (SqlSyntaxError, "SELECT id IN 1 FROM orders", 14, "expected '(' behind IN"),
    (SqlSyntaxError, "SELECT id BETWEEN 1 FROM orders", 21, "expected AND between the bounds of BETWEEN"),
    (SqlSyntaxError, "SELECT id IS 5 FROM orders", 14, "expected NULL, TRUE, FALSE"),
    (SqlSyntaxError, "SELECT INTERVAL 5 MINUTE FROM orders", 17, "a number in quotes, such as INTERVAL '5' MINUTE"),
    (SqlSyntaxError, "SELECT INTERVAL '5' FORTNIGHT FROM orders", 21, "expected a unit"),
    (SqlSyntaxError, "SELECT (id FROM orders", 12, "expected ')' to close the bracket"),
    (SqlSyntaxError, "SELECT id FROM orders; SELECT", 24, "one statement is run at a time"),
    (SqlSyntaxError, "SELECT select FROM orders", 8, "it needs backticks, `select`"),
    (SqlSyntaxError, "CREATE TABLE t (a INT) WITH (connector = 'blackhole')", 30, "the option's key in quotes"),
    (SqlSyntaxError, "INSERT totals SELECT 1", 8, "expected INTO behind INSERT"),
    (SqlValidationError, "INSERT INTO totals (item, item) VALUES ('a', 'b')", 21, "'item' is named more than once"),
    # Names that there are not
    (SqlValidationError, "SELECT idd FROM orders", 8, "no column 'idd' (did you mean 'id'?)"),
    (SqlValidationError, "SELECT id FROM ordres", 16, "there is no table 'ordres' (did you mean 'orders'?)"),
    (SqlValidationError, "SELECT o.idd FROM orders o", 10, "table 'o' has no column 'idd' (did you mean 'id'?)"),
    (SqlValidationError, "SELECT x.id FROM orders o", 8, "no table or column 'x'"),
    (SqlValidationError, "SELECT buyer.nam FROM orders", 14, "no field 'nam' (did you mean 'name'?)"),
    (SqlValidationError, "SELECT id.name FROM orders", 11, "only a ROW has fields; this is INT"),
    (SqlValidationError, "SELECT UPER(item) FROM orders", 8, "there is no function UPER (did you mean 'UPPER'?)"),
    (SqlValidationError, "SELECT item FROM orders, items", 8, "column 'item' is in several tables (orders, items)"),
    (SqlValidationError, "SELECT 1 FROM items JOIN items ON TRUE", 26, "two tables of FROM have the name 'items'"),
    (SqlValidationError, "SELECT id FROM other.orders", 16, "there is no database 'other' in default_catalog"),
    (SqlValidationError, "SELECT t.* FROM orders", 8, "no table 't' in FROM"),
    # Types that do not fit
    (SqlValidationError, "SELECT id + at FROM orders", 11, "'+' takes numbers"),
    (SqlValidationError, "SELECT id FROM orders WHERE price", 29, "WHERE needs a condition (BOOLEAN)"),
    (SqlValidationError, "SELECT id + '1' FROM orders", 11, "cast what is none, such as CAST(x AS INT)"),
    (SqlValidationError, "SELECT item * id FROM orders", 13, "'*' takes numbers, not STRING and INT"),
    (
        SqlValidationError,
        "SELECT item = id FROM orders",
        13,
        "STRING and INT cannot be compared; cast one of them, such as CAST(x AS INT)",
    ),
    (SqlValidationError, "SELECT CASE id WHEN '1' THEN 2 END FROM orders", 21, "cannot be compared"),
    (SqlValidationError, "SELECT id IN (1, '2') FROM orders", 15, "the values of IN have no type in common"),
    (SqlValidationError, "SELECT TRUE > 'true'", 13, "such as CAST(x AS BOOLEAN)"),
    (SqlValidationError, "SELECT item IN (SELECT id FROM orders) FROM items", 13, "such as CAST(x AS INT)"),
    (SqlValidationError, "SELECT id = tags FROM orders", 11, "INT and ARRAY<STRING> cannot be compared"),
    (SqlValidationError, "SELECT CAST(tags AS INT) FROM orders", 8, "ARRAY<STRING> cannot be cast to INT"),
    (SqlValidationError, "SELECT SUM(tags) FROM orders", 12, "SUM takes a number, not ARRAY<STRING>"),
    (SqlValidationError, "SELECT UPPER(tags) FROM orders", 14, "UPPER takes a text here"),
    (SqlValidationError, "SELECT UPPER() FROM orders", 8, "UPPER takes 1 argument, not 0"),
    (SqlValidationError, "SELECT CASE WHEN id > 1 THEN 1 ELSE tags END FROM orders", 8, "have no type in common"),
    (SqlValidationError, "SELECT EXTRACT(YAER FROM at) FROM orders", 16, "no unit of time (did you mean 'YEAR'?)"),
    (SqlValidationError, "SELECT DATE '2024-13-01'", 8, "is no DATE; write it like DATE '2024-01-31'"),
    (SqlValidationError, "SELECT id FROM orders UNION SELECT tags FROM orders", 23, "cast one of them"),
    (SqlValidationError, "SELECT id FROM orders UNION SELECT id, item FROM orders", 23, "need as many columns"),
    (SqlValidationError, "SELECT NULL", 8, "NULL alone has no type"),
    # Groups and windows
    (
        SqlValidationError,
        "SELECT id, COUNT(*) FROM orders",
        8,
        "column 'id' (INT) is neither in GROUP BY nor in an aggregate",
    ),
    (SqlValidationError, "SELECT id FROM orders WHERE SUM(id) > 1", 29, "the aggregate SUM may not stand here"),
    (SqlValidationError, "SELECT * FROM orders GROUP BY id", 8, "* may not stand beside GROUP BY"),
    (SqlValidationError, "SELECT id FROM orders HAVING id > 1", 33, "HAVING needs GROUP BY"),
    (SqlValidationError, "SELECT ROW_NUMBER() FROM orders", 8, "ROW_NUMBER needs OVER"),
    (SqlValidationError, _WINDOW.format("TUMBLE", "items", "made", "INTERVAL '5' SECOND"), 41, "no time attribute"),
    (SqlValidationError, _WINDOW.format("TUMBLE", "orders", "att", "INTERVAL '5' SECOND"), 53, "did you mean 'at'"),
    (SqlValidationError, _WINDOW.format("HOP", "orders", "at", "INTERVAL '5' SECOND"), 21, "HOP lacks 'size'"),
    (SqlValidationError, _WINDOW.format("TUMBLE", "orders", "at", "5"), 58, "'size' is an interval"),
    # Tables and their options
    (SqlValidationError, "CREATE TABLE t (a INT, a STRING) WITH ('connector' = 'blackhole')", 24, "is there twice"),
    (SqlValidationError, "CREATE TABLE t (a INT)", 1, "names no connector; add WITH"),
    (SqlValidationError, "CREATE TABLE t (a INT) WITH ('connector' = 'filesytem')", 30, "did you mean 'filesystem'"),
    (
        SqlValidationError,
        f"CREATE TABLE t (a INT) {_FILES[:-1]}, 'pth' = 'y')",
        90,
        "no option 'pth' (did you mean 'path'?)",
    ),
    (SqlValidationError, f"CREATE TABLE t (a INT PRIMARY KEY) {_FILES}", 34, "say so with NOT ENFORCED"),
    (SqlValidationError, f"CREATE TABLE t (a INT, PRIMARY KEY (b) NOT ENFORCED) {_FILES}", 37, "names 'b'"),
    (SqlValidationError, f"CREATE TABLE t (a INT, WATERMARK FOR a AS a) {_FILES}", 38, "event time needs TIMESTAMP(3)"),
    (
        *(
            SqlValidationError,
            f"CREATE TABLE t (a TIMESTAMP(6), b AS CAST(a AS TIMESTAMP(3)), WATERMARK FOR b AS a) {_FILES}",
        ),
        *(82, "the watermark must have 3 digits behind the second at most, and is TIMESTAMP(6); cast it"),
    ),
    (SqlValidationError, "CREATE TABLE orders (a INT) WITH ('connector' = 'blackhole')", 14, "IF NOT EXISTS"),
    (SqlValidationError, "DROP VIEW orders", 1, "write DROP TABLE orders"),
    (SqlValidationError, "DROP TABLE nope", 12, "there is no table 'nope'; DROP TABLE IF EXISTS minds none"),
    (
        SqlValidationError,
        "INSERT INTO totals SELECT item FROM orders",
        20,
        "the query has 1 columns, and 2 go into totals",
    ),
    (SqlValidationError, "INSERT INTO totals SELECT id, price FROM orders", 20, "cast it: CAST(id AS STRING)"),
    (
        SqlValidationError,
        "INSERT INTO totals SELECT item, SUM(price) FROM orders GROUP BY item",
        1,
        "does not take: DELETE",
    ),
    (
        SqlValidationError,
        "INSERT INTO strict (item) SELECT item FROM orders",
        1,
        "column 'n' is NOT NULL and gets no value",
    ),
    (SqlValidationError, "USE CATALOG hive", 13, "there is no catalog 'hive'"),
    (SqlValidationError, "USE default_catalog.db", 5, "there is no database 'db' in default_catalog"),
    (SqlSyntaxError, "SHOW TABELS", 6, "did you mean"),
    (SqlValidationError, "SET 'table.local-time-zone' = 'Mars/Base'", 1, "is no time zone"),
    (
        SqlValidationError,
        "SET 'table.exec.mini-batch.enabled' = 'true'",
        1,
        "nothing here that it changes: leave it out",
    ),
    (SqlValidationError, "SELECT i.item FROM orders o LEFT ANTI JOIN items i ON o.item = i.item", 8, "'i'"),
    (SqlSyntaxError, "SELECT 1 FROM orders LEFT SEMI JOIN items USING (item)", 43, "expected ON"),
    (SqlSyntaxError, "SET table.exec.state.ttl = 1 h", 28, "SET 'table.exec.state.ttl' = '1 h';"),
    (SqlSyntaxError, "SET 'pipeline.name' = my-job", 23, "SET 'pipeline.name' = 'my-job';"),
    (SqlSyntaxError, "SET pipeline.name TO 'x'", 19, "SET 'key' = 'value'"),
    (SqlSyntaxError, "SET 'pipeline.name' =", 22, "the value needs quotes"),
    (SqlValidationError, "SET 'table.local-timezone' = 'UTC'", 1, "did you mean 'table.local-time-zone'"),
    # What Flink has, and Penstock does not
    (SqlSyntaxError, "SELECT id FROM orders NATURAL items", 31, "expected JOIN behind NATURAL"),
    (SqlUnsupportedError, "SELECT id FROM orders TABLESAMPLE SYSTEM (10)", 23, "sampling is not supported"),
    (SqlValidationError, "SELECT GROUPING(item), id FROM orders GROUP BY ROLLUP (id)", 17, "GROUP BY"),
    (SqlUnsupportedError, "SELECT CAST(id AS RAW('a', 'b')) FROM orders", 19, "the type RAW is not supported"),
    (SqlUnsupportedError, "SELECT LEAD(id) OVER (ORDER BY at) FROM orders", 8, "use LAG"),
    (SqlValidationError, "SELECT id > ANY (SELECT 1, 2) FROM orders", 11, "has 2 columns, and 1 value is compared"),
    (
        SqlValidationError,
        "SELECT id > ANY (SELECT 1, 2 FROM items i WHERE i.item = o.item) FROM orders o",
        11,
        "2 columns",
    ),
    (SqlValidationError, "SELECT id FROM orders WHERE id > ALL (SELECT 1, 2)", 32, "has 2 columns"),
    (SqlValidationError, "SELECT PERCENTILE(item, 0.5) FROM orders", 8, "it takes numbers"),
    (SqlValidationError, "SELECT PERCENTILE(id) FROM orders", 8, "takes 2 arguments"),
    (SqlValidationError, "SELECT CURRENT_DATABASE(1) FROM orders", 8, "takes no arguments"),
    (SqlValidationError, "DESCRIBE CATALOG lake", 18, "there is no catalog 'lake'"),
    (SqlUnsupportedError, "SHOW PARTITIONS orders", 6, "no catalog knows partitions"),
    (SqlUnsupportedError, "SHOW JOBS", 1, "`penstock sql`"),
    (SqlValidationError, "STOP JOB '7' WITH DRAIN", 1, "write WITH SAVEPOINT WITH DRAIN"),
    (SqlSyntaxError, "STOP JOB seven", 10, "the job's id in quotes"),
    (SqlValidationError, "DESCRIBE FUNCTION UPPR", 19, "did you mean 'UPPER'"),
    (SqlUnsupportedError, "COMPILE PLAN 'p' FOR INSERT INTO totals SELECT 'a', 1", 1, "plans are not compiled"),
    (SqlValidationError, f"CREATE TABLE c (b) {_FILES} AS SELECT 1 AS a, 2 AS b", 17, "name a as well"),
    (SqlValidationError, f"CREATE TABLE c (b, x) {_FILES} AS SELECT 1 AS a, 2 AS b", 20, "no column 'x'; it has a, b"),
    (SqlSyntaxError, f"CREATE TABLE c (b, x) {_FILES}", 17, "may stand before AS only"),
    (SqlValidationError, "SELECT SUM(item) FROM orders", 12, "SUM takes a number, not STRING; cast it"),
    (SqlValidationError, "SELECT COLLECT(tags) FROM orders", 16, "COLLECT takes a value that is no array"),
    (SqlValidationError, "SELECT EXTRACT(HOUR FROM CAST(at AS DATE)) FROM orders", 16, "EXTRACT takes no HOUR of DATE"),
    (SqlValidationError, "SELECT FLOOR(at TO EPOCH) FROM orders", 20, "it takes CENTURY, DAY, DECADE, HOUR"),
    (SqlValidationError, "SELECT TIMESTAMPADD(CENTURY, 1, at) FROM orders", 21, "TIMESTAMPADD takes no CENTURY"),
    (
        SqlValidationError,
        "SELECT HOUR(CAST(at AS DATE)) FROM orders",
        13,
        "HOUR takes a time or timestamp here, not DATE",
    ),
    (SqlValidationError, "SELECT SUBSTRING(id, 1) FROM orders", 18, "takes a text or bytes here, not INT; cast it"),
    (SqlValidationError, "SELECT ARRAY_APPEND(tags, 1) FROM orders", 27, "takes an element of the array (STRING) here"),
    (SqlValidationError, "SELECT tags['a'] FROM orders", 13, "takes a whole number, from 1, here"),
    (SqlValidationError, "SELECT buyer < buyer FROM orders", 14, "has no order"),
    (SqlValidationError, "SELECT id FROM orders ORDER BY buyer LIMIT 3", 32, "has no order, so there is no ORDER BY"),
    (SqlValidationError, "SELECT RANK() OVER (ORDER BY tags) FROM orders", 30, "ARRAY<STRING> has no order"),
    (SqlValidationError, "SELECT id FROM orders WHERE tags > ALL (SELECT tags FROM orders)", 34, "no '>' of it"),
    (SqlValidationError, "SELECT JSON_OBJECT(tags VALUE 1) FROM orders", 20, "takes texts as keys, not ARRAY<STRING>"),
    (SqlValidationError, "SELECT JSON_OBJECTAGG(buyer VALUE 1) FROM orders", 8, "takes texts as keys, not ROW"),
    (SqlValidationError, "SELECT DATE_FORMAT(at, 'yyyy-bb') FROM orders", 24, "'bb', which has no meaning here"),
    (SqlValidationError, "SELECT CONVERT_TZ(item, 'UTC', 'Mars') FROM orders", 32, "'Mars' is no time zone"),
    (SqlValidationError, "SELECT ENCODE(item, 'UTF-9') FROM orders", 21, "'UTF-9' is no charset"),
    (SqlValidationError, "SELECT item LIKE 'a!b' ESCAPE '!' FROM orders", 18, "has an escape '!' before nothing"),
    (SqlValidationError, "SELECT IS_JSON(item, 'VALUE') FROM orders", 8, "there is no function IS_JSON"),
    (
        SqlValidationError,
        "SELECT * FROM FROM_CHANGELOG(TABLE orders, DESCRIPTOR(item), MAP['c, r', 'INSERT', 'r', 'DELETE'])",
        84,
        "'r' is twice in 'op_mapping'",
    ),
    (
        SqlValidationError,
        "SELECT * FROM TO_CHANGELOG(TABLE orders, DESCRIPTOR(item), MAP['INSERT', 'a', 'DELETE, INSERT', 'b'])",
        79,
        "'INSERT' is twice in 'op_mapping'",
    ),
    (
        SqlValidationError,
        "SELECT * FROM FROM_CHANGELOG(TABLE orders, DESCRIPTOR(item), MAP['c', 'INSERT', 'u', 'UPDATE_AFTER'])",
        62,
        "PARTITION BY key",
    ),
    (
        SqlValidationError,
        "SELECT * FROM FROM_CHANGELOG(TABLE orders, DESCRIPTOR(id))",
        15,
        "must be of type STRING",
    ),
    (
        SqlUnsupportedError,
        "SELECT (SELECT weight FROM items i WHERE i.item = o.item) FROM orders o",
        8,
        "gives one row",
    ),
    (
        SqlUnsupportedError,
        "SELECT 'a' IN (SELECT MAX(item) FROM items i WHERE i.weight > o.id GROUP BY item) FROM orders o",
        12,
        "a plain SELECT of one column",
    ),
    (
        SqlUnsupportedError,
        "SELECT 1 FROM (VALUES ARRAY[1]) t (a), LATERAL (SELECT t.* FROM UNNEST(a) u (b))",
        56,
        "* is of the elements alone",
    ),
    (
        SqlUnsupportedError,
        "SELECT 1 FROM (VALUES ARRAY[1]) t (a) LEFT JOIN LATERAL (SELECT b FROM UNNEST(a) u (b) WHERE b > 1) ON TRUE",
        58,
        "LEFT JOIN LATERAL over UNNEST takes its columns alone",
    ),
    (SqlValidationError, "SELECT TYPEOF(1, 'all')", 18, "the second argument of TYPEOF is TRUE or FALSE"),
    (SqlValidationError, "SELECT UPPER(DATE '2024-01-31')", 14, "UPPER takes a text here, not DATE NOT NULL; cast it"),
    (
        SqlUnsupportedError,
        "SELECT x FROM orders RIGHT JOIN LATERAL (SELECT id + 1 AS x) AS b ON TRUE",
        33,
        "RIGHT JOIN with LATERAL has no meaning",
    ),
    (
        SqlUnsupportedError,
        "SELECT * FROM FROM_CHANGELOG(input => (SELECT item AS op, COUNT(*) AS n FROM items GROUP BY item))",
        1,
        "FROM_CHANGELOG takes rows that are only inserted",
    ),
    (
        SqlUnsupportedError,
        "SELECT id FROM orders o WHERE item IN (SELECT item FROM items i WHERE i.weight = o.id LIMIT 1) OR id = 1",
        36,
        "use EXISTS",
    ),
    (
        SqlUnsupportedError,
        "SELECT id FROM orders o WHERE item IN (SELECT * FROM items i WHERE i.weight = o.id)",
        40,
        "name the columns of a query of IN",
    ),
    (
        SqlUnsupportedError,
        "SELECT * FROM orders o, LATERAL (SELECT item FROM items i WHERE i.item = o.item LIMIT 1 OFFSET 1) AS x",
        34,
        "use ROW_NUMBER() in a join",
    ),
    (
        SqlUnsupportedError,
        "SELECT * FROM orders o RIGHT JOIN LATERAL (SELECT 1 FROM items i WHERE i.item = o.item) AS x ON TRUE",
        35,
        "RIGHT JOIN with LATERAL has no meaning",
    ),
    (SqlValidationError, "SELECT (SELECT item, weight FROM items) FROM orders", 8, "one column, not 2"),
    (
        SqlValidationError,
        "SELECT LAG(id, 1, tags) OVER (ORDER BY at) FROM orders",
        19,
        "the default of LAG is ARRAY<STRING>",
    ),
    (SqlValidationError, "SELECT id FROM orders FULL JOIN items USING (itm)", 46, "did you mean 'item'"),
    (SqlUnsupportedError, "INSERT OVERWRITE strict SELECT 'a', 2", 1, "cannot be overwritten; write INSERT INTO"),
    (SqlUnsupportedError, "CREATE FUNCTION f AS 'a.b.C'", 29, "write LANGUAGE PYTHON"),
    # Other statements about tables
    (SqlSyntaxError, "ALTER TABLE orders MODFY a INT", 20, "did you mean 'MODIFY'"),
    (SqlValidationError, "ALTER TABLE orders ADD id INT", 24, "there is a column 'id' already; MODIFY changes it"),
    (SqlValidationError, "ALTER TABLE orders DROP prise", 25, "did you mean 'price'"),
    (SqlValidationError, "ALTER TABLE orders DROP at", 20, "would not fit together: no column 'at'"),
    (SqlValidationError, "ALTER TABLE orders ADD WATERMARK FOR at AS at", 24, "a WATERMARK already; MODIFY"),
    (SqlValidationError, "ALTER TABLE orders RENAME at TO t", 27, "DROP WATERMARK before"),
    (SqlValidationError, "ALTER TABLE orders SET ('fromat' = 'csv')", 20, "did you mean 'format'"),
    (SqlValidationError, "ALTER TABLE orders RESET ('connector')", 27, "'connector' is needed"),
    (SqlValidationError, "ALTER TABLE orders RENAME TO items", 30, "there is a table 'items' already"),
    (SqlValidationError, "ALTER VIEW orders RENAME TO v", 12, "'orders' is a table"),
    (SqlValidationError, "CREATE TABLE o (id STRING) LIKE orders", 17, "has a column 'id' as well"),
    (SqlSyntaxError, "CREATE TABLE o LIKE orders (OVERWRITING ALL)", 41, "expected GENERATED, METADATA, OPTIONS or"),
    (SqlSyntaxError, "CREATE TABLE o WITH ('connector' = 'print')", 44, "expected the columns in brackets, LIKE or AS"),
    (SqlValidationError, f"CREATE TABLE o {_FILES} AS SELECT NULL AS n", 92, "write CAST(NULL AS type)"),
    (SqlValidationError, f"CREATE TABLE o (a INT) PARTITIONED BY (b) {_FILES}", 40, "there is no column 'b'"),
    (SqlValidationError, "INSERT INTO totals PARTITION (item = 'x') SELECT 1", 31, "'item' is no partition column"),
    (SqlValidationError, "CREATE FUNCTION f AS 'half' LANGUAGE PYTHON", 22, "names no module"),
    (SqlValidationError, "CREATE FUNCTION f AS 'no_such.half' LANGUAGE PYTHON", 22, "cannot be imported"),
    (SqlValidationError, "CREATE FUNCTION f AS 'math.sqrt' LANGUAGE PYTHON", 22, "sqrt = udf(sqrt, returns=...)"),
    (SqlValidationError, "DROP FUNCTION f", 15, "there is no function 'f'"),
    (SqlValidationError, "CREATE CATALOG c WITH ('type' = 'hive')", 24, "'type' = 'generic_in_memory'"),
    (SqlValidationError, "CREATE DATABASE default_database", 17, "there is a database 'default_database' already"),
    (SqlValidationError, "DROP DATABASE default_database", 15, "is in use; USE another one before"),
    (SqlValidationError, "DROP CATALOG default_catalog", 14, "is in use"),
    (SqlValidationError, "SHOW TABLES FROM other", 18, "there is no database 'other'"),
    (SqlValidationError, "SHOW CREATE VIEW orders", 18, "write SHOW CREATE TABLE"),
)


@pytest.fixture(scope="module")
def tables() -> TableEnvironment:
    environment = StreamEnvironment(runtime="local").tables
    for statement, source in environment.script(_TABLES):
        environment.run(statement, source)
    return environment


@pytest.mark.parametrize(("kind", "statement", "column", "says"), BAD, ids=[statement for _, statement, _, _ in BAD])
def test_a_bad_statement_is_refused_at_its_place(
    tables: TableEnvironment, kind: type[SqlError], statement: str, column: int, says: str
) -> None:
    with pytest.raises(kind) as raised:
        tables.sql(statement)
    assert says in str(raised.value)
    assert (raised.value.line, raised.value.column) == (1, column)


@pytest.mark.parametrize(
    ("statement", "shown"),
    [
        ("SHOW CURRENT CATALOG", ["default_catalog"]),
        ("SHOW DATABASES", ["default_database"]),
        ("SHOW COLUMNS FROM totals", ["item", "total"]),
        ("SHOW USER FUNCTIONS", []),
    ],
)
def test_what_there_is_is_shown(tables: TableEnvironment, statement: str, shown: list[str]) -> None:
    table = tables.sql(statement)
    assert table is not None
    assert [next(iter(row.values())) for row in table.collect()] == shown
    assert tables.sql("USE default_catalog.default_database") is None


def test_files_that_are_not_there_are_named_where_the_table_is_declared() -> None:
    tables = StreamEnvironment(runtime="local").tables
    tables.sql(
        "CREATE TABLE gone (a INT) WITH (\n  'connector' = 'filesystem', 'format' = 'csv',\n  'path' = 'gone.csv')"
    )
    table = tables.sql("SELECT a FROM gone")
    assert table is not None
    with pytest.raises(SqlValidationError, match=r"table 'gone': files: 'gone\.csv' is not there") as raised:
        table.collect()
    assert (raised.value.line, raised.value.column) == (3, 3)


@pytest.mark.parametrize("read", ["a.item", "1 AS one"])
@pytest.mark.parametrize("with_clock", ["AND a.now > b.now", "WHERE a.now > b.now"])
def test_what_no_operator_computes_is_refused_at_the_query(
    tables: TableEnvironment, read: str, with_clock: str
) -> None:
    rows = "(SELECT item, PROCTIME() AS now FROM items)"
    query = f"\n  SELECT {read} FROM {rows} AS a LEFT JOIN {rows} AS b ON a.item = b.item {with_clock}"
    with pytest.raises(SqlUnsupportedError, match="a join by columns of PROCTIME") as raised:
        tables.sql(query).to_changelog()  # type: ignore[union-attr]
    assert (raised.value.line, raised.value.column) == (2, 3)


def test_execute_and_extended_change_nothing(tables: TableEnvironment) -> None:
    described = tables.sql("DESCRIBE EXTENDED orders")
    assert described is not None
    assert [row["name"] for row in described.collect()][:1] == ["id"]
    assert tables.sql("EXECUTE INSERT INTO strict SELECT 'pen', 1") is None


@pytest.mark.parametrize("depth", [160, 5000])
def test_brackets_that_are_too_many_are_refused_at_their_place(tables: TableEnvironment, depth: int) -> None:
    with pytest.raises(SqlUnsupportedError, match="brackets are nested too deeply") as raised:
        tables.sql(f"SELECT {'(' * depth}1{')' * depth}")
    assert raised.value.column > 20


def test_the_message_shows_the_line_and_points_into_it(tables: TableEnvironment) -> None:
    with pytest.raises(SqlValidationError) as raised:
        tables.sql("SELECT id,\n  pric\nFROM orders")
    assert str(raised.value).splitlines()[1:] == ["    pric", "    ^"]
    assert str(raised.value).startswith("line 2, column 3: no column 'pric' (did you mean 'price'?)")


def test_the_line_that_is_shown_hides_passwords_and_keeps_its_places(tables: TableEnvironment) -> None:
    with pytest.raises(SqlValidationError) as raised:
        tables.sql(
            "CREATE TABLE h (a INT) WITH ('connector' = 'jdbc', "
            "'password' = 'hun''er2', 'url' = 'x://a:p@w@h', 'ul' = '')"
        )
    assert "hunter2" not in str(raised.value)
    assert "'password' = '********', 'url' = 'x://a:***@h', 'ul'" in raised.value.excerpt
    assert raised.value.excerpt[raised.value.column - 1 :].startswith("'ul'")
