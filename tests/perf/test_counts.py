"""The guard against slow changes: a million rows cost the reference jobs no more than `perf/budgets.json` says.

It counts and does not time, so it says the same on any machine. The other tests show that it can fail.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.engine.elements import Batch
from penstock.engine.exchange.outputs import ChannelBuffer
from penstock.engine.task.router import RouterEdge
from perf import counts
from perf.counts import JOBS, Counted, Counts, ReferenceJob, complaints, count_job, read_budgets

ROOT = Path(__file__).resolve().parents[2]
SMALL = ReferenceJob(JOBS["keyed"].stream, 2**17)
BUDGET = Counts(8, 24_000_000, 24_010_000, 20, 5_000, 4_000, 2_000, 90_000_000)


def test_jobs_stay_within_their_budgets() -> None:
    # In a process of its own: threads that other tests have left behind would be counted, too.
    command = [sys.executable, "-m", "perf.counts"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_count_is_the_same_each_time() -> None:
    # In a process of its own, as above: what other tests have registered with the collector of garbage is called, too.
    counted = (
        "from dataclasses import replace; from perf.counts import count_job; from tests.perf.test_counts import SMALL\n"
        "for _ in range(2): print(replace(count_job(SMALL).counts, allocations=0, allocated_bytes=0))"
    )
    command = [sys.executable, "-c", counted]
    one, other = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    assert one == other


def _copying(add: Callable[..., None]) -> Callable[..., None]:
    def add_copy(self: ChannelBuffer, batch: Batch, now: float) -> None:
        add(self, batch.take(pa.array(np.arange(batch.num_rows))), now)

    return add_copy


def _by_rows(collect: Callable[..., None]) -> Callable[..., None]:
    def collect_rows(self: RouterEdge, batch: Batch) -> None:
        assert all(batch.num_rows for _ in range(0, batch.num_rows, 10))
        collect(self, batch)

    return collect_rows


def _sending_at_once(add: Callable[..., None]) -> Callable[..., None]:
    def add_and_send(self: ChannelBuffer, batch: Batch, now: float) -> None:
        add(self, batch, now)
        self._channel.send(self._take())

    return add_and_send


@pytest.mark.parametrize(
    ("owner", "method", "worsened", "grown"),
    [
        (ChannelBuffer, "add", _copying, {"allocated_bytes"}),
        (RouterEdge, "collect", _by_rows, {"calls"}),
        (ChannelBuffer, "add", _sending_at_once, {"messages", "steps"}),
    ],
    ids=["a copy of each batch", "a call for every tenth row", "a message for each batch"],
)
def test_what_makes_a_job_slower_is_noticed(
    monkeypatch: pytest.MonkeyPatch, owner: type, method: str, worsened: Callable[..., Any], grown: set[str]
) -> None:
    monkeypatch.setattr(owner, method, worsened(getattr(owner, method)))
    found = complaints("keyed", count_job(JOBS["keyed"]), read_budgets()["keyed"])
    for what in grown:
        assert any(line.startswith(f"keyed: {what} for a million rows grew from ") for line in found), found


def test_counts_within_the_budget_are_no_complaint() -> None:
    little_more = replace(BUDGET, calls=5_040, allocated_bytes=90_800_000, messages=8)
    little_less = replace(BUDGET, calls=4_600)
    for fine in (BUDGET, little_more, little_less):
        assert complaints("keyed", Counted(fine, Counter()), BUDGET) == []


def test_a_complaint_says_what_grew_by_how_much_and_what_to_do() -> None:
    functions = Counter({"engine.elements.slice": 1_000_000, "engine.task.loop.step": 20})
    grown, called = complaints("keyed", Counted(replace(BUDGET, calls=1_005_000), functions), BUDGET)
    assert "keyed: calls for a million rows grew from 5,000 to 1,005,000 (+20000.0%)" in grown
    assert "python -m perf.counts --record" in grown
    assert "engine.elements.slice 1,000,000, engine.task.loop.step 20" in called


def test_a_count_that_falls_is_to_be_kept() -> None:
    (found,) = complaints("keyed", Counted(replace(BUDGET, messages=4), Counter()), BUDGET)
    assert found == (
        "keyed: messages for a million rows fell from 8 to 4 (-50.0%): keep it so by python -m perf.counts --record"
    )


def test_a_budget_of_nothing_allows_for_nothing() -> None:
    nothing = replace(BUDGET, messages=0)
    (found,) = complaints("grep", Counted(BUDGET, Counter()), nothing)
    assert "messages for a million rows grew from 0 to 8:" in found


def test_the_command_records_and_compares(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(counts, "BUDGETS", tmp_path / "budgets.json")
    monkeypatch.setattr(counts, "JOBS", {"keyed": SMALL})
    monkeypatch.setattr(counts, "count_job", lambda job: Counted(BUDGET, Counter({"engine.task.loop.step": 20})))
    assert counts.main(["--record", "--calls"]) == 0
    assert json.loads((tmp_path / "budgets.json").read_text()) == {"keyed": asdict(BUDGET)}
    assert "engine.task.loop.step" in capsys.readouterr().out
    monkeypatch.setattr(counts, "count_job", lambda job: Counted(replace(BUDGET, steps=40), Counter()))
    assert counts.main([]) == 1
    assert "keyed: steps for a million rows grew from 20 to 40" in capsys.readouterr().err
