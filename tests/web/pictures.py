"""Takes the pictures of docs/console.md in a real browser: `python -m tests.web.pictures`, when the pages have changed.

The pages are those that are served; the job is made up, so that each time the same is seen.
"""

from __future__ import annotations

import io
import math
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock import ValueStateDescriptor, savepoints
from penstock.actors.stacks import SampledStack
from penstock.actors.task_log import LogLine
from penstock.engine.elements import LatencyMarker, SnapshotKind
from penstock.engine.job.info import (
    CheckpointInfo,
    CheckpointsInfo,
    InputInfo,
    JobInfo,
    OperatorInfo,
    RestartInfo,
    SubtaskInfo,
    TaskInfo,
)
from penstock.engine.job.status import JobStatus
from penstock.engine.metrics import OperatorMetrics, OutputStatistics, SubtaskMetrics
from penstock.web.cluster import Reading
from tests.web.fakes import FakeCluster
from tests.web.serving import Server

FOLDER = Path(__file__).parents[2] / "docs" / "images"
_SECONDS = 20
_JOB = "fraud-detection-b9946f79"
_STACKS = [
    (("task-loop", "step", "process (chain.py:88)", "process_element (fraud.py:41)", "score (fraud.py:57)"), 62),
    (("task-loop", "step", "process (chain.py:88)", "process_element (fraud.py:41)", "distance (fraud.py:73)"), 21),
    (("task-loop", "step", "process (chain.py:88)", "process_element (fraud.py:44)", "update (value_state.py:60)"), 9),
    (("task-loop", "step", "flush (router.py:131)"), 5),
    (("task-loop", "wait (running_task.py:310)"), 3),
]


def _subtasks(first_pid: int) -> tuple[SubtaskInfo, ...]:
    return tuple(SubtaskInfo(subtask, 2, first_pid + subtask, JobStatus.RUNNING) for subtask in range(2))


def _history(now_ms: int) -> Iterator[CheckpointInfo]:
    for back in range(6, 0, -1):
        number = 48 - back
        kind = SnapshotKind.SAVEPOINT if back == 3 else SnapshotKind.CHECKPOINT
        folder = f"s3://fraud/savepoints/savepoint-{_JOB}-{number:08d}-5f0c9a31b2e4"
        url = folder if back == 3 else f"s3://fraud/checkpoints/{_JOB}/chk-{number:08d}"
        written = 41_200_000 if back == 3 else 1_900_000 + 30_000 * back
        took = 180.0 + 11 * back + (410 if back == 3 else 0)
        yield CheckpointInfo(
            number, kind, "completed", 2, now_ms - back * 10_000, took, 6, 6, 41_200_000, written, url=url
        )


def info(now_ms: int) -> JobInfo:
    """The job."""
    history = tuple(_history(now_ms))
    source = (OperatorInfo("payments", "payments"), OperatorInfo("parse", "parse"))
    checkpoints = CheckpointsInfo(
        47, 0, 0, 47, history[-1].url, history[3].url, None, 191.0, 41_200_000, 1_930_000, history
    )
    return JobInfo(
        _JOB,
        "fraud detection",
        JobStatus.RUNNING,
        since_ms=now_ms - 480_000,
        started_ms=now_ms - 492_000,
        attempt=2,
        manager_pid=11_500,
        parallelism=2,
        max_parallelism=128,
        tasks=(
            TaskInfo(1, "payments -> parse", 2, source, (), _subtasks(11_610)),
            TaskInfo(
                2, "score", 2, (OperatorInfo("score", "score"),), (InputInfo(1, "hash(user)"),), _subtasks(11_627)
            ),
            TaskInfo(
                3,
                "totals -> alerts",
                2,
                (OperatorInfo("totals", "totals"), OperatorInfo("alerts", "alerts")),
                (InputInfo(2, "hash(user)"),),
                _subtasks(11_640),
            ),
        ),
        restarts=1,
        restart_history=(
            RestartInfo("failure", "the process of 'score', subtask 1, died", now_ms - 481_000, None, 6, 2, 1, 640.0),
        ),
        checkpoints=checkpoints,
        settings=(("checkpoints.interval_ms", "10000"), ("checkpoints.mode", "aligned"), ("state_backend", "heap")),
    )


def _metrics(
    task: int, subtask: int, names: Sequence[str], rows: float, shares: tuple[float, float, float], at_ms: int, s: float
) -> SubtaskMetrics:
    counted = int(rows)
    behind = at_ms - 1_400 - 300 * task
    operators = [(name, OperatorMetrics(counted, counted, 0, behind, behind + 200)) for name in names]
    for _, counters in operators[task == 1 :]:
        for age in (3, 4, 5, 9, 31):
            counters.note_latency(LatencyMarker("payments", 0), age * task)
    output = OutputStatistics(channels=2, bytes=9_200 + 13_600 * (subtask == 0), bytes_sent=counted * 24)
    busy, blocked, idle = (share * s for share in shares)
    return SubtaskMetrics(task, subtask, operators, busy, blocked, idle, 21.0 + 42 * (subtask == 0), 1.0, output=output)


