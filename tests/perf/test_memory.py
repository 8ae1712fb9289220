"""The programs that measure memory run, and say so where something is left."""

from __future__ import annotations

import sys

import pytest

from perf import pattern_memory, window_memory


def test_nothing_is_left_of_partial_matches_that_have_timed_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["pattern_memory", "--keys", "2000", "--limit-mb", "1000000"])
    assert pattern_memory.main() == 0
    assert "| 2,000 |" in capsys.readouterr().out


def test_partial_matches_that_stay_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["pattern_memory", "--keys", "2000", "--limit-mb", "1000000"])
    monkeypatch.setattr(pattern_memory, "_end", lambda operator, out: None)
    assert pattern_memory.main() == 1


def test_windows_of_all_keys_are_emitted(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["window_memory", "--keys", "2000"])
    window_memory.main()
    assert "| 1 | 2,000 | 2,000 |" in capsys.readouterr().out
