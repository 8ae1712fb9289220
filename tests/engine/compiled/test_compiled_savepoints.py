"""A job that is stopped with a savepoint goes on from it with the same function compiled, and back."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest

import penstock as ps
from penstock import DataGenSource, Sequence, savepoints
from penstock.recovery import checkpoints
from tests.engine.helpers import local_environment

ROWS = 600
RETURNS = {"k": "int64", "count": "int64", "longest": "string", "mean": "float64", "odd": "bool"}


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


@ps.compiled
class Compiled(Plain):
    """The same, compiled."""


def environment(folder: Path, backend: Literal["heap", "rocksdb"]) -> ps.StreamEnvironment:
    storage = checkpoints(storage=str(folder), savepoints=str(folder))
    return local_environment(1, 0, max_batch_rows=16, checkpoints=storage, state_backend=backend)


def results(env: ps.StreamEnvironment, function: type[Plain]) -> ps.CollectResult:
    source = env.from_source(DataGenSource({"n": Sequence()}, rows=ROWS, rate=2000)).with_columns(k=ps.col("n") % 5)
    return source.key_by("k").process(function, returns=RETURNS).uid("kept").collect()


def expected() -> list[tuple[Any, ...]]:
    env = local_environment(1, 0)
    made = results(env, Plain)
    env.execute("plain")
    return ordered(made)


def ordered(rows: Any) -> list[tuple[Any, ...]]:
    return sorted((row["k"], row["count"], repr(row)) for row in rows)


@pytest.mark.parametrize("backend", ["heap", "rocksdb"])
@pytest.mark.parametrize(("first", "second"), [(Plain, Compiled), (Compiled, Plain)])
def test_a_job_goes_from_one_to_the_other_by_a_savepoint(
    first: type[Plain], second: type[Plain], backend: Literal["heap", "rocksdb"], tmp_path: Path
) -> None:
    env = environment(tmp_path, backend)
    seen = results(env, first)
    job = env.submit("first")
    reading = iter(seen)
    rows = list(itertools.islice(reading, 200))
    url = job.stop()
    rows += list(reading)
    assert 0 < len(rows) < ROWS
    assert {state.name for state in savepoints.read(url).operator("kept").all_states} >= {"count", "last", "mean"}
    env = environment(tmp_path, backend)
    made = results(env, second)
    env.execute("second", savepoint=url)
    assert ordered([*rows, *made]) == expected()
