"""How a program waits for the raylet of its own cluster, and what it leaves alone where Ray is another one."""

from __future__ import annotations

import os
import subprocess
import sys
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock, patch

import pytest
import ray

from penstock.actors import cluster, embedded_start
from penstock.actors.replaced import replaced
from penstock.engine.errors import ClusterError

NODE = "ab" * 28
SERIALIZERS = """
import sys
from ray.util import serialization_addons
from penstock.actors.ray_serializers import register_serializers_later

class Context:
    "Of one of Ray's picklers."
    def __init__(self):
        self.known = []
    def _register_cloudpickle_serializer(self, cls, **functions):
        self.known.append(cls.__module__)
    def _register_cloudpickle_reducer(self, cls, reducer):
        self.known.append(cls.__module__)

register_serializers_later()
register_serializers_later()
context = Context()
serialization_addons.apply(context)
assert not {"pydantic", "starlette"} & set(sys.modules)
print(sorted(set(context.known)))
import pydantic
print(sorted(set(context.known)))
"""

AGAIN = """
context, another = Context(), Context()
for each in (context, another):
    serialization_addons.apply(each)
import pydantic
assert set(context.known) == set(another.known) > {"pydantic.v1.fields", "starlette.datastructures"}
"""
OTHER_RAYS = """
import importlib, os, sys, traceback
import ray

def start(missing):
    module, name = missing.split(":")
    if name:
        delattr(importlib.import_module(module), name)
    else:
        parent, _, last = module.rpartition(".")
        vars(sys.modules[parent]).pop(last, None)
        sys.modules[module] = None

    from penstock.actors import cluster

    def taught():
        return getattr(sys.modules["ray.util.serialization_addons"], "apply", None)

    before = taught()
    cluster.register_serializers_later()
    ray.init = lambda **options: print(missing, "teaches by itself" if taught() is before else "teaches later")
    cluster.init_embedded()

for missing in sys.argv[1:]:
    # Each in a process of its own, all of which have loaded Ray but once.
    if os.fork():
        os.wait()
        continue
    try:
        start(missing)
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    os._exit(0)
"""
LACKING = {
    "ray._private.node:": "later",
    "ray._private.node:Node": "later",
    "ray._private.services:": "later",
    "ray._private.services:get_node": "later",
    "ray._private.arrow_serialization:": "by itself",
    "ray._private.arrow_serialization:_register_custom_datasets_serializers": "by itself",
    "ray.util.serialization_addons:apply": "by itself",
}
"""Names of Ray, and how what is serialized is taught where it lacks one."""


class _Service:
    """Ray's control service, which gets to know a node at the third question."""

    questions = 0

    def __init__(self, address: str) -> None:
        assert address == "here"

    def get_all_node_info(self, node_selectors: list[Any]) -> dict[str, str]:
        assert [selector.node_id.hex() for selector in node_selectors] == [NODE]
        _Service.questions += 1
        return {} if _Service.questions < 3 else {NODE: "alive"}


def test_it_asks_for_the_raylet_until_it_is_there_and_then_what_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray's own question takes a second each time that the answer is no."""
    monkeypatch.setattr("ray._raylet.GcsClient", _Service)
    asked = []

    def ray_asks(address: str, node: str) -> str:
        asked.append(_Service.questions)
        return "known"

    assert embedded_start._get_node_at_once("here", NODE, ray_asks) == "known"
    assert asked == [3]


def test_ray_asks_itself_where_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("ray._raylet.GcsClient")
    assert embedded_start._get_node_at_once("here", NODE, lambda address, node: "known") == "known"


def test_ray_starts_as_it_does_by_itself_where_it_lacks_a_name() -> None:
    done = subprocess.run([sys.executable, "-c", OTHER_RAYS, *LACKING], capture_output=True, text=True)
    assert done.stdout.splitlines() == [f"{missing} teaches {how}" for missing, how in LACKING.items()], done.stderr


def test_what_is_replaced_is_there_while_ray_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    module = SimpleNamespace(get_node="Ray's")
    monkeypatch.setitem(sys.modules, "another_ray", module)
    with replaced("another_ray", "get_node", lambda before: f"ours before {before}"):
        assert vars(module) == {"get_node": "ours before Ray's"}
    assert vars(module) == {"get_node": "Ray's"}


