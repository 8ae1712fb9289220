"""What the autoscaler sees of a real job, and what its settings refuse."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import penstock as ps
from penstock.engine.autoscaler.evaluation import evaluate
from penstock.engine.autoscaler.readings import JobReading, SubtaskCounters, reading_of
from penstock.engine.autoscaler_config import AutoscalerConfig
from penstock.engine.errors import ConfigurationError
from penstock.engine.graph.physical import PhysicalGraph
from penstock.engine.metrics import OperatorMetrics, SubtaskMetrics
from tests.engine.helpers import RecordingSink, local_environment


def same(row: dict[str, Any]) -> dict[str, Any]:
    return row


def graph() -> PhysicalGraph:
    env = local_environment(2, max_parallelism=32)
    rows = env.from_collection([("a", 1)], schema=["k", "n"]).name("orders").uid("o").map(same).name("clean").uid("c")
    rows.key_by("k").aggregate(n=ps.count()).name("count").uid("n").disable_chaining().sink_to(RecordingSink()).uid("s")
    rows.global_().map(same).name("all").uid("a").set_parallelism(1).print()
    return env.program("orders").physical()


def source(rows: int, pending: float) -> SubtaskMetrics:
    counters = OperatorMetrics(rows_out=rows)
    counters.gauge("pending_records").set(pending)
    return SubtaskMetrics(1, 0, [("orders", counters)], 1.0, 2.0, 3.0)


def reading() -> JobReading:
    count = [("count", OperatorMetrics(rows_in=7, rows_out=3))]
    metrics = [source(10, 500.0), SubtaskMetrics(3, 1, count, 0.5)]
    return reading_of(graph(), metrics, 5.0, 5000, 2, 1.5)


def test_a_source_has_what_it_has_read_and_what_waits() -> None:
    first = reading().tasks[0]
    assert (first.name, first.uids, first.inputs, first.most) == ("orders", ("o",), (), 1)
    assert first.subtasks == (SubtaskCounters(10, 10, 1.0, 2.0, 3.0),)
    assert first.pending == 500.0


def test_a_backlog_that_was_not_known_before_has_not_grown_since() -> None:
    config, now = AutoscalerConfig(), reading()
    later = replace(now, at=now.at + 10)
    unknown = replace(now, tasks=(replace(now.tasks[0], pending=None), *now.tasks[1:]))
    assert evaluate(unknown, later, config).tasks[0].target_rate == 0.0
    nothing = replace(now, tasks=(replace(now.tasks[0], pending=0.0), *now.tasks[1:]))
    assert evaluate(nothing, later, config).tasks[0].target_rate == 50.0


def test_a_source_that_is_held_up_all_the_time_is_behind_though_it_reads_nothing() -> None:
    config, now = AutoscalerConfig(), reading()
    (first, *others), spent = now.tasks, now.tasks[0].subtasks[0]

    def lag(**more: float) -> float:
        later = replace(first, subtasks=(replace(spent, **more),))
        return evaluate(now, replace(now, at=now.at + 10, tasks=(later, *others)), config).lag_seconds

    assert lag(rows_in=spent.rows_in + 50, idle=spent.idle + 10) == 100.0
    assert lag(blocked=spent.blocked + 10) == 5000.0
    # Some count what is no row, such as Kafka's marks of transactions, when all is read.
    assert lag(idle=spent.idle + 10) == 0.0


def test_tasks_have_their_inputs_their_ties_and_what_they_can_have() -> None:
    tasks = {task.name: task for task in reading().tasks}
    clean, count = tasks["clean"], tasks["count"]
    assert count.inputs == (clean.id,)
    assert (count.most, count.divides, clean.divides) == (32, 32, 0)
    assert count.subtasks[1] == SubtaskCounters(7, 3, 0.5)
    sink = next(task for task in tasks.values() if task.uids == ("s",))
    assert count.tied == sink.tied == (count.id, sink.id)
    single = next(task for task in tasks.values() if "a" in task.uids)
    assert single.most == 1


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"utilization_min": 0.8}, "utilization_min"),
        ({"utilization_target": 1.5}, "utilization_target must be over 0 and at most 1"),
        ({"metrics_window_ms": 0}, "metrics_window_ms must be a duration from 1000 ms"),
        ({"min_parallelism": 5, "max_parallelism": 4}, "min_parallelism 5|is over max_parallelism"),
        ({"quota_cpu": 0.0}, "quota_cpu must be over 0"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        AutoscalerConfig(**settings)
