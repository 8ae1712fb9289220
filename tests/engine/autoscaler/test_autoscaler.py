"""What the autoscaler does to simulated jobs: it follows the load, and falls into none of the known traps."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from penstock.engine.autoscaler.autoscaler import Autoscaler
from penstock.engine.autoscaler.report import AutoscalerInfo
from penstock.engine.autoscaler_config import AutoscalerConfig
from penstock.engine.periods import parse_period
from tests.engine.autoscaler.workload import HOUR, Stage, Workload


def job(load: Callable[[float], float], room: Callable[[float], int] = lambda at: 1000, **settings: Any) -> Workload:
    """A source that is fast, a window that takes 1,000 rows a second and subtask, and a sink that takes 5,000."""
    stages = [Stage("source", 50_000), Stage("window", 1000, ratio=0.5), Stage("sink", 5000)]
    return Workload(stages, load, AutoscalerConfig(enabled=True, **settings), room=room)


def steady(rate: float) -> Callable[[float], float]:
    return lambda at: rate


def info(workload: Workload) -> AutoscalerInfo:
    return workload.autoscaler.report()


# What it is for


def test_a_task_that_is_too_slow_gets_what_it_needs_at_once_and_says_why() -> None:
    workload = job(steady(3500)).run(600)
    assert workload.parallelisms == [1, 6, 1]
    first = info(workload).history[0]
    assert first.outcome == "rescaled"
    assert first.reasons[0].startswith("window: 1.00 busy at 1 k/s, target 1 -> ")
    assert first.seconds == 2.0
    assert workload.lag == 0


def test_tasks_behind_get_what_will_come_once_the_ones_before_are_faster() -> None:
    workload = job(steady(30_000)).run(600)
    assert len(workload.rescales[0][1]) == 2, "window and sink in one go"
    assert workload.parallelisms[2] >= 4
    assert workload.lag == 0


def test_subtasks_are_given_back_when_they_have_not_been_needed_for_the_interval() -> None:
    workload = job(lambda at: 3500.0 if at < 900 else 600.0).run(900)
    busy = workload.parallelisms
    workload.run(240)
    assert workload.parallelisms == busy, "not before the interval is over"
    assert "waits for the scale-down interval" in info(workload).tasks[1].reason
    workload.longest_lag = 0.0
    workload.run(900)
    assert workload.parallelisms == [1, 1, 1]
    assert workload.longest_lag < 10


def test_within_its_bounds_a_job_is_left_alone() -> None:
    workload = job(steady(1000))
    workload.stages[1].parallelism = 2
    workload._restart()
    workload.run(HOUR)
    assert workload.rescales == []
    assert info(workload).state == "nothing to change"


def test_nothing_is_decided_before_a_whole_window_of_a_steady_job() -> None:
    workload = job(steady(3500)).run(85)
    assert workload.rescales == []
    assert info(workload).state == "watching: 50 of 60 s"
    workload.run(10)
    assert len(workload.rescales) == 1


def test_a_source_that_does_not_tell_its_lag_is_followed_step_by_step() -> None:
    stages = [Stage("source", 50_000), Stage("window", 1000)]
    workload = Workload(stages, steady(3500), AutoscalerConfig(enabled=True), tells_lag=False).run(1800)
    assert workload.stages[1].parallelism >= 4
    assert workload.lag == 0


# The known traps


def test_a_day_of_noisy_load_takes_few_rescales() -> None:
    """FLINK-36018: more than twenty a day."""
    noise = random.Random(3)
    stages = [Stage("source", 50_000), Stage("window", 1000)]
    load = lambda at: (3000 + 2500 * math.sin(at / 24 / HOUR * 2 * math.pi)) * noise.uniform(0.9, 1.1)  # noqa: E731
    workload = Workload(stages, load, AutoscalerConfig(enabled=True), step=20.0).run(HOUR)
    workload.longest_lag = 0.0
    workload.run(23 * HOUR)
    assert 2 <= len(workload.rescales) <= 20, workload.rescales
    assert workload.longest_lag < 30


def test_a_job_that_catches_up_is_not_given_less() -> None:
    """FLINK-31318: with a backlog, a scale-down made it longer, and the next one too."""
    workload = job(steady(100), scale_down_interval_ms=0)
    workload.stages[1].parallelism = 8
    workload._restart()
    workload.lag = 2_500_000.0
    while workload.lag > 600_000:
        workload.run(5)
        assert workload.rescales == []
    workload.run(HOUR)
    assert workload.lag == 0
    assert workload.stages[1].parallelism <= 2, "it is given back behind the backlog"


def test_busy_time_that_overestimates_is_not_believed_of_a_source_with_a_backlog() -> None:
    """FLINK-33306: a source that looks half idle and reads as fast as it can."""
    stages = [Stage("source", 1000, seen=0.4), Stage("sink", 50_000)]
    workload = Workload(stages, steady(3000), AutoscalerConfig(enabled=True)).run(HOUR)
    assert workload.lag == 0
    assert [to for _, to in workload.rescales] == [{"source": 5}], "behind the backlog, it is known how fast it was"


def test_a_task_that_holds_a_source_up_gets_more_subtasks_together_with_it_though_it_looks_idle() -> None:
    """Its busy time tells a third of its work: the source was given more, then more again, and it only then."""
    stages = [Stage("source", 1500), Stage("window", 1000, seen=0.3), Stage("sink", 5000)]
    workload = Workload(stages, steady(3000), AutoscalerConfig(enabled=True)).run(HOUR)
    first = workload.rescales[0][1]
    assert first["source"] >= 3
    assert first["window"] >= 4
    assert workload.lag == 0
    assert len(workload.rescales) == 1


def test_the_busiest_subtask_counts_and_not_the_mean() -> None:
    """FLINK-30652: an average hides that one subtask can take no more."""
    stages = [Stage("source", 50_000), Stage("window", 1000, parallelism=4, hot=0.12)]
    workload = Workload(stages, steady(2800), AutoscalerConfig(enabled=True)).run(1800)
    assert workload.stages[1].parallelism > 4
    assert workload.lag == 0


def test_a_hot_key_is_said_and_not_scaled_away() -> None:
    stages = [Stage("source", 50_000), Stage("window", 1000, parallelism=4, hot=0.8)]
    workload = Workload(stages, steady(1500), AutoscalerConfig(enabled=True)).run(2 * HOUR)
    assert workload.stages[1].parallelism <= 4
    assert len(workload.rescales) <= 1
    assert "skewed: its fullest subtask gets" in info(workload).tasks[1].reason


def test_what_more_subtasks_do_not_make_faster_is_left_alone() -> None:
    stages = [Stage("source", 50_000), Stage("lookup", 1000, parallelism=2, most=2)]
    workload = Workload(stages, steady(5000), AutoscalerConfig(enabled=True)).run(2 * HOUR)
    assert len(workload.rescales) == 1
    assert info(workload).tasks[0].reason.endswith("what follows it cannot take more")
    assert "subtasks made it no faster" in info(workload).tasks[1].reason


def test_a_sine_is_followed_with_bounded_lag_and_few_rescales() -> None:
    """The load of the acceptance: five minutes a period, one to eight."""
    workload = job(lambda at: 4500 - 3500 * math.cos(at / 300 * 2 * math.pi)).run(HOUR)
    late = len([at for at, _ in workload.rescales if at > 600])
    assert late <= 2, workload.rescales
    workload.longest_lag = 0.0
    workload.run(HOUR)
    assert workload.longest_lag < 10


# Settings


def test_a_load_that_falls_is_followed_one_interval_behind_all_the_way_down() -> None:
    period = 300.0

    def load(at: float) -> float:
        return 2250 - 1750 * math.cos(2 * math.pi * at / period)

    settings = AutoscalerConfig(
        enabled=True,
        interval_ms=2000,
        metrics_window_ms=10_000,
        stabilization_ms=5000,
        scale_down_interval_ms=60_000,
        catch_up_duration_ms=60_000,
    )
    workload = Workload([Stage("source", 50_000), Stage("window", 1000)], load, settings, step=2.0, rescale_seconds=4.0)
    reserved = []
    while workload.now < 5 * period:
        workload.run(1)
        reserved.append((workload.now, workload.parallelisms[1]))
    for at, parallelism in reserved:
        recent = max(load(max(0.0, at - seconds)) for seconds in range(60))
        assert parallelism <= max(1, math.ceil(recent / 1000 / 0.7), recent / 1000 / 0.44), at
    assert workload.longest_lag < 5


def test_a_dry_run_says_what_it_would_do_and_does_not() -> None:
    workload = job(steady(3500), scaling_enabled=False).run(600)
    assert workload.rescales == []
    assert info(workload).is_dry_run
    assert info(workload).history[-1].outcome == "dry-run"
    assert dict(info(workload).history[-1].wanted)["window"] > 1


def test_nothing_is_changed_in_an_excluded_period() -> None:
    workload = job(steady(3500), excluded_periods=(parse_period("0:00-1:00"),)).run(HOUR - 5)
    assert workload.rescales == []
    (held,) = info(workload).history
    assert (held.outcome, held.message) == ("held-back", "it is the excluded period 0:00-1:00")
    workload.run(60)
    assert workload.rescales


def test_what_the_quota_of_cpus_allows_is_taken_and_the_rest_is_said() -> None:
    workload = job(steady(3500), quota_cpu=3).run(600)
    assert workload.parallelisms == [1, 3, 1]
    assert len(workload.rescales) == 1
    (first,) = info(workload).history
    assert first.reasons[0].endswith(", target 1 -> 3 (6 over the quota of 3 CPUs)")
    assert info(workload).tasks[1].reason.endswith("over the quota of 3 CPUs)")


def test_bounds_of_the_parallelism_are_kept() -> None:
    workload = job(steady(30_000), max_parallelism=3).run(600)
    assert workload.parallelisms[1:] == [3, 3]


def test_an_excluded_task_is_left_alone() -> None:
    workload = job(steady(3500), excluded=("window",)).run(600)
    assert workload.rescales == []
    assert info(workload).tasks[1].reason.endswith("excluded")


def test_what_there_is_room_for_is_taken_and_the_rest_once_there_is_more() -> None:
    """On a cluster with eight slots, a job that wanted ten stayed at one."""
    workload = job(steady(7500), room=lambda at: 8 if at < HOUR else 12).run(110)
    assert workload.parallelisms[1] == 8
    refused, taken = info(workload).history
    assert (refused.outcome, refused.message) == ("refused", "there is room for 8 slots")
    assert taken.outcome == "rescaled"
    assert taken.reasons[0].endswith("target 1 -> 8 (13 once there is room for so many slots)")
    workload.run(HOUR - 110)
    assert len(workload.rescales) == 1, "less is not asked for again"
    assert len(workload.refused) > 10, "whoever adds nodes hears of what is missing"
    workload.run(300)
    assert workload.parallelisms[1] >= 10


def test_where_there_is_no_room_for_more_a_job_stays_as_it_is_and_asks_again() -> None:
    workload = job(steady(3500), room=lambda at: 1 if at < 600 else 8).run(600)
    assert (workload.rescales, len(workload.refused)) == ([], 6)
    workload.run(200)
    assert workload.parallelisms[1] >= 5


def test_a_refusal_is_kept_and_the_job_is_asked_again_later() -> None:
    workload = job(steady(3500))
    autoscaler, asked = workload.autoscaler, 0
    while asked < 2:
        workload._flow()
        if autoscaler.observe(workload.reading()) is not None:
            asked += 1
            assert autoscaler.observe(workload.reading()) is None, "one at a time"
            autoscaler.on_refused("there is no room")
    assert [(one.outcome, one.message) for one in autoscaler.report().history] == [("refused", "there is no room")] * 2
    assert workload.now > 180


def asked_of_ties(autoscaler: Autoscaler, looks: int = 100, **of_sink: Any) -> Mapping[str, int] | None:
    """What is asked for first of a job whose window and sink are tied by forward."""
    workload = job(steady(3500))
    for _ in range(looks):
        workload._flow()
        reading = workload.reading()
        source, window, sink = (replace(task, tied=(2, 3)) if task.id > 1 else task for task in reading.tasks)
        tasks = (source, window, replace(sink, **of_sink))
        if (wanted := autoscaler.observe(replace(reading, tasks=tasks))) is not None:
            return wanted
    return None


def test_tasks_tied_by_forward_get_the_highest_of_what_they_need() -> None:
    autoscaler = Autoscaler(AutoscalerConfig(enabled=True))
    wanted = asked_of_ties(autoscaler)
    assert wanted is not None
    assert wanted["window"] == wanted["sink"] > 3
    assert "tied to others by forward" in autoscaler.report().tasks[2].reason


def test_tasks_tied_by_forward_get_no_more_than_all_of_them_can_have() -> None:
    wanted = asked_of_ties(Autoscaler(AutoscalerConfig(enabled=True)), most=3)
    assert wanted is not None
    assert wanted["window"] == wanted["sink"] == 3
    assert asked_of_ties(Autoscaler(AutoscalerConfig(enabled=True)), most=1) is None


def test_tasks_tied_by_forward_to_an_excluded_one_are_left_alone() -> None:
    autoscaler = Autoscaler(AutoscalerConfig(enabled=True, excluded=("sink",)))
    assert asked_of_ties(autoscaler) is None
    assert [task.wanted for task in autoscaler.report().tasks] == [1, 1, 1]
