"""When checkpoints are triggered, what acknowledgements mean, when a checkpoint counts, and what fails the job."""

from __future__ import annotations

import pytest

from penstock.engine.checkpointing.handles import Size
from penstock.engine.checkpointing.history import PARTS_KEPT, CheckpointPart
from penstock.engine.checkpointing.instructions import (
    AbortReason,
    Acknowledgement,
    FailJob,
    NotifyAborted,
    NotifyComplete,
    Store,
    Trigger,
)
from penstock.engine.elements import Barrier, CheckpointMode, SnapshotKind
from penstock.engine.errors import CheckpointError
from tests.engine.checkpointing.coordinator_driver import (
    CHECKPOINT,
    PLACES,
    SAVEPOINT,
    SUSPEND,
    Driver,
    completed_of,
    of,
)


def running(**config: object) -> Driver:
    driver = Driver(**config)
    assert driver.start() == []
    return driver


class TestTriggers:
    def test_first_comes_one_interval_after_the_start_and_then_each_interval(self) -> None:
        job = running()
        assert job.coordinator.deadline == 1.0
        assert job.at(0.9) == []
        assert job.trigger(1.0) == Trigger(Barrier(1), PLACES)
        job.complete(1)
        assert job.coordinator.deadline == 2.0
        assert job.trigger(2.0).barrier.checkpoint == 2

    def test_none_comes_by_itself_without_an_interval(self) -> None:
        job = running(interval_ms=0)
        assert job.coordinator.deadline is None
        assert job.at(1e6) == []

    def test_waits_until_one_under_way_is_done(self) -> None:
        job = running()
        job.trigger(1.0)
        assert of(Trigger, job.at(3.5)) == []
        job.complete(1)
        assert job.trigger(3.5).barrier.checkpoint == 2
        assert job.coordinator.deadline == 13.5, "the next waits for this one, whose time-out comes first"

    def test_as_many_are_under_way_as_allowed(self) -> None:
        job = running(max_concurrent=2)
        assert [job.trigger(1.0).barrier.checkpoint, job.trigger(2.0).barrier.checkpoint] == [1, 2]
        assert of(Trigger, job.at(3.0)) == []

    @pytest.mark.parametrize("aborted", [False, True])
    def test_pause_counts_from_the_end_of_the_last(self, aborted: bool) -> None:
        job = running(min_pause_ms=700, max_concurrent=4, tolerable_failures=None)
        job.trigger(1.0)
        assert job.at(2.0) == []
        job.now = 2.5
        if aborted:
            job.coordinator.decline(1, PLACES[0], "no", 2.5)
        else:
            job.complete(1)
        assert job.coordinator.deadline == 3.2
        assert job.trigger(3.2).barrier.checkpoint == 2

    def test_base_is_the_newest_that_is_complete(self) -> None:
        job = running(max_concurrent=2)
        assert job.trigger(1.0).barrier.base == 0
        assert job.trigger(2.0).barrier.base == 0
        job.complete(1)
        assert job.trigger(3.0).barrier.base == 1

    def test_complete_checkpoints_have_no_base_where_they_are_not_incremental(self) -> None:
        job = running(incremental=False)
        job.trigger(1.0)
        job.complete(1)
        assert job.trigger(2.0).barrier.base == 0

    def test_numbers_go_on_over_attempts_and_managers(self) -> None:
        job = Driver([completed_of(7, "a")], next_checkpoint=12)
        job.start()
        assert job.trigger(1.0).barrier == Barrier(12, base=7)
        job.coordinator.end_attempt(1.0)
        job.start()
        assert job.trigger(2.0).barrier == Barrier(13, base=7)

    @pytest.mark.parametrize(
        ("mode", "timeout", "expected"),
        [
            (CheckpointMode.ALIGNED, None, CheckpointMode.ALIGNED),
            (CheckpointMode.ALIGNED, 100, CheckpointMode.ALIGNED),
            (CheckpointMode.UNALIGNED, None, CheckpointMode.UNALIGNED),
            (CheckpointMode.UNALIGNED, 100, CheckpointMode.ALIGNED),
            (CheckpointMode.ALIGNED, 0, CheckpointMode.UNALIGNED),
            (CheckpointMode.AT_LEAST_ONCE, None, CheckpointMode.AT_LEAST_ONCE),
        ],
    )
    def test_mode_of_the_barrier(self, mode: CheckpointMode, timeout: int | None, expected: CheckpointMode) -> None:
        job = running(mode=mode, alignment_timeout_ms=timeout)
        assert job.trigger(1.0).barrier == Barrier(1, expected, alignment_timeout_ms=timeout)


