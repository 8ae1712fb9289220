"""Spark's own operators give what the engine's give: random programs over Parquet files, and what goes wrong."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

import penstock as ps
from penstock import (
    CollectResult,
    DataStream,
    FileSink,
    FileSource,
    KeyedStream,
    StreamEnvironment,
    WatermarkStrategy,
    col,
)
from penstock.actors.spark.final_updates import with_final_updates
from penstock.actors.spark.native.prefixes import native_prefixes
from penstock.engine.errors import JobFailedError
from tests.actors.spark.conftest import Environment, on_spark

pytestmark = on_spark

LONG = pytest.mark.long("one error shows that Spark's rows are named; the engine's tests have the others")

SCHEMA = pa.schema(
    [
        ("key of `all`", pa.string()),
        ("k", pa.int16()),
        ("at", pa.int64()),
        ("n", pa.int64()),
        ("i", pa.int32()),
        ("x", pa.float64()),
        ("f", pa.float32()),
        ("b", pa.bool_()),
        ("d", pa.date32()),
        ("s", pa.string()),
        ("raw", pa.binary()),
        ("moment", pa.timestamp("us", "Europe/Berlin")),
        ("local", pa.timestamp("ms")),
        ("u", pa.uint64()),
    ]
)
KEY, PLAIN_KEY = "key of `all`", "k"
HALVES = [-1.5, -0.5, -0.0, 0.0, 0.5, 2.0, 1e10]
"""Their sums are the same in any order."""
OUT_OF_ORDER = WatermarkStrategy.for_bounded_out_of_orderness("1h")


def values(field: pa.Field) -> st.SearchStrategy[Any]:
    """Values of a column, null among them but for keys and times."""
    kind, name = field.type, field.name
    small = st.integers(-5, 5)
    match name:
        case "key of `all`":
            return st.sampled_from(["", "a", "A", "ä", "z'\\\""])
        case "k":
            return st.integers(-2, 1)
        case "at":
            return st.integers(-30_000, 30_000)
        case "n":
            return st.none() | small
        case "s":
            return st.none() | st.sampled_from(["", "a", "B", "ß", "\U0001f600", "\uffff"])
        case "raw":
            return st.none() | st.sampled_from([b"", b"\x00", b"\x80", b"a"])
        case "b":
            return st.none() | st.booleans()
        case "x" | "f":
            return st.none() | st.sampled_from([*HALVES, math.nan])
    if pa.types.is_date(kind):
        return st.none() | st.dates()
    if pa.types.is_timestamp(kind):
        factor = 1_000_000 if kind.unit == "us" else 1_000
        return st.none() | st.integers(-(10**10) * factor, 10**10 * factor)
    return st.none() | (small if name != "u" else st.integers(0, 2**64 - 1))


def tables(least: int, most: int) -> st.SearchStrategy[pa.Table]:
    row = st.fixed_dictionaries({field.name: values(field) for field in SCHEMA})
    return st.lists(row, min_size=least, max_size=most).map(
        lambda rows: pa.Table.from_arrays(
            [pa.array([row[field.name] for row in rows], field.type) for field in SCHEMA], schema=SCHEMA
        )
    )


AGGREGATES: Mapping[str, Callable[[], Any]] = {
    "rows": ps.count,
    "some": lambda: ps.count("x"),
    "total": lambda: ps.sum("n"),
    "total_i": lambda: ps.sum("i"),
    "total_x": lambda: ps.sum("x"),
    "total_f": lambda: ps.sum("f"),
    "mean_n": lambda: ps.mean("n"),
    "mean_x": lambda: ps.mean("x"),
    **{f"least_{name}": lambda name=name: ps.min(name) for name in SCHEMA.names[1:13]},
    **{f"most_{name}": lambda name=name: ps.max(name) for name in SCHEMA.names[1:13]},
}
ONLY_WHOLE: Mapping[str, Callable[[], Any]] = {
    "kinds_n": lambda: ps.count_distinct("n"),
    "kinds_s": lambda: ps.count_distinct("s"),
    "kinds_x": lambda: ps.count_distinct("x"),
}
STEPS: Mapping[str, Callable[[DataStream], DataStream]] = {
    "none": lambda rows: rows,
    "filter int": lambda rows: rows.filter((col("n") > 0) | col("n").is_null()),
    "filter float": lambda rows: rows.filter(~(col("x") >= 0.5) & (col("f").is_null() | (col("b") == True))),  # noqa: E712
    "filter other floats": lambda rows: rows.filter((col("x") != 2.0) & (col("x") < 1e9)),
    "filter text": lambda rows: rows.filter((col("s") > "B") & (col("s") != "ß'\\")),
    "columns": lambda rows: rows.with_columns(n=col("n") * 3 - col("k"), x=2.5 - col("x"), c=ps.lit("it's \\ `c`")),
    "select": lambda rows: rows.select(
        KEY,
        "k",
        "at",
        "n",
        "x",
        "f",
        "b",
        "d",
        "s",
        "raw",
        "moment",
        "local",
        i=col("n") + col("i"),
        nan=col("x") > 0.0,
    ),
}
WINDOWS: Mapping[str, Callable[[], Any]] = {
    "tumbling": lambda: ps.tumbling("7s"),
    "offset": lambda: ps.tumbling("10s", offset="-3s"),
    "sliding": lambda: ps.sliding("10s", "3s"),
    "gaps": lambda: ps.sliding("2s", "5s", offset="1s"),
}


@dataclass(frozen=True)
class Program:
    """A program over one table."""

    table: pa.Table
    step: str
    time: str
    keys: tuple[str, ...]
    window: str
    names: tuple[str, ...]

    def build(self, env: StreamEnvironment, path: Path) -> CollectResult:
        rows = STEPS[self.step](env.from_source(FileSource.of(path)))
        aggregates = {name: {**AGGREGATES, **ONLY_WHOLE}[name]() for name in self.names}
        if self.window == "running":
            return rows.key_by(*self.keys).aggregate(**aggregates).collect()
        if self.window == "grouped":
            return rows.group_by(*self.keys).aggregate(**aggregates).collect()
        timed = rows.filter(~col(self.time).is_null()).assign_timestamps(self.time, OUT_OF_ORDER)
        if not self.keys:
            return timed.window_all(WINDOWS[self.window]()).aggregate(**aggregates).collect()
        return timed.key_by(*self.keys).window(WINDOWS[self.window]()).aggregate(**aggregates).collect()


KEYS: Sequence[tuple[str, ...]] = ((KEY,), (PLAIN_KEY,), (KEY, PLAIN_KEY), ())
TIMES: Sequence[str] = ("at", "moment", "local", "d")


def some_programs() -> list[Program]:
    """The same ones each time: every step and every kind of window, with a third of the aggregates that go with it.

    The first seven have each step, window, kind of key and of time; the others have windows with other aggregates.
    """
    found = []
    ends = itertools.cycle([*WINDOWS, "running", "grouped"])
    for number, (step, window) in enumerate(zip([*STEPS, *list(STEPS)[:3]], ends, strict=False)):
        names = [*AGGREGATES, *(() if window in ("sliding", "gaps") else ONLY_WHOLE)][number % 3 :: 3]
        keys = KEYS[number % (3 if window in ("running", "grouped") else 4)]
        table = some_table(number, 40 if number else 0)
        found.append(Program(table, step, TIMES[number // 2 % 4], keys, window, tuple(names)))
    return found


def some_table(number: int, rows: int) -> pa.Table:
    """Rows that depend on `number`."""
    found: list[pa.Table] = []

    @seed(number)
    @settings(max_examples=3, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(tables(rows, rows))
    def draw(table: pa.Table) -> None:
        found.append(table)

    draw()
    return found[-1]


def texts(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Rows to compare; -0.0 is 0.0."""
    return sorted(str([value + 0.0 if isinstance(value, float) else value for value in row.values()]) for row in rows)


