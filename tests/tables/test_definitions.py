"""Statements that make, change and drop what there is by name: what is there afterwards, and what it gives."""

from __future__ import annotations

import datetime
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import StreamEnvironment, udf
from penstock.engine.errors import SqlError, SqlValidationError
from penstock.tables.catalog.texts import type_text
from penstock.tables.parse.cursor import Cursor
from penstock.tables.parse.text import SqlText
from penstock.tables.parse.type_parser import parse_type
from tests.draws import drawn
from tests.tables.held_rows import held_rows

_ORDERS = """
CREATE TABLE orders (
  id INT NOT NULL COMMENT 'its number',
  `order` ROW<`from` STRING, n INT NOT NULL>,
  placed STRING,
  at AS TO_TIMESTAMP(placed), -- when
  WATERMARK FOR at AS at - INTERVAL '5' SECOND,
  PRIMARY KEY (id) NOT ENFORCED
) COMMENT 'it''s all' WITH (
  'connector' = 'jdbc', 'url' = 'jdbc:postgresql://db/shop', 'table-name' = 'o', 'password' = 'x'
);
"""


@pytest.fixture
def env() -> StreamEnvironment:
    return StreamEnvironment(runtime="local", parallelism=1)


def _run(env: StreamEnvironment, script: str) -> list[dict[str, Any]]:
    """The rows that the last statement gives."""
    rows: list[dict[str, Any]] = []
    for statement, source in env.tables.script(script):
        table = env.tables.run(statement, source)
        rows = [] if table is None else list(table.collect())
        if env.tables.has_inserts:
            env.execute()
    return rows


def _created(env: StreamEnvironment, table: str) -> str:
    return str(_run(env, f"SHOW CREATE TABLE {table}")[0]["statement"])


def _columns(env: StreamEnvironment, table: str) -> list[str]:
    return [row["name"] for row in _run(env, f"DESCRIBE {table}")]


def test_show_create_gives_the_statement_alone_and_without_passwords(env: StreamEnvironment) -> None:
    _run(env, f"SET 'table.local-time-zone' = 'UTC'; {_ORDERS}")
    text = _created(env, "orders")
    assert text.splitlines() == [
        "CREATE TABLE `default_catalog`.`default_database`.`orders` (",
        "  `id` INT NOT NULL COMMENT 'its number',",
        "  `order` ROW<`from` STRING, `n` INT NOT NULL>,",
        "  `placed` STRING,",
        "  `at` AS TO_TIMESTAMP(placed),",
        "  WATERMARK FOR `at` AS at - INTERVAL '5' SECOND,",
        "  PRIMARY KEY (`id`) NOT ENFORCED",
        ") COMMENT 'it''s all' WITH (",
        "  'connector' = 'jdbc',",
        "  'url' = 'jdbc:postgresql://db/shop',",
        "  'table-name' = 'o',",
        "  'password' = '***'",
        ")",
    ]
    _run(env, f"DROP TABLE orders; {text}")
    assert _created(env, "orders") == text
    assert [(row["key"], row["extras"], row["watermark"]) for row in _run(env, "DESCRIBE orders")] == [
        ("PRI(id)", None, None),
        (None, None, None),
        (None, None, None),
        (None, "AS TO_TIMESTAMP(placed)", "at - INTERVAL '5' SECOND"),
    ]


_TYPES = st.recursive(
    st.sampled_from(["INT", "STRING", "DECIMAL(10, 2)", "TIMESTAMP_LTZ(3)", "CHAR(3)", "BYTES", "BOOLEAN NOT NULL"]),
    lambda inner: st.one_of(
        inner.map(lambda one: f"ARRAY<{one}>"),
        st.tuples(inner, inner).map(lambda pair: f"MAP<{pair[0]}, {pair[1]}>"),
        st.tuples(inner, inner).map(lambda pair: f"ROW<`a.b` {pair[0]}, `select` {pair[1]}> NOT NULL"),
    ),
    max_leaves=4,
)


@settings(max_examples=drawn(30))
@given(_TYPES)
def test_types_are_written_as_they_are_read(text: str) -> None:
    kind = parse_type(Cursor(SqlText(text)))
    assert parse_type(Cursor(SqlText(type_text(kind)))) == kind


