"""What the job brain says to what happens: the whole life of a job, without a clock, a process or a disk."""

from __future__ import annotations

import pytest

from penstock.engine.checkpointing.store import Claim
from penstock.engine.errors import (
    CheckpointCorruptError,
    CheckpointError,
    ClusterError,
    FencedError,
    PenstockError,
    WorkerLostError,
)
from penstock.engine.graph.scale import Scale
from penstock.engine.job import events as ev
from penstock.engine.job import instructions as say
from penstock.engine.job.description import describe_checkpoints
from penstock.engine.job.failover import ATTEMPTS, RETRY_SECONDS
from penstock.engine.job.info import CheckpointsInfo
from penstock.engine.job.status import JobStatus
from tests.engine.job.shell import DEAD, Shell, TwoTasks

ALL = ((1, 0), (1, 1), (2, 0), (2, 1))


# Beginning and end


def test_a_job_without_storage_runs_and_ends_when_all_have_finished() -> None:
    shell = Shell(storage=False, interval_ms=0).run()
    assert shell.brain.status is JobStatus.RUNNING
    shell.finish()
    shell.take_down()
    assert (shell.brain.status, shell.brain.ended, shell.count(say.WriteEnd)) == (JobStatus.FINISHED, True, 0)


@pytest.mark.parametrize(
    ("interval_ms", "commits", "takes_one"), [(1000, False, True), (0, True, True), (0, False, False)]
)
def test_a_job_ends_with_a_checkpoint_where_it_takes_any_or_sinks_hold_rows_back(
    interval_ms: int, commits: bool, takes_one: bool
) -> None:
    shell = Shell(TwoTasks(commits=commits), interval_ms=interval_ms).run()
    shell.finish()
    assert shell.count(say.Inject) == takes_one
    if takes_one:
        assert not shell.count(say.TakeDown)
        shell.store()
        if commits:
            assert not shell.count(say.TakeDown), "what is stored is not committed yet"
            shell.commit()
    shell.take_down()
    assert shell.brain.status is JobStatus.FINISHED
    assert shell.last(say.WriteEnd).discards


def test_what_needs_a_running_job_may_wait_until_it_runs_and_no_longer_than_it_lives() -> None:
    shell = Shell()
    assert shell.brain.is_coming_back
    shell.run()
    assert not shell.brain.is_coming_back
    shell.fail((1, 0))
    assert shell.brain.is_coming_back
    ended = Shell(storage=False, interval_ms=0).run()
    ended.finish()
    ended.take_down()
    assert not ended.brain.is_coming_back


def test_what_is_known_of_checkpoints_does_not_grow_with_their_number() -> None:
    shell = Shell().run()
    for _ in range(60):
        shell.wait(1.0)
        number = shell.store()
    checkpoints = shell.brain.checkpoints
    assert checkpoints is not None
    assert number == 60
    assert checkpoints.latest_url == checkpoints.urls[60]
    assert len(checkpoints.urls) <= len(checkpoints.coordinator.history) < 60


def test_only_those_commit_that_hold_something_back() -> None:
    shell = Shell().run()
    shell.wait(1.0)
    shell.store()
    assert shell.last(say.Commit).places == ((2, 0), (2, 1))


def test_who_was_told_to_commit_and_was_not_heard_of_is_told_again_before_the_job_ends() -> None:
    shell = Shell(interval_ms=60_000).run()
    shell.finish()
    number = shell.store()
    shell.handle(ev.Committed(number, (2, 0), shell.brain.attempts.number))
    assert shell.brain.deadline == shell.now + RETRY_SECONDS
    shell.wait(RETRY_SECONDS)
    assert shell.new == (say.Commit(number, ((2, 1),)),)
    shell.commit()
    assert shell.count(say.TakeDown) == 1


def test_a_last_checkpoint_that_fails_is_taken_again() -> None:
    shell = Shell().run()
    shell.finish()
    number = shell.acknowledge().checkpoint.checkpoint
    shell.handle(ev.StoreFailed(number, CheckpointError("no space left")))
    shell.restart()
    assert shell.brain.status is JobStatus.RUNNING


def test_the_job_ends_only_once_a_manifest_under_way_is_written() -> None:
    shell = Shell().run()
    shell.wait(1.0)
    number = shell.acknowledge().checkpoint.checkpoint
    request = shell.ask(ev.CancelJob())
    shell.handle(ev.TakenDown())
    assert not shell.count(say.WriteEnd)
    shell.handle(ev.Stored(number, "memory://1"), ev.EndWritten())
    assert shell.count(say.WriteEnd) == 1
    assert (shell.brain.status, shell.answers(request)) == (JobStatus.CANCELLED, [True])