def natively(env: StreamEnvironment) -> int:
    """How many tasks of the program Spark runs by itself, or begins."""
    return len(native_prefixes(with_final_updates(env.program().physical())))


@pytest.mark.parametrize(
    ("which", "least"),
    [
        pytest.param(slice(7), 64, id="each step and window"),
        pytest.param(slice(7, None), 16, id="other aggregates", marks=pytest.mark.long("the first programs")),
    ],
)
def test_programs_give_the_same_in_spark(spark: Environment, tmp_path: Path, which: slice, least: int) -> None:
    drawn = some_programs()[which]
    batch, local = spark(), StreamEnvironment(runtime="local", parallelism=2)
    pairs = []
    for number, program in enumerate(drawn):
        path = tmp_path / f"{number}.parquet"
        pq.write_table(program.table, path)
        pairs.append((program.build(batch, path), program.build(local, path)))
    assert natively(batch) == len(drawn)
    batch.execute("in Spark", mode="batch")
    local.execute("here")
    seen = 0
    for program, (rows, expected) in zip(drawn, pairs, strict=True):
        got = texts(rows)
        # A running aggregate gives all updates there, and the last of each key here.
        there = list(expected)
        last = {tuple(row[key] for key in program.keys): row for row in there}
        assert got == texts(last.values() if program.window == "running" else there), program
        seen += len(got)
    assert seen > least