def reading(s: float, now_ms: int) -> Reading:
    """The job after so many seconds."""
    wave = 15_000 * s + 24_000 * (1 - math.cos(s / 4))
    read = []
    for subtask in range(2):
        even = 1.01 - 0.02 * subtask
        read += [
            _metrics(1, subtask, ["payments", "parse"], wave * even, (0.31, 0.36, 0.33), now_ms, s),
            _metrics(2, subtask, ["score"], wave * even, (0.9 - 0.04 * subtask, 0.0, 0.1), now_ms, s),
            _metrics(3, subtask, ["totals", "alerts"], wave * even, (0.04, 0.0, 0.96), now_ms, s),
        ]
    for one in read:
        if one.task == 2:
            group = one.operators[0][1].group
            one.operators[0][1].count_keys("total", _metrics, lambda _: 20)
            group.counter("suspicious").inc(int(wave / 97))
            group.histogram("amounts").update_many([float(amount) for amount in range(12, 9_990, 7)])
    return Reading(info(now_ms), read)


def made_up(folder: Path) -> FakeCluster:
    """The cluster of the pictures."""
    cluster, begun = FakeCluster(), time.time_ns() // 1_000_000

    def read() -> Sequence[Reading]:
        now_ms = time.time_ns() // 1_000_000
        return [reading(60 + (now_ms - begun) / 1000, now_ms)]

    cluster.read = read  # type: ignore[method-assign]
    cluster.stacks = lambda *_: [SampledStack(stack, seen, seen) for stack, seen in _STACKS]  # type: ignore[method-assign]
    cluster.logs = lambda *_: [  # type: ignore[method-assign]
        LogLine(number, begun + 900 * number, level, "fraud", text, 2, number % 2, 2, "score")
        for number, (level, text) in enumerate(
            [("INFO", "model 2026-11 loaded"), ("WARNING", "user 77: no home country"), ("INFO", "user 12 blocked")]
        )
    ]
    totals = pa.table({"user": [f"user {n}" for n in range(40)], "value": pa.array(range(100, 140), pa.int64())})
    made = savepoints.bootstrap(folder / "s").keyed_state(
        "score", keys=["user"], state=ValueStateDescriptor("total", "int64"), data=totals
    )
    cluster.checkpoint_urls = [made.write().path]
    return cluster


def take(page: Any, url: str) -> Iterator[tuple[str, Any]]:
    """Lead the page from picture to picture: the name of each, with the page as it is to be seen."""
    job = f"{url}#/jobs/{_JOB}/"
    page.goto(f"{job}/2")
    page.get_by_role("button", name="score, parallelism 2").wait_for()
    page.get_by_text("amounts").wait_for()
    yield "console-graph", page
    page.get_by_role("button", name="Flame graph 0").click()
    page.get_by_role("button", name="score (fraud.py:57)").scroll_into_view_if_needed()
    yield "console-flame", page
    page.goto(f"{job}checkpoints")
    page.get_by_text("The last ones").wait_for()
    yield "console-checkpoints", page
    page.goto(f"{job}state")
    page.get_by_role("button", name="Look total").click()
    page.get_by_label("As of").select_option("checkpoint")
    page.get_by_role("cell", name="user 7", exact=True).wait_for()
    yield "console-state", page
    page.goto(f"{job}metrics")
    page.get_by_role("heading", name="Watermark behind the clock").wait_for()
    yield "console-charts", page
    page.goto(f"{job}/")
    page.get_by_role("button", name="Savepoint").click()
    page.get_by_role("dialog").wait_for()
    yield "console-savepoint", page


def main() -> None:
    """Take all of them."""
    from PIL import Image
    from playwright import sync_api

    with tempfile.TemporaryDirectory() as folder, sync_api.sync_playwright() as running:
        server = Server(made_up(Path(folder)), every=0.2)
        browser = running.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.goto(server.url)
        page.get_by_text("live").wait_for()
        # Charts have something to show.
        page.wait_for_timeout(_SECONDS * 1000)
        for name, shown in take(page, server.url):
            shown.wait_for_timeout(500)
            picture = Image.open(io.BytesIO(shown.screenshot()))
            # Few colours make small files.
            picture.quantize(64).save(FOLDER / f"{name}.png", optimize=True)
        browser.close()
        server.stop()


if __name__ == "__main__":
    main()
