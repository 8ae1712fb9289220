"""A cluster of several nodes and jobs on some of them, which are lost. Run by `test_nodes.py`.

Reads lines, each with a case and a folder for it. Says for each that it went well, or why not, and that it is over.

It has a process of its own because Ray knows one cluster a process, and the other tests share theirs. All cases have
the same head, which has no slots; no other node is there when a case begins. The job manager stays on the head, the
subtasks come to the next node.
"""

from __future__ import annotations

import contextlib
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import ray
from ray.cluster_utils import Cluster

import penstock as ps
from penstock import CollectResult, DataGenSource, JobStatus, Sequence
from penstock.actors.client import RayJob
from penstock.actors.nodes import actors_on, begin_to_drain
from penstock.actors.registry import named_jobs
from penstock.console.command_line import run_command
from penstock.console.drain import OURS
from penstock.engine.errors import ClusterError, JobFailedError, PenstockError
from penstock.engine.job.info import JobInfo
from penstock.testing.chaos import AfterCheckpoints, ChaosHarness, ChaosSchedule, KillNode, ScheduledFault, TakeNode
from tests.actors.cases import OK, OVER
from tests.actors.keyed_job import KEYS, assert_exact, environment, submit, until, until_checkpoint
from tests.actors.watched_outages import watch_outages

_HEALTH: dict[str, Any] = {
    "health_check_initial_delay_ms": 1000,
    "health_check_period_ms": 500,
    "health_check_timeout_ms": 5000,
    "health_check_failure_threshold": 4,
}
"""A raylet that is dead is noticed after 2 s instead of 13, and one that is only slow is given time."""
_MEMORY = 100 * 1024**2
_ROWS = 20_000
_CROWD = 400_000


def survived(cluster: Cluster, folder: Path) -> None:
    """The only node with the subtasks and the standby is killed while another has room."""
    job, updates, hurry = _started(cluster, folder, "lost node", parallelism=1, standbys=1)
    lost = _add(cluster)
    until_checkpoint(job)
    _add(cluster)
    cluster.remove_node(lost, allow_graceful=False)
    info = until(job, lambda info: info.restarts >= 1 and info.status is JobStatus.RUNNING)
    hurry.touch()
    job.wait()
    assert job.status() is JobStatus.FINISHED
    assert_exact(updates, _ROWS)
    assert info.restart_history[-1].checkpoint > 0, info


def watched(cluster: Cluster, folder: Path) -> None:
    """Console, job manager and node are killed while a browser shows the job, whose rows are exact in spite of it."""
    lost = _add(cluster)
    job, updates, hurry = _started(cluster, folder, "watched")
    until_checkpoint(job)
    watch_outages(cluster, folder, job, lost, lambda: _add(cluster))
    hurry.touch()
    job.wait()
    assert_exact(updates, _ROWS)


def survived_twice(cluster: Cluster, folder: Path) -> None:
    """Two nodes, each with one slot of the job, are killed at once while others have room."""
    job, updates, hurry = _started(cluster, folder, "two lost nodes")
    lost = [_add(cluster, cpus=1) for _ in range(2)]
    until_checkpoint(job)
    _add(cluster)
    for node in lost:
        cluster.remove_node(node, allow_graceful=False)
    until(job, lambda info: info.restarts >= 1 and info.status is JobStatus.RUNNING)
    hurry.touch()
    job.wait()
    assert job.status() is JobStatus.FINISHED
    assert_exact(updates, _ROWS)


def killed_by_chaos(cluster: Cluster, folder: Path) -> None:
    """The chaos harness kills the only node with room, and another comes."""
    job, updates, hurry = _started(cluster, folder, "chaos")
    _add(cluster)
    schedule = ChaosSchedule([ScheduledFault(AfterCheckpoints(1), KillNode())])

    def replace_node() -> None:
        if not cluster.worker_nodes:
            _add(cluster)

    run = ChaosHarness(job, schedule, cluster, observe=replace_node).run()
    assert not run.violations, run
    assert [(record.target[:5], record.outcome) for record in run.fired] == [("node ", "recovered")], run
    hurry.touch()
    job.wait()
    assert_exact(updates, _ROWS)


def drained(cluster: Cluster, folder: Path) -> None:
    """The node of the subtasks and the standby is drained while another has room, and goes when nothing is there."""
    job, updates, hurry = _started(cluster, folder, "drained", standbys=1)
    left = _add(cluster)
    until_checkpoint(job)
    _add(cluster)
    assert run_command(["drain", "--node", left.node_id, "--timeout", "120s", "--address", cluster.address]) == 0
    until(job, lambda info: not actors_on(left.node_id, OURS))
    cluster.remove_node(left, allow_graceful=False)
    info = until_checkpoint(job, 3)
    hurry.touch()
    job.wait()
    assert_exact(updates, _ROWS)
    assert (info.restarts, [one.kind for one in info.restart_history]) == (0, ["move"]), info


def drained_too_late(cluster: Cluster, folder: Path) -> None:
    """There is no other node before the one that is drained has gone."""
    job, updates, hurry = _started(cluster, folder, "drained too late")
    left = _add(cluster)
    until_checkpoint(job)
    begin_to_drain(left.node_id, 30)
    until(job, lambda info: info.waiting_for is not None)
    cluster.remove_node(left, allow_graceful=False)
    _add(cluster)
    info = until(job, lambda info: info.restarts >= 1 and info.status is JobStatus.RUNNING)
    hurry.touch()
    job.wait()
    assert_exact(updates, _ROWS)
    assert info.restarts == 1, info


