"""Scans of checkpoints of a running job: each is one consistent cut through all subtasks, whatever fails meanwhile."""

from __future__ import annotations

from pathlib import Path

from tests.savepoints.bank_scans import ACCOUNTS, scan


def test_the_total_of_the_bank_is_right_in_every_scan(tmp_path: Path) -> None:
    found = scan(tmp_path, scans=8, seed=1, apart=100)
    assert (found.wrong, found.accounts) == (None, ACCOUNTS)
    assert found.scans >= 8
    assert found.restarts >= 2
