"""Which files are deleted when, which checkpoints are kept, and what people are told."""

from __future__ import annotations

import time

from penstock.engine.checkpointing.instructions import AbortReason, Acknowledgement, Delete, NotifyAborted
from penstock.engine.elements import SnapshotKind
from tests.engine.checkpointing.coordinator_driver import (
    BYTES,
    PLACES,
    SAVEPOINT,
    SUSPEND,
    Driver,
    completed_of,
    deleted,
    of,
    paths_of,
)


def running(**config: object) -> Driver:
    driver = Driver(**config)
    driver.start()
    return driver


class TestRetention:
    def test_files_of_the_oldest_go_unless_newer_ones_refer_to_them(self) -> None:
        job = running()
        job.trigger(1.0)
        job.complete(1, "a", "b")
        job.trigger(2.0)
        (delete,) = of(Delete, job.complete(2, "a", "c"))
        assert [checkpoint.checkpoint for checkpoint in delete.checkpoints] == [1]
        assert paths_of(delete.files) == {"b"}

    def test_as_many_are_kept_as_configured(self) -> None:
        job = running(retained=2)
        for number in (1, 2, 3):
            job.trigger(float(number))
            answer = job.complete(number, f"f{number}")
        assert deleted(answer) == {"f1"}
        assert [checkpoint.checkpoint for checkpoint in job.coordinator.retained] == [2, 3]

    def test_those_of_a_manager_before_count(self) -> None:
        job = Driver([completed_of(3, "a", "b"), completed_of(5, "b", "c")], next_checkpoint=6, retained=2)
        job.start()
        job.trigger(1.0)
        assert deleted(job.complete(6, "c", "d")) == {"a"}

    def test_files_of_a_base_stay_while_one_under_way_may_refer_to_them(self) -> None:
        job = running(max_concurrent=2)
        job.trigger(1.0)
        job.complete(1, "a", "b")
        job.trigger(2.0)
        assert job.trigger(3.0).barrier.base == 1
        assert deleted(job.complete(2, "c")) == set()
        assert deleted(job.complete(3, "a")) == {"b", "c"}

    def test_files_that_a_new_attempt_may_have_read_stay_when_a_late_manifest_comes(self) -> None:
        job = running()
        job.trigger(1.0)
        job.complete(1, "a")
        job.trigger(2.0)
        job.ack_all(2, "b")
        job.coordinator.end_attempt(2.0)
        job.start()
        late = job.stored(2)
        assert [checkpoint.checkpoint for delete in of(Delete, late) for checkpoint in delete.checkpoints] == [1]
        assert deleted(late) == set(), "the subtasks resume from checkpoint 1"
        job.trigger(3.0)
        assert deleted(job.complete(3, "c")) == {"a", "b"}


class TestAborted:
    def test_files_that_only_it_refers_to_go_and_those_that_come_late_too(self) -> None:
        job = running(tolerable_failures=5)
        job.trigger(1.0)
        job.complete(1, "a")
        job.trigger(2.0)
        job.ack(2, PLACES[0], "a", "b")
        answer = job.coordinator.decline(2, PLACES[1], "no", 2.0)[1]
        assert deleted(answer) == {"b"}
        outcome, late = job.ack(2, PLACES[2], "a", "c", "c")
        assert outcome is Acknowledgement.DISCARDED
        assert [file.path for file in of(Delete, late)[0].files] == ["c"]

    def test_manifest_whose_write_failed_may_be_there_and_be_restored_until_a_later_one_is(self) -> None:
        job = running(tolerable_failures=5)
        job.trigger(1.0)
        job.ack_all(1, "a")
        assert of(Delete, job.coordinator.on_store_failed(1, "time-out", 1.0)) == []
        job.trigger(2.0)
        (delete,) = of(Delete, job.complete(2, "b"))
        assert [checkpoint.checkpoint for checkpoint in delete.checkpoints] == [1]
        assert paths_of(delete.files) == {"a"}

    def test_subtasks_of_an_ended_attempt_may_still_acknowledge(self) -> None:
        job = running()
        job.trigger(1.0)
        job.coordinator.end_attempt(1.0)
        job.start()
        assert deleted(job.ack(1, PLACES[0], "a")[1]) == {"a"}


