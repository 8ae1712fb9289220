"""The checkpoints of a job on Ray, with actors and a store of this process: what is done and what is told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from ray.exceptions import RayActorError, RayError

from penstock.actors.capture_writer import Declined
from penstock.actors.checkpoints import Checkpoints
from penstock.engine.checkpointing.instructions import AbortReason
from penstock.engine.checkpointing.store import JobFolder
from penstock.engine.elements import Barrier, SnapshotKind
from penstock.engine.errors import CheckpointError, FencedError
from penstock.engine.job import events as ev
from penstock.engine.job import instructions as say
from penstock.engine.job.status import JobStatus
from tests.actors.fakes import FakeActor, fails

A, B = (1, 0), (1, 1)
DISK_FULL = OSError("no space left on device")


class FakeStore:
    """A store whose calls give what they are told to, or fail; all others give None."""

    def __init__(self, **answers: Any) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self._answers = answers

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            self.calls.append((name, *arguments, *named.items()))
            answer = self._answers.get(name)
            if isinstance(answer, Exception):
                raise answer
            return answer

        return call


def carried_out(
    *instructions: say.CheckpointInstruction | say.WriteEnd,
    store: FakeStore | None = None,
    discard_rows: Callable[[], Sequence[str]] = lambda: (),
    **actors: FakeActor,
) -> Sequence[ev.Event]:
    """What is heard of the instructions; `a` and `b` run attempt 3 of the two subtasks."""
    heard: list[ev.Event] = []

    async def run() -> None:
        execution: Any = SimpleNamespace(
            actors={place: actors[name] for name, place in (("a", A), ("b", B)) if name in actors},
            attempts={A: 3, B: 3},
        )
        folder = JobFolder(store or FakeStore(), "job")  # type: ignore[arg-type]
        checkpoints = Checkpoints(folder, "numbers", execution, heard.append, discard_rows)
        for instruction in instructions:
            if isinstance(instruction, say.WriteEnd):
                checkpoints.write_end(instruction)
            else:
                checkpoints.carry_out(instruction)
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait(others)

    asyncio.run(run())
    return heard


def inject(barrier: Barrier, directory: str | None = None) -> say.Inject:
    return say.Inject(barrier, [A, B], directory)


def test_each_subtask_of_a_checkpoint_answers_for_itself() -> None:
    a = FakeActor(checkpoint=lambda attempt, barrier: ("handle", attempt, barrier.checkpoint))
    b = FakeActor(checkpoint=lambda attempt, barrier: Declined("its disk is full", AbortReason.DECLINED))
    assert carried_out(inject(Barrier(7)), a=a, b=b) == [
        ev.Acknowledged(7, A, ("handle", 3, 7)),  # type: ignore[arg-type]
        ev.Declined(7, B, "its disk is full", AbortReason.DECLINED),
    ]


def test_a_call_that_got_lost_declines_and_a_process_that_died_is_left_to_its_watch() -> None:
    a, b = FakeActor(checkpoint=fails(RayError("lost"))), FakeActor(checkpoint=fails(RayActorError()))
    assert carried_out(inject(Barrier(7)), a=a, b=b) == [ev.Declined(7, A, "lost")]


def test_a_subtask_without_a_process_is_passed_over() -> None:
    a = FakeActor(checkpoint=lambda attempt, barrier: "handle")
    assert [event.place for event in carried_out(inject(Barrier(7)), a=a)] == [A]  # type: ignore[union-attr]


def test_a_savepoint_tells_its_folder_to_the_subtasks_and_to_the_store() -> None:
    a = FakeActor(checkpoint=lambda attempt, barrier: barrier.target)
    store = FakeStore(savepoint_target="s3://bucket/savepoint-7", complete="s3://bucket/savepoint-7")
    checkpoint: Any = SimpleNamespace(checkpoint=7)
    barrier = Barrier(7, kind=SnapshotKind.SAVEPOINT)
    heard = carried_out(inject(barrier, "s3://bucket"), say.WriteManifest(checkpoint, 2), store=store, a=a)
    assert heard == [
        ev.Acknowledged(7, A, "s3://bucket/savepoint-7"),  # type: ignore[arg-type]
        ev.Stored(7, "s3://bucket/savepoint-7"),
    ]
    assert store.calls == [
        ("savepoint_target", "s3://bucket", 7),
        ("complete", 2, checkpoint, "s3://bucket/savepoint-7"),
    ]


@pytest.mark.parametrize(("committed", "heard"), [(True, [ev.Committed(7, A, 3)]), (False, []), (RayError("lost"), [])])
def test_a_commit_counts_once_the_subtask_says_so(committed: bool | Exception, heard: list[ev.Event]) -> None:
    complete = fails(committed) if isinstance(committed, Exception) else lambda attempt, checkpoint: committed
    actor = FakeActor(complete=complete)
    assert carried_out(say.Commit(7, [A]), a=actor) == heard
    assert actor.calls == [("complete", 3, 7)]


def test_subtasks_are_told_of_a_checkpoint_that_is_given_up() -> None:
    a, b = FakeActor(), FakeActor(abort=fails(RayActorError()))
    assert carried_out(say.AbortCheckpoint(7, [A, B]), a=a, b=b) == []
    assert a.calls == b.calls == [("abort", 3, 7)]


@pytest.mark.parametrize("error", [DISK_FULL, FencedError("another manager has taken the job over")])
def test_what_storage_refuses_is_heard_as_an_error_of_ours(error: Exception) -> None:
    checkpoint: Any = SimpleNamespace(checkpoint=7)
    store = FakeStore(claim=error, complete=error, savepoint_folder=error)
    instructions = say.TakeOver(), say.WriteManifest(checkpoint, 2), say.CheckFolder(5, "s3://bucket")
    heard = carried_out(*instructions, store=store)
    assert {type(event) for event in heard} == {ev.ClaimFailed, ev.StoreFailed, ev.FolderRefused}
    for event in heard:
        assert isinstance(event, ev.ClaimFailed | ev.StoreFailed | ev.FolderRefused)
        assert type(event.error) is (FencedError if isinstance(error, FencedError) else CheckpointError)
        assert str(error) in str(event.error)


def test_files_that_cannot_be_deleted_are_a_line_of_the_log_and_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    assert carried_out(say.DeleteFiles([], [], 0), store=FakeStore(delete=DISK_FULL)) == []
    assert "files of old checkpoints of job 'numbers' could not be deleted" in caplog.text


@pytest.mark.parametrize("discards", [True, False])
def test_the_end_is_written_down_before_anything_is_removed(discards: bool) -> None:
    store = FakeStore()
    assert carried_out(say.WriteEnd(2, JobStatus.FINISHED, "", discards), store=store) == [ev.EndWritten()]
    finish = ("finish", 2, JobStatus.FINISHED.value, "", ("retains", not discards))
    assert store.calls == [finish, ("discard",)][: 2 if discards else 1]


def test_nothing_is_removed_where_the_end_cannot_be_written_down() -> None:
    store = FakeStore(finish=DISK_FULL)
    assert carried_out(say.WriteEnd(2, JobStatus.FINISHED, "", True), store=store) == [ev.EndWritten(str(DISK_FULL))]
    assert [name for name, *_ in store.calls] == ["finish"]


def test_what_sinks_hold_back_goes_with_the_checkpoints_and_what_cannot_is_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = FakeStore()
    end = say.WriteEnd(2, JobStatus.CANCELLED, "", True, discards_rows=True)
    assert carried_out(end, store=store, discard_rows=lambda: ["part-1.csv is locked"]) == [ev.EndWritten()]
    assert [name for name, *_ in store.calls] == ["finish", "discard"]
    assert "what was not committed is left behind: part-1.csv is locked" in caplog.text


def test_a_manager_that_was_replaced_restores_nothing() -> None:
    store = FakeStore(check_claim=FencedError("another manager has taken the job over"))

    async def restore() -> None:
        folder = JobFolder(store, "job")
        checkpoints = Checkpoints(folder, "numbers", SimpleNamespace(), print, tuple)  # type: ignore[arg-type]
        await checkpoints.restore(None, None, 2)  # type: ignore[arg-type]

    with pytest.raises(FencedError):
        asyncio.run(restore())
    assert store.calls == [("check_claim", 2)]


@pytest.mark.parametrize("problem", [CheckpointError("damaged"), DISK_FULL, KeyError("a state")])
def test_a_rescale_hears_of_state_that_cannot_be_taken_in(problem: Exception) -> None:
    checkpoint: Any = SimpleNamespace(checkpoint=7)
    wanted: Any = say.Preload(4, SimpleNamespace(), (A,), checkpoint)  # type: ignore[arg-type]
    heard: list[ev.Event] = []
    folder = JobFolder(FakeStore(plan=problem), "job")
    checkpoints = Checkpoints(folder, "numbers", SimpleNamespace(), heard.append, lambda: ())  # type: ignore[arg-type]
    asyncio.run(checkpoints.preload(SimpleNamespace(), wanted))  # type: ignore[arg-type]
    assert heard == [ev.Preloaded(4, 7)]


def test_a_subtask_that_is_replaced_before_it_is_called_is_not_missed() -> None:
    a = FakeActor()

    async def run() -> None:
        actors = {A: a}
        execution: Any = SimpleNamespace(actors=actors, attempts={A: 3})
        checkpoints = Checkpoints(JobFolder(FakeStore(), "job"), "numbers", execution, lambda _: None, lambda: ())
        checkpoints.carry_out(say.AbortCheckpoint(7, [A]))
        actors.clear()
        await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}))

    asyncio.run(run())
    assert a.calls == [("abort", 3, 7)]
