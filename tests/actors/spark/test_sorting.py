"""Sorted streams: the same order by Spark, by the engine's operator in a stage, and in streaming mode."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock import CollectResult, DataStream, FileSink, FileSource, ProcessFunction, StreamEnvironment, col
from penstock.actors.spark.native import compiler
from penstock.actors.spark.native.ranges import route_by_range
from penstock.engine.functions import Context, Row
from tests.actors.spark.conftest import Environment, on_spark
from tests.actors.spark.test_jobs import await_gate, run_once
from tests.actors.spark.test_native import KEY, SCHEMA, natively, some_table
from tests.engine.test_ordering import rank, sorted_rows

pytestmark = on_spark

NATIVE = [name for name in SCHEMA.names if name != "u"]
ORDERS: Sequence[tuple[tuple[str, ...], tuple[bool, ...]]] = (
    ((KEY, "n"), (False, True)),
    (("x", "f", "d"), (True, True, False)),
    (("raw", "b", "moment"), (False, True, False)),
    (("f", "s", "i"), (False, True, False)),
    (("local", "k", "at"), (True, False, True)),
    (("u", "n"), (True, True)),  # Spark has no such numbers.
)
"""Each column once, most of them behind one of few values: Spark runs two jobs for each order."""
FEW: Mapping[str, list[int]] = {"none": [], "one": [7] * 100}
"""Rows of which no ranges can be told."""


def parts_in_order(folder: Path) -> list[pa.Table]:
    """What the files of a sink hold, in the order of their names."""
    return [pq.read_table(path) for path in sorted(folder.glob("part-*"))]


def check_order(got: pa.Table, source: pa.Table, names: Sequence[str], descending: Sequence[bool]) -> None:
    """The rows are those of the source, in the order that plain Python gives them."""
    rows = list(zip(*(source.column(name).to_pylist() for name in names), strict=True))
    expected = [[rank(value) for value in rows[place]] for place in sorted_rows(rows, descending)]
    keys = zip(*(got.column(name).to_pylist() for name in names), strict=True)
    assert [[rank(value) for value in key] for key in keys] == expected, (names, descending)
    assert sorted(map(str, got.to_pylist())) == sorted(map(str, source.to_pylist()))


def test_the_order_is_the_same_in_spark_in_stages_and_in_streams(spark: Environment, tmp_path: Path) -> None:
    table = some_table(3, 60)
    pq.write_table(table, tmp_path / "rows.parquet")

    def build(env: StreamEnvironment, name: str) -> None:
        for number, (names, descending) in enumerate(ORDERS):
            columns = NATIVE if "u" not in names else SCHEMA.names
            rows = env.from_source(FileSource.of(tmp_path / "rows.parquet")).select(*columns)
            rows.sort(*names, descending=descending).sink_to(FileSink(tmp_path / name / str(number), "parquet"))

    def few(env: StreamEnvironment) -> list[CollectResult]:
        """No rows, and a hundred times the same."""
        return [env.from_source(FileSource.of(tmp_path / f"{name}.parquet")).sort("n").collect() for name in FEW]

    for name, values in FEW.items():
        pq.write_table(pa.table({"n": pa.array(values, pa.int64())}), tmp_path / f"{name}.parquet")
    batch, local = spark(), StreamEnvironment(runtime="local", parallelism=3)
    for name, env in (("batch", batch), ("local", local)):
        build(env, name)
    results = few(batch)
    assert natively(batch) == len(ORDERS) - 1 + len(FEW)
    batch.execute("in Spark", mode="batch")
    assert [[row["n"] for row in result] for result in results] == list(FEW.values())
    local.execute("here")
    for name in ("batch", "local"):
        for number, (names, descending) in enumerate(ORDERS):
            source = table if "u" in names else table.select(NATIVE)
            parts = parts_in_order(tmp_path / name / str(number))
            # Each subtask sorts its part of what Spark sorts.
            assert len(parts) == (2 if name == "batch" and "u" not in names else 1), name
            check_order(pa.concat_tables(parts), source, names, descending)


@pytest.mark.long("the local runtime in the test above; what Ray shuffles: tests/actors/test_jobs.py")
def test_the_order_is_the_same_in_streams_on_ray(spark: Environment, tmp_path: Path) -> None:
    names, descending = ORDERS[2]
    table = some_table(3, 60)
    pq.write_table(table, tmp_path / "rows.parquet")
    env = spark()
    rows = env.from_source(FileSource.of(tmp_path / "rows.parquet"))
    rows.sort(*names, descending=descending).sink_to(FileSink(tmp_path / "sorted", "parquet"))
    env.execute("on Ray")
    (part,) = parts_in_order(tmp_path / "sorted")
    check_order(part, table, names, descending)


class Numbered(ProcessFunction):
    """Numbers the rows as they come."""

    def open(self, ctx: object) -> None:
        self.n = 0

    def process_element(self, row: Row, ctx: Context) -> list[Row]:
        self.n += 1
        return [{"n": row["n"], "place": self.n}]


@pytest.mark.long("test_jobs.py kills a worker; the test above has the order")
def test_all_rows_are_there_in_order_though_the_executor_is_killed_behind_the_sort(
    spark: Environment, tmp_path: Path
) -> None:
    numbers = random.Random(7).sample(range(20_000), 20_000)
    pq.write_table(pa.table({"n": numbers}), tmp_path / "rows.parquet")
    gate, files = tmp_path / "gate", tmp_path / "files"
    env = spark()
    rows = env.from_source(FileSource.of(tmp_path / "rows.parquet")).sort("n")
    rows.map(lambda row: run_once(gate, row), returns={"n": "int64"}).sink_to(FileSink(files, "parquet"))
    assert natively(env) == 1
    job = env.submit("killed", mode="batch")
    executor = psutil.Process(await_gate(gate, job)).parent().parent()
    assert "java" in executor.name()
    # What it had shuffled is lost with it.
    executor.kill()
    job.wait()
    parts = parts_in_order(files)
    assert len(parts) == 2
    assert pa.concat_tables(parts).column("n").to_pylist() == list(range(20_000))


@pytest.mark.long("test_the_order_is_the_same_in_spark_in_stages_and_in_streams")
def test_what_is_behind_a_sort_sees_its_order(spark: Environment, tmp_path: Path) -> None:
    env = spark()
    pq.write_table(pa.table({"n": [n * 37 % 1000 for n in range(1000)]}), tmp_path / "rows.parquet")

    def rows() -> DataStream:
        return env.from_source(FileSource.of(tmp_path / "rows.parquet"))

    types = {"n": "int64", "place": "int64"}
    mapped = rows().sort("n").filter(col("n") >= 10).map(lambda row: {"n": row["n"] * 2}).collect()
    numbered = rows().sort("n", descending=True).set_parallelism(1).process(Numbered(), types).set_parallelism(1)
    apart = rows().sort("n").map(lambda row: row, {"n": "int64"}).disable_chaining().collect()
    by_engine = rows().map(lambda row: row, {"n": "int64"}).sort("n").collect()
    again = rows().sort("n", descending=True).sort("n").collect()
    places = numbered.collect()
    assert natively(env) == 4
    env.execute("behind", mode="batch")
    assert [row["n"] for row in mapped] == [2 * n for n in range(10, 1000)]
    assert [(row["n"], row["place"]) for row in places] == [(999 - n, n + 1) for n in range(1000)]
    for name, result in (("apart", apart), ("by the engine", by_engine), ("again", again)):
        assert [row["n"] for row in result] == list(range(1000)), name


def test_ranges_come_of_a_sample_of_the_keys(
    spark: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    routed = []

    def noted(*arguments: Any) -> Any:
        route = route_by_range(*arguments)
        routed.append(route is not None)
        return route

    monkeypatch.setattr(compiler, "route_by_range", noted)
    draw = random.Random(7)
    few = [None, math.nan, -0.0, 0.0, 1.5, -math.inf]
    many = 20_000
    table = pa.table({"x": [draw.choice(few) for _ in range(many)], "n": range(many)})
    pq.write_table(table, tmp_path / "rows.parquet")
    env = spark()
    every, read = (env.from_source(FileSource.of(tmp_path / "rows.parquet")) for _ in range(2))
    # Of the second, too few rows are left in the sample, and Spark itself finds ranges.
    for name, rows, names, descending in (
        ("all", every, ("x", "n"), (True, False)),
        ("some", read.filter(col("n") < 20), ("n",), (False,)),
    ):
        ordered = rows.sort(*names, descending=descending).set_parallelism(3)
        ordered.sink_to(FileSink(tmp_path / name, "parquet")).set_parallelism(3)
    assert natively(env) == 2
    env.execute("ranges", mode="batch")
    assert sorted(routed) == [False, True]
    parts = parts_in_order(tmp_path / "all")
    check_order(pa.concat_tables(parts), table, ("x", "n"), (True, False))
    assert len(parts) == 3
    assert all(0.25 * many < len(part) < 0.42 * many for part in parts)
    check_order(pa.concat_tables(parts_in_order(tmp_path / "some")), table.slice(0, 20), ("n",), (False,))
