"""A job resumes by its name from what its newest run has left, and is refused where that would repeat what it did."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from penstock import DataGenSource, FileSink, Sequence, StreamEnvironment
from penstock.engine.clock import ManualClock
from penstock.engine.errors import (
    CheckpointCorruptError,
    ConfigurationError,
    JobFailedError,
    NoCheckpointError,
    RestoreError,
)
from penstock.engine.job.handle import JobHandle
from penstock.recovery import checkpoints
from penstock.savepoints.runs import replace_newest_run

ROWS = 300


def submit(
    folder: Path,
    name: str = "orders",
    rows: int = ROWS,
    uid: str = "numbers",
    interval: str = "100ms",
    retained: int = 1,
    **arguments: Any,
) -> JobHandle:
    savepoints = str(folder / "savepoints")
    storage = checkpoints(interval, str(folder / "checkpoints"), savepoints=savepoints, retained=retained)
    env = StreamEnvironment(
        runtime="local", parallelism=1, clock=ManualClock(), buffer_timeout="0", max_batch_rows=4, checkpoints=storage
    )
    numbers = env.from_source(DataGenSource({"i": Sequence()}, rows=rows, rate=50)).uid(uid)
    numbers.sink_to(FileSink(folder / "out", "json", mode="append")).uid("out")
    return env.submit(name, **arguments)


def written(folder: Path) -> list[int]:
    files = [path for path in (folder / "out").iterdir() if not path.name.startswith(".")]
    return sorted(json.loads(line)["i"] for path in files for line in path.read_text().splitlines())


def run_for_a_while(job: JobHandle) -> None:
    for _ in range(3):
        job.checkpoint()


def test_a_job_goes_on_from_where_it_was_suspended(tmp_path: Path) -> None:
    first = submit(tmp_path)
    run_for_a_while(first)
    first.suspend()
    shown = len(written(tmp_path))
    assert 0 < shown < ROWS
    again = submit(tmp_path, resume="latest")
    assert again.restored_from is not None
    again.wait()
    assert written(tmp_path) == list(range(ROWS))


def test_a_job_goes_on_from_the_savepoint_that_it_was_stopped_with(tmp_path: Path) -> None:
    first = submit(tmp_path)
    run_for_a_while(first)
    first.savepoint()
    stopped = first.stop()
    again = submit(tmp_path, resume="latest")
    assert again.restored_from == stopped
    again.wait()
    assert written(tmp_path) == list(range(ROWS))


def test_a_job_that_begins_with_the_savepoint_of_a_drain_says_that_it_ends_at_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = submit(tmp_path)
    run_for_a_while(first)
    savepoint = first.drain()
    shown = len(written(tmp_path))
    assert shown < ROWS
    assert "ends at once" not in caplog.text
    submit(tmp_path, savepoint=savepoint).wait()
    assert len(written(tmp_path)) == shown
    assert "job 'orders' ends at once where its sources are those of" in caplog.text


def test_a_run_that_took_no_checkpoint_is_resumed_from_what_it_began_with(tmp_path: Path) -> None:
    first = submit(tmp_path)
    run_for_a_while(first)
    first.suspend()
    second = submit(tmp_path, resume="latest")
    began_with = second.restored_from
    second.suspend()
    third = submit(tmp_path, resume="latest")
    assert third.restored_from == began_with is not None
    third.wait()
    assert written(tmp_path) == list(range(ROWS))


@pytest.mark.parametrize("resume", ["latest", "if-any"])
def test_a_run_that_lives_is_replaced_by_the_one_that_resumes_it(tmp_path: Path, resume: str) -> None:
    first = submit(tmp_path)
    run_for_a_while(first)
    second = submit(tmp_path, resume=resume)
    with pytest.raises(JobFailedError, match=r"manager 2 has taken the job over from manager 1"):
        first.wait()
    second.wait()
    assert written(tmp_path) == list(range(ROWS))


def test_what_the_run_has_done_since_it_was_looked_at_is_resumed_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def goes_on(*arguments: Any) -> None:
        run_for_a_while(first)
        replace_newest_run(*arguments)

    first = submit(tmp_path)
    run_for_a_while(first)
    with monkeypatch.context() as patch:
        patch.setattr("penstock.job_folders.replace_newest_run", goes_on)
        second = submit(tmp_path, resume="latest")
    first.suspend()
    second.wait()
    assert written(tmp_path) == list(range(ROWS))
    other = tmp_path / "other"
    first = submit(other)
    with monkeypatch.context() as patch:
        patch.setattr("penstock.job_folders.replace_newest_run", goes_on)
        with pytest.raises(NoCheckpointError, match="took its first checkpoint just now"):
            submit(other, resume="if-any")
    submit(other, resume="if-any").wait()
    assert written(other) == list(range(ROWS))


def test_a_run_is_replaced_by_none_that_is_refused(tmp_path: Path) -> None:
    first = submit(tmp_path)
    run_for_a_while(first)
    with pytest.raises(RestoreError):
        submit(tmp_path, uid="other", resume="latest")
    first.wait()
    assert written(tmp_path) == list(range(ROWS))


def test_the_newest_run_of_that_very_name_counts(tmp_path: Path) -> None:
    for name in ("orders", "Orders!", "orders"):
        job = submit(tmp_path, name)
        run_for_a_while(job)
        job.suspend()
        newest = job
    (folder,) = [path for path in (tmp_path / "checkpoints").iterdir() if path.name == newest_id(tmp_path)]
    again = submit(tmp_path, resume="latest")
    assert again.restored_from is not None
    assert folder.name in again.restored_from
    assert newest.name == "orders"
    again.cancel()


@pytest.mark.parametrize("resume", ["latest", "if-any"])
def test_what_an_older_run_left_is_named_where_the_newest_began_anew_and_left_nothing(
    tmp_path: Path, resume: str
) -> None:
    first = submit(tmp_path)
    run_for_a_while(first)
    first.suspend()
    submit(tmp_path).suspend()
    with pytest.raises(NoCheckpointError, match="began without state and took no checkpoint") as refused:
        submit(tmp_path, resume=resume)
    (left,) = [str(path) for path in (tmp_path / "checkpoints").glob("*/chk-*")]
    assert left in str(refused.value)
    again = submit(tmp_path, savepoint=left)
    again.suspend()
    submit(tmp_path, resume=resume).wait()
    assert written(tmp_path) == list(range(ROWS))


def newest_id(folder: Path) -> str:
    claims = list((folder / "checkpoints").glob("*/claims/00000001"))
    of_orders = [path for path in claims if json.loads(path.read_text())["job"] == "orders"]
    return max(of_orders, key=lambda path: json.loads(path.read_text())["claimed_ms"]).parent.parent.name


def test_where_nothing_ran_only_if_any_begins(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(RestoreError, match="no run of it has left a checkpoint"):
        submit(tmp_path, resume="latest")
    job = submit(tmp_path, resume="if-any")
    assert "job 'orders' begins without state" in caplog.text
    run_for_a_while(job)
    job.suspend()
    assert submit(tmp_path, resume="if-any").restored_from is not None


@pytest.mark.parametrize("resume", ["latest", "if-any"])
def test_a_run_that_finished_or_was_cancelled_is_not_repeated(tmp_path: Path, resume: str) -> None:
    submit(tmp_path, rows=4).wait()
    with pytest.raises(RestoreError, match="has finished, and there is no savepoint"):
        submit(tmp_path, resume=resume)
    job = submit(tmp_path)
    run_for_a_while(job)
    job.cancel()
    with pytest.raises(RestoreError, match="was cancelled, and its checkpoints were removed"):
        submit(tmp_path, resume=resume)


def test_what_cannot_be_meant_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="leave one of them out"):
        submit(tmp_path, resume="latest", savepoint=str(tmp_path))
    with pytest.raises(ConfigurationError, match="resume takes 'latest' or 'if-any', not 'newest'"):
        submit(tmp_path, resume="newest")
    with pytest.raises(ConfigurationError, match="a job is resumed by its name"):
        submit(tmp_path, "penstock job", resume="latest")


def test_a_checkpoint_that_is_damaged_is_an_error_and_no_older_one_is_taken(tmp_path: Path) -> None:
    for _ in range(2):
        job = submit(tmp_path, resume="if-any")
        run_for_a_while(job)
        job.suspend()
    newest = tmp_path / "checkpoints" / newest_id(tmp_path)
    for manifest in newest.glob("chk-*/manifest.json"):
        manifest.write_text(manifest.read_text()[:-9])
    with pytest.raises(CheckpointCorruptError, match=newest.name):
        submit(tmp_path, resume="if-any")