def taken_by_chaos(cluster: Cluster, folder: Path) -> None:
    """The chaos harness takes the node of the subtasks away behind a notice, while another has room."""
    job, updates, hurry = _started(cluster, folder, "spot")
    _add(cluster)
    until_checkpoint(job)
    _add(cluster)
    schedule = ChaosSchedule([ScheduledFault(AfterCheckpoints(1), TakeNode(20.0))])
    run = ChaosHarness(job, schedule, cluster).run()
    assert not run.violations, run
    hurry.touch()
    job.wait()
    assert_exact(updates, _ROWS)
    assert len(cluster.worker_nodes) == 1


def crowded(cluster: Cluster, folder: Path) -> None:
    """Four times as much as the object store holds goes through a shuffle and into state, with checkpoints."""
    _add(cluster)
    env = environment(folder, address=cluster.address, max_batch_rows=8192)
    numbers = env.from_source(DataGenSource({"n": Sequence()}, rows=_CROWD))
    wide = numbers.with_columns(k=ps.col("n") % KEYS).map_batches(_widened, returns={"k": "int64", "text": "string"})
    updates = wide.key_by("k").aggregate(n=ps.count(), longest=ps.max("text")).collect()
    env.submit("crowded").wait()
    assert_exact(updates, _CROWD)


def _widened(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Each row with a kilobyte of text."""
    return pa.record_batch({"k": batch["k"], "text": pa.array([f"{n:01000d}" for n in batch["n"].to_pylist()])})


def given_up(cluster: Cluster, folder: Path) -> None:
    """The only node with room is killed: the job waits for another as often as it may restart, then says so."""
    env = environment(folder, address=cluster.address, slot_timeout="15s", restart=ps.fixed_delay(1, "0ms"))
    job, _ = submit(env, "no node left", rows=100_000, rate=200)
    lost = _add(cluster)
    until_checkpoint(job)
    cluster.remove_node(lost, allow_graceful=False)
    with pytest.raises(JobFailedError) as failed:
        job.wait(timeout=60)
    assert isinstance(failed.value.__cause__, ClusterError), repr(failed.value.__cause__)
    assert "no room for 2 slots" in str(failed.value.__cause__)


def smaller(cluster: Cluster, folder: Path) -> None:
    """One of two nodes is lost, and none has room: the job runs with half of its subtasks until another one comes."""
    _add(cluster, cpus=1)
    lost = _add(cluster, cpus=1)
    hurry = folder / "hurry"
    env = environment(folder, address=cluster.address, slot_timeout="5s")
    env.configure({"penstock.restart.min-parallelism": 1})
    job, updates = submit(env, "smaller", rows=_ROWS, rate=200, hurry=hurry)
    until_checkpoint(job)
    cluster.remove_node(lost, allow_graceful=False)
    until(job, lambda info: info.status is JobStatus.RUNNING and _widest(info) == 1)
    _add(cluster, cpus=1)
    until(job, lambda info: info.status is JobStatus.RUNNING and _widest(info) == 2)
    hurry.touch()
    job.wait()
    assert_exact(updates, _ROWS)


def _widest(info: JobInfo) -> int:
    return max(task.parallelism for task in info.tasks)


def _started(
    cluster: Cluster, folder: Path, name: str, parallelism: int = 2, standbys: int = 0
) -> tuple[RayJob, CollectResult, Path]:
    """A job, what it gives, and the file that makes its source hurry."""
    hurry = folder / "hurry"
    env = environment(folder, parallelism, standbys, address=cluster.address)
    return *submit(env, name, rows=_ROWS, rate=200, hurry=hurry), hurry


def _add(cluster: Cluster, cpus: int = 2) -> Any:
    return cluster.add_node(num_cpus=cpus, object_store_memory=_MEMORY, include_dashboard=False)


CASES: Mapping[str, Callable[[Cluster, Path], None]] = {
    "survived": survived,
    "watched": watched,
    "survived_twice": survived_twice,
    "given_up": given_up,
    "smaller": smaller,
    "crowded": crowded,
    "killed_by_chaos": killed_by_chaos,
    "taken_by_chaos": taken_by_chaos,
    "drained": drained,
    "drained_too_late": drained_too_late,
}


def main() -> None:
    head = {"num_cpus": 0, "include_dashboard": False, "object_store_memory": _MEMORY, "_system_config": _HEALTH}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    ray.init(address=cluster.address, log_to_driver=False)
    try:
        for line in sys.stdin:
            case, folder = line.split(maxsplit=1)
            try:
                CASES[case](cluster, Path(folder.strip()))
                _say(OK)
            except Exception:
                traceback.print_exc(file=sys.stdout)
            for job in named_jobs().values():
                # One whose case failed would take the slots of the next one's.
                with contextlib.suppress(PenstockError):
                    job.cancel()
            _remove(cluster, cluster.worker_nodes)
            _await_loss()
            _say(OVER)
    finally:
        ray.shutdown()
        _remove(cluster, [cluster.head_node])


def _remove(cluster: Cluster, nodes: Iterable[Any]) -> None:
    for node in list(nodes):
        # A graceful end takes half a minute.
        cluster.remove_node(node, allow_graceful=False)


def _await_loss() -> None:
    """Return when Ray knows that there is only the head: it would put the next job manager on a node that is gone."""
    while sum(node["Alive"] for node in ray.nodes()) > 1:
        time.sleep(0.1)


def _say(text: str) -> None:
    print(text, end="", flush=True)  # noqa: T201 - read by the test


if __name__ == "__main__":
    main()
