"""A cluster on several machines (network namespaces), and jobs on it. Run by `test_machines.py`.

Reads lines, each with a case and a folder for it; says for each that it went well, or why not, and that it is over.
There is the head, and a machine with this process, a node without slots, and servers: S3 for checkpoints, as machines
share no folder, and Redis for the tables of the head. Each case brings the machines with slots.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import ray

from penstock import JobStatus
from penstock.actors.registry import named_jobs
from penstock.engine.errors import PenstockError
from penstock.testing.chaos import AfterFault, ChaosHarness, ChaosSchedule, KillSubtask, ScheduledFault, SubtaskChoice
from tests.actors.cases import OK, OVER
from tests.actors.keyed_job import assert_exact, environment, submit, until, until_checkpoint
from tests.actors.machines import ENVIRONMENT, Machine, Network

_BUCKET = "s3://machines"
_S3_PORT, _REDIS_PORT = 5555, 5556
_ROWS = 20_000
_KILLS = 5
_ORDERS = f"""
import penstock as ps
from penstock import DataGenSource, RandomInt

def flow(env):
    rows = env.from_source(DataGenSource({{"k": RandomInt(0, 20)}}, rows=None, rate=200.0)).uid("numbers")
    counts = rows.key_by("k").aggregate(n=ps.count()).uid("counts")
    counts.sink_to(ps.FileSink("{_BUCKET}/by-hand/out", "json", mode="append")).uid("out")
"""
_COMMAND = """
import functools
import sys
import ray
ray.init = functools.partial(ray.init, _node_ip_address=sys.argv.pop(1))
from penstock.console.main import main
main()
"""
"""The command `penstock`, on the node that is named first.

By itself Ray takes a node among all processes that it sees, and these machines see those of each other: that of the
head, whose address is not this machine's. Small answers come all the same; those that go by an object store never do.
"""


def noticed(network: Network, folder: Path) -> None:
    """Processes of a job are killed on other machines than its manager's, and it notices as if they were on its own."""
    network.start_node()
    hurry = folder / "hurry"
    env = environment(f"{_BUCKET}/noticed", standbys=1, address=network.address)
    job, updates = submit(env, "noticed", rows=_ROWS, rate=200, hurry=hurry)
    info = until_checkpoint(job)
    assert info.manager_pid in network.machines[0].pids(), "job managers are on the head while it lives"
    kill = KillSubtask((SubtaskChoice("count"),))
    run = ChaosHarness(job, ChaosSchedule([ScheduledFault(AfterFault(3.0), kill)] * _KILLS)).run()
    assert not run.violations, run
    times = [record.detect_ms for record in run.fired if record.detect_ms is not None]
    # For people: what the machine has to do besides decides.
    _say(f"noticed after {', '.join(f'{one:.0f}' for one in times)} ms, load {os.getloadavg()[0]:.1f}\n")
    assert len(times) == _KILLS, run
    hurry.touch()
    job.wait()
    assert_exact(updates, _ROWS)


def partitioned(network: Network, folder: Path) -> None:
    """The network of the machine with the subtasks fails: they live on, the job resumes elsewhere, nothing is twice."""
    lost = network.start_node()
    hurry = folder / "hurry"
    env = environment(f"{_BUCKET}/partitioned", address=network.address)
    env.configure({"heartbeat.timeout": "5s"})
    job, updates = submit(env, "partitioned", rows=_ROWS, rate=200, hurry=hurry)
    until_checkpoint(job)
    network.start_node()
    began = time.monotonic()
    network.cut(lost)
    until(job, lambda info: info.restarts >= 1 and info.status is JobStatus.RUNNING)
    _say(f"resumed {time.monotonic() - began:.1f} s after the cut, load {os.getloadavg()[0]:.1f}\n")
    assert lost.pids(), "the subtasks there are to live on as zombies"
    network.mend(lost)
    until_checkpoint(job, 3)
    hurry.touch()
    job.wait()
    assert job.status() is JobStatus.FINISHED
    assert_exact(updates, _ROWS)