class TestSavepoints:
    def test_files_of_a_complete_one_are_never_deleted(self) -> None:
        job = running()
        number, _ = job.request(SAVEPOINT)
        assert job.complete(number, "part") == []
        assert job.ack(number, PLACES[0], "part") == (Acknowledgement.DISCARDED, [])

    def test_one_that_fails_is_removed_from_its_own_folder(self) -> None:
        job = running()
        number, _ = job.request(SAVEPOINT)
        job.ack(number, PLACES[0], "part-0")
        answer = job.coordinator.decline(number, PLACES[1], "no", 0.0)[1]
        assert [(paths_of(delete.files), delete.savepoint) for delete in of(Delete, answer)] == [({"part-0"}, number)]
        _, late = job.ack(number, PLACES[2], "part-2")
        assert [(paths_of(delete.files), delete.savepoint) for delete in of(Delete, late)] == [({"part-2"}, number)]

    def test_one_that_may_be_there_keeps_its_files_when_a_subtask_acknowledges_twice(self) -> None:
        job = running()
        number, _ = job.request(SUSPEND)
        job.ack_all(number, "part")
        job.coordinator.on_store_failed(number, "time-out", 1.0)
        assert job.ack(number, PLACES[0], "part") == (Acknowledgement.DISCARDED, [])
        job.trigger(2.0)
        assert deleted(job.complete(2)) == {"part"}
        assert deleted(job.ack(number, PLACES[0], "part")[1]) == {"part"}

    def test_manifest_whose_write_failed_goes_with_them(self) -> None:
        job = running()
        number, _ = job.request(SAVEPOINT)
        job.ack_all(number, "part")
        assert of(Delete, job.coordinator.on_store_failed(number, "time-out", 1.0)) == []
        job.trigger(2.0)
        (delete,) = of(Delete, job.complete(2, "a"))
        assert [checkpoint.checkpoint for checkpoint in delete.checkpoints] == [number]
        assert (paths_of(delete.files), delete.savepoint) == ({"part"}, number)


class TestFigures:
    def test_statistics(self) -> None:
        job = running(tolerable_failures=5)
        job.trigger(1.0)
        job.now = 1.25
        job.complete(1, "a", "b")
        job.trigger(2.0)
        job.coordinator.decline(2, PLACES[0], "no", 2.5)
        job.trigger(3.0)
        job.now = 3.5
        job.complete(3, "a", "c")
        job.trigger(4.0)
        figures = job.coordinator.statistics
        assert (figures.completed, figures.failed, figures.in_progress) == (2, 1, 1)
        assert figures.last_duration == 0.5
        assert figures.last_size == (2 * BYTES, BYTES)

    def test_what_the_end_of_the_job_comes_before_has_not_failed(self) -> None:
        job = running(tolerable_failures=5)
        job.trigger(1.0)
        job.complete(1, "a")
        job.trigger(2.0)
        job.coordinator.end_attempt(2.5, AbortReason.JOB_ENDED)
        figures = job.coordinator.statistics
        assert (figures.completed, figures.failed, figures.in_progress) == (1, 0, 0)
        assert job.coordinator.history[-1].reason is AbortReason.JOB_ENDED

    def test_history(self) -> None:
        job = running(tolerable_failures=None)
        for number in range(1, 31):
            job.trigger(float(number))
            job.coordinator.decline(number, PLACES[0], "disk full", float(number))
        job.trigger(31.0)
        job.complete(31)
        history = job.coordinator.history
        assert [record.checkpoint for record in history] == list(range(12, 32))
        assert (history[0].reason, history[0].message) == (AbortReason.DECLINED, "task 1 subtask 0: disk full")
        assert (history[-1].reason, history[-1].acknowledged, history[-1].subtasks) == (None, 3, 3)

    def test_a_manager_that_resumes_from_a_checkpoint_tells_what_came_before(self) -> None:
        job = running(tolerable_failures=None)
        job.trigger(1.0)
        job.coordinator.decline(1, PLACES[0], "disk full", 1.5)
        for number in range(2, 12):
            job.trigger(float(number))
            job.complete(number, "a")
        job.trigger(12.0)
        successor = Driver(next_checkpoint=20, completed=job.coordinator.retained)
        figures = successor.coordinator.statistics
        assert (figures.completed, figures.failed, figures.in_progress) == (10, 1, 0)
        assert figures.last_size == job.coordinator.statistics.last_size
        assert [record.checkpoint for record in successor.coordinator.history] == [7, 8, 9, 10, 11]

    def test_aborts_say_why_in_words(self) -> None:
        job = running()
        job.trigger(1.0)
        (aborted,) = of(NotifyAborted, job.coordinator.end_attempt(1.0))
        assert aborted.message.startswith(
            "checkpoint 1 was aborted, as the job failed and is restored: 0 of 3 subtasks"
        )

    def test_one_that_was_to_end_the_job_is_a_savepoint_to_people(self) -> None:
        job = running()
        job.coordinator.request(SnapshotKind.SUSPEND, 1.0, 1_000)
        (aborted,) = of(NotifyAborted, job.coordinator.end_attempt(1.0))
        assert aborted.message.startswith("savepoint 1 was aborted, as the job failed and is restored: ")


def test_ten_thousand_subtasks_acknowledge_in_a_moment() -> None:
    places = [(1, subtask) for subtask in range(10_000)]
    job = Driver()
    job.start(places)
    begun = time.process_time()
    for number in (1, 2):
        job.trigger(float(number))
        for place in places:
            job.ack(number, place, f"{number}/{place[1]}", f"shared/{place[1]}")
        answer = job.stored(number)
    assert len(deleted(answer)) == 10_000
    assert time.process_time() - begun < 20, "1 s here: a cost that grows with the square takes minutes"
