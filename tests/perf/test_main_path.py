"""The page of the architecture says how long the ways of a batch and of a barrier are at most."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


@pytest.mark.long("python -m perf.main_path, which docs/architecture.md quotes")
def test_the_ways_of_a_batch_and_of_a_barrier_are_no_longer_than_the_page_says() -> None:
    said = re.findall(r"at most (\d+) files and ([\d,]+) lines", PAGE)
    # In a process of its own: where other tests have loaded compiled indexes, batches go by another way.
    command = [sys.executable, "-m", "perf.main_path", "--files"]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    is_now = re.findall(r"^\w+: (\d+) files, ([\d,]+) lines$", told, re.MULTILINE)
    assert len(said) == len(is_now) == 2
    for most, now in zip(_numbers(said), _numbers(is_now), strict=True):
        assert all(one <= allowed for one, allowed in zip(now, most, strict=True)), told
    batch, barrier = told.split("barrier:")
    assert all(f" engine/task/{name}.py\n" in batch for name in ("router", "loop"))
    assert all(f" engine/{name}.py\n" in barrier for name in ("task/barriers", "checkpointing/coordinator"))


def _numbers(pairs: list[tuple[str, str]]) -> list[tuple[int, int]]:
    return [(int(files), int(lines.replace(",", ""))) for files, lines in pairs]
