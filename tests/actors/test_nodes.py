"""Clusters of several small nodes: what is lost with one goes on elsewhere, or the job says why it cannot."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.actors.cases import OK, Cases
from tests.actors.watched_outages import CHROMIUM

pytestmark = [pytest.mark.ray]

Run = Callable[[str], None]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cases]:
    made = Cases("tests.actors.lost_node")
    yield made
    made.close()


@pytest.fixture
def run(cluster: Cases, tmp_path: Path) -> Run:
    """Runs a case of `lost_node.py`."""

    def run_case(case: str) -> None:
        said = cluster.run(case, tmp_path)
        # For people: how long it took, with `-rP`.
        print(said)  # noqa: T201
        assert OK in said.splitlines(keepends=True), said

    return run_case


@pytest.mark.long("the simulation loses nodes; on Ray, processes are lost: test_ray_blobs.py, test_job_manager.py")
def test_a_job_goes_on_where_there_is_room_when_the_node_of_its_subtasks_is_lost(run: Run) -> None:
    run("survived")


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium here: make install-services gets it")
@pytest.mark.long("outages on pages: tests/web/test_browser.py; each of these losses has a test without a page")
def test_a_page_shows_that_console_manager_and_node_are_lost_and_comes_back_by_itself(run: Run) -> None:
    run("watched")


@pytest.mark.long("the simulation loses nodes, and several processes at once")
def test_a_job_goes_on_when_two_nodes_are_lost_at_once(run: Run) -> None:
    run("survived_twice")


@pytest.mark.long("how subtasks move off a node that leaves: tests/engine/job/test_moves.py")
def test_a_job_leaves_a_node_that_is_drained_without_a_restart_and_without_a_duplicate(run: Run) -> None:
    run("drained")


@pytest.mark.long("how subtasks move off a node that leaves: tests/engine/job/test_moves.py")
def test_a_node_that_is_drained_and_gone_before_there_is_room_costs_one_restart(run: Run) -> None:
    run("drained_too_late")


@pytest.mark.long("how subtasks move off a node that leaves: tests/engine/job/test_moves.py")
def test_chaos_takes_spot_nodes_away_behind_a_notice(run: Run) -> None:
    run("taken_by_chaos")


@pytest.mark.long("the simulation loses nodes; schedules that name them: tests/testing/chaos/test_schedule.py")
def test_chaos_kills_nodes_of_a_cluster_that_it_is_given(run: Run) -> None:
    run("killed_by_chaos")


@pytest.mark.long("what is under way is bounded: test_backpressure")
def test_a_job_that_needs_more_than_the_object_store_holds_neither_stops_nor_loses_rows(run: Run) -> None:
    run("crowded")


@pytest.mark.long("which layout a job restarts into: tests/engine/job/test_shortage.py")
def test_a_job_runs_smaller_until_there_is_room(run: Run) -> None:
    run("smaller")


@pytest.mark.long("no room is a failure like another: tests/engine/job/test_brain.py")
def test_a_job_that_has_lost_its_only_node_waits_for_room_and_then_says_that_there_is_none(run: Run) -> None:
    run("given_up")