class TestAcknowledgements:
    def test_manifest_is_written_when_all_subtasks_have_acknowledged_and_then_sinks_commit(self) -> None:
        job = running()
        job.trigger(1.0)
        for place in PLACES[:-1]:
            assert job.ack(1, place) == (Acknowledgement.SUCCESS, [])
        job.now = 1.5
        outcome, (store,) = job.ack(1, PLACES[-1])
        assert outcome is Acknowledgement.SUCCESS
        assert isinstance(store, Store)
        completed = store.checkpoint
        assert [(handle.task, handle.subtask) for handle in completed.subtasks] == list(PLACES)
        assert (completed.attempt, completed.kind, completed.job_name) == (1, CHECKPOINT, "Job")
        assert (completed.triggered_ms, completed.completed_ms) == (1000, 1500)
        assert completed.split_parallelism == {"source": 2}
        assert job.coordinator.latest is None
        assert job.stored(1) == [NotifyComplete(1, PLACES)]
        assert job.coordinator.latest == completed
        assert job.stored(1) == [], "a second report changes nothing"

    def test_second_one_of_a_subtask_counts_once(self) -> None:
        job = running()
        job.trigger(1.0)
        job.ack(1, PLACES[0])
        assert job.ack(1, PLACES[0]) == (Acknowledgement.DUPLICATE, [])
        job.ack_all(1)
        assert job.ack(1, PLACES[0]) == (Acknowledgement.DUPLICATE, [])
        job.stored(1)
        assert job.ack(1, PLACES[0]) == (Acknowledgement.DISCARDED, [])

    def test_of_what_is_not_known(self) -> None:
        job = running()
        job.trigger(1.0)
        assert job.ack(2, PLACES[0], "x") == (Acknowledgement.UNKNOWN, [])
        assert job.ack(1, (9, 9), "x") == (Acknowledgement.UNKNOWN, [])

    def test_decline_aborts(self) -> None:
        job = running(tolerable_failures=5)
        job.trigger(1.0)
        job.ack(1, PLACES[0])
        assert job.coordinator.decline(1, PLACES[0], "disk full", 1.0) == (Acknowledgement.DUPLICATE, [])
        outcome, (aborted,) = job.coordinator.decline(1, PLACES[1], "disk full", 1.0)
        assert outcome is Acknowledgement.SUCCESS
        assert isinstance(aborted, NotifyAborted)
        assert (aborted.checkpoint, aborted.reason, aborted.places) == (1, AbortReason.DECLINED, PLACES)
        assert "task 1 subtask 1: disk full" in aborted.message
        assert job.coordinator.decline(1, PLACES[2], "too", 1.0) == (Acknowledgement.DISCARDED, [])
        assert job.coordinator.decline(8, PLACES[2], "too", 1.0) == (Acknowledgement.UNKNOWN, [])


class TestParts:
    def test_what_each_subtask_did_is_known_of_those_under_way_and_of_the_newest(self) -> None:
        job = running(interval_ms=1000)
        job.trigger(1.0)
        job.now = 1.25
        job.ack(1, PLACES[1], "a", "b")
        waiting = CheckpointPart(*PLACES[0])
        done = CheckpointPart(*PLACES[1], 1250, Size(200, 200))
        assert job.coordinator.parts(1) == (waiting, done, CheckpointPart(*PLACES[2]))
        job.coordinator.decline(1, PLACES[0], "no disk", 1.3)
        assert job.coordinator.parts(1)[:2] == (waiting, done)
        assert job.coordinator.parts(2) == ()

    def test_no_more_than_the_newest_are_kept(self) -> None:
        job = running()
        for number in range(1, PARTS_KEPT + 2):
            job.trigger(float(number))
            job.complete(number)
        assert job.coordinator.parts(1) == ()
        assert all(len(job.coordinator.parts(number)) == len(PLACES) for number in range(2, PARTS_KEPT + 2))


