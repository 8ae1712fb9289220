"""The watermarks of all subtasks of a task, as its page draws them: which have a line, and what is kept."""

from __future__ import annotations

from dataclasses import replace
from statistics import median_low

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.elements import MAX_TIMESTAMP, MIN_TIMESTAMP
from penstock.engine.job.status import JobStatus
from penstock.engine.metrics import OperatorMetrics, SubtaskMetrics
from penstock.web import observed as observed_module
from penstock.web.cluster import Reading
from penstock.web.observed import Observed
from penstock.web.watermarks import MOST_LINES, watermarks_document
from tests.web.conftest import Serve
from tests.web.fakes import ORDERS, FakeCluster

MARK = st.one_of(st.sampled_from([MIN_TIMESTAMP, MAX_TIMESTAMP]), st.integers(0, 5))


def at(*marks: int, task: int = 2) -> list[SubtaskMetrics]:
    """The subtasks of a task, whose watermarks these are."""
    return [
        SubtaskMetrics(task, subtask, [("count", OperatorMetrics(watermark=mark))], busy_seconds=1.0)
        for subtask, mark in enumerate(marks)
    ]


def seen(*readings: list[SubtaskMetrics]) -> Observed:
    """Who has seen them, two seconds apart."""
    observed = Observed()
    for number, metrics in enumerate(readings):
        observed.see(ORDERS, metrics, 2.0 * number, 2_000 * number)
    return observed


@given(st.lists(st.lists(MARK, min_size=0, max_size=12), min_size=1, max_size=4))
def test_lines_and_what_all_are_between_are_those_of_a_loop_over_all(points: list[list[int]]) -> None:
    found = watermarks_document([(n, {1: np.array(marks, np.int64)}) for n, marks in enumerate(points)], 1)
    assert found["at_ms"] == [n for n, marks in enumerate(points) if marks]
    drawn = [marks for marks in points if marks]
    known = [[mark for mark in marks if MIN_TIMESTAMP < mark < MAX_TIMESTAMP] for marks in drawn]
    for name, pick in (("lowest", min), ("median", median_low), ("highest", max)):
        assert found[name] == [pick(marks) if marks else None for marks in known]
    width = max(map(len, drawn), default=0)
    lines = {one["subtask"]: one["watermark"] for one in found["subtasks"]}
    for subtask, line in lines.items():
        assert line == [
            marks[subtask] if subtask < len(marks) and marks[subtask] in among else None
            for marks, among in zip(drawn, known, strict=True)
        ]
    assert found["left_out"] == width - len(lines)
    if width <= MOST_LINES:
        assert list(lines) == list(range(width))
    else:
        ends = [line[-1] for line in lines.values()]
        assert sorted(known[-1])[:4] == sorted(mark for mark in ends if mark is not None)[:4]


def test_the_slowest_and_the_fastest_of_many_have_lines() -> None:
    marks = [1_000 + subtask for subtask in range(1_600)]
    marks[700], marks[900] = 7, 900_000
    observed = seen(at(*marks))
    found = watermarks_document(observed.watermarks("orders-1"), 2)
    assert [one["subtask"] for one in found["subtasks"]] == [0, 1, 2, 700, 900, 1599]
    assert (found["left_out"], found["lowest"], found["highest"]) == (1_594, [7], [900_000])


def test_a_task_that_was_rescaled_has_all_its_subtasks_and_another_task_none_of_them() -> None:
    observed = seen(at(5), [*at(6, 7, 8), *at(9, task=1)])
    found = watermarks_document(observed.watermarks("orders-1"), 2)
    assert [one["watermark"] for one in found["subtasks"]] == [[5, 6], [None, 7], [None, 8]]
    assert found["at_ms"] == [0, 2_000]
    assert watermarks_document(observed.watermarks("orders-1"), 3)["at_ms"] == []


def test_wide_jobs_have_fewer_points_over_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observed_module, "MARKS_KEPT", 60)
    observed = Observed()
    for number in range(1_000):
        observed.see(ORDERS, at(number, number, number, number, number, number), 2.0 * number, 2_000 * number)
    points = [at_ms for at_ms, _ in observed.watermarks("orders-1")]
    assert len(points) <= 10
    assert (points[-1] >= 1_900_000, points[-1] - points[0] >= 480_000) == (True, True)


def test_of_jobs_that_have_ended_only_the_last_keeps_its_own() -> None:
    observed = Observed()
    for job_id in ("a", "b"):
        for number in range(3):
            status = JobStatus.FINISHED if number == 2 else JobStatus.RUNNING
            observed.see(replace(ORDERS, id=job_id, status=status), at(number), 2.0 * number, 2_000 * number)
    assert (len(observed.watermarks("a")), len(observed.watermarks("b"))) == (0, 2)


def test_an_answer_is_as_small_for_a_wide_task_as_for_another(serve: Serve, cluster: FakeCluster) -> None:
    lengths = []
    for parallelism in (100, 1_600):
        cluster.readings = [Reading(ORDERS, at(*range(1_000_000, 1_000_000 + parallelism)))]
        answer = serve().get("/v1/jobs/orders-1/tasks/2/watermarks")
        assert answer.json()["left_out"] == parallelism - 6
        lengths.append(len(answer.content))
    assert lengths[1] <= 1.1 * lengths[0]
