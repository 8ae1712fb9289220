"""A job finds warm processes where the one before it has left as many as it had taken."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from typing import Any

import pytest
import ray

from penstock import StreamEnvironment
from penstock.actors.cluster import WARM_IMPORTS
from penstock.actors.lifeline import Address
from penstock.actors.nodes import addresses, own_node
from penstock.actors.raylet import idle_workers, start_workers
from penstock.warm_imports import LATER, load_while

SECONDS = 120.0


@pytest.fixture
def raylet(ray_cluster: None) -> Address:
    """Where the raylet of the only node is."""
    (address,) = addresses([own_node()]).values()
    return address


def until_idle(raylet: Address, least: int) -> int:
    """How many processes are idle, once so many are."""
    deadline = time.monotonic() + SECONDS
    while True:
        idle = idle_workers(raylet)
        assert idle is not None
        if idle >= least:
            return idle
        assert time.monotonic() < deadline, f"{idle} of {least} processes are idle"
        threading.Event().wait(0.1)


class _Idle:
    """An actor that does nothing."""

    def answer(self) -> bool:
        return True


def occupied(count: int) -> list[Any]:
    """Actors, each in a process that was idle if there was one."""
    actor_class: Any = ray.remote(_Idle)
    actors = [actor_class.options(num_cpus=0).remote() for _ in range(count)]
    ray.get([actor.answer.remote() for actor in actors])
    return actors


NEEDED = "penstock.actors.subtask"
ON_A_CLUSTER = f"""
import ray, sys
from penstock.actors.cluster import connect

def loaded():
    import sys
    return {NEEDED!r} in sys.modules

connect(None, 1, log_to_driver=False)
print(ray.get(ray.remote(loaded).remote()))
"""


def printed(code: str) -> str:
    """What a program prints last, in a process of its own."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    return done.stdout.splitlines()[-1]


def test_workers_load_what_each_process_of_a_job_needs_as_they_start_and_no_more() -> None:
    code = f"import sys, {WARM_IMPORTS} as warm; print([name in sys.modules for name in ({NEEDED!r}, *warm.LATER)])"
    assert printed(code) == str([True, *(False for _ in LATER)])


def test_the_rest_is_loaded_while_the_process_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("colorsys", "stringprep"):
        # Set first, so that what is loaded here goes behind the test.
        monkeypatch.setitem(sys.modules, module, sys)
        monkeypatch.delitem(sys.modules, module)
    waits = iter([True, True, False])
    load_while(lambda: next(waits), modules := ["colorsys", "stringprep", "no_such_module"])
    assert set(modules) & set(sys.modules) == {"colorsys", "stringprep"}


def test_all_of_the_rest_can_be_loaded() -> None:
    load_while(lambda: True, LATER)
    assert set(LATER) <= set(sys.modules)


@pytest.mark.ray
@pytest.mark.long("test_workers_load_what_each_process_of_a_job_needs_as_they_start_and_no_more says what they load")
def test_workers_of_a_cluster_that_a_program_starts_have_loaded_it() -> None:
    assert printed(ON_A_CLUSTER) == "True"


@pytest.mark.ray
def test_a_job_leaves_as_many_as_it_has_taken(raylet: Address) -> None:
    actors = occupied(idle_workers(raylet) or 0)
    env = StreamEnvironment(parallelism=1)
    rows = env.from_collection([1, 2, 3]).collect()
    env.execute()
    assert len(rows.to_arrow()) == 3
    # Its manager, and its subtask.
    until_idle(raylet, 2)
    for actor in actors:
        ray.kill(actor)


def test_a_raylet_that_is_not_there_is_none() -> None:
    assert idle_workers(("127.0.0.1", 1)) is None
    assert not start_workers(("127.0.0.1", 1), 1, 1)
