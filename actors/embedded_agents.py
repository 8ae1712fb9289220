"""Has the agents of an embedded cluster's raylet started when somebody wants them.

The raylet waits for their ports before it takes jobs, while each imports Ray. The agent of environments is wanted by
programs that have one; the dashboard's, where Ray is installed without what the dashboard needs, by nobody.
"""

from __future__ import annotations

import contextlib
import functools
import random
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from penstock.actors import agent_later
from penstock.actors.replaced import replaced

_ENVIRONMENTS: Final = "runtime_env_agent"
_DASHBOARD: Final = "dashboard_agent"
_COMMAND: Final = "_build_python_executable_command_memory_profileable"
_NOWHERE: Final = -1
"""What an agent says that has no such port."""
_LOWEST_PORT: Final = 10_000
_TRIES: Final = 100


@contextlib.contextmanager
def agents_later(node: Any) -> Iterator[None]:
    """Within it, the raylet of a `Node` of Ray's (2.60) is started; where that has other names, its agents are, too."""
    later: Mapping[str, _Later] = {}
    with contextlib.suppress(Exception):
        later = _told_ports(node)
    with replaced("ray._private.services", _COMMAND, lambda build: functools.partial(_command, build, later)):
        yield


_Later = Callable[[Sequence[str]], Sequence[str]]


def _command(build: Callable[..., Sequence[str]], later: Mapping[str, _Later], kind: str, *args: Any, **kw: Any) -> Any:
    """What Ray begins the command of a process of a kind with."""
    begins = build(kind, *args, **kw)
    return later[kind](begins) if kind in later else begins


def _told_ports(node: Any) -> Mapping[str, _Later]:
    """Say to the raylet, as the agents would, where they are; how each is started."""
    from ray import _raylet as untyped_raylet
    from ray._private import utils as untyped

    raylet, utils = _any(untyped_raylet), _any(untyped)
    address, port = node.node_ip_address, _unused_port(node.node_ip_address)
    tell = functools.partial(raylet.persist_port, node.get_session_dir_path(), node.node_id)
    node._ray_params.runtime_env_agent_port = port
    tell(raylet.RUNTIME_ENV_AGENT_PORT_NAME, port)
    later = {_ENVIRONMENTS: functools.partial(agent_later.command, address, port)}
    if utils.get_dashboard_dependency_error() is not None:
        for name in (
            raylet.METRICS_AGENT_PORT_NAME,
            raylet.METRICS_EXPORT_PORT_NAME,
            raylet.DASHBOARD_AGENT_LISTEN_PORT_NAME,
        ):
            tell(name, _NOWHERE)
        later[_DASHBOARD] = functools.partial(agent_later.command, address, 0)
    return later


def _any(untyped: Any) -> Any:
    return untyped


def _unused_port(address: str) -> int:
    """One below those that the system gives to connections, so that it stays unused.

    Raises:
        OSError: there is none.
    """
    below = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    for port in random.sample(range(_LOWEST_PORT, below), _TRIES):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind((address, port))
            return port
    raise OSError("no unused port")
