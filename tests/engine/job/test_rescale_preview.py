"""What a rescale would do is told without doing it: live or not and why, slots, how busy tasks would be."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

import penstock as ps
from penstock.engine.autoscaler.evaluation import JobFigures, TaskFigures
from penstock.engine.autoscaler.readings import JobReading, SubtaskCounters, TaskReading, reading_of
from penstock.engine.errors import ConfigurationError, StateNotReadyError
from penstock.engine.graph.scale import ParallelismRequest, Scale
from penstock.engine.job.layout import A_LOOP, GraphPlanner
from penstock.engine.job.rescale_preview import RescalePreview, TaskPreview, preview, previews, range_of, requests_of
from tests.engine.job.shell import TwoTasks

SOURCE, SINK = 0.25, 0.9
"""How busy they are with two subtasks each."""


def figures(task: int, name: str, busy: float, divides: int = 0) -> TaskFigures:
    reading = TaskReading(task, name, (name,), (name,), (), (task,), 128, divides, (SubtaskCounters(),) * 2)
    return TaskFigures(reading, 900.0, busy, 0.0, 900.0 / busy, 900.0, 0.0, 0.0)


def previewed(wanted: ParallelismRequest, planner: TwoTasks | None = None, splits: int = 0) -> RescalePreview:
    planner = planner or TwoTasks()
    known = JobFigures((figures(1, "source", SOURCE, splits), figures(2, "sink", SINK)), 0.0)
    return preview(wanted, planner, planner.plan(Scale(), {}), known, 0.5)


def test_one_operator_goes_live_and_its_subtasks_share_its_work() -> None:
    told = previewed({"sink": 3})
    assert told == RescalePreview(
        "sink to 3", "live", "", (TaskPreview("source", 2, 2, 0.25), TaskPreview("sink", 2, 3, 0.6)), 3, 1.5
    )
    assert told.busiest == told.tasks[1]


def test_fewer_subtasks_than_keep_up_are_more_than_busy() -> None:
    assert previewed(1).busiest == TaskPreview("sink", 2, 1, 1.8)


def reading(at: float, attempt: int, planner: GraphPlanner) -> JobReading:
    graph = planner.graph(planner.plan(Scale(), {}))
    return reading_of(graph, (), at, round(at * 1000), attempt, None)


def test_a_program_is_planned_as_it_would_run() -> None:
    env = ps.StreamEnvironment(parallelism=2, slot_cpus=0.5)
    rows = env.from_source(ps.DataGenSource({"k": ps.RandomInt(0, 9)}, rows=None)).uid("numbers")
    rows.key_by("k").aggregate(n=ps.count()).uid("counts").print()
    planner = GraphPlanner(env.program("orders"))
    layout = planner.plan(Scale(), {})
    readings = (reading(1.0, 1, planner), reading(4.0, 1, planner))
    told = previews([{"counts": 4}, {"count": 3}], planner, layout, readings)
    assert [(one.outcome, one.slots, one.cpus) for one in told] == [("live", 4, 2.0), ("refused", 0, 0.0)]
    assert "did you mean 'counts'?" in told[1].reason
    for broken in ((None, readings[1]), (readings[0], reading(4.0, 2, planner))):
        with pytest.raises(StateNotReadyError, match="'orders' does not run now, or was restarted"):
            previews([3], planner, layout, broken)


def test_subtasks_without_a_split_do_nothing() -> None:
    assert previewed(8, splits=2).tasks[0] == TaskPreview("source", 2, 8, 0.25)


def test_what_runs_so_already_is_told() -> None:
    assert previewed(2).outcome == "nothing"


def test_a_job_that_would_restart_says_why() -> None:
    told = previewed(3, TwoTasks(has_loop=True))
    assert (told.outcome, told.reason) == ("restart", A_LOOP)


def test_what_would_be_refused_is_told_with_its_reason() -> None:
    class Refusing(TwoTasks):
        def scale_for(self, wanted: ParallelismRequest, running: Scale) -> Scale:
            raise ConfigurationError("a global operator has one subtask")

    assert previewed(3, Refusing()) == RescalePreview("to 3", "refused", "a global operator has one subtask")


@pytest.mark.parametrize("text", ["", "0", "2..", "..3", "4..2", "a", "1..x", "-1", "100000", "1.5"])
def test_a_range_is_two_numbers_in_order(text: str) -> None:
    assert range_of(text) is None


def test_each_number_of_a_range_is_a_request() -> None:
    wanted: list[Mapping[str, int]] = [{"a": 1}, {"a": 2}, {"b": 3}]
    assert requests_of(["a", "b"], [range(1, 3), range(3, 4)]) == wanted