def test_like_takes_what_it_says(env: StreamEnvironment) -> None:
    _run(env, _ORDERS)
    _run(env, "CREATE TABLE a (more INT) WITH ('connector' = 'print') LIKE orders (EXCLUDING ALL)")
    assert _columns(env, "a") == ["id", "order", "placed", "more"]
    _run(env, "CREATE TABLE b WITH ('table-name' = 'p') LIKE orders (EXCLUDING WATERMARKS EXCLUDING CONSTRAINTS)")
    text = _created(env, "b")
    assert "WATERMARK" not in text
    assert "PRIMARY" not in text
    assert "'table-name' = 'p'" in text
    _run(env, "CREATE TABLE c (at AS TO_TIMESTAMP(placed || ':00')) LIKE orders (OVERWRITING GENERATED)")
    assert "`at` AS TO_TIMESTAMP(placed || ':00')" in _created(env, "c")
    with pytest.raises(SqlValidationError, match="EXCLUDING WATERMARKS"):
        _run(env, "CREATE TABLE f (x TIMESTAMP(3), WATERMARK FOR x AS x) LIKE orders")


def test_or_replace_takes_the_place_of_what_is_there_where_it_can(env: StreamEnvironment) -> None:
    _run(env, "CREATE OR REPLACE VIEW v AS SELECT 1 AS a; CREATE OR REPLACE VIEW v AS SELECT 2 AS b")
    with pytest.raises(SqlValidationError, match="there is no table 'v'"):
        _run(env, "CREATE OR REPLACE VIEW v AS SELECT b FROM v")
    assert _run(env, "SELECT * FROM v") == [{"b": 2}]
    made = "CREATE OR REPLACE TABLE t WITH ('connector' = 'blackhole') AS SELECT"
    _run(env, f"{made} 1 AS a; {made} 'x' AS b")
    assert _columns(env, "t") == ["b"]


def test_a_distribution_is_kept_and_shown(env: StreamEnvironment) -> None:
    spread = "DISTRIBUTED BY HASH(`id`) INTO 4 BUCKETS"
    _run(env, f"CREATE TABLE t (id INT) {spread} WITH ('connector' = 'blackhole'); CREATE TABLE u LIKE t")
    assert spread in _created(env, "t")
    assert spread in _created(env, "u")
    with pytest.raises(SqlValidationError, match="there is no column 'idd'"):
        _run(env, "CREATE TABLE v (id INT) DISTRIBUTED BY (idd) WITH ('connector' = 'blackhole')")


def test_alter_changes_columns_and_options_and_nothing_where_it_fails(env: StreamEnvironment) -> None:
    _run(env, _ORDERS)
    before = _created(env, "orders")
    for wrong in ("DROP placed", "MODIFY placed INT", "SET ('connector' = 'kafka')", "ADD (a INT, b AS missing)"):
        with pytest.raises(SqlError, match="would not fit together"):
            _run(env, f"ALTER TABLE orders {wrong}")
    assert _created(env, "orders") == before
    _run(env, "ALTER TABLE orders ADD (note STRING AFTER id, first INT FIRST, upper_note AS UPPER(note))")
    assert _columns(env, "orders") == ["first", "id", "note", "order", "placed", "at", "upper_note"]
    _run(env, "ALTER TABLE orders MODIFY (note CHAR(3) FIRST, WATERMARK FOR at AS at)")
    assert "WATERMARK FOR `at` AS at\n" in _created(env, "orders").replace(",\n", "\n")
    _run(env, "ALTER TABLE orders RENAME first TO `last`; ALTER TABLE orders DROP (upper_note, `order`)")
    assert _columns(env, "orders") == ["note", "last", "id", "placed", "at"]
    _run(env, "ALTER TABLE orders DROP PRIMARY KEY; ALTER TABLE orders DROP WATERMARK")
    _run(env, "ALTER TABLE orders SET ('table-name' = 'q'); ALTER TABLE orders RESET ('password')")
    text = _created(env, "orders")
    assert "PRIMARY" not in text
    assert "WATERMARK" not in text
    assert "'table-name' = 'q'\n" in text
    _run(env, "ALTER TABLE orders RENAME TO bought; ALTER TABLE IF EXISTS orders DROP placed")
    assert [row["table name"] for row in _run(env, "SHOW TABLES")] == ["bought"]