def test_what_files_state_of_floats_loses_no_rows(spark: Environment, tmp_path: Path) -> None:
    # The bounds of x are 2.0, whatever is NaN; and no value of y is 0.0 by its bits.
    columns = {"k": [1, 2, 3], "x": [2.0, math.nan, 2.0], "y": [-0.0] * 3}
    path = one_file(tmp_path, **columns)

    def build(env: StreamEnvironment) -> list[CollectResult]:
        tests = (col("x") != 2.0, ~(col("x") < 3.0), ~(col("x") == 2.0), col("y") == 0.0, col("y") >= 0.0)
        streams = [env.from_source(FileSource.of(path)).filter(test) for test in tests]
        return [stream.group_by("k").aggregate(n=ps.count()).collect() for stream in streams]

    batch, local = spark(), StreamEnvironment(runtime="local", parallelism=2)
    got, expected = build(batch), build(local)
    assert natively(batch) == len(got)
    batch.execute("in Spark", mode="batch")
    local.execute("here")
    found = [texts(rows) for rows in got]
    assert found == [texts(rows) for rows in expected]
    assert [len(rows) for rows in found] == [1, 1, 1, 3, 3]


def sum_of(one: ps.Row, other: ps.Row) -> ps.Row:
    return {"s": one["s"], "n": one["n"] + other["n"]}


def joined(env: StreamEnvironment, folder: Path) -> dict[str, CollectResult]:
    """A join whose result is aggregated again, and a join that goes on in Python; beside one stream without Spark."""
    schema = {"k": "int64", "n": "int64", "at": "int64", "s": "string"}

    def left() -> DataStream:
        rows = env.from_source(FileSource.of(folder / "left.parquet", schema=schema))
        return rows.filter(col("n") > -4).assign_timestamps("at", OUT_OF_ORDER)

    def right() -> KeyedStream:
        return (
            env.from_source(FileSource.of(folder / "right.parquet"))
            .assign_timestamps("at", OUT_OF_ORDER)
            .key_by("other")
        )

    def pairs(size: str, how: str = "inner") -> DataStream:
        return left().key_by("k").window_join(right(), ps.tumbling(size), how=how)

    def near(lower: str, upper: str) -> DataStream:
        return left().key_by("k").interval_join(right(), lower, upper)

    again = pairs("20s").assign_timestamps("window_start", OUT_OF_ORDER).key_by("s").window(ps.tumbling("1m"))
    return {
        "sums": again.aggregate(n=ps.count(), total=ps.sum("n"), last=ps.max("window_end")).collect(),
        "rows": pairs("7s").map(lambda row: row).collect(),
        "keyed again": pairs("7s").select("s", "n").key_by("s").reduce(sum_of).collect(),
        **{how: pairs("7s", how).map(lambda row: row).collect() for how in ("left", "right", "full")},
        "near": near("-2s", "3s").map(lambda row: row).collect(),
        "behind": near("1ms", "10s")
        .assign_timestamps("at", OUT_OF_ORDER)
        .group_by("s")
        .aggregate(n=ps.count())
        .collect(),
        "by engine": left().rebalance().map(lambda row: {"n": row["n"]}, returns={"n": "int64"}).collect(),
    }


