"""A chaos run that went wrong names the stimulus log of its job, and keeps it where the job's storage goes away."""

from __future__ import annotations

from pathlib import Path

from penstock.savepoints.store import FolderJobStore
from penstock.testing.chaos import ChaosReport, ChaosRun, ChaosSchedule, keep_log


def test_the_log_is_copied_and_named(tmp_path: Path) -> None:
    store = FolderJobStore(str(tmp_path / "storage"), "job-1", "job")
    for epoch, part in ((1, 0), (1, 1), (2, 0)):
        store.write_log(epoch, part, f"{epoch} {part}".encode())
    run = ChaosRun("job", ChaosSchedule([]), problems=["rows were lost"], log=store.url)
    assert f"stimulus log: {store.url}" in str(run)
    keep_log(run, tmp_path / "kept")
    assert run.log == str(tmp_path / "kept" / "job-1")
    kept = {path.name: path.read_text() for path in (tmp_path / "kept" / "job-1" / "log").iterdir()}
    assert kept == {
        "00000001-00000000.jsonl.gz": "1 0",
        "00000001-00000001.jsonl.gz": "1 1",
        "00000002-00000000.jsonl.gz": "2 0",
    }
    assert ChaosReport([run]).to_dict()["runs"][0]["log"] == run.log


def test_a_run_without_a_checkpoint_has_none(tmp_path: Path) -> None:
    run = ChaosRun("job", ChaosSchedule([]), problems=["the job failed"])
    keep_log(run, tmp_path)
    assert not list(tmp_path.iterdir())
    assert "stimulus log" not in str(run)