def test_one_that_ends_already_cannot_be_cancelled_and_says_so_when_it_has_ended() -> None:
    shell = Shell().run()
    first, second = shell.ask(ev.CancelJob()), shell.ask(ev.CancelJob())
    assert not shell.answers(second)
    shell.take_down()
    third = shell.ask(ev.CancelJob())
    assert [shell.answers(one) for one in (first, second, third)] == [[True], [False], [False]]


@pytest.mark.parametrize("retain", [True, False])
def test_a_cancelled_job_keeps_its_checkpoints_where_it_is_told_to(retain: bool) -> None:
    shell = Shell().run()
    shell.ask(ev.CancelJob(retain))
    shell.take_down()
    assert shell.last(say.WriteEnd).discards == (not retain)


def test_who_is_cancelled_before_it_has_begun_ends_what_the_manager_before_has_left() -> None:
    shell = Shell()
    shell.handle(ev.Began())
    shell.ask(ev.CancelJob())
    shell.handle(ev.TakenDown())
    assert not shell.brain.ended
    shell.handle(ev.Claimed(Claim(2, 5)))
    assert shell.last(say.WriteEnd) == say.WriteEnd(2, JobStatus.CANCELLED, "", True, True)
    assert not shell.count(say.Deploy)


def test_a_job_that_has_ended_under_a_manager_before_is_not_begun_again() -> None:
    shell = Shell()
    shell.handle(ev.Began(), ev.Claimed(Claim(2, 5, (), "finished")))
    shell.take_down()
    assert (shell.brain.status, shell.count(say.Deploy)) == (JobStatus.FINISHED, 0)


@pytest.mark.parametrize("retains", [False, True])
def test_what_a_job_that_was_cancelled_is_to_keep_is_kept_by_the_next_manager_too(retains: bool) -> None:
    shell = Shell()
    shell.handle(ev.Began(), ev.Claimed(Claim(2, 5, (), "cancelled", retains=retains)))
    shell.take_down()
    assert shell.last(say.WriteEnd).discards == (not retains)


def test_an_error_that_was_written_down_is_told_on() -> None:
    shell = Shell()
    shell.handle(ev.Began(), ev.Claimed(Claim(2, 5, (), "failed", "the disk is gone")))
    shell.take_down()
    assert (shell.brain.status, str(shell.brain.error)) == (JobStatus.FAILED, "the disk is gone")


def test_a_folder_that_cannot_be_taken_over_fails_the_job_and_is_left_alone() -> None:
    shell = Shell()
    shell.handle(ev.Began(), ev.ClaimFailed(CheckpointCorruptError("damaged")), ev.TakenDown())
    assert (shell.brain.status, shell.brain.ended, shell.count(say.WriteEnd)) == (JobStatus.FAILED, True, 0)
    assert describe_checkpoints(shell.brain, "file:///before", None) == CheckpointsInfo(restored_url="file:///before")


# Failures


def test_a_failure_restarts_the_job_from_its_newest_checkpoint() -> None:
    shell = Shell().run()
    shell.wait(1.0)
    number = shell.store()
    shell.fail()
    assert shell.last(say.Cancel).places == ALL
    shell.restart()
    deploy = shell.last(say.Deploy)
    assert (deploy.attempt, deploy.places) == (ATTEMPTS + 2, ALL)
    assert deploy.checkpoint is not None
    assert deploy.checkpoint.checkpoint == number
    assert shell.brain.attempts.restored == number


def test_a_restart_waits_for_what_ran_for_its_delay_and_for_manifests() -> None:
    shell = Shell().run()
    shell.wait(1.0)
    number = shell.acknowledge().checkpoint.checkpoint
    shell.fail()
    shell.wait(1.0)
    assert shell.count(say.Deploy) == 1, "what ran may still do so"
    shell.cancelled()
    assert shell.count(say.Deploy) == 1, "the manifest may be there in a moment"
    shell.handle(ev.Stored(number, "memory://1"))
    assert shell.count(say.Deploy) == 2
    assert shell.brain.attempts.restored == number


def test_what_is_heard_of_an_attempt_that_has_ended_means_nothing() -> None:
    shell = Shell().run()
    old = shell.brain.attempts.number
    shell.fail()
    shell.restart()
    shell.handle(ev.TaskFailed((1, 0), old, DEAD), *(ev.TaskFinished(place, old) for place in ALL), ev.Deployed(old))
    assert shell.brain.status is JobStatus.RUNNING
    assert not shell.brain.attempts.finished