def headless(network: Network, folder: Path) -> None:
    """The head is lost with the job's manager, and started again with the tables of before: the job has gone on."""
    network.start_node()
    hurry = folder / "hurry"
    env = environment(f"{_BUCKET}/headless", address=network.address)
    job, updates = submit(env, "headless", rows=_ROWS, rate=200, hurry=hurry)
    before = until_checkpoint(job)
    head, *_ = network.machines
    places = {machine.name: before.manager_pid in machine.pids() for machine in network.machines}
    assert before.manager_pid in head.pids(), f"managers are on the head while it lives: {places}"
    began = time.monotonic()
    head.kill()
    network.start_head(_tables(network))
    started = time.monotonic()
    until(job, lambda info: info.manager_pid != before.manager_pid and info.status is JobStatus.RUNNING)
    _say(f"head back after {started - began:.1f} s, its manager after {time.monotonic() - started:.1f} s more\n")
    info = until_checkpoint(job, 3)
    _say(f"restarts {info.restarts}, attempt {before.attempt} -> {info.attempt}\n")
    hurry.touch()
    job.wait()
    assert job.status() is JobStatus.FINISHED
    assert_exact(updates, _ROWS)


def shaken(network: Network, folder: Path) -> None:
    """The command shakes jobs on a cluster that was started by hand, amid rescales; it refuses local checkpoints."""
    for _ in range(2):
        network.start_node()
    options = ["--seed", "1", "--schedules", "2", "--duration", "5s", "--during", "storm", "--json"]
    kinds = [word for kind in ("subtask", "manager", "pause", "drain") for word in ("--kind", kind)]
    local = _chaos(network, *options, *kinds)
    assert (local["code"], "give --storage" in local["error"]["message"]) == (2, True), local
    document = _chaos(network, *options, *kinds, "--storage", f"{_BUCKET}/shaken")
    assert (document["code"], document["violations"]) == (0, []), document
    assert document["checked"]["rows checked"] > 0, document
    assert document["faults_amid_rescales"] > 0, document
    assert not named_jobs(), "the command ends the jobs that it started"


def _chaos(network: Network, *options: str) -> dict[str, Any]:
    command = _command("chaos", "run", "--cluster", network.address, *options)
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)
    assert done.stdout.startswith("{"), done.stderr
    return {**json.loads(done.stdout), "code": done.returncode}


def by_hand(network: Network, folder: Path) -> None:
    """docs/deployment.md's commands for a cluster of one's own: the job is rescaled, drained, stopped, and resumes."""
    lost = network.start_node()
    network.start_node()
    (folder / "orders.py").write_text(_ORDERS)
    text = (Path(__file__).parents[2] / "docs" / "deployment.md").read_text(encoding="utf-8")
    (line,) = re.findall(r"^penstock (run -d --resume-if-any (?:.*\\\n)*.*)$", text, re.MULTILINE)
    run = line.replace("\\\n", " ").replace("s3://my-bucket", f"{_BUCKET}/by-hand").split()
    began = _penstock(folder, *run, f"-Dexecution.checkpointing.savepoint-dir={_BUCKET}/by-hand/savepoints")
    assert began["code"] == 0, began
    running = _until_running(folder, began["name"])
    assert began["name"] in [one["name"] for one in _penstock(folder, "list")["answer"]]
    again = _penstock(folder, *run)
    assert (again["code"], "is running already" in again["error"]["message"]) == (1, True), again
    rescaled = _penstock(folder, "rescale", "orders", "counts=1")
    assert rescaled["changed"], rescaled
    node = next(one["NodeID"] for one in ray.nodes() if one["NodeManagerAddress"] == lost.host)
    drained = _penstock(folder, "drain", "--node", node[:12], "--wait", "--timeout", "110s")
    assert drained["code"] == 0, drained
    info = _penstock(folder, "info", "orders")
    assert (info["restarts"], info["started_ms"]) == (0, running["started_ms"]), info
    assert not {one["pid"] for task in info["tasks"] for one in task["subtasks"]} & set(lost.pids()), info
    stopped = _penstock(folder, "stop", "orders")
    assert stopped["code"] == 0, stopped
    assert _penstock(folder, *run, f"-Dexecution.checkpointing.savepoint-dir={_BUCKET}/by-hand/savepoints")["code"] == 0
    resumed = _until_running(folder, "orders")
    assert resumed["checkpoints"]["restored_url"] == stopped["savepoint"]


