"""Clusters of several small nodes: what is lost with one goes on elsewhere, or the job says why it cannot."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.actors.lost_node import OK, OVER

pytestmark = [pytest.mark.ray, pytest.mark.slow]

Run = Callable[[str], None]


@pytest.fixture(scope="module")
def cluster() -> Iterator[subprocess.Popen[str]]:
    """A process with a cluster of its own, whose nodes come and go: `lost_node.py`."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.actors.lost_node"],
        cwd=Path(__file__).parents[2],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()
        process.wait(60)


@pytest.fixture
def run(cluster: subprocess.Popen[str], tmp_path: Path) -> Run:
    """Runs a case of `lost_node.py`."""

    def run_case(case: str) -> None:
        assert cluster.stdin is not None
        assert cluster.stdout is not None
        print(case, tmp_path, file=cluster.stdin, flush=True)
        said = []
        while (line := cluster.stdout.readline()) not in (OVER, ""):
            said.append(line)
        assert OK in said, "".join(said)

    return run_case


def test_a_job_goes_on_where_there_is_room_when_the_node_of_its_subtasks_is_lost(run: Run) -> None:
    run("survived")


def test_a_job_goes_on_when_two_nodes_are_lost_at_once(run: Run) -> None:
    run("survived_twice")


def test_chaos_kills_nodes_of_a_cluster_that_it_is_given(run: Run) -> None:
    run("killed_by_chaos")


def test_a_job_that_needs_more_than_the_object_store_holds_neither_stops_nor_loses_rows(run: Run) -> None:
    run("crowded")


def test_a_job_that_has_lost_its_only_node_waits_for_room_and_then_says_that_there_is_none(run: Run) -> None:
    run("given_up")
