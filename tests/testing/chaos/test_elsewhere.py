"""Processes on other machines get signals from an actor beside them, and only where it is clear which is meant."""

from __future__ import annotations

import os
from typing import Any

import pytest
import ray

from penstock.engine.errors import ClusterError
from penstock.testing.chaos import elsewhere
from penstock.testing.chaos.elsewhere import RemoteProcess, processes_elsewhere
from penstock.testing.chaos.faults import hold
from penstock.testing.chaos.local_process import MANAGER, SUBTASK, JobProcess

HERE, THERE, FAR = "10.0.0.1", "10.0.0.2", "10.0.0.3"


@pytest.fixture
def three_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = {"here": (HERE, 1), "there": (THERE, 1), "far": (FAR, 1)}
    on = {(MANAGER, 7): ["here"], (SUBTASK, 8): ["there"], (SUBTASK, 9): ["here", "far"]}
    monkeypatch.setattr(elsewhere, "actor_nodes", lambda classes: on)
    monkeypatch.setattr(elsewhere, "addresses", lambda nodes: {node: hosts[node] for node in nodes})
    monkeypatch.setattr(ray.util, "get_node_ip_address", lambda: HERE)


@pytest.mark.usefixtures("three_machines")
def test_what_is_on_another_machine_is_found_there() -> None:
    assert processes_elsewhere() == {(SUBTASK, 8): ["there"], (SUBTASK, 9): ["here", "far"]}


@pytest.mark.usefixtures("three_machines")
def test_a_number_that_two_machines_have_gets_no_signal() -> None:
    with pytest.raises(ClusterError, match=r"subtask \(pid 9\) may be on any of the nodes here, far.*no signal"):
        hold(JobProcess("subtask", SUBTASK, 9), processes_elsewhere())


class SubtaskActor:
    def pid(self) -> int:
        return os.getpid()


@pytest.mark.ray
@pytest.mark.usefixtures("ray_cluster")
@pytest.mark.long("tests/chaos/test_seeded.py: the same check and signals, to processes of this machine")
def test_the_actor_beside_a_process_checks_and_kills_it() -> None:
    actor: Any = ray.remote(SubtaskActor).options(num_cpus=0).remote()
    node = [str(ray.get_runtime_context().get_node_id())]
    pid = ray.get(actor.pid.remote())
    with pytest.raises(ClusterError, match="not ray::JobManager"):
        RemoteProcess(JobProcess("job manager", MANAGER, pid), node)
    process = RemoteProcess(JobProcess("subtask", SUBTASK, pid), node)
    process.stop()
    process.proceed()
    assert ray.get(actor.pid.remote()) == pid
    process.kill()
    with pytest.raises(ray.exceptions.RayActorError):
        ray.get(actor.pid.remote())
    process.close()
