"""Clusters of several small nodes: what is lost with one goes on elsewhere, or the job says why it cannot."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.ray, pytest.mark.slow]


def _on_a_cluster(case: str, folder: Path) -> str:
    """What `lost_node.py` prints about one of its cases."""
    ended = subprocess.run(
        [sys.executable, "-m", "tests.actors.lost_node", case, str(folder)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert "OK" in ended.stdout.splitlines(), ended.stdout + ended.stderr
    return ended.stdout


def test_a_job_goes_on_where_there_is_room_when_the_node_of_its_subtasks_is_lost(tmp_path: Path) -> None:
    _on_a_cluster("survived", tmp_path)


def test_a_job_goes_on_when_two_nodes_are_lost_at_once(tmp_path: Path) -> None:
    _on_a_cluster("survived_twice", tmp_path)


def test_chaos_kills_nodes_of_a_cluster_that_it_is_given(tmp_path: Path) -> None:
    _on_a_cluster("killed_by_chaos", tmp_path)


def test_a_job_that_needs_more_than_the_object_store_holds_neither_stops_nor_loses_rows(tmp_path: Path) -> None:
    _on_a_cluster("crowded", tmp_path)


def test_a_job_that_has_lost_its_only_node_waits_for_room_and_then_says_that_there_is_none(tmp_path: Path) -> None:
    assert "no room for 2 slots" in _on_a_cluster("given_up", tmp_path)
