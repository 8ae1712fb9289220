"""The sine benchmark: what follows a load and what it costs, what an outside reader notices, and its chart."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from perf.charts import main
from perf.following import Second, Seen, Work, costs, seconds_down, seconds_up
from perf.harness import BenchmarkError
from perf.sine import Look, compared, in_seconds, nodes_left

WORK = Work(rate=100, target=0.7, least=0.45, most=0.9)
SENT = {"sent": 4, "taken": 4}
EVENTS = [{"key": number % 2, "number": number, "due": 10_000 + 1000 * number} for number in range(4)]
WINDOWS = [{"key": 0, "start": 10_000, "numbers": [0, 2]}, {"key": 1, "start": 10_000, "numbers": [1, 3]}]


def seconds(loads: list[float], parallelisms: list[int]) -> list[Second]:
    pairs = enumerate(zip(loads, parallelisms, strict=True))
    return [Second(at=at, load=load, **seen(subtasks)) for at, (load, subtasks) in pairs]


def seen(subtasks: int) -> dict[str, Any]:
    """Each subtask has a node of its own."""
    return asdict(
        Seen(parallelism=subtasks, slot_cpus=subtasks, nodes=subtasks, node_cpus=2 * subtasks, waiting=0, behind=None)
    )


def test_a_job_is_as_far_behind_as_the_load_that_it_would_be_right_for() -> None:
    up = seconds([50.0] * 5 + [250.0] * 10, [1] * 12 + [3] * 3)
    assert (seconds_up(up, WORK), seconds_down(up, WORK)) == (7, 0)
    down = seconds([250.0] * 5 + [50.0] * 10, [3] * 9 + [1] * 6)
    assert (seconds_up(down, WORK), seconds_down(down, WORK)) == (0, 4)


def test_within_the_bounds_nothing_is_behind() -> None:
    # 2 subtasks are busy at 0.5; 0.7 would take more than one.
    still = seconds([100.0] * 20, [2] * 20)
    assert (seconds_up(still, WORK), seconds_down(still, WORK)) == (0, 0)


def test_the_ideal_is_the_fewest_whole_subtasks_that_are_no_busier_than_the_target() -> None:
    assert [WORK.ideal(load) for load in (0, 70, 71, 400)] == [1, 1, 2, 6]
    paid = costs(seconds([70.0] * 3600, [2] * 3600), WORK)
    assert (paid["ideal_cpu_hours"], paid["slots_to_ideal"], paid["nodes_to_ideal"]) == (1.0, 2.0, 4.0)


def test_each_event_is_in_its_window_once_and_in_order() -> None:
    assert compared(EVENTS, WINDOWS, SENT) == {"events": 4, "windows": 2, "lost": 0, "repeated": 0}


@pytest.mark.parametrize(
    ("windows", "problem"),
    [
        (WINDOWS[:1], "2 are in no window"),
        ([*WINDOWS, WINDOWS[0]], "1 windows or events came twice"),
        ([WINDOWS[0], {**WINDOWS[1], "numbers": [3, 1]}], "1 of 2 windows have others, or another order"),
        ([WINDOWS[0], {**WINDOWS[1], "numbers": [1, 1, 3]}], "1 windows or events came twice"),
        ([WINDOWS[0], {**WINDOWS[1], "start": 15_000}], "1 of 2 windows have others"),
    ],
)
def test_what_is_lost_repeated_or_out_of_order_is_noticed(windows: list[dict[str, Any]], problem: str) -> None:
    with pytest.raises(BenchmarkError, match=problem):
        compared(EVENTS, windows, SENT)


def test_events_that_never_came_to_kafka_are_noticed() -> None:
    with pytest.raises(BenchmarkError, match="3 events are in Kafka"):
        compared(EVENTS[:3], WINDOWS, SENT)


def test_seconds_begin_with_the_first_event_and_a_look_stands_for_those_behind_it() -> None:
    looks = [Look(at_ms=900, **seen(1)), Look(at_ms=3100, **seen(2))]
    found = in_seconds(looks, [1000 + 100 * number for number in range(40)], 4)
    assert [one.parallelism for one in found] == [1, 1, 1, 2]
    assert [one.load for one in found] == [10.0] * 4


def test_nodes_that_have_left_are_counted_though_others_came() -> None:
    assert nodes_left([1, 2, 3, 2, 3, 1]) == 3


def test_the_chart_shows_a_run(tmp_path: Path) -> None:
    ran = seconds([50.0, 250.0, 400.0], [1, 3, 6])
    line = {"name": "sine", "variant": "period 300 s", "work": asdict(WORK), "seconds": [asdict(one) for one in ran]}
    (tmp_path / "sine.json").write_text(json.dumps({"results": [line]}))
    assert main([str(tmp_path / "sine.json"), "--to", str(tmp_path)]) == 0
    drawn = (tmp_path / "sine.svg").read_text()
    assert all(f">{name}<" in drawn for name in ("load", "parallelism", "ideal", "lag of event time", "of nodes"))