@pytest.mark.long("test_operators.py::test_joins; which rows Spark joins itself: test_native_prefixes.py")
def test_joins_give_the_same_in_spark(spark: Environment, tmp_path: Path) -> None:
    draw = np.random.default_rng(3)
    for name, key in (("left", "k"), ("right", "other")):
        columns = {
            key: draw.integers(0, 6, 50),
            "n": draw.integers(-9, 9, 50),
            "at": draw.integers(-40_000, 40_000, 50),
        }
        pq.write_table(pa.table({**columns, "s": list("abcde" * 10)}), tmp_path / f"{name}.parquet")
    batch, local = spark(), StreamEnvironment(runtime="local", parallelism=2)
    got, expected = joined(batch, tmp_path), joined(local, tmp_path)
    assert natively(batch) == 6
    batch.execute("in Spark", mode="batch")
    local.execute("here")
    for name, rows in got.items():
        found, others = texts(rows), texts(expected[name])
        # A reduction gives all updates there, and the last of each key here.
        assert found == others if name != "keyed again" else set(found) < set(others), name
        assert found


def one_file(folder: Path, **columns: list[Any]) -> Path:
    pq.write_table(pa.table(columns), folder / "rows.parquet")
    return folder / "rows.parquet"


def test_rows_come_over_in_large_batches_though_other_stages_read_parcels(spark: Environment, tmp_path: Path) -> None:
    pq.write_table(pa.table({"k": range(20_000), "at": [0] * 20_000}), tmp_path / "rows.parquet")
    env = spark()
    rows = env.from_source(FileSource.of(tmp_path / "rows.parquet")).assign_timestamps("at")
    windows = rows.key_by("k").window(ps.tumbling("1s")).aggregate(n=ps.count())
    sizes = windows.map_batches(
        lambda batch: pa.record_batch({"rows": [batch.num_rows] * batch.num_rows}), returns={"rows": "int64"}
    )
    largest = sizes.key_by("rows").reduce(lambda one, other: other).collect()
    assert natively(env) == 1
    env.execute("mixed", mode="batch")
    assert max(row["rows"] for row in largest) > 5_000


def test_what_spark_refuses_the_engine_computes(spark: Environment, tmp_path: Path) -> None:
    path = one_file(tmp_path, k=["a", "a"], n=[2**62, 2**62])

    def build(env: StreamEnvironment) -> CollectResult:
        return (
            env.from_source(FileSource.of(path))
            .with_columns(n=col("n") * 4)
            .key_by("k")
            .aggregate(n=ps.sum("n"))
            .collect()
        )

    batch, local = spark(), StreamEnvironment(runtime="local", parallelism=2)
    got, expected = build(batch), build(local)
    assert natively(batch) == 1
    batch.execute("wraps", mode="batch")
    local.execute("wraps")
    # Only the local one gives each update.
    assert texts(got) == texts(expected)[-1:]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"k": ["a", "b"], "at": [1, None], "n": [1, 2]}, r"'at' is null in row .*'k': 'b'"),
        pytest.param(
            {"k": ["a", None], "at": [1, 2], "n": [1, 2]}, r"key column 'k' is null in row .*'n': 2", marks=LONG
        ),
        pytest.param(
            {"k": ["a", "a"], "at": [1, 2], "n": [2**62, 2**62]},
            r"sum of column 'n' for k='a' does not fit int64",
            marks=LONG,
        ),
        pytest.param(
            {"k": ["a", "b"], "at": [1, 2**63 - 1], "n": [1, 2]}, r"'at' is out of the range .*'k': 'b'", marks=LONG
        ),
    ],
)
def test_errors_name_the_row(spark: Environment, tmp_path: Path, columns: dict[str, list[Any]], message: str) -> None:
    env = spark()
    rows = env.from_source(FileSource.of(one_file(tmp_path, **columns))).assign_timestamps("at", OUT_OF_ORDER)
    rows.key_by("k").window(ps.tumbling("1s")).aggregate(n=ps.sum("n")).sink_to(FileSink(tmp_path / "out", "parquet"))
    assert natively(env) == 1
    with pytest.raises(JobFailedError, match=message):
        env.execute("poison", mode="batch")
    assert not [one for one in (tmp_path / "out").iterdir() if not one.name.startswith(".")]


def test_a_broken_file_is_named(spark: Environment, tmp_path: Path) -> None:
    path = one_file(tmp_path, k=["a"] * 1000, n=list(range(1000)))
    env = spark()
    env.from_source(FileSource.of(path)).key_by("k").aggregate(n=ps.sum("n")).collect()
    content = bytearray(path.read_bytes())
    content[10:200] = b"\xff" * 190
    path.write_bytes(content)
    with pytest.raises(JobFailedError, match=r"rows\.parquet"):
        env.execute("broken", mode="batch")
