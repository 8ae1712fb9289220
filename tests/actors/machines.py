"""Machines of their own on this one: network namespaces with a cable each to a switch, on which nodes of Ray run.

Nothing of it reaches the network of the machine that it is on. It takes root, and a kernel that permits namespaces:
`unavailable` says what is missing.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

_NETWORK = "10.213.0"
_BITS = 24
_CLONE_NEWNET = 0x40000000
_START_SECONDS = 240.0
_MEMORY = 100 * 1024**2
HEALTH: Mapping[str, int] = {
    "health_check_initial_delay_ms": 1000,
    "health_check_period_ms": 500,
    "health_check_timeout_ms": 5000,
    "health_check_failure_threshold": 4,
}
"""A node that is dead is noticed within seconds, and one that is only slow is given time."""
ENVIRONMENT: Mapping[str, str] = {
    "RAY_AUTH_MODE": "disabled",
    "RAY_preload_python_modules": "penstock.warm_imports",
    "RAY_raylet_start_wait_time_s": "120",
    "RAY_gcs_rpc_server_reconnect_timeout_s": "600",
}
"""Of all that runs on the machines, which nobody else reaches; they may start slowly."""


def unavailable() -> str | None:
    """Why there can be no such machines here; None: there can."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        return "network namespaces need root, and the program ip"
    probe = f"psprobe{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", probe], capture_output=True, text=True, check=False)
    if made.returncode == 0:
        cable = ["ip", "-n", probe, "link", "add", "name", "veth0", "type", "veth", "peer", "name", "veth1"]
        made = subprocess.run(cable, capture_output=True, text=True, check=False)
        subprocess.run(["ip", "netns", "delete", probe], check=False)
    return None if made.returncode == 0 else f"network namespaces are not permitted: {made.stderr.strip()}"


class Machine:
    """One of them.

    Args:
        name: of its namespace.
        host: its address.
        port: of the switch, that its cable is in.
    """

    def __init__(self, name: str, host: str, port: str) -> None:
        self.name, self.host, self.port = name, host, port

    def command(self, *words: str) -> list[str]:
        """What runs a command on it."""
        return ["ip", "netns", "exec", self.name, *words]

    def enter(self) -> None:
        """Have this thread, and what it starts from now on, be on it."""
        with open(f"/run/netns/{self.name}", "rb") as namespace:
            if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), _CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), f"machine {self.name} cannot be entered")

    def pids(self) -> Sequence[int]:
        """The processes on it, but for this one where it has entered it."""
        with subprocess.Popen(["ip", "netns", "pids", self.name], stdout=subprocess.PIPE, text=True) as listing:
            listed, _ = listing.communicate()
        return [pid for pid in map(int, listed.split()) if pid not in (os.getpid(), listing.pid)]

    def kill(self) -> None:
        """End all that runs on it, as a loss of power does; but for the process that asks."""
        while pids := self.pids():
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)


class Network:
    """Some machines, and a cluster of Ray on them: the first is the head, and has no slots.

    Attributes:
        machines: so far.
        address: of the cluster.
    """

    def __init__(self) -> None:
        self._switch = f"ps{os.getpid()}s"
        self._started: list[subprocess.Popen[bytes]] = []
        self.machines: list[Machine] = []
        # Sockets of Ray are there, whose paths may have 107 characters.
        self.folder = Path(tempfile.mkdtemp(prefix="ps-", dir="/tmp"))
        _ip("netns", "add", self._switch)
        _ip("-n", self._switch, "link", "add", "name", "switch", "type", "bridge")
        _ip("-n", self._switch, "link", "set", "switch", "up")

    def __enter__(self) -> Network:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    @property
    def address(self) -> str:
        return f"{self.machines[0].host}:6379"

    def add_machine(self) -> Machine:
        """One more, with nothing on it."""
        number = len(self.machines) + 1
        machine = Machine(f"ps{os.getpid()}m{number}", f"{_NETWORK}.{number}", f"port{number}")
        _ip("netns", "add", machine.name)
        self.machines.append(machine)
        cable = ("type", "veth", "peer", "name", "eth0", "netns", machine.name)
        _ip("-n", self._switch, "link", "add", "name", machine.port, *cable)
        _ip("-n", self._switch, "link", "set", machine.port, "master", "switch", "up")
        _ip("-n", machine.name, "address", "add", f"{machine.host}/{_BITS}", "dev", "eth0")
        for device in ("lo", "eth0"):
            _ip("-n", machine.name, "link", "set", device, "up")
        return machine

    def cut(self, machine: Machine) -> None:
        """Nothing comes to a machine or from it any more; nobody is told."""
        _ip("-n", self._switch, "link", "set", machine.port, "nomaster")

    def mend(self, machine: Machine) -> None:
        """Undo `cut`."""
        _ip("-n", self._switch, "link", "set", machine.port, "master", "switch")

    def start_head(self, tables: str) -> None:
        """The head of the cluster on the first machine; again, where it was killed.

        Args:
            tables: host:port of the Redis server that keeps them.
        """
        options = ["--head", "--port=6379", "--num-cpus=0", f"--temp-dir={self.folder}/ray"]
        options.append(f"--system-config={json.dumps(HEALTH)}")
        # What the machines share is their disk: a new head knows of no other.
        (self.folder / "ray" / "ray_current_cluster").unlink(missing_ok=True)
        self._start(self.machines[0], options, {"RAY_REDIS_ADDRESS": tables})

    def start_node(self, machine: Machine | None = None, cpus: int = 2) -> Machine:
        """A node of the cluster, on a machine of its own or on the one that is given."""
        machine = machine or self.add_machine()
        self._start(machine, [f"--address={self.address}", f"--num-cpus={cpus}"], {})
        return machine

    def _start(self, machine: Machine, options: Sequence[str], environment: Mapping[str, str]) -> None:
        program = [sys.executable, "-m", "ray.scripts.scripts", "start", *options, f"--node-ip-address={machine.host}"]
        quiet = ["--include-dashboard=false", "--disable-usage-stats"] if "--head" in options else []
        sizes = [f"--object-store-memory={_MEMORY}", "--block"]
        log = self.folder / f"{machine.name}.log"
        with log.open("ab") as output:
            command = machine.command(*program, *quiet, *sizes)
            env = {**os.environ, **ENVIRONMENT, **environment}
            process = subprocess.Popen(command, stdout=output, stderr=output, env=env, start_new_session=True)
        self._started.append(process)
        began = log.stat().st_size
        deadline = time.monotonic() + _START_SECONDS
        while b"Ray runtime started." not in log.read_bytes()[began:]:
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)

    def close(self) -> None:
        """End all that runs on the machines, and take them away."""
        for machine in self.machines:
            machine.kill()
        for process in self._started:
            process.wait()
        for name in [*(machine.name for machine in self.machines), self._switch]:
            _ip("netns", "delete", name)
        shutil.rmtree(self.folder, ignore_errors=True)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)
