"""`sort`: all rows of a stream that ends, in order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock import FileSink, FileSource, StreamEnvironment, col
from penstock.connectors.datagen import DataGenSource, Sequence
from penstock.engine.errors import GraphError
from penstock.recovery import checkpoints, fixed_delay
from tests.engine.helpers import local_environment

ROWS = [{"n": n * 37 % 100, "text": f"{n % 7}"} for n in range(100)]


def test_rows_stay_in_order_behind_operators_of_any_parallelism() -> None:
    env = local_environment(parallelism=3, max_batch_rows=7)
    ordered = env.from_collection(ROWS).rebalance().map(lambda row: row, returns={"n": "int64", "text": "string"})
    rows = ordered.sort("n").filter(col("n") > 9).map(lambda row: {"n": row["n"]}, {"n": "int64"}).disable_chaining()
    assert [row["n"] for row in rows.collect()] == list(range(10, 100))


def test_files_hold_the_order(tmp_path: Path) -> None:
    env = local_environment(parallelism=2, max_batch_rows=3)
    roll = ps.Rolling(max_bytes=1)
    env.from_collection(ROWS).sort("text", "n", descending=[True, False]).sink_to(FileSink(tmp_path, "csv", roll=roll))
    env.execute()
    files = sorted(tmp_path.iterdir())
    assert len(files) > 10
    lines = [line for file in files for line in file.read_text().splitlines()[1:]]
    expected = sorted(ROWS, key=lambda row: (-int(str(row["text"])), row["n"]))
    assert lines == [f'{row["n"]},"{row["text"]}"' for row in expected]


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
    numbers = env.from_collection([{"n": n * 7 % 1000} for n in range(1000)])
    rows = numbers.map(once, returns={"n": "int64"}).sort("n", descending=True).collect()
    assert [row["n"] for row in rows] == list(range(999, -1, -1))
    assert next(failures, None) is None


def test_the_plan_shows_it_in_both_modes(tmp_path: Path) -> None:
    env = local_environment(parallelism=2)
    env.from_collection(ROWS).sink_to(FileSink(tmp_path, "parquet"))
    env.execute()
    env = StreamEnvironment(parallelism=2)
    env.from_source(FileSource.of(tmp_path)).sort("text", "n", descending=[True, False]).collect()
    assert "[2] <- 1 global sort(text descending, n) (n: int64, text: string)\n" in env.explain()
    assert env.explain(mode="batch").endswith(
        """\
stage 2: sort(text descending, n) (partitions 2)
  native: sort(text descending, n)
  <- native 1 (shuffle by range(text descending, n))
"""
    )


def test_input_without_end_is_refused() -> None:
    endless = local_environment().from_source(DataGenSource({"n": Sequence()}), name="clicks")
    with pytest.raises(GraphError, match=r"sort: .* source 'clicks' has no end; .* use window_all"):
        endless.sort("n")


@pytest.mark.parametrize(
    ("columns", "descending", "message"),
    [
        ((), False, r"sort: give at least one column"),
        (("n", "n"), False, r"sort: a column is given twice: n, n"),
        ((col("n"),), False, r"sort takes column names, each as an argument, not .*with_columns"),
        ((["n", "text"],), False, r"sort takes column names, each as an argument, not \['n', 'text'\]"),
        (("m",), False, r"sort: no column 'm'"),
        (("tags",), False, r"sort: column 'tags' is list<.*no order"),
        (("n",), [True, False], r"sort: descending is True or False, or a list of one for each of n; not \[True"),
        (("n", "text"), [True, 0], r"sort: descending is True or False"),
    ],
)
def test_arguments_are_checked(columns: Any, descending: Any, message: str) -> None:
    stream = local_environment().from_collection([{"n": 1, "text": "a", "tags": ["x"]}])
    with pytest.raises(GraphError, match=message):
        stream.sort(*columns, descending=descending)


def test_columns_that_are_not_declared_are_checked_as_they_come() -> None:
    rows = local_environment().from_collection([{"n": 1}]).map(lambda row: {"tags": [1]}).sort("tags")
    with pytest.raises(ps.PenstockError, match=r"operator 'sort\(tags\)', subtask 0: sort: column 'tags' is list"):
        list(rows.collect())


def test_other_names_for_it_are_explained() -> None:
    stream = local_environment().from_collection([{"n": 1}])
    with pytest.raises(AttributeError, match=r"no attribute 'order_by'; it is sort\(\.\.\.\) here"):
        stream.order_by("n")  # type: ignore[attr-defined]
