"""Which cluster of this machine is taken: never one that has ended or refuses, as long as another is there."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
import ray

from penstock import StreamEnvironment
from penstock.actors.cluster import ClustersHere, clusters_here, connect
from penstock.engine.errors import ClusterError

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_cluster")]


@pytest.fixture
def ended() -> str:
    """An address at which nothing answers any more."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


def _found(monkeypatch: pytest.MonkeyPatch, noted: str | None, running: list[str]) -> None:
    class Running:
        def __call__(self) -> frozenset[str]:
            return frozenset(running)

        def cache_clear(self) -> None:
            """Nothing is kept."""

    monkeypatch.setattr("ray._private.services.find_bootstrap_address", lambda folder: noted)
    monkeypatch.setattr("ray._private.services.find_gcs_addresses", Running())


def test_what_was_noted_and_has_ended_hides_no_cluster_that_runs(ended: str, monkeypatch: pytest.MonkeyPatch) -> None:
    address = ray.get_runtime_context().gcs_address
    _found(monkeypatch, ended, [address])
    assert clusters_here().address == address
    _found(monkeypatch, None, [ended, address])
    assert clusters_here().address == address
    _found(monkeypatch, ended, [])
    assert clusters_here() == ClustersHere(None, [])


def test_one_that_refuses_is_named_with_the_reason(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    address = ray.get_runtime_context().gcs_address
    _found(monkeypatch, address, [])
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", "RAY_ADDRESS"):
        monkeypatch.delenv(name, raising=False)
    here = clusters_here()
    assert here.address is None
    (refused,) = here.refused
    assert refused.startswith(f"the Ray cluster at {address}, on this machine, cannot be used: it wants an auth")
    monkeypatch.setattr("ray.is_initialized", lambda: False)
    with pytest.raises(ClusterError, match=r"copy its token here .*; or start one with `ray start --head`"):
        connect("auto", 1)


def test_where_a_process_is_short_of_room_on_a_cluster_of_its_own_it_learns_why() -> None:
    env = StreamEnvironment(parallelism=100)
    env.from_collection([1]).rebalance().map(lambda row: row).collect()
    with pytest.raises(ClusterError, match=r"needs 100 CPU for its slots, and the cluster .* has 8: call"):
        env.execute("wide")


def test_an_address_at_which_nobody_answers_is_refused_at_once(ended: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ray.is_initialized", lambda: False)
    with pytest.raises(ClusterError, match=rf"no Ray cluster answers at {ended} \(.*refused\); start one there"):
        connect(ended, 1)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", None])
def test_a_cluster_is_the_same_by_any_address_of_its_machine(host: str | None) -> None:
    connected = ray.get_runtime_context().gcs_address
    own, _, port = connected.rpartition(":")
    connect(f"{host or own}:{port}", 1)
    with pytest.raises(ClusterError, match="connected to the Ray cluster at"):
        connect(f"{host or own}:{int(port) + 1}", 1)
    with pytest.raises(ClusterError, match="connected to the Ray cluster at"):
        connect(f"192.0.2.1:{port}", 1)


def test_an_address_in_ray_address_at_which_nobody_answers_is_no_reason_to_make_a_cluster(
    ended: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ray.is_initialized", lambda: False)
    monkeypatch.setattr("penstock.actors.cluster.init_embedded", lambda **options: pytest.fail("made a cluster"))
    monkeypatch.setenv("RAY_ADDRESS", ended)
    env = StreamEnvironment(parallelism=1)
    env.from_collection([1]).print()
    with pytest.raises(
        ClusterError, match=rf"at {ended} \(.*refused\); start .*; RAY_ADDRESS names this one: unset it"
    ):
        env.execute("unreachable")


@pytest.mark.parametrize("given", [None, "auto"])
def test_the_cluster_of_ray_address_is_connected_to(given: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    there = ray.get_runtime_context().gcs_address
    connected: list[str] = []
    monkeypatch.setattr("ray.is_initialized", lambda: False)
    monkeypatch.setattr("ray.init", lambda address, **options: connected.append(address))
    monkeypatch.setenv("RAY_ADDRESS", there)
    connect(given, 1)
    assert connected == [there]


def test_ray_address_may_say_that_the_process_is_to_have_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[float] = []
    monkeypatch.setattr("ray.is_initialized", lambda: False)
    monkeypatch.setattr("penstock.actors.cluster.init_embedded", lambda num_cpus, **options: made.append(num_cpus))
    monkeypatch.setenv("RAY_ADDRESS", "local")
    connect(None, 500)
    assert made == [500]