def test_a_cluster_that_has_ended_gets_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray has taken down what it has started, and would leave a process that comes behind that."""
    node = object.__new__(embedded_start._PatientNode)
    started: list[str] = []
    node._rest = [lambda: started.append("monitor")]
    monkeypatch.setattr(embedded_start._PatientNode, "of_this_process", staticmethod(lambda: node))
    with subprocess.Popen(["true"]) as service:
        service.wait()
        node.start_rest(service.pid)
    assert not started


def test_a_cluster_that_ends_while_the_rest_starts_says_nothing_of_it(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Ray's own would tell what the dashboard's process failed by, of which nobody has asked for."""

    class Rays:
        def start_api_server(self, *, include_dashboard: bool, raise_on_failure: bool) -> None:
            if raise_on_failure:
                raise AttributeError("'NoneType' object has no attribute 'internal_kv_get'")
            sys.stderr.write("'NoneType' object has no attribute 'internal_kv_get'")

    node: Any = object.__new__(type("Node", (embedded_start._PatientNode, Rays), {}))
    node._rest = []
    node.start_api_server(include_dashboard=False, raise_on_failure=False)
    monkeypatch.setattr(embedded_start._PatientNode, "of_this_process", staticmethod(lambda: node))
    monkeypatch.setattr(embedded_start, "_LATER_SECONDS", 0.0)
    monkeypatch.setattr(embedded_start, "is_lost", lambda: False)
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as service:
        node._rest.append(service.kill)
        node.start_rest(service.pid)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("log_to_driver", [True, False])
@pytest.mark.parametrize("address", [None, "10.0.0.1:6379"])
def test_ray_warns_of_nodes_where_it_prints_what_workers_do_and_never_of_many_processes(
    address: str | None, log_to_driver: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker: Any = ray._private.worker
    printed: list[Any] = []
    errors = [None, {"type": "worker_pool_large"}, {"type": "other"}]
    subscriber = MagicMock()
    subscriber.poll.side_effect = [(number, error) for number, error in enumerate(errors)]

    def prints_all(connected: Any, stopped: object) -> None:
        connected.gcs_error_subscriber.subscribe()
        printed.extend(connected.gcs_error_subscriber.poll() for _ in errors)

    def begin(**options: object) -> None:
        assert options["log_to_driver"] is log_to_driver
        worker.listen_error_messages(MagicMock(gcs_error_subscriber=subscriber), None)

    monkeypatch.setattr(worker, "listen_error_messages", prints_all)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", begin)
    for name in ("register_serializers_later", "make_token", "end_quickly_at_exit"):
        monkeypatch.setattr(cluster, name, lambda: None)
    monkeypatch.setattr(cluster, "_checked", lambda address: address)
    monkeypatch.setattr(cluster, "init_embedded", begin)
    with patch.dict(os.environ):
        cluster.connect(address, 1, log_to_driver)
    assert printed == ([(0, None), (None, None), (2, {"type": "other"})] if log_to_driver else [])
    assert worker.listen_error_messages is prints_all


def test_a_pickler_knows_classes_of_pydantic_and_starlette_once_they_are_there() -> None:
    done = subprocess.run([sys.executable, "-c", SERIALIZERS], capture_output=True, text=True, check=True)
    before, after = done.stdout.splitlines()
    assert ("pydantic" in before, "pyarrow" in before) == (False, True)
    assert ("pydantic.v1.fields" in after, "starlette.datastructures" in after) == (True, True)


def test_picklers_of_clusters_one_after_another_know_them_all() -> None:
    """Ray makes a context for each `ray.init` of a program."""
    subprocess.run([sys.executable, "-c", SERIALIZERS.partition("context = ")[0] + AGAIN], check=True)


def test_where_ray_does_not_start_the_error_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def begin(**options: object) -> None:
        raise Exception("The current node timed out during startup.")

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(cluster, "register_serializers_later", lambda: None)
    monkeypatch.setattr(cluster, "init_embedded", begin)
    with (
        patch.dict(os.environ),
        pytest.raises(ClusterError, match=r"could not start a cluster .* timed out during startup; where the machine"),
    ):
        cluster.connect(None, 1)
