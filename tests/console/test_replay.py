"""`penstock job replay`: the log of a job that has run here, found by folder and by file; no cluster."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

import penstock as ps
from penstock.engine.clock import ManualClock
from penstock.recovery import checkpoints
from tests.console.conftest import Penstock


@pytest.fixture
def job(folder: Path) -> Path:
    """The folder of a job that has finished."""
    env = ps.StreamEnvironment(
        runtime="local",
        clock=ManualClock(),
        parallelism=1,
        checkpoints=checkpoints("10ms", str(folder / "checkpoints")),
    )
    env.from_collection([{"n": n} for n in range(5)]).uid("rows").map(lambda row: row, returns={"n": "int64"}).print()
    env.execute("copies")
    return next((folder / "checkpoints").iterdir())


def test_a_finished_job_leaves_its_log_and_it_replays_without_a_difference(penstock: Penstock, job: Path) -> None:
    done = penstock("job", "replay", str(job), "--json")
    assert done.code == 0, done.err
    document = done.document
    assert (document["manager"], document["managers"], document["difference"]) == (1, [1], None)
    assert document["events"] == document["compared"] == len(document["steps"])
    told = [step["event"].partition("(")[0] for step in document["steps"]]
    assert told[:3] == ["Began", "Claimed", "Deployed"]
    assert told[-1] == "EndWritten"
    assert document["steps"][-1]["recorded"][-1].startswith("End(status=FINISHED")


def test_parts_folders_and_copies_name_the_same_log(penstock: Penstock, job: Path) -> None:
    (part,) = (job / "log").iterdir()
    copy = job.parent / "incident.jsonl"
    copy.write_bytes(gzip.decompress(part.read_bytes()))
    shown = [penstock("job", "replay", str(path)) for path in (job, job / "log", part, part.as_uri(), copy)]
    assert [done.code for done in shown] == [0] * 5
    assert all("compared: no difference" in done.out for done in shown)
    assert "Deploy(attempt=1000001" in shown[0].out


def test_a_difference_is_told_and_the_exit_code_is_1(penstock: Penstock, job: Path) -> None:
    (part,) = (job / "log").iterdir()
    lines = gzip.decompress(part.read_bytes()).decode().splitlines()
    changed = json.loads(lines[2])
    changed["said"][-1] = "Deploy(another)"
    copy = job.parent / "changed.jsonl"
    copy.write_text("\n".join([*lines[:2], json.dumps(changed), *lines[3:]]))
    done = penstock("job", "replay", str(copy))
    assert done.code == 1
    assert "the first difference is at event 2, Claimed(" in done.out
    assert "recorded Deploy(another), now Deploy(attempt=1000001" in done.out


@pytest.mark.parametrize("arguments", [["nowhere"], ["."], ["checkpoints"]])
def test_where_no_log_is_that_is_said(penstock: Penstock, job: Path, arguments: list[str]) -> None:
    done = penstock("job", "replay", *arguments)
    assert done.code == 1
    assert "holds no stimulus log" in done.err


def test_another_manager_has_no_log(penstock: Penstock, job: Path) -> None:
    done = penstock("job", "replay", str(job), "--manager", "7")
    assert "holds no stimulus log of job manager 7" in done.err


def test_a_file_that_is_no_log_is_refused(penstock: Penstock, folder: Path) -> None:
    (folder / "notes.txt").write_text("hello\n")
    done = penstock("job", "replay", "notes.txt")
    assert done.code == 1
    assert "this is no stimulus log" in done.err
    (folder / "broken.gz").write_bytes(b"\x1f\x8bnothing")
    assert "broken.gz is no part of a stimulus log" in penstock("job", "replay", "broken.gz").err
