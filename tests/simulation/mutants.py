"""Safeguards of checkpoints and recovery, and how each is switched off: what the mutant suite shows the checkers."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from penstock.engine.checkpointing.coordinator import CheckpointCoordinator
from penstock.engine.checkpointing.instructions import Acknowledgement
from penstock.engine.checkpointing.pending import PendingCheckpoint
from penstock.engine.checkpointing.retained import SharedFiles
from penstock.engine.checkpointing.store import Claim
from penstock.engine.errors import CheckpointError
from penstock.engine.job.attempts import Attempts
from penstock.engine.job.brain import JobBrain
from penstock.engine.job.checkpoints import JobCheckpoints, Purpose
from penstock.engine.job.ending import Ending
from penstock.engine.job.finish import Finish
from penstock.engine.job.life import Life
from penstock.engine.job.recovery import Recovery
from penstock.engine.job.status import JobStatus
from penstock.engine.operators.sink import TransactionalSinkOperator
from penstock.engine.state.capture import OperatorCapture
from penstock.engine.task import source_head
from penstock.engine.task.barriers import BarrierAligner
from penstock.engine.task.checkpoints import TaskCheckpoints
from penstock.savepoints import restore, segments, store
from penstock.savepoints.history import TableHistory
from penstock.savepoints.store import FolderJobStore
from penstock.testing.simulation import FaultRates
from tests.simulation.scenarios import SCENARIOS

Patch = pytest.MonkeyPatch
ALL = tuple(scenario.name for scenario in SCENARIOS)
MANY_KEYS = ("many_keys", "forgotten")
EXACT = tuple(name for name in ALL if name not in ("at_least_once", "apart", "neighbours", *MANY_KEYS))
"""Jobs of one region whose rows are exact, and which are no more than a mutant needs."""
USUAL = FaultRates()
ZOMBIES = FaultRates(budget=12, kill_manager=0.006, zombie=1.0, delay=0.5)
STORAGE = FaultRates(budget=15, storage=0.1)
KILLS = FaultRates(
    budget=20,
    kill_subtask=0.004,
    kill_manager=0,
    storage=0,
    slow=0,
    disk_full=0,
    stuck=0,
    rescale=0,
    suspend=0,
    drain=0,
    corrupt=0,
    cancel=0,
    kill_node=0,
    delay=0.6,
)
CALM = FaultRates(
    budget=40,
    kill_subtask=0,
    kill_manager=0,
    storage=0,
    slow=0,
    disk_full=0,
    commit=0,
    repeat=0,
    lose=0,
    stuck=0,
    clock_jump=0,
    rescale=0,
    savepoint=0,
    branch=0,
    suspend=0,
    drain=0,
    corrupt=0,
    cancel=0,
    kill_node=0,
)
NODES = replace(CALM, budget=40, kill_node=0.01, standby=0.3)
LOST = replace(CALM, budget=300, lose=0.15)
MANAGERS = replace(CALM, budget=20, kill_manager=0.01, zombie=1.0, delay=0.8, kill_subtask=0.003)
ENDS = replace(CALM, budget=400, storage=0.15)
DRAINED = ("sequences", "exchanges")
REGIONS = ("apart",)
LATE_DRAINS = replace(CALM, budget=60, hold=0.2, kill_subtask=0.008, drain=0.01)
DRAINS = replace(CALM, drain=0.01, storage=0.1, kill_manager=0.004, kill_subtask=0.01)
LATE_STOPS = replace(CALM, budget=300, hold=0.1, kill_subtask=0.01, suspend=0.02)
LATE_CANCELS = replace(CALM, budget=200, hold=0.15, cancel=0.001)
LATE_NEWS = replace(CALM, budget=30, late=0.7, kill_subtask=0.004)
STOPS = FaultRates(budget=12, suspend=0.005, rescale=0.005)


@dataclass(frozen=True, slots=True)
class Mutant:
    """A safeguard.

    Args:
        name: what it does.
        switch_off: makes the engine do without.
        scenarios: where it matters.
        rates: the faults that it is for.
        first_seed: where the search begins.
    """

    name: str
    switch_off: Callable[[Patch], None]
    scenarios: Sequence[str] = EXACT
    rates: FaultRates = USUAL
    first_seed: int = 0


def _count_acknowledgements(patch: Patch) -> None:
    """Any acknowledgement counts, also one that comes twice."""
    counts: dict[int, int] = {}

    def acknowledge(self: Any, place: Any, handle: Any, now_ms: int) -> Acknowledgement:
        counts[id(self)] = counts.get(id(self), 0) + 1
        self._missing.discard(place)
        self._handles[place] = handle
        return Acknowledgement.SUCCESS

    patch.setattr(PendingCheckpoint, "__init__", _resetting(PendingCheckpoint.__init__, counts))
    patch.setattr(PendingCheckpoint, "acknowledge", acknowledge)
    patch.setattr(PendingCheckpoint, "is_open", property(lambda self: counts[id(self)] < len(self.attempt.places)))


def _resetting(original: Any, counts: dict[int, int]) -> Any:
    def init(self: Any, *args: Any, **named: Any) -> None:
        counts[id(self)] = 0
        original(self, *args, **named)

    return init


def _store_at_first(patch: Patch) -> None:
    patch.setattr(PendingCheckpoint, "is_open", property(lambda self: not self._handles))


def _fence_nobody(patch: Patch) -> None:
    patch.setattr(FolderJobStore, "_check_not_fenced", lambda self, blobs, epoch, what: None)


def _list_before_claiming(patch: Patch) -> None:
    def claim(self: Any) -> Claim:
        blobs = self._blobs
        retained = store.counted_checkpoints(blobs)
        epoch = self._create_claim(blobs)
        if (ended := store.ended_by(blobs)) is not None:
            return Claim(epoch, 1, (), ended.status, ended.message)
        newest = retained[-1].checkpoint if retained else 0
        blobs.create(self._paths.restored(epoch), store.seal({"format": 1, "checkpoint": newest, "epoch": epoch}))
        used = [number for path, _ in blobs.list() if (number := store.used_number(path)) is not None]
        return Claim(epoch, max([newest, *used]) + 1, tuple(retained))

    patch.setattr(FolderJobStore, "claim", claim)


def _count_late_manifests(patch: Patch) -> None:
    patch.setattr(store, "_decider", lambda paths: 0)


def _never_wait_for_barriers(patch: Patch) -> None:
    original = BarrierAligner._update

    def update(self: Any) -> None:
        original(self)
        self.blocked = frozenset()

    patch.setattr(BarrierAligner, "_update", update)


def _forget_overtaken(patch: Patch) -> None:
    original = BarrierAligner.take_overtaken
    patch.setattr(BarrierAligner, "take_overtaken", lambda self, number: None if original(self, number) is None else {})
    patch.setattr(TaskCheckpoints, "_add_sent", lambda self, begun, overtaken: None)


def _shift_positions(by: int) -> Callable[[Patch], None]:
    def position(reader: Any) -> str:
        return json.dumps({"offset": max(0, reader.position()["offset"] + by)})

    return lambda patch: patch.setattr(source_head, "_position", position)


def _leave_committables_out(patch: Patch) -> None:
    original = TransactionalSinkOperator.capture

    def capture(self: Any, request: Any) -> OperatorCapture:
        original(self, request)
        return OperatorCapture()

    patch.setattr(TransactionalSinkOperator, "capture", capture)


def _commit_at_the_barrier(patch: Patch) -> None:
    original = TransactionalSinkOperator.capture

    def capture(self: Any, request: Any) -> OperatorCapture:
        captured = original(self, request)
        self._commit(self._prepared)
        return captured

    patch.setattr(TransactionalSinkOperator, "capture", capture)


def _commit_nothing_at_restore(patch: Patch) -> None:
    original = TransactionalSinkOperator.open

    def open_(self: Any, context: Any) -> None:
        commit, self._commit = self._sink.commit, lambda committables: None
        original(self, context)
        self._commit = lambda committables: commit(committables, self._context) if committables else None

    patch.setattr(TransactionalSinkOperator, "open", open_)


def _forget_failed_uploads(patch: Patch) -> None:
    original = TableHistory.delta

    def delta(self: Any, base: int) -> Any:
        self._captured = self._captured[-1:]
        return original(self, base)

    patch.setattr(TableHistory, "delta", delta)


def _pin_no_base(patch: Patch) -> None:
    original = SharedFiles.release

    def release(self: Any, checkpoint: int) -> Any:
        if checkpoint not in self._holdings:
            return []
        self._holdings[checkpoint].holders = 1
        return original(self, checkpoint)

    def hold(self: Any, checkpoint: int) -> None:
        return None

    patch.setattr(SharedFiles, "release", release)
    patch.setattr(SharedFiles, "hold", hold)


def _forget_who_had_finished(patch: Patch) -> None:
    original = TaskCheckpoints.open

    def open_(self: Any, restored: Any) -> None:
        original(self, restored)
        self.input_ended = False

    patch.setattr(TaskCheckpoints, "open", open_)


def _trust_all_bytes(patch: Patch) -> None:
    for module in (restore, segments):
        patch.setattr(module, "read_file", lambda blobs, file: blobs.get(file.path))


def _go_on_behind_a_stop(patch: Patch) -> None:
    patch.setattr(Life, "ends_as_suspended", lambda self, error: False)
    never = property(lambda self: 0, lambda self, number: None)
    patch.setattr(CheckpointCoordinator, "_stopping", never, raising=False)


def _begin_again_after_the_end(patch: Patch) -> None:
    patch.setattr(store, "ended_by", lambda blobs: None)
    patch.setattr(FolderJobStore, "_stopped", lambda self, blobs: None)


def _restart_beside_what_runs(patch: Patch) -> None:
    patch.setattr(Attempts, "is_changing", property(lambda self: self.deployment is not None))


def _end_without_the_savepoint_of_a_drain(patch: Patch) -> None:
    original = JobBrain._on_outcome

    def on_outcome(self: Any, wanted: Any, outcome: Any) -> None:
        if wanted.purpose is Purpose.DRAIN and isinstance(outcome, CheckpointError):
            self._life.drain = None
        original(self, wanted, outcome)

    patch.setattr(JobBrain, "_on_outcome", on_outcome)


def _end_before_all_have_committed(patch: Patch) -> None:
    patch.setattr(JobCheckpoints, "is_over", property(lambda self: self._final is not None and self._final.stored))


def _tell_of_the_end_once(patch: Patch) -> None:
    def tick(self: Any, now: Any) -> None:
        self._carry_out(self.coordinator.tick(now.monotonic, now.ms), now)

    patch.setattr(JobCheckpoints, "tick", tick)


def _remember_who_had_finished_before(patch: Patch) -> None:
    original = Attempts.deploy

    def deploy(self: Any, *args: Any) -> Any:
        finished = set(self.finished)
        deploy = original(self, *args)
        self.finished |= finished
        return deploy

    patch.setattr(Attempts, "deploy", deploy)


def _leave_out_the_last_checkpoint(patch: Patch) -> None:
    patch.setattr(Finish, "_take_last", lambda self: self._life.end(JobStatus.FINISHED))


def _restart_only_what_failed(patch: Patch) -> None:
    patch.setattr(Recovery, "_region", lambda self, place: self._life.layout.places if place is None else [place])


def _restart_parts_of_what_is_drained(patch: Patch) -> None:
    def region(self: Any, place: Any) -> Any:
        layout = self._life.layout
        return layout.places if place is None else sorted(next(one for one in layout.regions if place in one))

    patch.setattr(Recovery, "_region", region)


def _forget_who_has_finished_beside_a_restart(patch: Patch) -> None:
    original = Attempts.deploy

    def deploy(self: Any, *args: Any) -> Any:
        self.finished.clear()
        return original(self, *args)

    patch.setattr(Attempts, "deploy", deploy)


def _restart_beside_manifests(patch: Patch) -> None:
    may_restart = Recovery._may_restart.fget  # type: ignore[attr-defined]
    patch.setattr(Recovery, "_may_restart", property(_unsettled(may_restart)))


def _end_beside_manifests(patch: Patch) -> None:
    patch.setattr(Ending, "proceed", _unsettled(Ending.proceed))


def _unsettled(original: Any) -> Any:
    """The same, for which no manifest is ever being written."""

    def call(*args: Any) -> Any:
        with pytest.MonkeyPatch.context() as meanwhile:
            meanwhile.setattr(JobCheckpoints, "settled", True)
            return original(*args)

    return call


def _hear_of_old_attempts(patch: Patch) -> None:
    patch.setattr(Attempts, "is_current", lambda self, place, attempt: place in self.deployed)


def _wait_for_room_once(patch: Patch) -> None:
    original = Recovery.on_deploy_failed

    def on_deploy_failed(self: Any, attempt: int, error: Any, room: int | None) -> None:
        if room is None:
            original(self, attempt, error, room)
        else:
            self._life.attempts.end_deployment(attempt, deployed=False)

    patch.setattr(Recovery, "on_deploy_failed", on_deploy_failed)


MUTANTS = (
    Mutant(
        "an acknowledgement that comes twice counts once",
        _count_acknowledgements,
        rates=FaultRates(repeat=0.3),
        first_seed=22,
    ),
    Mutant("the manifest is written when all have acknowledged", _store_at_first, first_seed=3),
    Mutant("who was replaced completes nothing", _fence_nobody, rates=ZOMBIES, first_seed=7),
    Mutant("who takes over claims before it lists", _list_before_claiming, rates=ZOMBIES, first_seed=497),
    Mutant("manifests that come late do not count", _count_late_manifests, rates=MANAGERS, first_seed=16),
    Mutant(
        "channels wait at their barriers", _never_wait_for_barriers, ("exchanges", "connected", "windows"), KILLS, 850
    ),
    Mutant("rows that were overtaken are in the checkpoint", _forget_overtaken, first_seed=22),
    Mutant("a source's position is not after its barrier", _shift_positions(1), first_seed=4),
    Mutant("a source's position is not before its barrier", _shift_positions(-1), first_seed=4),
    Mutant("what is prepared is in the checkpoint", _leave_committables_out, first_seed=26),
    Mutant("nothing is committed before the manifest is there", _commit_at_the_barrier),
    Mutant("who is restored commits again", _commit_nothing_at_restore, first_seed=4),
    Mutant(
        "what was not uploaded is uploaded with the next checkpoint",
        _forget_failed_uploads,
        rates=STORAGE,
        first_seed=254,
    ),
    Mutant("files that a checkpoint may refer to are kept", _pin_no_base, first_seed=4),
    Mutant("who had finished has finished", _forget_who_had_finished, rates=KILLS, first_seed=13),
    Mutant("hashes are checked", _trust_all_bytes, rates=FaultRates(corrupt=0.02), first_seed=29),
    Mutant("a job never goes back behind the savepoint that stopped it", _go_on_behind_a_stop, EXACT, STOPS, 38),
    Mutant("a job that has ended does not begin again", _begin_again_after_the_end, rates=ENDS, first_seed=80),
    Mutant("a restart waits for what runs", _restart_beside_what_runs, first_seed=12),
    Mutant(
        "a drain whose savepoint fails has not happened", _end_without_the_savepoint_of_a_drain, DRAINED, DRAINS, 56
    ),
    Mutant(
        "no checkpoint is taken while a job is drained",
        lambda patch: patch.setattr(CheckpointCoordinator, "drain", lambda self, now: []),
        DRAINED,
        LATE_DRAINS,
        1010,
    ),
    Mutant("a job ends when all have committed", _end_before_all_have_committed, first_seed=2),
    Mutant("who may not have heard is told again to commit", _tell_of_the_end_once, rates=LOST, first_seed=10),
    Mutant("who starts anew has not finished", _remember_who_had_finished_before, rates=KILLS, first_seed=3),
    Mutant("a job ends with a checkpoint that commits the rest", _leave_out_the_last_checkpoint, first_seed=2),
    Mutant("what is connected restarts together", _restart_only_what_failed, rates=KILLS),
    Mutant(
        "all of a job restarts while it is drained",
        _restart_parts_of_what_is_drained,
        REGIONS,
        replace(LATE_DRAINS, regions=1.0),
        first_seed=11,
    ),
    Mutant(
        "who has finished beside a region that restarts has finished",
        _forget_who_has_finished_beside_a_restart,
        REGIONS,
        KILLS,
        first_seed=7,
    ),
    Mutant("a restart waits for manifests", _restart_beside_manifests, rates=LATE_STOPS, first_seed=18),
    Mutant("the end waits for manifests", _end_beside_manifests, rates=LATE_CANCELS, first_seed=38),
    Mutant("what is heard of old attempts means nothing", _hear_of_old_attempts, rates=LATE_NEWS, first_seed=16),
    Mutant("a restart for which there is no room is tried again", _wait_for_room_once, rates=NODES),
)
"""Each is one protection that the design of RELIABILITY names."""
