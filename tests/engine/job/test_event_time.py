"""Who waits for event time, for whom and since when: told where windows cannot fire, and nowhere else."""

from __future__ import annotations

import penstock as ps
from penstock.engine.elements import MIN_TIMESTAMP
from penstock.engine.graph.physical import PhysicalGraph
from penstock.engine.job.event_time import FIRST_MS, LATER_MS, EventTimeWatch, has_event_time
from penstock.engine.metrics import GateStatistics, OperatorMetrics, SubtaskMetrics

Counts = dict[str, tuple[int, int, int, int]]
"""Of operators, by the beginning of their name: rows in and out, watermark in and out."""
NONE = MIN_TIMESTAMP


def graph(parallelism: int = 1) -> PhysicalGraph:
    env = ps.StreamEnvironment(runtime="local", parallelism=parallelism)
    clicks = env.from_source(
        ps.DataGenSource({"user": ps.RandomInt(0, 9), "at": ps.EventTime()}),
        name="clicks",
        watermarks=ps.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner("at"),
    )
    counted = clicks.key_by("user").window(ps.tumbling("1s")).aggregate(n=ps.count()).name("windows")
    counted.filter(ps.col("n") > 3).collect()
    return env.program("clicks per second").physical()


def metrics(of: PhysicalGraph, *subtasks: Counts) -> list[SubtaskMetrics]:
    """The counters of each subtask."""
    found = []
    for task in of.tasks:
        for subtask in range(task.parallelism):
            counts = subtasks[subtask]
            operators = []
            for name in task.operator_names:
                rows_in, rows_out, before, behind = next(
                    (counts[key] for key in counts if name.startswith(key)), (0, 0, NONE, NONE)
                )
                operators.append((name, OperatorMetrics(rows_in, rows_out, 0, behind, before)))
            found.append(SubtaskMetrics(task.id, subtask, operators))
    return found


def test_windows_that_never_fire_say_for_whom_they_wait_and_since_when() -> None:
    of, watch = graph(), EventTimeWatch(1_000)
    stuck = metrics(of, {"clicks": (0, 20_000, NONE, NONE), "windows": (20_000, 0, NONE, NONE)})
    assert watch.look(of, stuck, 1_000 + FIRST_MS - 1) == ()
    (wait,) = watch.look(of, stuck, 1_000 + FIRST_MS)
    assert (wait.operator, wait.holder, wait.rows, wait.since_ms) == ("windows", "clicks", 20_000, 1_000)
    assert wait.text(31_000) == (
        "operator 'windows', subtask 0: no watermark has come for 30 s, and 20000 rows have: windows and timers of "
        "event time wait for 'clicks', subtask 0, which has given 20000 rows; does its strategy make watermarks, and "
        "does a split of it (a partition without rows) hold them back? "
        ".with_idleness('30s'), in SQL SET 'table.exec.source.idle-timeout' = '30 s', lets quiet splits not count"
    )
    assert watch.news([wait]) == [wait]
    assert watch.news(list(watch.look(of, stuck, 90_000))) == []


def test_the_subtask_with_the_empty_partition_is_named() -> None:
    of, watch = graph(2), EventTimeWatch(0)
    full: Counts = {"clicks": (0, 5_000, NONE, 700), "windows": (2_500, 0, NONE, NONE)}
    empty: Counts = {"clicks": (0, 0, NONE, NONE), "windows": (2_500, 0, NONE, NONE)}
    (wait,) = watch.look(of, metrics(of, full, empty), FIRST_MS)
    assert (wait.holder, wait.holder_subtask, wait.holder_rows) == ("clicks", 1, 0)
    assert "which has given no row yet" in wait.text(FIRST_MS)


def test_the_partitions_that_hold_event_time_back_are_named() -> None:
    of, watch = graph(), EventTimeWatch(0)
    stuck = metrics(of, {"clicks": (0, 5, NONE, NONE), "windows": (5, 0, NONE, NONE)})
    texts = []
    for splits in [("clicks-1",), ("clicks-1", "clicks-4"), tuple(f"clicks-{n}" for n in range(9))]:
        stuck[0].gate = GateStatistics(splits=9, slowest=splits)
        (wait,) = watch.look(of, stuck, FIRST_MS)
        texts.append(wait.text(FIRST_MS).partition("has given 5 rows, and ")[2].partition(";")[0])
    assert texts == [
        "whose split 'clicks-1' is furthest behind",
        "whose splits 'clicks-1', 'clicks-4' are furthest behind",
        "whose splits 'clicks-0', 'clicks-1', 'clicks-2' and 6 more are furthest behind",
    ]


def test_event_time_that_stops_while_rows_come_is_told_later_and_one_without_rows_never() -> None:
    of, watch = graph(), EventTimeWatch(0)

    def at(watermark: int, rows: int, now_ms: int) -> int:
        counts: Counts = {"clicks": (0, rows, NONE, watermark), "windows": (rows, 5, watermark, watermark)}
        return len(watch.look(of, metrics(of, counts), now_ms))

    assert at(700, 100, 10_000) == 0
    assert at(700, 100, 10_000 + LATER_MS) == 0
    assert at(700, 101, 10_000 + LATER_MS) == 1
    assert at(900, 102, 10_000 + LATER_MS) == 0
    assert at(900, 103, 10_000 + LATER_MS + 10) == 0


def test_a_job_that_was_restarted_is_given_as_much_time_as_at_first() -> None:
    of, watch = graph(), EventTimeWatch(0)
    stuck = metrics(of, {"clicks": (0, 5, NONE, NONE), "windows": (5, 0, NONE, NONE)})
    assert len(watch.look(of, stuck, FIRST_MS)) == 1
    watch.begin(90_000)
    assert watch.look(of, stuck, 90_000 + FIRST_MS - 1) == ()
    watch.begin(90_000)
    (wait,) = watch.look(of, stuck, 90_000 + FIRST_MS)
    assert wait.since_ms == 90_000
    stood = metrics(of, {"clicks": (0, 9, NONE, 700), "windows": (9, 0, 700, 700)})
    assert watch.look(of, stood, 200_000) == ()
    watch.begin(250_000)
    later = metrics(of, {"clicks": (0, 10, NONE, 700), "windows": (10, 0, 700, 700)})
    assert watch.look(of, later, 200_000 + LATER_MS) == ()


def test_a_program_without_event_time_is_not_watched() -> None:
    env = ps.StreamEnvironment(runtime="local", parallelism=1)
    env.from_collection([{"k": 1}]).key_by("k").aggregate(n=ps.count()).collect()
    assert not has_event_time(env.program("counts").physical())
    assert has_event_time(graph())
