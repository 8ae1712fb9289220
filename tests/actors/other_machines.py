"""A cluster on several machines (network namespaces), and jobs on it. Run by `test_machines.py`.

Reads lines, each with a case and a folder for it; says for each that it went well, or why not, and that it is over.
There is the head, and a machine with this process, a node without slots, and an S3 server for checkpoints, as machines
share no folder. Each case brings the machines with slots.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import ray

from penstock import JobStatus
from penstock.actors.registry import named_jobs
from penstock.engine.errors import PenstockError
from penstock.testing.chaos import AfterFault, ChaosHarness, ChaosSchedule, KillSubtask, ScheduledFault, SubtaskChoice
from tests.actors.cases import OK, OVER
from tests.actors.keyed_job import assert_exact, environment, submit, until, until_checkpoint
from tests.actors.machines import ENVIRONMENT, Machine, Network

_BUCKET = "s3://machines"
_S3_PORT = 5555
_ROWS = 20_000
_KILLS = 5


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


CASES: Mapping[str, Callable[[Network, Path], None]] = {
    "noticed": noticed,
    "partitioned": partitioned,
}


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with Network() as network:
        network.add_machine()
        here = network.add_machine()
        os.environ.update(ENVIRONMENT)
        here.enter()
        with _storage(here):
            network.start_head()
            network.start_node(here, cpus=0)
            ray.init(address=network.address, log_to_driver=False)
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