def test_views_are_changed_and_keep_the_database_of_their_names(env: StreamEnvironment) -> None:
    _run(env, "CREATE DATABASE sales; CREATE VIEW v AS SELECT 1 AS a; CREATE VIEW w AS SELECT a + 1 AS b FROM v")
    _run(env, "USE sales; CREATE VIEW v AS SELECT 'other' AS a")
    assert _run(env, "SELECT * FROM default_database.w") == [{"b": 2}]
    _run(env, "ALTER VIEW default_database.v AS SELECT 5 AS a")
    assert _run(env, "SELECT * FROM default_catalog.default_database.w") == [{"b": 6}]
    _run(env, "ALTER VIEW v RENAME TO u")
    assert _run(env, "SHOW CREATE VIEW u") == [
        {"statement": "CREATE VIEW `default_catalog`.`sales`.`u` AS SELECT 'other' AS a"}
    ]


def test_catalogs_and_databases_keep_names_apart(env: StreamEnvironment) -> None:
    _run(env, "CREATE CATALOG lake WITH ('type' = 'generic_in_memory', 'default-database' = 'raw')")
    _run(env, "CREATE DATABASE IF NOT EXISTS lake.clean; CREATE VIEW lake.clean.v AS SELECT 'clean' AS a")
    _run(env, "CREATE VIEW v AS SELECT 'default' AS a; USE CATALOG lake; CREATE VIEW `x.v` AS SELECT 'raw' AS a")
    assert _run(env, "SELECT a FROM `x.v`") == [{"a": "raw"}]
    assert _run(env, "SELECT v.a FROM clean.v") == [{"a": "clean"}]
    assert _run(env, "SELECT a FROM default_catalog.default_database.v") == [{"a": "default"}]
    assert [row["catalog name"] for row in _run(env, "SHOW CATALOGS")] == ["default_catalog", "lake"]
    assert [row["database name"] for row in _run(env, "SHOW DATABASES NOT LIKE 'r%'")] == ["clean"]
    assert _run(env, "SHOW VIEWS FROM lake.clean") == [{"view name": "v"}]
    assert _run(env, "SHOW CURRENT DATABASE") == [{"database name": "raw"}]
    with pytest.raises(SqlValidationError, match="has v; drop these before, or write CASCADE"):
        _run(env, "DROP DATABASE clean")
    _run(env, "DROP DATABASE clean CASCADE; USE CATALOG default_catalog; DROP CATALOG lake")
    with pytest.raises(SqlValidationError, match="there is no catalog 'lake'"):
        _run(env, "SELECT * FROM lake.raw.v")


def test_a_table_is_made_and_filled_by_a_query(env: StreamEnvironment, tmp_path: Path) -> None:
    files = f"WITH ('connector' = 'filesystem', 'path' = '{tmp_path}/t', 'format' = 'json')"
    _run(env, f"CREATE TABLE t (twice AS n * 2, n BIGINT) {files} AS SELECT CAST(3 AS INT) AS n, 'pen' AS item")
    assert _run(env, "SELECT * FROM t") == [{"twice": 6, "n": 3, "item": "pen"}]
    # It is there, so nothing is made or filled.
    _run(env, f"CREATE TABLE IF NOT EXISTS t {files} AS SELECT 1 AS n")
    assert len(_run(env, "SELECT * FROM t")) == 1
    with pytest.raises(SqlError, match="does not take"):
        _run(env, f"CREATE TABLE u {files} AS SELECT COUNT(*) AS n FROM t GROUP BY item")
    assert _run(env, "SHOW TABLES LIKE 'u'") == []


