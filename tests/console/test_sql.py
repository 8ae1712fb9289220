"""`penstock sql`: scripts, statements, JSON, and errors at their place."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock import StreamEnvironment, count
from penstock.console.output import Output
from penstock.console.sql import run_script
from penstock.engine.windows.assigners import tumbling
from penstock.engine.windows.watermarks import WatermarkStrategy
from penstock.table_connectors.demo.flights import departures
from tests.console.conftest import Penstock

EXAMPLE = Path(__file__).parents[2] / "examples" / "flight_delays.sql"


def test_a_script_shows_the_rows_of_its_queries(penstock: Penstock, folder: Path) -> None:
    (folder / "init.sql").write_text(
        "CREATE VIEW v AS SELECT * FROM (VALUES (1, 'a'), (2, NULLIF('b', 'b'))) AS t (n, s);"
    )
    (folder / "query.sql").write_text("SELECT n + 1 AS m, s FROM v; SHOW VIEWS;")
    done = penstock("sql", "-i", "init.sql", "-f", "query.sql", "-p", "1")
    assert done.code == 0
    assert "2 rows" in done.out
    assert "NULL" in done.out


def test_json_is_one_document(penstock: Penstock) -> None:
    done = penstock("sql", "SELECT 1 AS one; SELECT 'x' AS t", "--json", "-p", "1")
    results = json.loads(done.out)["results"]
    assert [result["rows"] for result in results] == [[{"one": 1}], [{"t": "x"}]]
    assert results[0]["columns"] == {"one": "INT NOT NULL"}


def test_json_lists_the_kind_of_changes_among_the_columns(penstock: Penstock) -> None:
    groups = "SELECT n, COUNT(*) AS c FROM (VALUES (1)) AS t (n) GROUP BY n"
    changes, rows = penstock(
        "sql", f"{groups}; SET 'sql-client.execution.result-mode' = 'TABLE'; {groups}", "--json", "-p", "1"
    ).document["results"]
    assert changes["columns"] == {"op": "STRING", "n": "INT NOT NULL", "c": "BIGINT NOT NULL"}
    assert changes["rows"] == [{"op": "+I", "n": 1, "c": 1}]
    assert list(rows["columns"]) == ["n", "c"]


def test_nanoseconds_are_shown(penstock: Penstock) -> None:
    query = "SELECT TIMESTAMP '1900-01-01 00:00:00.123456789' AS t"
    (result,) = penstock("sql", query, "--json").document["results"]
    assert result["rows"] == [{"t": "1900-01-01 00:00:00.123456789"}]
    assert "1900-01-01 00:00:00.123456789" in penstock("sql", query).out


def test_nanoseconds_within_values_are_shown() -> None:
    env, at = StreamEnvironment(runtime="local", parallelism=1), pa.array([1], pa.timestamp("ns"))
    zoned = pa.array([1], pa.timestamp("ns", "UTC"))
    parts = pa.StructArray.from_arrays([at], ["at"])
    rows = {"zoned": zoned, "listed": pa.ListArray.from_arrays([0, 1], at), "parts": parts}
    env.tables.create_temporary_view("v", env.from_collection(pa.table(rows)))
    results: list[dict[str, Any]] = []
    run_script(env, "SELECT * FROM v", Output(io.StringIO(), as_json=True), results)
    text = "1970-01-01 00:00:00.000000001"
    assert results[0]["rows"] == [{"zoned": f"{text}+00:00", "listed": [text], "parts": {"at": text}}]


def test_moments_are_shown_as_the_clocks_of_the_session_show_them(penstock: Penstock) -> None:
    zone, at = "SET 'table.local-time-zone' = 'Europe/Berlin'", "TO_TIMESTAMP_LTZ(1704067200000, 3)"
    query = f"{zone}; SELECT {at} AS t, ARRAY[{at}] AS a, CAST({at} AS TIMESTAMP_LTZ(9)) AS n"
    (result,) = penstock("sql", query, "--json", "-p", "1").document["results"]
    text = "2024-01-01 01:00:00"
    assert result["rows"] == [{"t": f"{text}+01:00", "a": [f"{text}+01:00"], "n": f"{text}.000000000+01:00"}]
    (line,) = (
        line for line in penstock("sql", f"{zone}; SELECT {at} AS t", "-p", "1").out.splitlines() if "2024" in line
    )
    assert line.strip("│ ") == f"{text}.000"


def test_values_are_shown_as_cast_writes_them(penstock: Penstock) -> None:
    nested = "ARRAY[DATE '2024-01-02', NULL], ROW(1, 'x'), MAP['k', TIMESTAMP '2024-01-02 00:00:00.5']"
    done = penstock("sql", f"SELECT X'6162', 1.5E10, TRUE, {nested}", "-p", "1")
    for shown in ("x'6162'", "1.5E10", "TRUE", "[2024-01-02, NULL]", "(1, x)", "{k=2024-01-02 00:00:00.5}"):
        assert shown in " ".join(done.out.split())


def test_nothing_runs_of_a_text_with_an_error_of_syntax(penstock: Penstock) -> None:
    done = penstock("sql", "SELECT 4711 AS n; SELEC 2", "-p", "1")
    assert done.code == 1
    assert "4711" not in done.out


def test_an_insert_says_that_its_job_has_ended(penstock: Penstock, folder: Path) -> None:
    table = "CREATE TABLE t (n INT) WITH ('connector' = 'filesystem', 'path' = 'rows', 'format' = 'json')"
    done = penstock("sql", f"SET 'pipeline.name' = 'copies'; {table}; INSERT INTO t VALUES (1)", "-p", "1")
    assert done.code == 0
    assert "job copies finished after" in done.err
    done = penstock("sql", f"{table}; INSERT INTO t VALUES (2)", "-p", "1", "--json")
    assert "job sql finished after" in done.err
    assert json.loads(done.out) == {"results": []}


def test_of_a_long_line_what_stands_around_the_place_is_shown(penstock: Penstock) -> None:
    done = penstock("sql", f"SELECT {'1, ' * 200}idd, {'2, ' * 200} 3 FROM (VALUES (1)) AS t (id)")
    (line, mark) = [line for line in done.err.splitlines() if line.startswith("  ")]
    assert len(line) < 180
    assert line[mark.index("^") :].startswith("idd, 2")
    assert "line 1, column 608" in done.err


def test_an_error_names_its_place(penstock: Penstock) -> None:
    done = penstock("sql", "SELECT 1;\nSELECT idd FROM (VALUES (1)) AS t (id)")
    assert done.code == 1
    assert "line 2, column 8: no column 'idd' (did you mean 'id'?)" in done.err


def test_the_example_gives_the_windows_of_the_demo() -> None:
    env = StreamEnvironment(runtime="local", parallelism=1)
    statements = env.tables.script(EXAMPLE.read_text())
    env.tables.run(*statements[0])
    hours = "TABLE(TUMBLE(TABLE departures, DESCRIPTOR(scheduled), INTERVAL '1' HOUR))"
    table = env.sql(
        f"SELECT carrier, window_start, COUNT(*) AS flights FROM {hours} GROUP BY carrier, window_start, window_end"
    )
    assert table is not None
    by_sql = table.collect().to_arrow()
    other = StreamEnvironment(runtime="local", parallelism=1)
    in_time = WatermarkStrategy.for_bounded_out_of_orderness("23h")
    rows = departures().select(["carrier", "scheduled"])
    windows = (
        other.from_collection(rows).assign_timestamps("scheduled", in_time).key_by("carrier").window(tumbling("1h"))
    )
    by_stream = windows.aggregate(flights=count()).collect().to_arrow()
    keys = [("carrier", "ascending"), ("window_start", "ascending")]
    assert by_sql.num_rows == by_stream.num_rows > 50_000
    assert by_sql.sort_by(keys).column("flights").equals(by_stream.sort_by(keys).column("flights"))
