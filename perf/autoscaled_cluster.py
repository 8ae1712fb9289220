"""A Ray cluster whose nodes come and go by Ray's own autoscaler, without a cloud: nodes are processes of this machine.

The nodes are Ray's (`FakeMultiNodeProvider`, which its own tests use), and so is what decides about them (autoscaler
v2). Ray's `AutoscalingCluster` would do the same, but ends all other clusters of the machine, and does not start from a
wheel. `perf/sine.py` runs its job on one.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from penstock.actors.cluster import WARM_IMPORTS
from penstock.actors.termination import termination

_HEAD: Final = "f" * 51 + "00000"
"""The id that the provider gives to the head."""
_HEAD_TYPE: Final = "ray.head.default"
_PROVIDER: Final = "ray.autoscaler._private.fake_multi_node.node_provider.FakeMultiNodeProvider"
_UNUSED: Final = (
    "cluster_synced_files", "rsync_exclude", "rsync_filter", "initialization_commands", "setup_commands",
    "head_setup_commands", "worker_setup_commands", "head_start_ray_commands", "worker_start_ray_commands",
)  # fmt: skip
"""What a file of settings must have."""
_STORE_BYTES: Final = 100 * 1024**2
_ATTEMPTS: Final = 4
_START_SECONDS: Final = 120.0
_END_SECONDS: Final = 20.0


class ClusterStartError(Exception):
    """The cluster did not start."""


@contextlib.contextmanager
def autoscaled_cluster(node_cpus: int, most_nodes: int, idle_seconds: float) -> Iterator[str]:
    """A cluster for as long as the block runs: a head without CPUs, and nodes where something waits for their CPUs.

    Args:
        node_cpus: CPUs of a node, as Ray counts them; the machine has those that it has.
        most_nodes: that there may be beside the head.
        idle_seconds: behind which a node leaves on which nothing is.

    Yields:
        Its address.

    Raises:
        ClusterStartError: it does not start.
    """
    import ray
    from ray._raylet import Config

    # A signal that ends this process ends the cluster, too. Names of sockets are short.
    with termination(), tempfile.TemporaryDirectory(prefix="ps-", ignore_cleanup_errors=True) as folder:
        head, address = _start(Path(folder), lambda address: _settings(address, node_cpus, most_nodes, idle_seconds))
        try:
            # This process is let in by the same token; that it has one Ray has looked for when it was imported.
            os.environ["RAY_AUTH_MODE"] = "token"
            Config.initialize("")
            yield address
        finally:
            ray.shutdown()
            _end(head)


def _start(folder: Path, settings: Callable[[str], Mapping[str, Any]]) -> tuple[subprocess.Popen[bytes], str]:
    """The head and its address, when all of it runs; on a busy machine Ray may give up, and is started again."""
    import ray

    for attempt in range(1, _ATTEMPTS + 1):
        address = f"{ray.util.get_node_ip_address()}:{_free_port()}"  # type: ignore[no-untyped-call]
        cluster = folder / "cluster.json"
        cluster.write_text(json.dumps(settings(address)))
        command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block"]
        command += [f"--port={address.rpartition(':')[2]}", "--num-cpus=0", f"--object-store-memory={_STORE_BYTES}"]
        command += ["--min-worker-port=0", "--max-worker-port=0", "--include-dashboard=false", "--disable-usage-stats"]
        command += [f"--autoscaling-config={cluster}", f"--temp-dir={folder}/{attempt}"]
        said = folder / f"said-{attempt}"
        with said.open("wb") as output:
            head = subprocess.Popen(
                command, env=_environment(), stdout=output, stderr=subprocess.STDOUT, start_new_session=True
            )
        try:
            if _has_started(head, said):
                return head, address
        except BaseException:
            _end(head)
            raise
        _end(head)
    raise ClusterStartError(f"the cluster did not start in {_ATTEMPTS} attempts:\n{said.read_text()[-2000:]}")


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("", 0))
        port: int = free.getsockname()[1]
        return port


def _settings(address: str, node_cpus: int, most_nodes: int, idle_seconds: float) -> dict[str, Any]:
    """What `ray start --autoscaling-config` reads."""
    worker = {"CPU": node_cpus, "object_store_memory": _STORE_BYTES}
    return {
        "cluster_name": "fake",
        "max_workers": most_nodes,
        "upscaling_speed": most_nodes,
        "idle_timeout_minutes": idle_seconds / 60,
        "provider": {
            "type": "external",
            "module": _PROVIDER,
            "launch_multiple": True,
            "head_node_id": _HEAD,
            "gcs_address": address,
        },
        "auth": {},
        "head_node_type": _HEAD_TYPE,
        "available_node_types": {
            _HEAD_TYPE: {"resources": {"CPU": 0}, "node_config": {}, "max_workers": 0},
            "worker": {"resources": worker, "node_config": {}, "min_workers": 0, "max_workers": most_nodes},
        },
        **{name: {} for name in ("file_mounts", "docker")},
        **{name: [] for name in _UNUSED},
        "file_mounts_sync_continuously": False,
    }


def _environment() -> dict[str, str]:
    return {
        **os.environ,
        "AUTOSCALER_UPDATE_INTERVAL_S": "1",
        "RAY_FAKE_CLUSTER": "1",
        "RAY_enable_autoscaler_v2": "1",
        "RAY_CLOUD_INSTANCE_ID": _HEAD,
        "RAY_OVERRIDE_NODE_ID_FOR_TESTING": _HEAD,
        "RAY_AUTH_MODE": "token",
        "RAY_preload_python_modules": WARM_IMPORTS,
        "RAY_worker_niceness": "0",
        "RAY_LOG_TO_DRIVER": "0",
    }


def _has_started(head: subprocess.Popen[bytes], said: Path) -> bool:
    """Wait until `ray start` says that all of the head runs, or has given up."""
    deadline = time.monotonic() + _START_SECONDS
    while head.poll() is None and time.monotonic() < deadline:
        if b"--block" in said.read_bytes():
            return True
        time.sleep(0.1)
    return False


def _end(head: subprocess.Popen[bytes]) -> None:
    """End the head and all nodes: they are in one session, also those whose parent has ended before them."""
    # Ray brings a psutil of its own, which is found once Ray is imported.
    psutil = importlib.import_module("psutil")
    processes = [process for process in psutil.process_iter() if _session(process.pid) == head.pid]
    head.terminate()
    _, living = psutil.wait_procs(processes, timeout=_END_SECONDS)
    for process in living:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    head.wait()


def _session(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except OSError:
        return None