def test_a_region_restarts_by_itself_and_the_others_run_on() -> None:
    shell = Shell(TwoTasks(regions=True)).run()
    shell.fail((2, 1))
    assert shell.last(say.Cancel).places == ((1, 1), (2, 1))
    shell.restart()
    assert shell.last(say.Deploy).places == ((1, 1), (2, 1))
    assert shell.brain.attempts.deployed[1, 0][0] == ATTEMPTS + 1
    shell.wait(1.0)
    assert shell.last(say.Inject).places == ALL, "a checkpoint is of the whole job"


def test_regions_that_fail_one_after_the_other_restart_together() -> None:
    shell = Shell(TwoTasks(regions=True)).run()
    shell.fail((2, 1))
    shell.fail((1, 0))
    shell.handle(ev.Cancelled(1), ev.Cancelled(2))
    shell.wait(0.2)
    assert shell.last(say.Deploy).places == ALL
    assert shell.brain.restarts.failures == 1


def test_what_fails_while_it_is_deployed_restarts_once_the_deployment_is_over() -> None:
    shell = Shell()
    shell.handle(ev.Began(), ev.Claimed(Claim(1, 1)))
    attempt = shell.last(say.Deploy).attempt
    assert shell.handle(ev.TaskFailed((1, 0), attempt, DEAD)) == ()
    shell.handle(ev.Deployed(attempt))
    assert shell.brain.status is JobStatus.RESTARTING
    shell.restart()
    assert shell.brain.status is JobStatus.RUNNING


def test_a_job_fails_when_its_strategy_allows_no_more_restarts() -> None:
    shell = Shell(restarts=1).run()
    shell.fail()
    shell.restart()
    shell.fail()
    shell.take_down()
    assert (shell.brain.status, shell.brain.error) == (JobStatus.FAILED, DEAD)
    assert not shell.last(say.WriteEnd).discards


@pytest.mark.parametrize("error", [CheckpointCorruptError("damaged"), FencedError("replaced")])
def test_what_is_so_the_next_time_too_ends_the_job_at_once(error: PenstockError) -> None:
    shell = Shell().run()
    shell.fail(None, error)
    assert shell.new[-1] == say.TakeDown(isinstance(error, FencedError))


def test_who_was_fenced_writes_nothing_down() -> None:
    shell = Shell().run()
    shell.wait(1.0)
    number = shell.acknowledge().checkpoint.checkpoint
    shell.handle(ev.StoreFailed(number, FencedError("another manager")), ev.TakenDown())
    assert (shell.brain.ended, shell.count(say.WriteEnd), shell.count(say.Commit)) == (True, 0, 0)


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("savepoint", [False, True])
def test_rows_that_nobody_commits_go_with_a_job_unless_a_savepoint_may_hold_them(savepoint: bool, before: bool) -> None:
    shell = Shell().run(Claim(2, 1, has_savepoints=before))
    if savepoint:
        shell.handle(ev.FolderChecked(shell.ask(ev.TakeSavepoint()), "memory://s"))
        shell.store()
    shell.ask(ev.CancelJob())
    shell.take_down()
    end = shell.last(say.WriteEnd)
    assert (end.discards, end.discards_rows) == (True, not savepoint and not before)


def test_rows_stay_where_a_job_is_cancelled_before_all_is_committed_behind_the_savepoint_that_stops_it() -> None:
    shell = Shell().run()
    shell.handle(ev.FolderChecked(shell.ask(ev.StopJob()), "memory://s"))
    shell.store()
    shell.ask(ev.CancelJob())
    shell.take_down()
    end = shell.last(say.WriteEnd)
    assert (end.status, end.discards, end.discards_rows) == (JobStatus.CANCELLED, True, False)


def test_rows_stay_where_the_job_had_ended_before_as_its_savepoints_are_not_known_any_more() -> None:
    shell = Shell()
    shell.handle(ev.Began(), ev.Claimed(Claim(2, 5, (), "cancelled")))
    shell.take_down()
    end = shell.last(say.WriteEnd)
    assert (end.discards, end.discards_rows) == (True, False)


