"""Random events against the coordinator, and a storage that holds it to what a restore will need."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock.engine.checkpoint_config import CheckpointConfig
from penstock.engine.checkpointing.coordinator import CheckpointCoordinator
from penstock.engine.checkpointing.handles import CompletedCheckpoint
from penstock.engine.checkpointing.instructions import (
    AbortReason,
    Acknowledgement,
    Delete,
    FailJob,
    Instruction,
    NotifyAborted,
    NotifyComplete,
    Place,
    Store,
    Trigger,
)
from penstock.engine.elements import Barrier, CheckpointMode, SnapshotKind
from penstock.engine.errors import CheckpointError
from tests.draws import drawn
from tests.engine.checkpointing.coordinator_driver import CHECKPOINT, SAVEPOINT, SUSPEND, handle_of, paths_of

PLACES: tuple[Place, ...] = ((1, 0), (1, 1), (2, 0))

CONFIGS: tuple[Mapping[str, Any], ...] = (
    {},
    {"max_concurrent": 3, "tolerable_failures": None},
    {"retained": 3, "max_concurrent": 3, "tolerable_failures": None},
    {"max_concurrent": 2, "tolerable_failures": 1},
    {"mode": CheckpointMode.UNALIGNED, "tolerable_failures": None},
    {"alignment_timeout_ms": 100, "retained": 2, "tolerable_failures": None},
    {"min_pause_ms": 500, "incremental": False, "max_concurrent": 2, "tolerable_failures": None},
)


@dataclass
class Answer:
    """An acknowledgement that a subtask has sent: its files are in the storage."""

    attempt: int
    barrier: Barrier
    place: Place
    paths: tuple[str, ...]


@dataclass
class Storage:
    """What is there: job-relative paths, savepoint-relative ones by number, and manifests."""

    files: set[str] = field(default_factory=set)
    savepoint_files: dict[int, set[str]] = field(default_factory=dict)
    manifests: dict[int, CompletedCheckpoint] = field(default_factory=dict)

    def folder(self, barrier: Barrier) -> set[str]:
        if barrier.kind is CHECKPOINT:
            return self.files
        return self.savepoint_files.setdefault(barrier.checkpoint, set())


def _aborted(instructions: Iterable[Instruction]) -> list[tuple[int, AbortReason]]:
    return [(i.checkpoint, i.reason) for i in instructions if isinstance(i, NotifyAborted)]


class CoordinatorMachine(RuleBasedStateMachine):
    """Subtasks write and acknowledge in any order, acknowledgements come late, twice or after the end of their attempt.

    Writers are as bold as the contract lets them be: they refer to any file of the newest checkpoint up to the
    barrier's base that they know, which is the one that they were restored from or one of their own.
    """

    @initialize(config=st.sampled_from(CONFIGS))
    def begin(self, config: Mapping[str, Any]) -> None:
        self.config = CheckpointConfig(interval_ms=1000, timeout_ms=5000, **config)
        self.coordinator = CheckpointCoordinator(self.config, "job", "Job", 128)
        self.storage = Storage()
        self.now = 0.0
        self.attempt = 0
        self.running = False
        self.planned: int = 0
        self.serial = 0
        self.barriers: dict[int, tuple[int, Barrier]] = {}
        self.to_write: list[tuple[int, Barrier, Place]] = []
        self.answers: list[Answer] = []
        self.delivered: list[Answer] = []
        self.acknowledged: dict[int, set[Place]] = {}
        self.written: dict[tuple[int, Place], tuple[str, ...]] = {}
        self.known: dict[Place, list[int]] = {}
        self.to_store: list[CompletedCheckpoint] = []
        self.stored: list[int] = []
        self.outcomes: dict[int, str] = {}
        self.doubtful: dict[int, CompletedCheckpoint] = {}
        self.drains = False
        self.all_finished = False
        self.start(True)

    # What the runtime does

    def obey(self, instructions: list[Instruction]) -> None:
        for instruction in instructions:
            match instruction:
                case Trigger(barrier, places):
                    self.on_trigger(barrier, tuple(places))
                case Store(completed):
                    self.on_store(completed)
                case NotifyComplete(number):
                    assert number in self.stored
                    assert self.running
                    assert self.barriers[number][0] == self.attempt
                    assert self.barriers[number][1].kind is not SAVEPOINT
                case NotifyAborted(number, reason, _, places):
                    assert reason is not AbortReason.SUBSUMED or self.kind(number) is CHECKPOINT
                    assert places == PLACES, "whoever still runs must wait no more"
                    self.settle(number, "aborted")
                case Delete():
                    self.on_delete(instruction)
                case FailJob():
                    assert self.running
                    self.fail()

    def on_trigger(self, barrier: Barrier, places: tuple[Place, ...]) -> None:
        number = barrier.checkpoint
        assert self.running
        assert places == PLACES
        assert number > max(self.barriers, default=0), "numbers ascend"
        assert number not in self.outcomes
        assert not self.drains or self.all_finished, "half of the sources would be restored as finished"
        if self.can_overtake:
            assert not any(self.acknowledged[n] != set(PLACES) for n in self.open_numbers())
        self.barriers[number] = (self.attempt, barrier)
        self.acknowledged[number] = set()
        self.to_write += [(self.attempt, barrier, place) for place in places]

    def on_store(self, completed: CompletedCheckpoint) -> None:
        number = completed.checkpoint
        assert not self.to_store, "one manifest at a time"
        if completed.kind is CHECKPOINT:
            assert number > self.newest_stored
        assert self.acknowledged[number] == set(PLACES), "every subtask has a part in it"
        assert completed.attempt == self.barriers[number][0]
        assert [(handle.task, handle.subtask) for handle in completed.subtasks] == list(PLACES)
        assert number not in self.outcomes
        self.to_store.append(completed)

    def on_delete(self, delete: Delete) -> None:
        for checkpoint in delete.checkpoints:
            self.storage.manifests.pop(checkpoint.checkpoint, None)
            if self.doubtful.pop(checkpoint.checkpoint, None) is not None:
                assert self.newest_stored > checkpoint.checkpoint, "nobody resumes from it any more"
        paths = paths_of(delete.files)
        if not delete.savepoint:
            assert all(self.kind(int(path.split("/")[0])) is CHECKPOINT for path in paths)
            self.storage.files -= paths
            return
        assert self.outcomes.get(delete.savepoint) == "aborted"
        self.storage.savepoint_files.setdefault(delete.savepoint, set()).difference_update(paths)

    def settle(self, number: int, outcome: str) -> None:
        assert number not in self.outcomes, "one outcome"
        self.outcomes[number] = outcome

    def open_numbers(self) -> list[int]:
        return [number for number in self.barriers if number not in self.outcomes]

    def kind(self, number: int) -> object:
        return self.barriers[number][1].kind

    @property
    def newest_stored(self) -> int:
        return max((number for number in self.stored if self.kind(number) is CHECKPOINT), default=0)

    @property
    def can_overtake(self) -> bool:
        return self.config.mode is CheckpointMode.UNALIGNED or self.config.alignment_timeout_ms is not None

    # Attempts

    def plan_restore(self) -> None:
        latest = self.coordinator.latest
        self.planned = latest.checkpoint if latest else 0

    @precondition(lambda self: not self.running)
    @rule(plan_again=st.booleans())
    def start(self, plan_again: bool) -> None:
        """The subtasks run, from the newest checkpoint of now, or that of when the attempt before ended."""
        if plan_again or self.planned not in self.storage.manifests:
            self.plan_restore()
        self.attempt += 1
        self.running = True
        self.known = {place: [self.planned] for place in PLACES}
        self.obey(self.coordinator.start_attempt(self.attempt, PLACES, {}, self.now))

    def fail(self) -> None:
        self.running = self.drains = self.all_finished = False
        self.obey(self.coordinator.end_attempt(self.now))
        assert set(self.open_numbers()) <= {completed.checkpoint for completed in self.to_store}
        self.plan_restore()

    @precondition(lambda self: self.running)
    @rule(is_planned_late=st.booleans(), is_stored=st.booleans())
    def fail_over(self, is_planned_late: bool, is_stored: bool) -> None:
        self.fail()
        if is_stored and self.to_store:
            self.store()
        self.start(is_planned_late)

    # Time, drains and requests

    @precondition(lambda self: self.running and self.coordinator.suspended is None)
    @rule(really=st.integers(0, 3))
    def drain(self, really: int) -> None:
        """The sources end one after another."""
        if really or any(self.kind(number) is SUSPEND for number in self.open_numbers()):
            return
        instructions = self.coordinator.drain(self.now)
        assert not instructions or not self.drains
        assert all(reason is AbortReason.DRAINED for _, reason in _aborted(instructions))
        self.drains = True
        self.obey(instructions)
        assert all(self.all_finished or self.acknowledged[n] == set(PLACES) for n in self.open_numbers())

    @precondition(lambda self: self.drains and not self.all_finished)
    @rule(is_stored=st.booleans())
    def finish_drain(self, is_stored: bool) -> None:
        """All sources have ended: the last savepoint is taken."""
        if not self.can_overtake or not self.open_numbers():
            self.all_finished = True
            self.request(SUSPEND)
            self.go_through(True, 1, 0, is_stored)

    @rule(seconds=st.sampled_from([0.0, 0.5, 1.0, 1.0, 1.0, 1.0, 3.0]))
    def tick(self, seconds: float) -> None:
        self.now += seconds
        deadline = self.coordinator.deadline
        instructions = self.coordinator.tick(self.now, 0)
        assert bool(instructions) == (deadline is not None and deadline <= self.now)
        self.obey(instructions)

    @rule(times=st.integers(1, 3))
    def wait_for_deadlines(self, times: int) -> None:
        for _ in range(times):
            self.wait_for_deadline()

    def wait_for_deadline(self) -> None:
        deadline = self.coordinator.deadline
        if deadline is not None:
            self.now = max(self.now, deadline)
            instructions = self.coordinator.tick(self.now, 0)
            assert instructions
            self.obey(instructions)

    @precondition(lambda self: self.running)
    @rule(kind=st.sampled_from([SAVEPOINT, SAVEPOINT, CHECKPOINT, CHECKPOINT, CHECKPOINT, SUSPEND]))
    def ask(self, kind: SnapshotKind) -> None:
        self.request(kind)

    def request(self, kind: SnapshotKind) -> None:
        if self.coordinator.suspended is not None:
            return
        if any(self.kind(n) is SUSPEND for n in self.open_numbers()) or (self.can_overtake and self.open_numbers()):
            return
        if self.drains and not self.all_finished:
            with pytest.raises(CheckpointError, match="is being drained"):
                self.coordinator.request(CHECKPOINT if kind is SUSPEND else kind, self.now, 0)
            return
        number, instructions = self.coordinator.request(kind, self.now, 0)
        assert number > max(self.barriers, default=0)
        self.obey(instructions)

    # Subtasks

    @precondition(lambda self: self.to_write)
    @rule(data=st.data(), new=st.integers(0, 2), kept=st.integers(0, 7))
    def write(self, data: st.DataObject, new: int, kept: int) -> None:
        self.write_part(data.draw(st.integers(0, len(self.to_write) - 1)), new, kept)

    def write_part(self, position: int, new: int, kept: int) -> None:
        """One subtask writes `new` files, and refers to those of its base whose bits are set in `kept`."""
        attempt, barrier, place = self.to_write.pop(position)
        paths = [f"{barrier.checkpoint}/{place}/{n}" for n in range(new)]
        self.storage.folder(barrier).update(paths)
        if attempt == self.attempt and barrier.base:
            base = max(number for number in self.known[place] if number <= barrier.base)
            old = self.written.get((base, place), ())
            paths += [path for bit, path in enumerate(old) if kept >> bit & 1]
        self.written[barrier.checkpoint, place] = tuple(paths)
        self.answers.append(Answer(attempt, barrier, place, tuple(paths)))

    @precondition(lambda self: self.answers)
    @rule(data=st.data())
    def acknowledge(self, data: st.DataObject) -> None:
        answer = self.answers.pop(data.draw(st.integers(0, len(self.answers) - 1)))
        self.deliver(answer)

    def deliver(self, answer: Answer) -> None:
        number = answer.barrier.checkpoint
        handle = handle_of(answer.place, answer.paths)
        pending = number not in self.outcomes
        outcome, instructions = self.coordinator.acknowledge(number, answer.place, handle, self.now, 0)
        if pending and answer.place not in self.acknowledged[number]:
            assert outcome is Acknowledgement.SUCCESS
            self.acknowledged[number].add(answer.place)
        else:
            assert outcome is (Acknowledgement.DUPLICATE if pending else Acknowledgement.DISCARDED)
        self.delivered.append(answer)
        self.obey(instructions)

    @precondition(lambda self: self.running)
    @rule(newest=st.booleans(), new=st.integers(0, 2), kept=st.integers(0, 7), is_stored=st.booleans())
    def go_through(self, newest: bool, new: int, kept: int, is_stored: bool) -> None:
        """All subtasks write and acknowledge one checkpoint, whatever is with the others."""
        numbers = [barrier.checkpoint for attempt, barrier, _ in self.to_write if attempt == self.attempt]
        if not numbers:
            return
        number = max(numbers) if newest else min(numbers)
        while any(barrier.checkpoint == number for _, barrier, _ in self.to_write):
            self.write_part([b.checkpoint for _, b, _ in self.to_write].index(number), new, kept)
        for answer in [answer for answer in self.answers if answer.barrier.checkpoint == number]:
            self.answers.remove(answer)
            self.deliver(answer)
        if is_stored and self.to_store:
            self.store()

    @precondition(lambda self: self.running)
    @rule(parts=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 7)), min_size=1, max_size=4))
    def run_well(self, parts: list[tuple[int, int]]) -> None:
        """Several checkpoints one after the other."""
        for new, kept in parts:
            self.wait_for_deadline()
            if self.running:
                self.go_through(True, new, kept, True)

    @precondition(lambda self: self.running and not self.can_overtake)
    @rule(newest=st.booleans(), new=st.integers(0, 2), kept=st.tuples(st.integers(0, 7), st.integers(0, 7)))
    def run_two_at_once(self, newest: bool, new: int, kept: tuple[int, int]) -> None:
        """Two checkpoints with the same base, in either order."""
        self.request(CHECKPOINT)
        self.request(CHECKPOINT)
        for first_or_second, bits in zip((newest, not newest), kept, strict=True):
            self.go_through(first_or_second, new, bits, True)

    @precondition(lambda self: self.delivered)
    @rule(data=st.data())
    def acknowledge_again(self, data: st.DataObject) -> None:
        answer = data.draw(st.sampled_from(self.delivered[-6:]))
        number = answer.barrier.checkpoint
        handle = handle_of(answer.place, answer.paths)
        outcome, instructions = self.coordinator.acknowledge(number, answer.place, handle, self.now, 0)
        assert outcome in {Acknowledgement.DUPLICATE, Acknowledgement.DISCARDED}
        self.obey(instructions)

    @precondition(lambda self: self.to_write)
    @rule(data=st.data())
    def decline(self, data: st.DataObject) -> None:
        _, barrier, place = self.to_write.pop(data.draw(st.integers(0, len(self.to_write) - 1)))
        pending = barrier.checkpoint not in self.outcomes
        outcome, instructions = self.coordinator.decline(barrier.checkpoint, place, "disk full", self.now)
        assert outcome is (Acknowledgement.SUCCESS if pending else Acknowledgement.DISCARDED)
        self.obey(instructions)

    # Manifests

    @precondition(lambda self: self.to_store)
    @rule()
    def store(self) -> None:
        completed = self.to_store.pop()
        number = completed.checkpoint
        self.storage.manifests[number] = completed
        self.stored.append(number)
        self.settle(number, "completed")
        if completed.attempt == self.attempt and completed.kind is CHECKPOINT:
            for known in self.known.values():
                known.append(number)
        self.obey(self.coordinator.on_stored(number, self.now))
        assert self.coordinator.on_stored(number, self.now) == []

    @precondition(lambda self: self.to_store)
    @rule(is_there=st.booleans(), really=st.booleans())
    def fail_to_store(self, is_there: bool, really: bool) -> None:
        if not really:
            return
        completed = self.to_store.pop()
        if is_there:
            self.storage.manifests[completed.checkpoint] = completed
        self.obey(self.coordinator.on_store_failed(completed.checkpoint, "time-out", self.now))
        assert self.outcomes[completed.checkpoint] == "aborted"
        self.doubtful[completed.checkpoint] = completed

    # What must hold

    @invariant()
    def every_manifest_is_whole(self) -> None:
        if not hasattr(self, "storage"):
            return
        for number, completed in {**self.storage.manifests, **self.doubtful}.items():
            there = (
                self.storage.files if completed.kind is CHECKPOINT else self.storage.savepoint_files.get(number, set())
            )
            assert paths_of(completed.files()) <= there, f"checkpoint {number} has lost files"

    @invariant()
    def the_newest_is_kept(self) -> None:
        if not hasattr(self, "coordinator"):
            return
        checkpoints = [number for number in self.stored if self.kind(number) is CHECKPOINT]
        assert [c.checkpoint for c in self.coordinator.retained] == checkpoints[-self.config.retained :]
        assert self.coordinator.latest is None or self.coordinator.latest.checkpoint == checkpoints[-1]

    @rule(really=st.integers(0, 4))
    def sometimes_come_to_rest(self, really: int) -> None:
        if really == 4:
            self.come_to_rest()

    def come_to_rest(self) -> None:
        """The job fails, what is on its way comes, and nothing is left that nobody refers to."""
        if self.running:
            self.fail()
        while self.to_write or self.answers or self.to_store:
            if self.to_store:
                self.store()
            elif self.answers:
                self.deliver(self.answers.pop())
            else:
                attempt, barrier, place = self.to_write.pop()
                path = f"{barrier.checkpoint}/{place}/late"
                self.storage.folder(barrier).add(path)
                self.answers.append(Answer(attempt, barrier, place, (path,)))
        assert set(self.barriers) <= set(self.outcomes)
        assert all(number > self.newest_stored for number in self.doubtful), "a completion settles what was in doubt"
        # Nothing may hold on to what no new attempt would resume from.
        self.obey(self.coordinator.end_attempt(self.now))
        self.plan_restore()
        doubtful = [completed for completed in self.doubtful.values() if completed.kind is CHECKPOINT]
        kept = [*self.coordinator.retained, *doubtful]
        referred = {path for completed in kept for path in paths_of(completed.files())}
        assert self.storage.files == referred, "every other file has been deleted"
        savepoints = {n for n in self.stored if self.kind(n) is not CHECKPOINT}
        savepoints |= {n for n in self.doubtful if self.kind(n) is not CHECKPOINT}
        retained = {completed.checkpoint for completed in self.coordinator.retained}
        assert set(self.storage.manifests) - set(self.doubtful) == (retained | savepoints) - set(self.doubtful)
        assert {n for n, files in self.storage.savepoint_files.items() if files} <= savepoints

    def teardown(self) -> None:
        if hasattr(self, "coordinator"):
            self.come_to_rest()


TestCoordinatorMachine = CoordinatorMachine.TestCase
TestCoordinatorMachine.settings = settings(
    max_examples=drawn(60), stateful_step_count=50, suppress_health_check=list(HealthCheck)
)