class TestManifests:
    def test_are_written_one_at_a_time_in_order(self) -> None:
        job = running(max_concurrent=3)
        for number in (1, 2, 3):
            job.trigger(float(number))
        assert [store.checkpoint.checkpoint for store in of(Store, job.ack_all(2))] == [2]
        assert job.ack_all(3) == []
        assert [store.checkpoint.checkpoint for store in of(Store, job.stored(2))] == [3]

    def test_completion_aborts_the_older_ones_but_no_savepoint(self) -> None:
        job = running(max_concurrent=2)
        job.trigger(1.0)
        savepoint, _ = job.request()
        job.trigger(2.0)
        (aborted,) = of(NotifyAborted, job.complete(3))
        assert (aborted.checkpoint, aborted.reason) == (1, AbortReason.SUBSUMED)
        assert of(Store, job.ack_all(savepoint))

    def test_time_out_names_who_is_missing(self) -> None:
        job = running(timeout_ms=4000, tolerable_failures=5)
        job.trigger(1.0)
        job.ack(1, PLACES[1])
        assert job.at(4.9) == []
        aborted, trigger = job.at(5.0)
        assert isinstance(aborted, NotifyAborted)
        assert aborted.reason is AbortReason.TIMEOUT
        assert "timeout_ms is 4000" in aborted.message
        assert "1 of 3 subtasks had acknowledged; missing: task 1 subtask 0, task 2 subtask 0" in aborted.message
        assert isinstance(trigger, Trigger)

    def test_one_being_written_takes_as_long_as_it_takes(self) -> None:
        job = running()
        job.trigger(1.0)
        job.ack_all(1)
        assert job.coordinator.deadline is None
        assert job.at(100.0) == []
        assert of(NotifyComplete, job.stored(1))

    def test_failed_write_is_a_failed_checkpoint(self) -> None:
        job = running(tolerable_failures=5)
        job.trigger(1.0)
        job.ack_all(1)
        (aborted,) = of(NotifyAborted, job.coordinator.on_store_failed(1, "503", 1.0))
        assert (aborted.reason, aborted.message.endswith(": 503")) == (AbortReason.STORE_FAILED, True)
        assert job.coordinator.latest is None
        assert job.stored(1) == []


class TestAttempts:
    def test_end_aborts_what_is_under_way_and_tells_the_subtasks_of_which_some_may_run_on(self) -> None:
        job = running()
        job.trigger(1.0)
        job.ack(1, PLACES[0])
        (aborted,) = job.coordinator.end_attempt(1.0)
        assert isinstance(aborted, NotifyAborted)
        assert (aborted.checkpoint, aborted.reason, aborted.places) == (1, AbortReason.ATTEMPT_ENDED, PLACES)
        assert job.coordinator.deadline is None
        assert job.at(50.0) == []

    def test_sources_that_stopped_for_a_savepoint_go_on_when_it_fails_after_the_end(self) -> None:
        job = running()
        number, _ = job.request(SUSPEND)
        job.ack_all(number)
        assert job.coordinator.end_attempt(1.0) == []
        job.start()
        (aborted,) = of(NotifyAborted, job.coordinator.on_store_failed(number, "503", 1.0))
        assert (aborted.reason, aborted.places) == (AbortReason.STORE_FAILED, PLACES)

    def test_a_reason_may_be_given(self) -> None:
        job = running()
        job.trigger(1.0)
        (aborted,) = of(NotifyAborted, job.coordinator.end_attempt(1.0, AbortReason.JOB_ENDED))
        assert aborted.reason is AbortReason.JOB_ENDED

    @pytest.mark.parametrize("restarted", [False, True])
    def test_manifest_that_is_there_counts_after_the_end(self, restarted: bool) -> None:
        job = running()
        job.trigger(1.0)
        job.ack_all(1)
        assert job.coordinator.end_attempt(1.0) == []
        if restarted:
            job.start()
        assert of(NotifyComplete, job.stored(1)) == [], "sinks of another attempt have nothing of it"
        assert job.coordinator.latest is not None
        assert job.coordinator.latest.checkpoint == 1

    def test_new_attempt_begins_its_interval_anew(self) -> None:
        job = running()
        job.trigger(1.0)
        job.coordinator.end_attempt(1.2)
        job.now = 1.7
        job.start([(1, 0)])
        assert job.trigger(2.7) == Trigger(Barrier(2), ((1, 0),))


