"""Agents of an embedded cluster: what wakes them, and what they are where Ray is another one."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ray._private import services as untyped

from penstock.actors import agent_later
from penstock.actors.embedded_agents import agents_later
from tests.actors.test_fork_server import await_listener

services: Any = untyped
AGENT = [sys.executable, "-c", "print('awake')"]
ADDRESS = "127.0.0.1"


@pytest.fixture
def raylet() -> Iterator[subprocess.Popen[bytes]]:
    """What lives as long as nobody ends it."""
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


def waiting(raylet: subprocess.Popen[bytes], port: int) -> subprocess.Popen[str]:
    command = agent_later.command(ADDRESS, port, AGENT)
    environment = {**os.environ, "RAY_RAYLET_PID": str(raylet.pid)}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def unused_port() -> int:
    with socket.create_server((ADDRESS, 0)) as probe:
        return int(probe.getsockname()[1])


def test_an_agent_starts_when_somebody_connects(raylet: subprocess.Popen[bytes]) -> None:
    port = unused_port()
    with waiting(raylet, port) as agent:
        await_listener((ADDRESS, port))
        assert agent.communicate(timeout=60)[0] == "awake\n"


@pytest.mark.parametrize("listens", [False, True])
def test_an_agent_that_nobody_wants_ends_with_the_raylet(raylet: subprocess.Popen[bytes], listens: bool) -> None:
    with waiting(raylet, unused_port() if listens else 0) as agent:
        raylet.kill()
        assert agent.communicate(timeout=60)[0] == ""
        assert agent.returncode == 0


def test_an_agent_starts_at_once_where_no_system_tells_of_ends(
    raylet: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    become: list[tuple[str, list[str]]] = []
    monkeypatch.setenv("RAY_RAYLET_PID", str(raylet.pid))
    monkeypatch.delattr(os, "pidfd_open")
    monkeypatch.setattr(sys, "argv", ["agent_later.py", ADDRESS, "0", *AGENT])
    monkeypatch.setattr(os, "execv", lambda program, arguments: become.append((program, arguments)))
    agent_later.main()
    assert become == [(AGENT[0], AGENT)]


def node(folder: Path) -> Any:
    return SimpleNamespace(
        node_ip_address=ADDRESS,
        node_id="ab" * 28,
        get_session_dir_path=lambda: str(folder),
        _ray_params=SimpleNamespace(),
    )


def begun(kind: str) -> Any:
    """What Ray begins the command of a process of a kind with."""
    return services._build_python_executable_command_memory_profileable(kind, "/session")


def test_the_raylet_knows_where_agents_will_be(tmp_path: Path) -> None:
    one = node(tmp_path)
    before = begun("runtime_env_agent")
    with agents_later(one):
        port = one._ray_params.runtime_env_agent_port
        assert begun("runtime_env_agent") == agent_later.command(ADDRESS, port, before)
        assert begun("dashboard") == before
        (noted,) = tmp_path.glob("runtime_env_agent_port_*")
        assert noted.read_text() == str(port)
    assert begun("runtime_env_agent") == before


@pytest.mark.parametrize("missing", ["persist_port", "RUNTIME_ENV_AGENT_PORT_NAME"])
def test_agents_start_at_once_where_ray_lacks_a_name(
    missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(f"ray._raylet.{missing}")
    before = begun("runtime_env_agent")
    with agents_later(node(tmp_path)):
        assert begun("runtime_env_agent") == before


def test_an_agent_of_a_dashboard_that_is_installed_starts_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What Ray measures goes there."""
    before = begun("dashboard_agent")
    for error, comes_later in ((None, False), (ImportError("no aiohttp"), True)):
        monkeypatch.setattr("ray._private.utils.get_dashboard_dependency_error", lambda error=error: error)
        with agents_later(node(tmp_path)):
            assert (begun("dashboard_agent") != before) == comes_later
        assert bool(list(tmp_path.glob("metrics_agent_port_*"))) == comes_later
