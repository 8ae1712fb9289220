"""Answers have the members and types of Flink's REST, as its web UI and its Kubernetes operator read them.

`flink_shapes.json` has the shape of each path, written from Flink 2.3's documentation: a member is a type's name, with
`?` where null is one, an object, a list of one kind of item, `{"*": ...}` for an object by key, or a shape's name.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.engine.job.info import JobInfo, RestartInfo
from penstock.engine.job.status import JobStatus
from penstock.web.cluster import Reading
from tests.web.conftest import Serve
from tests.web.fakes import ORDERS, FakeCluster, orders_metrics

SHAPES: dict[str, Any] = json.loads((Path(__file__).parent / "flink_shapes.json").read_text())
WORDS = {
    "job-state": "INITIALIZING CREATED RUNNING FAILING FAILED CANCELLING CANCELED FINISHED RESTARTING SUSPENDED",
    "task-state": "CREATED SCHEDULED DEPLOYING RUNNING FINISHED CANCELING CANCELED FAILED RECONCILING INITIALIZING",
    "checkpoint-state": "IN_PROGRESS COMPLETED FAILED",
    "checkpoint-type": "CHECKPOINT UNALIGNED_CHECKPOINT SAVEPOINT SYNC_SAVEPOINT",
    "level": "ok low high",
}
TYPES: dict[str, tuple[type, ...]] = {"int": (int,), "num": (int, float), "str": (str,), "bool": (bool,)}
DONE = RestartInfo("rescale", "rescale parallelism 2", 6_000, attempt=2, restore_ms=40.0)
JOBS = {
    "running": ORDERS,
    "rescaled": replace(ORDERS, restart_history=(replace(DONE, at_ms=5_000, restore_ms=None), DONE)),
    "finished": replace(ORDERS, status=JobStatus.FINISHED),
    "failed": replace(ORDERS, status=JobStatus.FAILED, error="no number\nline 3"),
    "restored": replace(
        ORDERS,
        checkpoints=replace(ORDERS.checkpoints, restored_url="s3://b/s/savepoint-orders-1-00000004-5f0c9a31b2e4"),
        restart_history=(RestartInfo("failure", "no disk", 5_000, attempt=2, checkpoint=7, restore_ms=30.0),),
    ),
    "restarting": replace(ORDERS, status=JobStatus.RESTARTING),
    "without checkpoints": replace(ORDERS, checkpoints=None, settings=(), restart_history=()),
}


def differences(found: Any, shape: Any, place: str) -> Iterator[str]:
    """Where an answer is not of its shape."""
    match shape:
        case "any":
            return
        case str() if shape.endswith("?"):
            if found is not None:
                yield from differences(found, shape[:-1], place)
        case str() if shape in SHAPES:
            yield from differences(found, SHAPES[shape], place)
        case str() if shape in WORDS:
            if found not in WORDS[shape].split():
                yield f"{place}: {found!r} is no {shape}"
        case str():
            # Flink writes what is no number as a text.
            is_nan = shape == "num" and found == "NaN"
            if not is_nan and (not isinstance(found, TYPES[shape]) or (shape != "bool" and isinstance(found, bool))):
                yield f"{place}: {found!r} is no {shape}"
        case list():
            if not isinstance(found, list):
                yield f"{place}: {found!r} is no list"
            elif shape:
                for number, item in enumerate(found):
                    yield from differences(item, shape[0], f"{place}[{number}]")
        case {"*": item}:
            for name, value in found.items():
                yield from differences(value, item, f"{place}.{name}")
        case _:
            for name, member in shape.items():
                if name not in found:
                    yield f"{place}: there is no {name}"
                else:
                    yield from differences(found[name], member, f"{place}.{name}")


@pytest.mark.parametrize("name", JOBS)
def test_every_answer_has_the_shape_that_flink_documents(serve: Serve, cluster: FakeCluster, name: str) -> None:
    info: JobInfo = JOBS[name]
    cluster.readings = [Reading(info, orders_metrics(10))]
    client = serve()
    wrong = []
    for path in filter(lambda one: one.startswith("/"), SHAPES):
        answer = client.get(path.replace("JOB", info.id))
        if answer.status_code == 404 and info.checkpoints is None and "/details/" in path:
            continue
        assert answer.status_code == 200, (path, answer.text)
        wrong += differences(answer.json(), SHAPES[path], path)
    assert wrong == []


def test_a_shape_that_is_not_kept_is_found() -> None:
    shape = {"a": "int", "b": ["SUMMARY"], "c": "str?", "d": "level"}
    found = {"a": True, "b": [{}], "c": None, "d": "none"}
    told = list(differences(found, shape, "x"))
    assert told[0] == "x.a: True is no int"
    assert len(told) == 1 + 8 + 1


def test_a_checkpoint_says_what_each_subtask_has_done_for_it(serve: Serve, cluster: FakeCluster) -> None:
    client, path = serve(), "/jobs/orders-1/checkpoints/details/7"
    tasks = client.get(path).json()["tasks"]
    assert {task: (one["num_acknowledged_subtasks"], one["num_subtasks"]) for task, one in tasks.items()} == {
        "1": (1, 1),
        "2": (1, 2),
    }
    assert tasks["2"]["status"] == "FAILED"
    found = client.get(f"{path}/subtasks/2").json()
    assert [one["status"] for one in found["subtasks"]] == ["completed", "pending_or_failed"]
    assert found["subtasks"][0]["end_to_end_duration"] == 250
    assert found["subtasks"][0]["checkpoint"] == {"sync": 2, "async": 120}
    assert found["subtasks"][0]["alignment"]["duration"] == 40
    assert found["summary"]["checkpoint_duration"]["async"]["max"] == 120
    assert client.get(f"{path}/subtasks/1").json()["subtasks"][0]["checkpoint"] == {"sync": -1, "async": -1}
    assert (found["summary"]["state_size"]["max"], found["checkpointed_size"]) == (4_000, 900)
    cluster.refuses = "the job has ended"
    assert client.get(path).json()["tasks"] == {}
    assert client.get(f"{path}/subtasks/2").status_code == 404


def test_rescales_are_counted_by_how_they_ended(serve: Serve, cluster: FakeCluster) -> None:
    begun = replace(DONE, at_ms=9_000, attempt=0, restore_ms=None)
    cluster.readings = [Reading(replace(ORDERS, restart_history=(*JOBS["rescaled"].restart_history, begun)), [])]
    client, path = serve(), "/jobs/orders-1/rescales"
    overview = client.get(f"{path}/overview").json()
    assert overview["rescalesCounts"] == {"ignored": 1, "inProgress": 1, "completed": 1, "failed": 0}
    assert overview["latest"]["ignored"]["terminatedReason"] == "JOB_FAILOVER_RESTARTING"
    history = client.get(f"{path}/history").json()
    assert [one["rescaleAttemptId"] for one in history] == [3, 2, 1]
    assert [one["endTimestampInMillis"] for one in history] == [None, 6_040, 6_000]
    assert history[0]["vertices"]["2"]["desiredParallelism"] == 2
    assert client.get(f"{path}/summary").json()["completedRescalesDurationStatsInMillis"]["max"] == 40
    one = client.get(f"{path}/details/{history[1]['rescaleUuid']}").json()
    assert (one["terminalState"], one["schedulerStates"]) == ("COMPLETED", [])
    assert client.get(f"{path}/details/nothing").status_code == 404


def test_what_a_job_was_restored_from_is_told(serve: Serve, cluster: FakeCluster) -> None:
    path = "/jobs/orders-1/checkpoints"
    cluster.readings = [Reading(JOBS["restored"], [])]
    told = serve().get(path).json()
    failed_over = {"id": 7, "restore_timestamp": 5_000, "is_savepoint": False, "external_path": "file:///c/chk-7"}
    assert (told["counts"]["restored"], told["latest"]["restored"]) == (2, failed_over)
    cluster.readings = [Reading(replace(JOBS["restored"], restart_history=()), [])]
    told = serve().get(path).json()
    assert (told["latest"]["restored"]["id"], told["latest"]["restored"]["is_savepoint"]) == (4, True)
    cluster.readings = [Reading(ORDERS, [])]
    told = serve().get(path).json()
    assert (told["counts"]["restored"], told["latest"]["restored"]) == (0, None)
