"""UNION of inputs of which some have event time."""

from __future__ import annotations

import pytest

from penstock import StreamEnvironment, WatermarkStrategy
from penstock.engine.clock import ManualClock
from tests.tables import programs
from tests.tables.own_programs import sink, source
from tests.tables.programs import check, prepared


@pytest.fixture
def env() -> StreamEnvironment:
    """Tables `timed`, whose `at` is event time, and `plain`, which has the same columns and none."""
    env = StreamEnvironment(runtime="local", parallelism=2)
    timed = env.from_collection([("a", 1_000), ("b", 61_000)], schema=["k", "at"])
    env.tables.create_temporary_view(
        "timed", timed.assign_timestamps("at", WatermarkStrategy.for_bounded_out_of_orderness("1s"))
    )
    env.tables.create_temporary_view("plain", env.from_collection([("b", 5), ("c", 6)], schema=["k", "at"]))
    return env


@pytest.mark.parametrize("order", ["timed UNION ALL SELECT k FROM plain", "plain UNION ALL SELECT k FROM timed"])
def test_an_input_with_event_time_and_one_without(env: StreamEnvironment, order: str) -> None:
    rows = env.sql(f"SELECT k FROM {order}").collect()
    assert sorted(row["k"] for row in rows) == ["a", "b", "b", "c"]


def test_the_union_of_both_is_aggregated(env: StreamEnvironment) -> None:
    rows = list(
        env.sql("SELECT k, COUNT(*) AS n FROM (SELECT * FROM timed UNION SELECT k, at FROM plain) GROUP BY k").collect()
    )
    assert {row["k"]: row["n"] for row in rows if row["op"] in ("+I", "+U")} == {"a": 1, "b": 2, "c": 1}


def test_changes_that_are_united_with_rows_without_event_time(env: StreamEnvironment) -> None:
    counts = "SELECT k, COUNT(*) AS n FROM timed GROUP BY k"
    rows = env.sql(f"SELECT k, n FROM ({counts}) UNION ALL SELECT k, CAST(at AS BIGINT) FROM plain").collect()
    assert sorted((row["k"], row["n"]) for row in rows) == [("a", 1), ("b", 1), ("b", 5), ("c", 6)]


def test_changes_of_one_subtask_and_of_several_stay_in_order() -> None:
    rows = [(kind, n, n) for n in range(12) for kind in ("+I", "-D")]
    changing = source("changing", ["a INT", "b INT"], [*rows, ("+I", 1, 1)], [], {"changelog-mode": "I,UB,UA,D"})
    plain = source("plain", ["a INT"], [(1,), (2,), (1,)], [])
    united = "SELECT a, b FROM changing UNION ALL SELECT a, CAST(COUNT(*) AS INT) FROM plain GROUP BY a"
    steps = (changing, plain, sink(["a INT", "n BIGINT", "s INT"], ["1, 2, 3", "2, 1, 1"], []))
    made = [
        *steps,
        {
            "step": "SqlTestStep",
            "sql": f"INSERT INTO sink_t SELECT a, COUNT(*), SUM(b) FROM ({united}) WHERE b < 99 GROUP BY a",
        },
    ]
    program = {"id": "united", "class": "OwnPrograms", "run": made}
    for seed in range(2):
        env = StreamEnvironment(runtime="local", parallelism=3, max_batch_rows=1, clock=ManualClock(0), seed=seed)
        prepared(program, env, ("dataBeforeRestore",), held=False, endless=True)
        env.execute()
        check(program, {"Before": programs.Outcome({name: list(rows) for name, rows in programs.RECORDED.items()})})