def test_insert_adds_files_and_overwrite_takes_their_place(env: StreamEnvironment, tmp_path: Path) -> None:
    _run(
        env,
        f"""CREATE TABLE t (n INT, day STRING) PARTITIONED BY (day) WITH ('connector' = 'filesystem',
        'path' = '{tmp_path}', 'format' = 'csv')""",
    )
    _run(env, "INSERT INTO t VALUES (1, 'mon'), (2, 'tue'); INSERT INTO t PARTITION (day = 'mon') SELECT 3")
    assert sorted(path.parent.name for path in tmp_path.rglob("part-*")) == ["day=mon", "day=mon", "day=tue"]
    with pytest.raises(SqlError, match="names of folders, which are not read"):
        _run(env, "SELECT * FROM t")
    _run(
        env,
        f"""CREATE TABLE u (n INT) WITH ('connector' = 'filesystem', 'path' = '{tmp_path}/u', 'format' = 'csv');
        INSERT INTO u VALUES (1); INSERT INTO u VALUES (2); INSERT OVERWRITE u VALUES (3), (4)""",
    )
    assert [row["n"] for row in _run(env, "SELECT * FROM u")] == [3, 4]


def test_a_function_of_a_module_gets_a_name(env: StreamEnvironment, monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("own_functions")
    module.half = udf(lambda n: n / 2, returns="DOUBLE")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "own_functions", module)
    _run(env, "CREATE TEMPORARY SYSTEM FUNCTION IF NOT EXISTS half AS 'own_functions.half' LANGUAGE PYTHON")
    assert _run(env, "SELECT HALF(3) AS n") == [{"n": 1.5}]
    assert _run(env, "SHOW USER FUNCTIONS") == [{"function name": "half"}]
    with pytest.raises(SqlValidationError, match="already; drop it before, by DROP FUNCTION half"):
        _run(env, "CREATE FUNCTION half AS 'own_functions.half' LANGUAGE PYTHON")
    _run(env, "DROP TEMPORARY FUNCTION half; DROP FUNCTION IF EXISTS half")
    assert _run(env, "SHOW USER FUNCTIONS") == []


def test_wrong_options_are_pointed_at_in_their_own_statement(env: StreamEnvironment) -> None:
    first = "CREATE TABLE a (n INT) WITH ('connector' = 'filesystem', 'path' = 'a', 'format' = 'csv');\n"
    with pytest.raises(SqlValidationError, match="takes csv, json") as raised:
        _run(
            env,
            first + "CREATE TABLE b (n INT) WITH ('connector' = 'filesystem', 'path' = 'b', 'format' = 'sv');\n"
            "SELECT * FROM b",
        )
    assert (raised.value.line, raised.value.column) == (2, 72)


def test_rows_grouped_by_a_narrower_type_are_told_apart_by_the_key_of_the_table(env: StreamEnvironment) -> None:
    _run(
        env,
        """CREATE TABLE totals (item STRING, k BIGINT, n BIGINT, PRIMARY KEY (item, k) NOT ENFORCED) WITH (
        'connector' = 'redis', 'url' = 'redis://nowhere')""",
    )
    query = "SELECT {}, {}, COUNT(*) FROM (VALUES ('pen', 1)) AS t (item, k) GROUP BY item, k"
    assert "Sink(totals)" in _run(env, f"EXPLAIN INSERT INTO totals {query.format('item', 'k')}")[0]["plan"]
    with pytest.raises(SqlValidationError, match="not told apart by the primary key"):
        _run(env, f"EXPLAIN INSERT INTO totals {query.format('item', 'CAST(CAST(k AS SMALLINT) AS BIGINT)')}")


