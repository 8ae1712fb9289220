"""Whose rows are read by time over both inputs, and whose one input after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import pytest

import penstock as ps
from penstock import DataStream, KeyedStream, StreamEnvironment, WatermarkStrategy
from penstock.actors.spark.endings import EndOfTime
from penstock.actors.spark.orders import mixes_inputs
from penstock.engine.graph.physical import PhysicalGraph
from tests.actors.spark.simulated import run_job

Build: TypeAlias = Callable[[KeyedStream, KeyedStream], DataStream]

LONG = pytest.mark.long("one kind of join shows it")

JOINS: dict[str, Build] = {
    "window": lambda one, two: one.window_join(two, ps.tumbling("5s"), how="full"),
    "sliding": lambda one, two: one.window_join(two, ps.sliding("6s", "2s")),
    "interval": lambda one, two: one.interval_join(two, "-3s", "1s"),
    "temporal": lambda one, two: one.temporal_join(two, how="left"),
    "groups": lambda one, two: one.co_group(two, ps.tumbling("5s"), both, returns={"k": "int64", "n": "int64"}),
}
IN_SESSIONS: dict[str, Build] = {
    "window": lambda one, two: one.window_join(two, ps.session("2s")),
    "groups": lambda one, two: one.co_group(two, ps.session("2s"), both, returns={"k": "int64", "n": "int64"}),
}


def both(key: int, window: Any, left: list[ps.Row], right: list[ps.Row]) -> list[ps.Row]:
    return [{"k": key, "n": len(left) - len(right)}]


class Last(ps.ProcessFunction):
    def process_element(self, row: ps.Row, ctx: ps.Context) -> None:
        pass


class Paired(ps.KeyedCoProcessFunction):
    def process_element1(self, row: ps.Row, ctx: ps.Context) -> None:
        pass

    def process_element2(self, row: ps.Row, ctx: ps.Context) -> None:
        pass


def joined(build: Build, behind: Callable[[DataStream], DataStream] = lambda rows: rows) -> PhysicalGraph:
    """A job that joins 300 rows with 300, out of order, and does something with the result."""
    env = StreamEnvironment(runtime="local", parallelism=1)

    def side(name: str, step: int) -> KeyedStream:
        rows = [{"k": number % 3, "at": number * step % 20_000, name: number} for number in range(300)]
        timed = env.from_collection(rows).assign_timestamps("at", WatermarkStrategy.for_bounded_out_of_orderness("1h"))
        return timed.key_by("k")

    behind(build(side("a", 7_001), side("b", 3_001))).collect()
    return env.program().physical()


def is_mixed(graph: PhysicalGraph) -> bool:
    (join,) = {exchange.downstream for task in graph.tasks for exchange in task.outputs if exchange.input_index == 1}
    assert join is not None
    return mixes_inputs(graph.task(join))


@pytest.mark.parametrize("name", JOINS)
def test_joins_read_one_input_after_the_other(name: str) -> None:
    assert not is_mixed(joined(JOINS[name]))
    assert not is_mixed(joined(JOINS[name], lambda rows: rows.map(lambda row: row).filter(lambda row: True)))


@pytest.mark.parametrize("name", JOINS)
def test_but_not_where_a_function_behind_them_sees_the_order(name: str) -> None:
    assert is_mixed(joined(JOINS[name], lambda rows: rows.process(Last(), returns={"k": "int64"})))


@pytest.mark.parametrize("name", IN_SESSIONS)
def test_nor_in_sessions_which_are_looked_for_from_the_latest_on(name: str) -> None:
    assert is_mixed(joined(IN_SESSIONS[name]))


def test_functions_of_two_inputs_see_the_order() -> None:
    assert is_mixed(joined(lambda one, two: one.connect(two).process(Paired(), returns={"k": "int64"})))


@pytest.mark.parametrize("name", ["groups", *(pytest.param(name, marks=LONG) for name in JOINS if name != "groups")])
def test_the_results_are_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def results() -> list[str]:
        batches = run_job(joined(JOINS[name]), EndOfTime())
        return sorted(str(row) for parts in batches.values() for part in parts for row in part.data.to_pylist())

    apart = results()
    monkeypatch.setattr("penstock.actors.spark.stage.mixes_inputs", lambda task: True)
    assert apart == results()
    assert apart
