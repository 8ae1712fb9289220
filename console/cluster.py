"""Connects a command to the Ray cluster that it means, and says what that cluster is like.

Commands on jobs need a cluster that is running; `run` makes do without one unless the job is to outlive it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from penstock.engine.checkpoint_config import CheckpointConfig
from penstock.engine.errors import ClusterError, ConfigurationError
from penstock.job_folders import DEFAULT_FOLDER
from penstock.savepoints.storage import check_writable, normalise_url, open_blobs

_DEFAULT_STORAGE: Final = str(DEFAULT_FOLDER / "checkpoints")
_SHARED: Final = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "ceph", "lustre", "glusterfs", "gpfs", "beegfs", "9p", "virtiofs", "afs", "fuse"}
)
"""File systems that other machines may see too."""


def connect_to_running(address: str | None, log_to_driver: bool = True) -> None:
    """Connect to a cluster that is there: the one at the address, or the one on this machine.

    Args:
        address: of the cluster; None: RAY_ADDRESS, else the one on this machine.
        log_to_driver: whether this process shows what the cluster's workers print, and what Ray says of them.

    Raises:
        ClusterError: there is none.
    """
    import ray

    from penstock.actors.cluster import ON_THIS_MACHINE, connect, named_address

    named = None if address == ON_THIS_MACHINE else named_address(address)
    # Ray uses the token of a cluster that it finds by itself.
    connect(named if named is not None or ray.is_initialized() else ON_THIS_MACHINE, 0, log_to_driver)


def connect_if_usable(address: str | None, tell: Callable[[str], None]) -> None:
    """Connect to the cluster that is named, or to one on this machine if there is one that can be used.

    Args:
        address: of the cluster; None: RAY_ADDRESS, else whatever there is.
        tell: told of those on this machine that cannot be used, where there are no others.

    Raises:
        ClusterError: the one that is named cannot be reached.
    """
    import ray

    from penstock.actors.cluster import ON_THIS_MACHINE, clusters_here, named_address

    if ray.is_initialized() or address not in (None, ON_THIS_MACHINE) or named_address(None):
        connect_to_running(address)
        return
    here = clusters_here()
    if here.address is not None:
        # It may end in between.
        with contextlib.suppress(ClusterError):
            connect_to_running(None)
    elif here.refused:
        tell(f"the job gets a cluster of its own, as {'; '.join(here.refused)}")


def is_connected() -> bool:
    """Whether this process is connected to a cluster."""
    import ray

    return bool(ray.is_initialized())


def hosts() -> int:
    """How many machines the cluster has that this process is connected to; 1 where it is not connected."""
    import ray

    if not is_connected():
        return 1
    nodes = ray.nodes()  # type: ignore[no-untyped-call]
    return len({node["NodeManagerAddress"] for node in nodes if node["Alive"]})


def storage_problems(config: CheckpointConfig, runtime: str, machines: int) -> list[str]:
    """What is wrong with the folders of checkpoints and savepoints: none of it would show before the first failure.

    Args:
        config: names the folders.
        runtime: of the job.
        machines: how many the cluster has.
    """
    named = [
        ("execution.checkpointing.dir", config.storage or (_DEFAULT_STORAGE if config.enabled else None)),
        ("execution.checkpointing.savepoint-dir", config.savepoint_storage),
        *((f"penstock.operator-storage.{uid}", url) for uid, url in config.storage_overrides),
    ]
    problems = []
    for key, url in named:
        # The cluster's own storage answers when the job does.
        if url is None or url.startswith("ray://"):
            continue
        if machines > 1 and is_local(url):
            problems.append(
                f"{key}: {url} is on the disk of this machine, which the other {machines - 1} of the cluster do not "
                "see; use shared storage, such as s3:// or a network file system"
            )
            continue
        if url.startswith("memory://") and runtime == "ray":
            problems.append(
                f"{key}: {url} is the memory of one process, and the job has many; use a path, s3://, ray://"
            )
            continue
        try:
            check_writable(open_blobs(url))
        except ConfigurationError as error:
            problems.append(f"{key}: {error}")
    return problems


def is_local(url: str) -> bool:
    """Whether a folder is on a disk that no other machine sees."""
    address = normalise_url(url)
    if not address.startswith("file://"):
        return False
    kind = _file_system(Path(unquote(urlsplit(address).path)))
    return kind not in _SHARED and not kind.startswith("fuse.")


def _file_system(path: Path) -> str:
    """The type of the file system that a path is, or will be, on; of the system's table of mounts."""
    try:
        lines = Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    real = os.path.realpath(path)
    best, kind = "", ""
    for line in lines:
        _, where, found, *_ = line.split(" ")
        mount = where.replace("\\040", " ")
        if len(mount) >= len(best) and os.path.commonpath([mount, real]) == mount:
            best, kind = mount, found
    return kind