def _until_running(folder: Path, job: str) -> dict[str, Any]:
    while True:
        info = _penstock(folder, "info", job)
        assert info["code"] == 0, info
        if info["status"] == JobStatus.RUNNING.value:
            return info
        time.sleep(0.5)


def _penstock(folder: Path, *words: str) -> dict[str, Any]:
    """A command, as a user types it on this machine: its answer, and its exit code."""
    program = _command(*words, "--json")
    done = subprocess.run(program, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout[:1] in ("{", "["), done.stderr
    answer = json.loads(done.stdout)
    return {**(answer if isinstance(answer, dict) else {"answer": answer}), "code": done.returncode}


def _command(*words: str) -> list[str]:
    own: str = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
    return [sys.executable, "-c", _COMMAND, own, *words]


CASES: Mapping[str, Callable[[Network, Path], None]] = {
    "noticed": noticed,
    "partitioned": partitioned,
    "headless": headless,
    "shaken": shaken,
    "by_hand": by_hand,
}


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with Network() as network:
        network.add_machine()
        here = network.add_machine()
        os.environ.update(ENVIRONMENT)
        here.enter()
        with _storage(here), _redis(here):
            network.start_head(_tables(network))
            network.start_node(here, cpus=0)
            # By itself it takes the first node that it finds on this disk for its own, and would be lost with the head.
            # What `ray start` writes for the commands of a machine is on the disk that all share.
            os.environ["RAY_ADDRESS"] = network.address
            ray.init(address=network.address, _node_ip_address=here.host, log_to_driver=False)
            try:
                for line in sys.stdin:
                    case, folder = line.split(maxsplit=1)
                    _run(case, network, Path(folder.strip()))
                    _say(OVER)
            finally:
                ray.shutdown()


def _run(case: str, network: Network, folder: Path) -> None:
    try:
        CASES[case](network, folder)
        _say(OK)
    except Exception:
        traceback.print_exc(file=sys.stdout)
    for job in named_jobs().values():
        with contextlib.suppress(PenstockError):
            job.cancel()
    for machine in network.machines[2:]:
        machine.kill()
    while sum(node["Alive"] for node in ray.nodes()) > 2:
        time.sleep(0.1)


def _tables(network: Network) -> str:
    return f"{network.machines[1].host}:{_REDIS_PORT}"


@contextlib.contextmanager
def _redis(here: Machine) -> Iterator[None]:
    """A Redis server that all machines reach."""
    options = ["--bind", here.host, "--port", str(_REDIS_PORT), "--protected-mode", "no", "--save", ""]
    server = subprocess.Popen(["redis-server", *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while not _listens(here.host, _REDIS_PORT):
            assert server.poll() is None
            time.sleep(0.1)
        yield
    finally:
        server.kill()
        server.wait()


@contextlib.contextmanager
def _storage(here: Machine) -> Iterator[None]:
    """An S3 server that all machines reach, and this process and all nodes know of."""
    os.environ.update(
        AWS_ENDPOINT_URL=f"http://{here.host}:{_S3_PORT}",
        AWS_ACCESS_KEY_ID="of-the-test",
        AWS_SECRET_ACCESS_KEY="of-the-test",
        AWS_REGION="us-east-1",
        AWS_ALLOW_HTTP="true",
    )
    command = [sys.executable, "-m", "moto.server", "--host", here.host, "--port", str(_S3_PORT)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while not _has_bucket(here):
            assert server.poll() is None
            time.sleep(0.1)
        yield
    finally:
        server.kill()
        server.wait()


def _listens(host: str, port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex((host, port)) == 0


def _has_bucket(here: Machine) -> bool:
    connection = http.client.HTTPConnection(here.host, _S3_PORT, timeout=60)
    try:
        connection.request("PUT", f"/{_BUCKET.removeprefix('s3://')}")
        return connection.getresponse().status == http.HTTPStatus.OK
    except OSError:
        return False
    finally:
        connection.close()


def _say(text: str) -> None:
    print(text, end="", flush=True)  # noqa: T201 - read by the test


if __name__ == "__main__":
    main()
