"""The commands on jobs against a real Ray cluster: from `run -d` to `cancel`, by name, as a user types them."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import ray

from tests.console.conftest import Penstock

pytestmark = pytest.mark.ray
HOME = os.path.expanduser("~")
"""Where Ray keeps the token of its clusters."""

FLOW = """
import penstock as ps
from penstock import DataGenSource, RandomInt

def doubled(row):
    return {"k": row["k"], "twice": 2 * row["k"]}

def flow(env):
    rows = env.from_source(DataGenSource({"k": RandomInt(0, 20)}, rows=None, rate=200.0)).uid("numbers")
    rows = rows.map(doubled, returns={"k": "int64", "twice": "int64"}).uid("doubled")
    rows.key_by("k").aggregate(n=ps.count()).uid("counts").sink_to(ps.FileSink("out", "json", mode="append")).uid("out")

class Broken:
    def __init__(self):
        raise ValueError("no such model")

    def __call__(self, batch):
        return batch

def broken(env):
    rows = env.from_source(DataGenSource({"k": RandomInt(0, 20)}, rows=None, rate=200.0)).uid("numbers")
    rows.map_batches(Broken).uid("broken").sink_to(ps.FileSink("out", "json", mode="append")).uid("out")

def printing(env):
    env.from_collection([1]).print()

def fails(row):
    print("looking at", row["n"], flush=True)
    raise ValueError("no number")

def failing(env):
    env.from_collection([{"n": 71}]).map(fails, returns={"n": "int64"}).print()
