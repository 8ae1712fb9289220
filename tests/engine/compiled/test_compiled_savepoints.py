"""A job that is stopped with a savepoint goes on from it with the same function compiled, and back."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

import penstock as ps
from penstock import DataGenSource, Sequence, savepoints
from penstock.recovery import checkpoints
from tests.engine.helpers import local_environment

ROWS = 600
LONG = pytest.mark.long("the same with the other backend; those are compared in tests/engine/state")
RETURNS = {"k": "int64", "count": "int64", "longest": "string", "mean": "float64", "odd": "bool"}

COLLECTED = {"k": "int64", "total": "int64", "count": "int64", "before": "string", "names": "int64"}


class Plain(ps.KeyedProcessFunction):
    """States of all kinds, with and without a default."""

    def open(self, context: Any) -> None:
        self.count = context.get_state(ps.ValueStateDescriptor("count", "int64"))
        self.last = context.get_state(ps.ValueStateDescriptor("last", "string"))
        self.mean = context.get_state(ps.ValueStateDescriptor("mean", "float64", default=0.5))
        self.odd = context.get_state(ps.ValueStateDescriptor("odd", "bool", default=False))

    def process_element(self, row: Any, ctx: Any) -> Iterator[dict[str, Any]]:
        before = self.last.value()
        if before is None or before == "b":
            self.last.update("a")
        elif row["n"] % 7 == 0:
            self.last.clear()
        else:
            self.last.update("b")
        count = self.count.value() or 0
        self.count.update(count + 1)
        self.mean.update((self.mean.value() + row["n"]) / 2)
        self.odd.update(not self.odd.value())
        yield {
            "k": row["k"],
            "count": count,
            "longest": self.last.value() or "none",
            "mean": self.mean.value(),
            "odd": self.odd.value(),
        }


class PlainCollections(ps.KeyedProcessFunction):
    """List and map states."""

    def open(self, context: Any) -> None:
        self.recent = context.get_list_state(ps.ListStateDescriptor("recent", "int64"))
        self.names = context.get_list_state(ps.ListStateDescriptor("names", "string"))
        self.counts = context.get_map_state(ps.MapStateDescriptor("counts", "int64", key_type="int64"))
        self.labels = context.get_map_state(ps.MapStateDescriptor("labels", "string", key_type="string"))

    def process_element(self, row: Any, ctx: Any) -> Iterator[dict[str, Any]]:
        self.recent.add(row["n"])
        total = 0
        for each in self.recent.get():
            total += each
        if len(self.recent.get()) > 6:
            self.recent.clear()
        name = "even" if row["n"] % 2 == 0 else "odd"
        self.names.add(name)
        count = (self.counts.get(row["n"] % 7) or 0) + 1
        self.counts.put(row["n"] % 7, count)
        if count > 9:
            self.counts.remove(row["n"] % 7)
        before = self.labels.get(name, "none")
        self.labels.put(name, self.names.get()[len(self.names.get()) // 2])
        yield {"k": row["k"], "total": total, "count": count, "before": before, "names": len(self.names.get())}


def latest(one: Any, other: Any) -> Any:
    """The row of the largest `n`, with the sum of all."""
    return {**(one if one["n"] > other["n"] else other), "k": one["k"], "total": one["total"] + other["total"]}


class PlainMean(ps.AggregateFunction):
    """Adds rows to an accumulator of two fields."""

    def create_accumulator(self) -> Any:
        return {"n": 0, "total": 0.5}

    def add(self, row: Any, accumulator: Any) -> Any:
        return {"n": accumulator["n"] + 1, "total": accumulator["total"] + row["n"]}

    def get_result(self, accumulator: Any) -> Any:
        return {"mean": accumulator["total"] / accumulator["n"]}


class PlainSpread(ps.ProcessWindowFunction):
    def process(self, key: Any, context: Any, elements: Any) -> Any:
        yield {"k": key, "spread": elements[-1]["n"] - elements[0]["n"], "total": sum(row["n"] for row in elements)}


def seventh(row: Any) -> bool:
    return bool(row["n"] % 7 == 3)


def later(row: Any) -> bool:
    return bool(row["total"] > 30 and row["n"] % 3 != 0)


def matched(match: Any) -> dict[str, Any]:
    return {"first": match["first"][0]["n"], "last": match["last"][0]["n"]}


@dataclass(frozen=True)
class Functions:
    """The functions of a job, all of them compiled, or none."""

    process: type[Plain]
    collections: type[PlainCollections]
    reduce: Any
    conditions: tuple[Any, Any]
    mean: type[PlainMean]
    spread: type[PlainSpread]


PLAIN = Functions(Plain, PlainCollections, latest, (seventh, later), PlainMean, PlainSpread)
COMPILED = Functions(
    ps.compiled(Plain),
    ps.compiled(PlainCollections),
    ps.compiled(latest),
    (ps.compiled(seventh), ps.compiled(later)),
    ps.compiled(PlainMean),
    ps.compiled(PlainSpread),
)


def environment(folder: Path, backend: Literal["heap", "rocksdb"]) -> ps.StreamEnvironment:
    storage = checkpoints(storage=str(folder), savepoints=str(folder))
    return local_environment(1, 0, max_batch_rows=16, checkpoints=storage, state_backend=backend)


def results(env: ps.StreamEnvironment, functions: Functions) -> list[ps.CollectResult]:
    """The rows of one operator after the other."""
    source = env.from_source(DataGenSource({"n": Sequence()}, rows=ROWS, rate=2000)).with_columns(
        k=ps.col("n") % 5, total=ps.col("n") * 2
    )
    keyed = source.assign_timestamps("n").key_by("k")
    first, last = functions.conditions
    pattern = ps.Pattern.begin("first").where(first).followed_by_any("last").where(last).within("200ms")
    return [
        keyed.process(functions.process, returns=RETURNS).uid("process").collect(),
        keyed.process(functions.collections, returns=COLLECTED).uid("collections").collect(),
        keyed.reduce(functions.reduce).uid("reduce").collect(),
        keyed.window(ps.sliding("80ms", "40ms"))
        .aggregate(functions.mean(), accumulator={"n": "int64", "total": "float64"}, returns={"mean": "float64"})
        .uid("window")
        .collect(),
        keyed.window(ps.cumulative("120ms", "40ms"))
        .process(functions.spread, returns={"k": "int64", "spread": "int64", "total": "int64"})
        .uid("rows")
        .collect(),
        keyed.match(pattern).select(matched, returns={"first": "int64", "last": "int64"}).uid("match").collect(),
    ]


@pytest.fixture(scope="module")
def expected() -> list[list[str]]:
    env = local_environment(1, 0)
    made = results(env, PLAIN)
    env.execute("plain")
    return [ordered(rows) for rows in made]


def ordered(rows: Any) -> list[str]:
    return sorted(map(repr, rows))


@pytest.mark.parametrize(
    ("first", "second", "backend"),
    [
        (PLAIN, COMPILED, "rocksdb"),
        (COMPILED, PLAIN, "heap"),
        pytest.param(PLAIN, COMPILED, "heap", marks=LONG),
        pytest.param(COMPILED, PLAIN, "rocksdb", marks=LONG),
    ],
)
def test_a_job_goes_from_one_to_the_other_by_a_savepoint(
    first: Functions,
    second: Functions,
    backend: Literal["heap", "rocksdb"],
    tmp_path: Path,
    expected: list[list[str]],
) -> None:
    env = environment(tmp_path, backend)
    seen = results(env, first)
    job = env.submit("first")
    reading = [iter(rows) for rows in seen]
    found = [list(itertools.islice(reading[0], 200)), *([] for _ in reading[1:])]
    url = job.stop()
    for rows, rest in zip(found, reading, strict=True):
        rows += rest
    assert 0 < len(found[0]) < ROWS
    kept = savepoints.read(url)
    assert {state.name for state in kept.operator("process").all_states} >= {"count", "last", "mean"}
    assert {state.name for state in kept.operator("collections").all_states} >= {"recent", "names", "counts", "labels"}
    assert {state.name for state in kept.operator("reduce").all_states} >= {"reduced"}
    env = environment(tmp_path, backend)
    made = results(env, second)
    env.execute("second", savepoint=url)
    assert [ordered([*rows, *more]) for rows, more in zip(found, made, strict=True)] == expected
