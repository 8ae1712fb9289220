"""The page of the architecture says how long the ways of a batch and of a barrier are at most."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from perf.main_path import main_path

PAGE = (Path(__file__).parents[2] / "docs" / "architecture.md").read_text(encoding="utf-8")


@pytest.mark.long("python -m perf.main_path, which docs/architecture.md quotes")
def test_the_ways_of_a_batch_and_of_a_barrier_are_no_longer_than_the_page_says() -> None:
    said = re.findall(r"at most (\d+) files and ([\d,]+) lines", PAGE)
    assert len(said) == 2
    batch, barrier = main_path()
    for lines, (files, most) in zip((batch, barrier), said, strict=True):
        assert len(lines) <= int(files)
        assert sum(lines.values()) <= int(most.replace(",", ""))
    assert {"engine/task/router.py", "engine/task/loop.py"} <= set(batch)
    assert {"engine/task/barriers.py", "engine/checkpointing/coordinator.py"} <= set(barrier)