@pytest.mark.parametrize(
    ("query", "is_in_order"),
    [
        (
            "SELECT item, n FROM counts QUALIFY ROW_NUMBER() OVER (PARTITION BY item ORDER BY n) < 3",
            True,
        ),
        (
            "SELECT item, n FROM counts QUALIFY ROW_NUMBER() OVER (PARTITION BY n ORDER BY item) < 3",
            False,
        ),
        ("SELECT l.item, r.n FROM counts l LEFT JOIN counts r ON l.item = r.item", True),
        (
            "SELECT l.item, r.m FROM counts l LEFT JOIN (SELECT n, MAX(item) m FROM counts GROUP BY n) r ON l.n = r.n",
            False,
        ),
        ("SELECT item, SUM(n) OVER (PARTITION BY n ORDER BY item) FROM counts", False),
    ],
)
def test_changes_by_a_key_are_in_order_where_rows_are_divided_by_it(
    env: StreamEnvironment, query: str, is_in_order: bool
) -> None:
    _run(
        env,
        "CREATE TABLE latest (item STRING PRIMARY KEY NOT ENFORCED, n STRING) WITH ('connector' = 'redis', 'url' = "
        "'redis://nowhere')",
    )
    _run(env, "CREATE VIEW counts AS SELECT item, COUNT(*) AS n FROM (VALUES ('pen')) AS t (item) GROUP BY item")
    statement = f"EXPLAIN INSERT INTO latest SELECT item, CAST(x AS STRING) FROM ({query}) AS t (item, x)"
    if is_in_order:
        assert "Sink(latest)" in _run(env, statement)[0]["plan"]
        return
    with pytest.raises(SqlValidationError, match="changes are not in order by it"):
        _run(env, statement)


def _uids(env: StreamEnvironment) -> list[str]:
    graph = env.program("uids").physical({})
    return [operator.uid for task in graph.tasks for operator in task.operators]


def test_a_statement_that_fails_leaves_nothing_in_the_program_or_the_catalog(env: StreamEnvironment) -> None:
    tables = """CREATE TABLE endless (n BIGINT) WITH ('connector' = 'datagen');
    CREATE TABLE counts (n BIGINT, c BIGINT, PRIMARY KEY (n) NOT ENFORCED) WITH ('connector' = 'print');"""
    query = "SELECT n, COUNT(*) AS c FROM endless GROUP BY n"
    other = StreamEnvironment(runtime="local", parallelism=1)
    for made in (env, other):
        for statement, source in made.tables.script(tables):
            made.tables.run(statement, source)
    with pytest.raises(SqlError, match="cannot be overwritten"):
        env.sql(f"INSERT OVERWRITE counts {query}")
    for made in (env, other):
        made.sql(f"INSERT INTO counts {query}")
    assert _uids(env) == _uids(other), "a corrected statement finds its state"
    with pytest.raises(SqlError, match="ORDER BY of a stream without end"):
        env.sql("CREATE TABLE sorted WITH ('connector' = 'blackhole') AS SELECT n FROM endless ORDER BY n")
    with pytest.raises(SqlError, match="there is no table 'sorted'"):
        env.sql("SELECT * FROM sorted")


def test_a_table_of_a_query_has_its_columns_in_the_order_that_is_given(tmp_path: Path) -> None:
    env = StreamEnvironment(runtime="local", parallelism=1)
    options = f"WITH ('connector' = 'filesystem', 'path' = '{tmp_path}', 'format' = 'json')"
    env.sql(f"CREATE TABLE t (b, a) {options} AS SELECT 1 AS a, 'x' AS b")
    env.execute()
    assert _run(env, "SELECT * FROM t") == [{"b": "x", "a": 1}]


def test_the_database_in_use_is_known_in_queries() -> None:
    env = StreamEnvironment(runtime="local", parallelism=1)
    _run(env, "CREATE DATABASE sales; CREATE VIEW v AS SELECT CURRENT_DATABASE() AS d; USE sales")
    assert _run(env, "SELECT CURRENT_DATABASE() AS now, d AS before FROM default_database.v") == [
        {"now": "sales", "before": "default_database"}
    ]
    assert _run(env, "DESCRIBE CATALOG default_catalog")[1]["info value"] == "generic_in_memory"


def test_keys_and_words_of_set_need_no_quotes(env: StreamEnvironment) -> None:
    env.sql("SET sql-client.execution.result-mode = table")
    env.sql("SET table.exec.state.ttl = '1 h'")
    assert env.tables.option("sql-client.execution.result-mode") == "TABLE"
    assert env.tables.option("table.exec.state.ttl") == "1 h"