def test_missing_room_ends_a_job_that_has_never_run_and_restarts_one_that_has() -> None:
    shell = Shell()
    shell.handle(ev.Began(), ev.Claimed(Claim(1, 1)))
    shell.handle(ev.DeployFailed(shell.last(say.Deploy).attempt, ClusterError("no room")))
    assert shell.count(say.TakeDown) == 1
    shell = Shell().run()
    shell.fail()
    shell.cancelled()
    shell.wait(0.2)
    shell.handle(ev.DeployFailed(shell.last(say.Deploy).attempt, ClusterError("no room")))
    assert (shell.count(say.TakeDown), shell.brain.status) == (0, JobStatus.RESTARTING)
    (restart,) = shell.brain.restarts.to_dicts()
    assert (restart["cause"], restart["last_cause"]) == ("the process died", "no room")


def test_a_job_whose_first_processes_are_not_there_in_time_is_restarted_by_its_strategy() -> None:
    shell = Shell()
    shell.handle(ev.Began(), ev.Claimed(Claim(1, 1)))
    shell.handle(ev.DeployFailed(shell.last(say.Deploy).attempt, WorkerLostError("2 processes did not start")))
    assert (shell.count(say.TakeDown), shell.brain.status) == (0, JobStatus.RESTARTING)


def test_an_error_that_ends_the_job_waits_for_its_explanation() -> None:
    shell = Shell(restarts=0).run()
    attempt = shell.brain.attempts.number
    shell.handle(ev.TaskFailed((2, 1), attempt, DEAD, is_explained=False))
    assert not shell.count(say.TakeDown)
    explained = WorkerLostError("the process died: out of memory")
    shell.handle(ev.Explained((2, 1), attempt, explained))
    shell.take_down()
    assert shell.brain.error is explained


def test_an_error_that_is_explained_while_the_others_are_still_being_started_ends_the_job() -> None:
    shell = Shell(TwoTasks(regions=True), restarts=1).run()
    shell.fail((1, 0))
    shell.cancelled()
    shell.wait(0.2)
    other = shell.brain.attempts.deployed[(2, 1)][0]
    explained = WorkerLostError("the process died: out of memory")
    shell.handle(ev.TaskFailed((2, 1), other, DEAD, is_explained=False), ev.Explained((2, 1), other, explained))
    shell.deployed()
    shell.take_down()
    assert (shell.brain.status, shell.brain.error) == (JobStatus.FAILED, explained)


def test_a_restart_that_is_explained_later_says_all_in_the_end() -> None:
    shell = Shell().run()
    attempt = shell.brain.attempts.number
    shell.handle(ev.TaskFailed((2, 1), attempt, DEAD, is_explained=False))
    shell.restart()
    shell.handle(ev.Explained((2, 1), attempt, WorkerLostError("the process died: out of memory")))
    assert [one["cause"] for one in shell.brain.restarts.to_dicts()] == ["the process died: out of memory"]


@pytest.mark.parametrize(("known", "warnings"), [("the process died: out of memory", 2), (str(DEAD), 1)])
def test_an_explanation_is_told_where_it_says_more(known: str, warnings: int) -> None:
    shell = Shell().run()
    attempt = shell.brain.attempts.number
    shell.handle(ev.TaskFailed((2, 1), attempt, DEAD, is_explained=False))
    shell.restart()
    shell.handle(ev.Explained((2, 1), attempt, WorkerLostError(known)))
    assert shell.count(say.Warn) == warnings


def test_a_manager_that_takes_over_resumes_at_the_parallelism_of_the_newest_checkpoint() -> None:
    first = Shell().run()
    first.ask(ev.RescaleJob(3))
    first.handle(ev.Prepared(1))
    first.preloaded()
    first.store()
    first.restart()
    first.wait(1.0)
    first.store()
    latest = first.brain.kept
    assert latest is not None
    second = Shell().run(Claim(2, latest.checkpoint + 1, (latest,)))
    assert second.last(say.Deploy).layout.scale == Scale(3)
    assert [one["kind"] for one in second.brain.restarts.to_dicts()][-1] == "takeover"


def test_a_manager_that_takes_over_knows_which_operator_had_been_rescaled() -> None:
    first = Shell().run()
    first.ask(ev.RescaleJob({"sink": 3}))
    first.handle(ev.Prepared(1))
    first.preloaded()
    first.store()
    first.restart()
    first.wait(1.0)
    first.store()
    latest = first.brain.kept
    assert latest is not None
    second = Shell().run(Claim(2, latest.checkpoint + 1, (latest,)))
    assert second.last(say.Deploy).layout.parallelisms == {1: 2, 2: 3}
