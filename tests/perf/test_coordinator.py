"""The benchmark of the coordinator: its rounds are those of a job, whose work grows with the subtasks and no faster."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from penstock.savepoints.storage import open_blobs
from perf import coordinator
from perf.coordinator import SimulatedJob
from perf.harness import BenchmarkError, Options


def test_a_round_is_a_checkpoint_with_its_share_of_changes_and_merges(tmp_path: Path) -> None:
    job = SimulatedJob(tmp_path, 20)
    rounds = [job.checkpoint() for _ in range(8)]
    assert [one["new_files"] for one in rounds] == [60] * 8
    # From the second on a split's table replaces the one before; a fifth of the keyed ones is merged each time.
    assert rounds[0]["deleted_files"] == 0
    assert all(rounds[number]["deleted_files"] > 20 for number in range(5, 8))
    assert rounds[-1]["files"] == 20 + 2 * 20 * 3
    there = [path for path, _ in open_blobs(str(tmp_path / "job")).list("shared")]
    assert len(there) == rounds[-1]["files"]
    job.check_taken_over()


def test_a_next_manager_that_goes_on_from_another_checkpoint_is_noticed(tmp_path: Path) -> None:
    job = SimulatedJob(tmp_path, 2)
    job.checkpoint()
    (tmp_path / "job" / "chk-00000001" / "manifest.json").unlink()
    with pytest.raises(BenchmarkError, match="does not resume from the newest"):
        job.check_taken_over()


def test_the_work_of_a_round_grows_with_the_subtasks_and_no_faster(tmp_path: Path) -> None:
    def calls(subtasks: int) -> int:
        job = SimulatedJob(tmp_path / str(subtasks), subtasks)
        for _ in range(3):
            job.checkpoint()
        return _calls(job.checkpoint)

    assert calls(160) < 4.2 * calls(40)


def _calls(work: Callable[[], Any]) -> int:
    seen = 0

    def on_event(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal seen
        seen += event in ("call", "c_call")

    sys.setprofile(on_event)
    try:
        work()
    finally:
        sys.setprofile(None)
    return seen


def test_the_program_tells_what_the_time_went_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator, "_SUBTASKS", (4, 10))
    results = list(coordinator.run(Options(repetitions=2), "10 subtasks"))
    assert [result.variant for result in results] == ["10 subtasks, first", "10 subtasks, next"]
    for result in results:
        line = json.loads(json.dumps(result.line({"cores": 2})))
        figures = line["figures"]
        whole = sum(
            figures[f"{part}_ms"]["median"] for part in ("trigger", "receive", "acknowledge", "store", "complete")
        )
        assert line["ours"]["latency_ms"]["p50"] == pytest.approx(whole, rel=0.5)
        assert figures["new_files"] == 30
    assert results[-1].figures["take_over_ms"] >= 0