"""


@pytest.fixture
def jobs(penstock: Penstock, folder: Path, ray_cluster: None) -> Iterator[Penstock]:
    """The command line, with a flow that never ends; jobs that are left are cancelled."""
    (folder / "numbers_flow.py").write_text(FLOW.replace('"out", "json"', f'"{folder}/out", "json"'))
    yield penstock
    for info in penstock("list", "--json").document:
        penstock("cancel", info["id"])


def wait_for(penstock: Penstock, job: str, status: str) -> Any:
    deadline = time.monotonic() + 150
    while time.monotonic() < deadline:
        info = penstock("info", job, "--json").document
        if info.get("status") == status:
            return info
        # Each look takes CPU of the processes that start meanwhile.
        time.sleep(0.2)
    raise AssertionError(f"{job} did not become {status}: {info}")


def test_the_life_of_a_detached_job(jobs: Penstock, folder: Path) -> None:
    started = jobs("run", "-d", "-p", "2", "--json", "numbers_flow.py:flow")
    assert started.code == 0, started.err
    assert started.document["name"] == "numbers_flow"
    info = wait_for(jobs, "numbers_flow", "running")
    assert (info["id"], info["parallelism"]) == (started.document["id"], 2)

    again = jobs("run", "-d", "--json", "numbers_flow.py:flow")
    assert (again.code, again.document["error"]["type"]) == (1, "JobError")
    assert "is running already" in again.err

    assert jobs("checkpoint", info["id"]).code == 0
    taken = jobs("savepoint", "numbers_flow", "mine", "--json").document["savepoint"]
    assert (folder / "mine").is_dir()
    seen = jobs("savepoint", "inspect", taken, "--json").document
    assert "counts" in [operator["uid"] for operator in seen["operators"]]

    rescaled = jobs("rescale", "numbers_flow", "-p", "1")
    assert rescaled.code == 0, rescaled.err
    assert wait_for(jobs, "numbers_flow", "running")["parallelism"] == 1
    assert "numbers_flow" in jobs("list").out
    shown = jobs("info", "numbers_flow").out
    assert "rescale to 1" in shown
    seen = jobs("preview-rescale", "numbers_flow", "counts=1..2", "--json").document
    assert [(one["wanted"], one["outcome"], one["slots"]) for one in seen] == [
        ("counts to 1", "nothing", 1),
        ("counts to 2", "live", 2),
    ]
    single = jobs("rescale", "numbers_flow", "counts=2", "--json")
    assert (single.code, single.document["parallelism"]) == (0, {"counts": 2}), single.err
    wrong = jobs("rescale", "numbers_flow", "count=2")
    assert (wrong.code, "did you mean 'counts'?" in wrong.err) == (2, True)
    assert jobs("rescale", "numbers_flow", "counts").code == 2
    shown = jobs("info", "numbers_flow").out
    assert "failure " not in shown
    assert "takeover " not in shown
    assert jobs("info", "numbers_flow", "--json").document["restarts"] == 0

    stopped = jobs("stop", "numbers_flow", "--json").document["savepoint"]
    info = wait_for(jobs, "numbers_flow", "finished")["checkpoints"]
    shaken = jobs("chaos", "run", "--job", "numbers_flow")
    assert (shaken.code, "job 'numbers_flow' has ended: it is finished" in shaken.err) == (1, True)
    assert (info["latest"], info["latest_url"], info["savepoint_url"]) == (None, None, stopped)
    assert [(one["kind"], one["url"]) for one in info["history"]][-1] == ("suspend", stopped)
    shown = jobs("info", "numbers_flow").out
    assert f"savepoint: {stopped}\n" in shown
    assert f"\nstopped with savepoint {stopped}\n" in shown
    assert "stopped with savepoint" in jobs("list").out
    assert "chk-" not in shown
    assert jobs("run", "-d", "-p", "1", "-s", stopped, "numbers_flow.py:flow").code == 0
    wait_for(jobs, "numbers_flow", "running")
    drained = jobs("stop", "--drain", "--savepoint-path", "last", "numbers_flow")
    assert drained.code == 0, drained.err
    assert str(folder / "last") in drained.out
    assert wait_for(jobs, "numbers_flow", "finished")["drained"]


@pytest.mark.long("test_the_life_of_a_detached_job; tests/chaos/test_fault_table.py kills the driver of one")
def test_a_detached_job_outlives_the_command_and_can_be_cancelled(jobs: Penstock, folder: Path) -> None:
    import ray

    address = ray.get_runtime_context().gcs_address
    code = "from penstock.console.main import main; main()"
    storage = f"-Dexecution.checkpointing.dir={folder}/checkpoints"
    run = ["run", "-d", "-p", "1", "-Dpipeline.name=alone", storage, "--address", address]
    done = subprocess.run(
        [sys.executable, "-c", code, *run, "numbers_flow.py:flow"],
        cwd=folder,
        env={**os.environ, "HOME": HOME},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    wait_for(jobs, "alone", "running")
    cancelled = jobs("cancel", "alone", "--json")
    assert cancelled.document == {"name": "alone", "status": "cancelled", "had_ended": False}
    assert jobs("cancel", "alone").out == "job alone was cancelled already\n"
    stopped = jobs("stop", "alone")
    assert (stopped.code, "job 'alone' has ended: it is cancelled" in stopped.err) == (1, True)
    # One that has ended is not what anybody means.
    mistyped = jobs("info", "alon")
    assert "no job 'alon'; no job is running on this cluster" in mistyped.err


@pytest.mark.long("test_the_life_of_a_detached_job")
def test_a_job_is_started_when_its_state_is_there_and_not_before(jobs: Penstock, folder: Path) -> None:
    storage = f"-Dexecution.checkpointing.dir={folder}/checkpoints"
    run = ["run", "-d", "-p", "1", "--json", storage, f"-Dexecution.checkpointing.savepoint-dir={folder}/savepoints"]
    assert jobs(*run, "numbers_flow.py:flow").document["status"] == "running"
    savepoint = Path(urlsplit(jobs("stop", "numbers_flow", "--json").document["savepoint"]).path)
    damaged = min((savepoint / "data").iterdir())
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 1
    damaged.write_bytes(content)

    failed = jobs(*run, "-s", str(savepoint), "-Dpipeline.name=damaged", "numbers_flow.py:flow")
    assert (failed.code, failed.document["error"]["type"]) == (1, "CheckpointCorruptError")
    assert damaged.name in failed.err
    # It has never been restarted, and says once why it failed.
    (listed,) = [job for job in jobs("list", "--json").document if job["name"] == "damaged"]
    assert (listed["status"], listed["restarts"]) == ("failed", 0)
    assert jobs("cancel", "damaged").out == "job damaged had failed already\n"
    shown = jobs("info", "damaged").out
    assert (shown.count(damaged.name), shown.count("error:"), shown.count("failure")) == (1, 1, 0)


@pytest.mark.long("tests/engine/job/test_brain.py")
def test_a_start_that_is_tried_again_says_so_and_why(jobs: Penstock, folder: Path) -> None:
    storage = f"-Dexecution.checkpointing.dir={folder}/checkpoints"
    again = ["-Drestart-strategy.type=fixed-delay", "-Drestart-strategy.fixed-delay.attempts=1000"]
    started = jobs("run", "-d", "-p", "1", storage, *again, "numbers_flow.py:broken")
    assert started.code == 0, started.err
    assert ") is restarting; `penstock info numbers_flow.broken` shows it; `penstock cancel" in started.out
    assert "; restart-strategy.type, such as -D" in started.out
    assert "job numbers_flow.broken failed at its start, which is tried again: " in started.err
    assert "no such model" in started.err
    assert "Traceback" not in started.err
    lost = jobs("run", "-d", "-p", "1", "--json", "-Dpipeline.name=lost", storage, "numbers_flow.py:broken")
    assert (lost.code, lost.document["error"]["type"]) == (1, "LifeCycleError")
    assert "no such model" in lost.document["error"]["message"]


@pytest.mark.long("test_the_life_of_a_detached_job")
def test_a_stopped_job_says_where_its_savepoint_is(jobs: Penstock, folder: Path) -> None:
    storage = f"-Dexecution.checkpointing.dir={folder}/checkpoints"
    assert jobs("run", "-d", "-p", "1", storage, "numbers_flow.py:flow").code == 0
    assert jobs("checkpoint", "numbers_flow").code == 0
    stopped = jobs("stop", "numbers_flow", "--savepoint-path", str(folder / "last"), "--json").document["savepoint"]
    info = jobs("info", "numbers_flow", "--json").document["checkpoints"]
    assert (info["latest"], info["latest_url"], info["savepoint_url"]) == (None, None, stopped)
    assert [(record["kind"], record["url"]) for record in info["history"]] == [
        ("checkpoint", None),
        ("suspend", stopped),
    ]
    shown = jobs("info", "numbers_flow").out
    assert f"savepoint: {stopped}\n" in shown
    assert f"\nstopped with savepoint {stopped}\n" in shown
    assert "stopped with savepoint" in jobs("list").out
    assert "chk-" not in shown
    assert "attempt 1\n" in shown


@pytest.mark.long("tests/engine/job/test_brain.py")
def test_a_rescale_that_waits_for_room_says_so_and_one_to_what_is_there_changes_nothing(
    jobs: Penstock, folder: Path
) -> None:
    storage = f"-Dexecution.checkpointing.dir={folder}/checkpoints"
    started = jobs("run", "-d", "-p", "1", "-Dslot.request.timeout=4s", storage, "numbers_flow.py:flow")
    assert started.code == 0, started.err
    wait_for(jobs, "numbers_flow", "running")
    done = jobs("rescale", "numbers_flow", "-p", "100")
    assert done.code == 1
    waiting, error = done.err.strip().splitlines()
    assert waiting.endswith(
        "; Ctrl-C ends this command; the job is still rescaled if there is room in that time, else continues as it is"
    )
    assert "ray.shutdown" not in done.err
    assert waiting.startswith(
        "waiting for room for 92 of 100 slots, for up to 4 s: they need 92 CPU; free in the cluster: 0 of 8 CPU; this "
    )
    assert error.startswith("error: no room for 92 of 100 slots within 4 s: they need 92 CPU")
    assert "free in the cluster: 0 of 8 CPU; this job holds 8 CPU; " in error
    assert not any(name in done.err for name in ("bundle_", "node:", "accelerator_type:"))
    info = jobs("info", "numbers_flow", "--json").document
    assert (info["parallelism"], info["restarts"], info["waiting_for"]) == (1, 0, None)
    before = info["restart_history"], info["checkpoints"]["completed"]

    done = jobs("rescale", "numbers_flow", "-p", "1")
    assert done.out == "nothing was changed: at parallelism 1 job numbers_flow is as it is already\n"
    info = jobs("info", "numbers_flow", "--json").document
    assert (info["restart_history"], info["checkpoints"]["completed"]) == before
    done = jobs("rescale", "numbers_flow", "-p", "2", "--json")
    assert (done.document["changed"], done.document["seconds"] > 0) == (True, True)


def test_what_cannot_be_done_is_refused(jobs: Penstock) -> None:
    for arguments in (["info"], ["checkpoint"], ["savepoint"], ["stop"], ["cancel"], ["rescale", "-p", "2"]):
        done = jobs(*arguments, "nowhere", "--json")
        assert (done.code, done.document["error"]["type"]) == (1, "JobError")
        assert "no job 'nowhere'" in done.err
    printing = jobs("run", "-d", "numbers_flow.py:printing")
    assert printing.code == 2
    assert "cannot be detached" in printing.err


def test_the_head_of_the_cluster_cannot_leave(jobs: Penstock) -> None:
    done = jobs("drain", "--this-node", "--wait", "--timeout", "1s")
    assert done.code == 1
    assert "is the head, which cannot leave: the cluster and the managers of its jobs live there" in done.err


@pytest.mark.long("the test below, of one that fails; tests/console/test_run.py, of one that ends")
def test_an_attached_job_runs_to_its_end(jobs: Penstock) -> None:
    done = jobs("run", "--json", "-p", "1", "numbers_flow.py:printing")
    assert (done.code, done.document["status"]) == (0, "finished")
    assert "1" in done.err


def test_what_functions_printed_is_shown_before_the_error_of_the_job(folder: Path, jobs: Penstock) -> None:
    import ray

    code = "from penstock.console.main import main; main()"
    address = ray.get_runtime_context().gcs_address
    done = subprocess.run(
        [sys.executable, "-c", code, "run", "-p", "1", "--address", address, "numbers_flow.py:failing"],
        cwd=folder,
        env={**os.environ, "HOME": HOME},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1, done.stdout
    said, _, _ = done.stdout.partition("error: job 'numbers_flow.failing' failed")
    assert "looking at 71" in said, done.stdout


@pytest.mark.long("tests/actors/test_cluster.py")
def test_an_attached_job_has_a_cluster_of_its_own_where_that_of_the_machine_refuses(
    folder: Path, jobs: Penstock
) -> None:
    # The command has another home, so another token than the cluster of these tests, which is the machine's to it.
    # Other clusters of the machine, which other tests have started, are none of its business.
    code = (
        "import functools; from ray._private import services; services.find_gcs_addresses = functools.cache(set); "
        "from penstock.console.main import main; main()"
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as notes:
        (Path(notes) / "ray").mkdir()
        (Path(notes) / "ray" / "ray_current_cluster").write_text(ray.get_runtime_context().gcs_address)
        done = subprocess.run(
            [sys.executable, "-c", code, "run", "-p", "1", "numbers_flow.py:printing"],
            cwd=folder,
            env={**environment, "HOME": str(folder), "RAY_TMPDIR": notes},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert (done.returncode, "1" in done.stdout) == (0, True), done.stderr
    (said,) = [line for line in done.stderr.splitlines() if "a cluster of its own" in line]
    assert "the Ray cluster at" in said
    assert "it wants an authentication token" in said