def test_what_gives_no_row_for_a_time_holds_event_time_back_no_more_where_that_is_set(env: StreamEnvironment) -> None:
    env.sql("CREATE TABLE clicks (at TIMESTAMP(3), WATERMARK FOR at AS at) WITH ('connector' = 'datagen')")
    env.sql("CREATE TABLE kept (at TIMESTAMP(3)) WITH ('connector' = 'blackhole')")
    env.sql("SET 'table.exec.source.idle-timeout' = '5 s'")
    env.sql("INSERT INTO kept SELECT at FROM clicks")
    assert "idle after 5s" in env.explain()
    with pytest.raises(SqlValidationError, match="no duration"):
        env.sql("SET 'table.exec.source.idle-timeout' = 'soon'")


_KEEP_FIRST = (
    "INSERT INTO firsts SELECT k, v FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY {}) AS n FROM {}) "
    "WHERE n = 1"
)


def _with_firsts(env: StreamEnvironment, folder: Path) -> None:
    (folder / "rows.csv").write_text(
        "k,v,at\na,1,2024-01-01 00:00:02\na,2,2024-01-01 00:00:01\nb,3,2024-01-01 00:00:05\na,4,2024-01-01 00:00:09\n"
    )
    env.sql(
        "CREATE TABLE timed (k STRING, v INT, at TIMESTAMP(3), p AS PROCTIME(), WATERMARK FOR at AS at - INTERVAL '1' "
        f"SECOND) WITH ('connector' = 'filesystem', 'path' = '{folder / 'rows.csv'}', 'format' = 'csv')"
    )
    files = f"'connector' = 'filesystem', 'path' = '{folder / 'firsts'}', 'format' = 'json'"
    env.sql(f"CREATE TABLE firsts (k STRING, v INT) WITH ({files})")


@pytest.mark.parametrize(("time", "first"), [("at", 2), ("at ASC", 2), ("p", 1)])
def test_first_rows_by_time_are_written_to_files(env: StreamEnvironment, tmp_path: Path, time: str, first: int) -> None:
    _with_firsts(env, tmp_path)
    env.sql(_KEEP_FIRST.format(time, "timed"))
    env.execute()
    table = env.sql("SELECT * FROM firsts")
    assert table is not None
    rows = sorted(table.collect(), key=lambda row: str(row["k"]))
    assert rows == [{"k": "a", "v": first}, {"k": "b", "v": 3}]


@pytest.mark.parametrize(
    ("order", "rows"),
    [
        ("at DESC", "timed"),
        ("v", "timed"),
        ("at, v", "timed"),
        ("at", "(SELECT k, v, MAX(at) AS at FROM timed GROUP BY k, v)"),
    ],
)
def test_first_rows_that_others_replace_are_refused_with_what_to_do(
    env: StreamEnvironment, tmp_path: Path, order: str, rows: str
) -> None:
    _with_firsts(env, tmp_path)
    with pytest.raises(SqlValidationError, match="ORDER BY one time attribute, ascending"):
        env.sql(_KEEP_FIRST.format(order, rows))


_FIRSTS = "SELECT k, v FROM timed QUALIFY ROW_NUMBER() OVER (PARTITION BY k ORDER BY {}) = 1"


@pytest.mark.parametrize("time", ["at", "p"])
@pytest.mark.parametrize(
    "query",
    [
        "SELECT a.k, a.v, b.c FROM firsts_of a JOIN (SELECT k, COUNT(*) AS c FROM timed GROUP BY k) b ON a.k = b.k",
        "SELECT a.k, b.v, 1 FROM firsts_of a LEFT JOIN firsts_of b ON a.k = b.k",
    ],
)
def test_first_rows_by_time_are_known_by_their_key(
    env: StreamEnvironment, tmp_path: Path, time: str, query: str
) -> None:
    _with_firsts(env, tmp_path)
    env.sql(f"CREATE VIEW firsts_of AS {_FIRSTS.format(time)}")
    env.sql(
        "CREATE TABLE counts (k STRING PRIMARY KEY NOT ENFORCED, v INT, c BIGINT) WITH ('connector' = 'redis', 'url' = "
        "'redis://nowhere')"
    )
    assert "Sink(counts)" in _run(env, f"EXPLAIN INSERT INTO counts {query}")[0]["plan"]


