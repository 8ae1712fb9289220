"""`group_by`: the batch view of a stream that ends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock import StreamEnvironment
from penstock.connectors.datagen import DataGenSource, Sequence
from penstock.engine.errors import GraphError
from penstock.recovery import checkpoints, fixed_delay
from tests.engine.helpers import local_environment

ROWS = [("UA", 0, 5), ("AA", 30_000, 7), ("UA", 3_700_000, 1)]
COLUMNS = ["carrier", "at", "delay"]


def test_one_row_a_key_at_the_end() -> None:
    env = local_environment(parallelism=2, max_batch_rows=1)
    totals = env.from_collection(ROWS, schema=COLUMNS).group_by("carrier").aggregate(delay=ps.sum("delay"))
    assert totals.schema is not None
    assert totals.schema.names == ["carrier", "delay"]
    assert sorted(totals.collect(), key=str) == [{"carrier": "AA", "delay": 7}, {"carrier": "UA", "delay": 6}]


def test_windows_of_the_results_lose_none() -> None:
    env = local_environment(parallelism=2)
    flights = env.from_collection(ROWS, schema=COLUMNS).assign_timestamps("at")
    groups = flights.group_by("carrier").aggregate(n=ps.count())
    windows = groups.key_by("n").window(ps.tumbling("1h")).aggregate(groups=ps.count())
    assert sorted((row["window_start"].hour, row["n"], row["groups"]) for row in windows.collect()) == [
        (0, 1, 1),
        (1, 2, 1),
    ]


def test_a_column_may_have_the_name_of_what_is_kept_of_time() -> None:
    env = local_environment(max_batch_rows=2)
    rows = env.from_collection([{"k": 1, "at": at, "__time": 100 + at} for at in range(5)])
    totals = rows.assign_timestamps("at").group_by("k").aggregate(last=ps.max("__time"))
    assert list(totals.collect()) == [{"k": 1, "last": 104}]


def test_a_failure_on_the_way_changes_nothing(tmp_path: Path) -> None:
    failures = iter([True])

    def once(row: dict[str, Any]) -> dict[str, Any]:
        if row["n"] == 900 and next(failures, False):
            raise ValueError("once")
        return row

    env = StreamEnvironment(
        runtime="local",
        parallelism=2,
        max_batch_rows=7,
        checkpoints=checkpoints("1ms", str(tmp_path)),
        restart=fixed_delay(attempts=3, delay="0s"),
    )
    rows = env.from_collection([{"k": n % 3, "n": n} for n in range(1000)])
    totals = rows.map(once, returns={"k": "int64", "n": "int64"}).group_by("k").aggregate(total=ps.sum("n"))
    expected = [{"k": k, "total": sum(range(k, 1000, 3))} for k in range(3)]
    assert sorted(totals.collect(), key=lambda row: row["k"]) == expected
    assert next(failures, None) is None


def test_input_without_end_is_refused() -> None:
    env = local_environment()
    endless = env.from_source(DataGenSource({"n": Sequence()}), name="clicks")
    bounded = env.from_collection([{"n": 1}])
    with pytest.raises(GraphError, match=r"group_by: .* source 'clicks' has no end; .* use key_by\(\.\.\.\)"):
        bounded.union(endless.filter(ps.col("n") > 3)).group_by("n")


def test_keys_are_checked() -> None:
    stream = local_environment().from_collection([{"n": 1, "x": 1.5}])
    for columns, message in (
        ((), "group_by: give at least one"),
        (("n", "n"), "group_by: a column is given twice"),
        (("x",), "group_by: column 'x' is double"),
        (("__n",), "group_by: the name '__n' begins"),
        ((3,), "group_by takes column names, not 3"),
    ):
        with pytest.raises(ps.PenstockError, match=message):
            stream.group_by(*columns)  # type: ignore[arg-type]


def test_verbs_of_other_streams_are_explained() -> None:
    grouped = local_environment().from_collection([{"n": 1}]).group_by("n")
    with pytest.raises(AttributeError, match=r"no attribute 'count'; call aggregate\(n=penstock\.count\(\)\)"):
        grouped.count()  # type: ignore[attr-defined]