class TestFailures:
    def fail(self, job: Driver, at: float) -> list[str]:
        number = job.trigger(at).barrier.checkpoint
        answer = job.coordinator.decline(number, PLACES[0], "no", at)[1]
        assert [type(a) for a in answer[-1:]] == [FailJob] or not of(FailJob, answer), "what ends it comes last"
        return [failure.message for failure in of(FailJob, answer)]

    def test_more_in_a_row_than_tolerable_fail_the_job_once(self) -> None:
        job = running(tolerable_failures=1)
        assert self.fail(job, 1.0) == []
        (message,) = self.fail(job, 2.0)
        assert "2 failed in a row" in message
        assert "tolerable_failures is 1" in message
        assert job.at(9.0) == [], "nothing more is triggered in this attempt"
        job.coordinator.end_attempt(9.0)
        job.start()
        assert self.fail(job, 10.0) == []

    @pytest.mark.parametrize("reason", [AbortReason.OVERTAKEN, AbortReason.SUBTASK_ENDED])
    def test_one_that_a_later_one_or_the_end_of_a_subtask_overtook_fails_no_job(self, reason: AbortReason) -> None:
        job = running(tolerable_failures=0)
        job.trigger(1.0)
        _, (aborted,) = job.coordinator.decline(1, PLACES[0], "", 1.0, reason)
        assert isinstance(aborted, NotifyAborted)
        assert aborted.reason is reason
        assert job.trigger(2.0).barrier.checkpoint == 2

    def test_several_at_once_fail_it_once(self) -> None:
        job = running(max_concurrent=2, timeout_ms=1500)
        job.trigger(1.0)
        job.trigger(2.0)
        assert len(of(FailJob, job.at(9.0))) == 1

    def test_completion_forgives(self) -> None:
        job = running(tolerable_failures=1)
        assert self.fail(job, 1.0) == []
        job.trigger(2.0)
        job.complete(2)
        assert self.fail(job, 3.0) == []

    def test_any_number_is_tolerable(self) -> None:
        job = running(tolerable_failures=None)
        assert [self.fail(job, float(at)) for at in range(1, 50)] == [[]] * 49

    def test_savepoints_do_not_count(self) -> None:
        job = running(tolerable_failures=0)
        number, _ = job.request(SAVEPOINT)
        answer = job.coordinator.decline(number, PLACES[0], "no", 0.0)[1]
        assert [type(instruction) for instruction in answer] == [NotifyAborted]

    def test_those_of_an_ended_attempt_do_not_count(self) -> None:
        job = running(tolerable_failures=0)
        job.trigger(1.0)
        job.ack_all(1)
        job.coordinator.end_attempt(1.0)
        job.start()
        assert of(FailJob, job.coordinator.on_store_failed(1, "503", 1.0)) == []


class TestRequests:
    def test_savepoint_is_complete_in_itself_and_commits_nothing(self) -> None:
        job = Driver([completed_of(4, "a")], next_checkpoint=5, mode=CheckpointMode.AT_LEAST_ONCE)
        job.start()
        number, (trigger,) = job.request(SAVEPOINT, "file:///here")
        assert trigger == Trigger(Barrier(5, CheckpointMode.ALIGNED, SAVEPOINT), PLACES, "file:///here")
        assert job.complete(number, "part") == []
        assert [checkpoint.checkpoint for checkpoint in job.coordinator.retained] == [4]
        assert job.trigger(1.0).barrier == Barrier(6, CheckpointMode.AT_LEAST_ONCE, base=4)

    def test_savepoint_holds_no_periodic_checkpoint_up(self) -> None:
        job = running(min_pause_ms=500)
        job.now = 0.9
        job.request(SAVEPOINT)
        assert job.trigger(1.0).barrier.checkpoint == 2

    def test_checkpoint_that_is_asked_for_waits_for_nothing_but_counts_as_one(self) -> None:
        job = running()
        job.trigger(1.0)
        number, (trigger,) = job.request(CHECKPOINT)
        assert (number, trigger) == (2, Trigger(Barrier(2), PLACES))
        job.complete(1)
        assert of(Trigger, job.at(2.0)) == []
        job.complete(2)
        assert job.trigger(2.0).barrier.base == 2

    def test_suspend_commits_and_nothing_follows(self) -> None:
        job = running()
        number, _ = job.request(SUSPEND)
        assert of(Trigger, job.at(5.0)) == []
        with pytest.raises(CheckpointError, match="being stopped with savepoint 1: no checkpoint"):
            job.request(CHECKPOINT)
        assert job.complete(number) == [NotifyComplete(number, PLACES)]
        assert job.coordinator.suspended is not None
        assert job.coordinator.latest is None, "it is the user's"
        assert job.at(50.0) == []
        assert job.coordinator.deadline is None
        with pytest.raises(CheckpointError, match="savepoint 1"):
            job.request(SUSPEND)

    def test_periodic_ones_go_on_when_the_suspension_fails(self) -> None:
        job = running(tolerable_failures=5)
        number, _ = job.request(SUSPEND)
        job.now = 3.0
        job.coordinator.decline(number, PLACES[0], "no", 3.0)
        assert job.trigger(3.0).barrier.checkpoint == 2

    @pytest.mark.parametrize(
        "config", [{"mode": CheckpointMode.UNALIGNED}, {"alignment_timeout_ms": 50}], ids=["unaligned", "switching"]
    )
    def test_barriers_that_can_overtake_go_one_after_the_other(self, config: dict[str, object]) -> None:
        job = running(**config)
        job.trigger(1.0)
        number, nothing = job.request(SAVEPOINT, "file:///x")
        assert (number, nothing) == (2, [])
        assert job.coordinator.deadline == 11.0
        job.complete(1)
        assert job.coordinator.deadline == 1.0, "at once"
        assert job.trigger(1.1) == Trigger(Barrier(2, CheckpointMode.ALIGNED, SAVEPOINT), PLACES, "file:///x")
        assert of(Trigger, job.at(5.0)) == []
        job.complete(2)
        assert job.trigger(5.0).barrier.checkpoint == 3

    def test_what_waits_is_aborted_with_its_attempt(self) -> None:
        job = running(mode=CheckpointMode.UNALIGNED)
        job.trigger(1.0)
        job.request(SAVEPOINT)
        aborted = of(NotifyAborted, job.coordinator.end_attempt(1.0))
        assert [(a.checkpoint, a.reason, a.places) for a in aborted] == [
            (1, AbortReason.ATTEMPT_ENDED, PLACES),
            (2, AbortReason.ATTEMPT_ENDED, ()),
        ]

    def test_needs_a_running_attempt(self) -> None:
        with pytest.raises(CheckpointError, match="job 'Job' is not running, so no savepoint can be taken"):
            Driver().request(SAVEPOINT)