def test_the_first_row_of_a_key_is_a_value_beside_other_rows(env: StreamEnvironment, tmp_path: Path) -> None:
    _with_firsts(env, tmp_path)
    env.sql(f"CREATE VIEW firsts_of AS {_FIRSTS.format('at')}")
    query = "SELECT t.v, (SELECT f.v FROM firsts_of f WHERE f.k = t.k) AS w FROM timed t"
    assert held_rows(env, query) == [(1, 2), (2, 2), (3, 3), (4, 2)]


def test_first_rows_by_time_are_added_only_and_without_what_nothing_reads(
    env: StreamEnvironment, tmp_path: Path
) -> None:
    _with_firsts(env, tmp_path)
    env.sql("CREATE VIEW wide AS SELECT *, k || 'x' AS unread FROM timed")
    query = "SELECT k, v FROM wide QUALIFY ROW_NUMBER() OVER (PARTITION BY k ORDER BY at) = 1"
    lines = [row["plan"] for row in _run(env, f"EXPLAIN {query}")]
    ranked = next(line for line in lines if "TopN(" in line)
    assert "unread" not in ranked
    assert "changelogMode=[I], state: the first row of each partition until the watermark has passed it" in ranked


def test_a_timestamp_may_be_stored_as_a_date_and_not_the_other_way_round(tmp_path: Path) -> None:
    env = StreamEnvironment(runtime="local", parallelism=1)
    files = f"WITH ('connector' = 'filesystem', 'path' = '{tmp_path}/d', 'format' = 'json')"
    env.sql(f"CREATE TABLE days (d DATE) {files}")
    env.sql("INSERT INTO days SELECT TIMESTAMP '2020-01-02 10:00:00'")
    env.execute()
    table = env.sql("SELECT d FROM days")
    assert table is not None
    assert list(table.collect()) == [{"d": datetime.date(2020, 1, 2)}]
    env.sql(f"CREATE TABLE times (t TIMESTAMP(3)) {files}")
    with pytest.raises(SqlError, match="cast it"):
        env.sql("INSERT INTO times SELECT DATE '2020-01-02'")


def test_files_have_no_metadata() -> None:
    env = StreamEnvironment(runtime="local", parallelism=1)
    env.sql(
        "CREATE TABLE named (a INT, f STRING METADATA FROM 'file.name' VIRTUAL) "
        "WITH ('connector' = 'filesystem', 'path' = 'x', 'format' = 'json')"
    )
    with pytest.raises(SqlError, match="column 'f': metadata of files is not supported"):
        list(env.sql("SELECT f FROM named").collect())  # type: ignore[union-attr]
    with pytest.raises(SqlError, match="column 'f': metadata of files is not supported"):
        env.sql("INSERT INTO named VALUES (1)")


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ("a INT PRIMARY KEY NOT ENFORCED, b INT PRIMARY KEY NOT ENFORCED", "a table has one PRIMARY KEY"),
        ("a INT PRIMARY KEY NOT ENFORCED, b INT, PRIMARY KEY (b) NOT ENFORCED", "a table has one PRIMARY KEY"),
        ("a INT, b INT, PRIMARY KEY (a, b, a) NOT ENFORCED", "names 'a' more than once"),
        ("at AS PROCTIME(), WATERMARK FOR at AS at", "PROCTIME is the time of the clock"),
    ],
)
def test_two_keys_and_a_watermark_of_the_clock_are_refused(columns: str, says: str) -> None:
    env = StreamEnvironment(runtime="local")
    with pytest.raises(SqlValidationError, match=says):
        env.sql(f"CREATE TABLE t ({columns}) WITH ('connector' = 'blackhole')")


def test_the_key_of_a_column_may_have_a_name() -> None:
    env = StreamEnvironment(runtime="local")
    env.sql("CREATE TABLE t (a INT CONSTRAINT one PRIMARY KEY NOT ENFORCED) WITH ('connector' = 'blackhole')")
    described = env.sql("DESCRIBE t")
    assert described is not None
    assert [row["key"] for row in described.collect()] == ["PRI(a)"]