class TestDrain:
    """A checkpoint with half of the sources finished would lose what the others had yet to read."""

    @pytest.mark.parametrize("kind", [CHECKPOINT, SAVEPOINT])
    def test_what_is_under_way_is_aborted_and_is_no_failure(self, kind: SnapshotKind) -> None:
        job = running(tolerable_failures=0)
        number, _ = job.request(kind)
        job.ack(number, PLACES[0])
        (aborted,) = job.coordinator.drain(0.5)
        assert isinstance(aborted, NotifyAborted)
        assert (aborted.checkpoint, aborted.reason, aborted.places) == (number, AbortReason.DRAINED, PLACES)
        assert "was aborted, as the job is drained: 1 of 3 subtasks" in aborted.message
        assert job.ack(number, PLACES[1])[0] is Acknowledgement.DISCARDED
        assert job.coordinator.drain(0.6) == []

    def test_what_has_been_taken_before_still_counts(self) -> None:
        job = running(max_concurrent=2)
        job.trigger(1.0)
        job.trigger(2.0)
        job.ack_all(1)
        job.ack_all(2)
        assert job.coordinator.drain(2.0) == []
        assert of(Store, job.stored(1))
        assert of(NotifyComplete, job.stored(2)) == [NotifyComplete(2, PLACES)]

    def test_none_is_taken_before_the_sources_have_ended(self) -> None:
        job = running()
        job.coordinator.drain(0.5)
        assert job.coordinator.deadline is None
        assert job.at(50.0) == []
        for kind in (CHECKPOINT, SAVEPOINT):
            with pytest.raises(CheckpointError, match=f"job 'Job' is being drained: no {kind.value} can be taken"):
                job.request(kind)

    def test_ends_with_a_savepoint_and_when_that_fails_with_a_checkpoint(self) -> None:
        job = running()
        job.coordinator.drain(0.5)
        number, (trigger,) = job.request(SUSPEND, "file:///here")
        assert trigger == Trigger(Barrier(number, CheckpointMode.ALIGNED, SUSPEND), PLACES, "file:///here")
        job.coordinator.decline(number, PLACES[0], "disk full", 0.5)
        assert job.at(50.0) == []
        last, _ = job.request(CHECKPOINT)
        assert job.complete(last) == [NotifyComplete(last, PLACES)]

    def test_what_waits_is_aborted(self) -> None:
        job = running(mode=CheckpointMode.UNALIGNED)
        job.trigger(1.0)
        waiting, _ = job.request(SAVEPOINT)
        aborted = of(NotifyAborted, job.coordinator.drain(1.0))
        assert [(a.checkpoint, a.reason, a.places) for a in aborted] == [
            (1, AbortReason.DRAINED, PLACES),
            (waiting, AbortReason.DRAINED, ()),
        ]

    def test_ends_with_its_attempt(self) -> None:
        job = running()
        job.coordinator.drain(0.5)
        job.coordinator.end_attempt(0.5)
        job.start()
        assert job.trigger(1.0).barrier.checkpoint == 1

    def test_needs_an_attempt_that_goes_on(self) -> None:
        with pytest.raises(CheckpointError, match="job 'Job' is not running, so no drain can begin"):
            Driver().coordinator.drain(0.0)
        job = running()
        job.request(SUSPEND)
        with pytest.raises(CheckpointError, match="being stopped with savepoint 1: no drain can begin"):
            job.coordinator.drain(0.5)
