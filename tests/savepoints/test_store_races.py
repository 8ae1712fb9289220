"""Managers that take a job over while others complete checkpoints: every order of their calls to the storage.

Each checkpoint has a history, the checkpoints it goes back to. Whatever was committed, because a manager completed it
or resumed from it, must be in one line, and in the history of what the next manager resumes from. Once a manager has
ended the job, or was told that it has ended, no later one goes on, and what it ended with has all that was committed.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import random
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pytest

from penstock.engine.checkpointing.store import Claim
from penstock.engine.elements import SnapshotKind
from penstock.engine.errors import CheckpointCorruptError, CheckpointError, FencedError
from penstock.savepoints.content import Data, whole
from penstock.savepoints.storage import BlobExistsError
from penstock.savepoints.store import FolderJobStore
from tests.draws import drawn
from tests.savepoints.samples import JOB, empty

_FIRST = 1
_IN_FLIGHT = 2
_SAVED = "dict://saved/"
_RUNS = drawn(250)


@dataclass
class _Held:
    """The blobs, in a dictionary."""

    blobs: dict[str, bytes] = field(default_factory=dict)


class _KilledError(BaseException):
    """The process was killed."""


@dataclass
class _Turns:
    """Lets a thread make one step at a time."""

    go: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    stopped: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    is_done: bool = False
    left: float = 1000
    """Steps until its process is killed."""
    is_thorough: bool = False
    """Whether every listing is a step, and not only the first after a creation."""
    broken: str = ""
    """Whoever lists after creating what ends so hears that the storage is down."""
    created: str = ""
    """What has been created since the last listing."""

    def wait(self) -> None:
        if self.left == math.inf:
            return
        self.stopped.release()
        self.go.acquire()
        if self.left < 0:
            raise _KilledError

    def step(self) -> None:
        self.left -= 1
        self.go.release()
        self.stopped.acquire()


@dataclass
class _SteppedBlobs:
    """A store that waits for its turn before each call whose order matters.

    Those are the creations and deletions, and the first listing after a creation: what is listed earlier only finds a
    free number, and what is read after a listing never changes, unless a job ends, for which all listings wait.
    """

    held: _Held
    turns: _Turns
    url: str

    def create(self, path: str, data: Data) -> None:
        self.turns.wait()
        self.turns.created = path
        if self.held.blobs.setdefault(path, bytes(whole(data))) != bytes(whole(data)):
            raise BlobExistsError(path)

    def list(self, prefix: str = "") -> Sequence[tuple[str, int]]:
        created, self.turns.created = self.turns.created, ""
        if created or self.turns.is_thorough:
            self.turns.wait()
        if self.turns.broken and created.endswith(self.turns.broken):
            raise CheckpointError("the storage is down")
        return sorted((path, len(data)) for path, data in self.held.blobs.items() if path.startswith(prefix))

    def get(self, path: str) -> pa.Buffer:
        if path not in self.held.blobs:
            raise CheckpointCorruptError(path)
        return pa.py_buffer(self.held.blobs[path])

    def put(self, path: str, data: Data) -> None:
        raise AssertionError("nothing may be written over")

    def delete(self, paths: Iterable[str]) -> None:
        for path in paths:
            self.turns.wait()
            self.held.blobs.pop(path, None)


@dataclass
class _World:
    """One job, what was committed, and what its managers did and heard."""

    held: dict[str, _Held] = field(default_factory=dict)
    histories: dict[int, tuple[int, ...]] = field(default_factory=lambda: {0: ()})
    committed: list[tuple[int, ...]] = field(default_factory=list)
    went_on: list[int] = field(default_factory=list)
    """The numbers of the managers that went on."""
    ended: list[tuple[int, int]] = field(default_factory=list)
    """Of managers that ended the job, or were told of its end: their number, and what it ended with."""
    errors: list[BaseException] = field(default_factory=list)

    def store(self, turns: _Turns | None = None) -> FolderJobStore:
        steps = turns or _Turns(left=math.inf)
        return FolderJobStore(
            "dict://root",
            JOB,
            "job",
            open_blobs=lambda url: _SteppedBlobs(self.held.setdefault(url, _Held()), steps, url),
        )

    def complete(
        self, store: FolderJobStore, epoch: int, number: int, identity: int, base: int, target: str | None = None
    ) -> CheckpointError | FencedError | None:
        """A manager completes what goes back to `base`, and commits it unless it is told not to, and why."""
        self.histories[identity] = (*self.histories[base], identity)
        kind = SnapshotKind.SUSPEND if target else SnapshotKind.CHECKPOINT
        try:
            store.complete(epoch, replace(empty(number, kind), attempt=identity), target)
        except (FencedError, CheckpointError) as error:
            return error
        self.committed.append(self.histories[identity])
        return None

    def end(self, store: FolderJobStore, epoch: int, identity: int) -> None:
        """A manager ends the job and removes what is left of it, unless it is told not to."""
        with contextlib.suppress(FencedError):
            store.finish(epoch, str(identity))
            self.ended.append((epoch, identity))
            store.discard()

    def take_over(self, store: FolderJobStore, completes: int, ends: bool = False, suspends: bool = False) -> None:
        """A new manager resumes from what it finds, which it commits, completes some more, and may end the job."""
        try:
            claim = store.claim()
        except FencedError:
            return
        if claim.ended is not None:
            self.hear(claim)
            return
        base = claim.retained[-1].attempt if claim.retained else 0
        self.went_on.append(claim.epoch)
        self.committed.append(self.histories[base])
        for more in range(completes):
            identity = 100 * claim.epoch + more
            target = f"{_SAVED}{identity}" if suspends and more == completes - 1 else None
            number = claim.next_checkpoint + more
            if self.complete(store, claim.epoch, number, identity, base, target) is not None:
                return
            base = identity
        if ends:
            self.end(store, claim.epoch, base)

    def hear(self, claim: Claim) -> None:
        """The job has ended; a user who is told of a savepoint starts it again from that."""
        named = re.search(f"{_SAVED}([0-9]+) ", claim.message)
        assert (claim.ended == "failed") == (named is not None)
        identity = int(named[1] if named else claim.ended or "")
        if named:
            self.committed.append(self.histories[identity])
        self.ended.append((claim.epoch, identity))

    def judge(self, what: str) -> None:
        """Let one more manager take over, and see whether all that has happened fits together."""
        assert not self.errors, f"{self.errors}; {what}"
        self.take_over(self.store(), completes=0)
        assert all(later <= epoch for epoch, _ in self.ended for later in self.went_on), (
            f"ended: {self.ended}; went on: {self.went_on}; {what}"
        )
        finals = [self.histories[identity] for _, identity in self.ended] or [self.committed[-1]]
        for final, history in itertools.product(finals, self.committed):
            assert final[: len(history)] == history, f"{history} was committed, and {final} goes on; {what}"


def _begin() -> _World:
    """A job whose first manager has completed one checkpoint, and has another one in flight."""
    world = _World()
    store = world.store()
    assert store.claim().epoch == 1
    world.complete(store, 1, _FIRST, _FIRST, 0)
    assert world.committed == [(_FIRST,)]
    return world


def _run(
    schedule: Sequence[int],
    managers: Sequence[Callable[[_World, FolderJobStore], None]],
    lives: Sequence[int] = (1000,) * 4,
    is_thorough: bool = False,
) -> None:
    """Let the managers make steps in this order, and the rest in theirs, unless their lives are shorter; then judge."""
    world = _begin()
    turns = [_Turns(left=life, is_thorough=is_thorough) for life, _ in zip(lives, managers, strict=False)]

    def live(place: int) -> None:
        try:
            with contextlib.suppress(_KilledError):
                managers[place](world, world.store(turns[place]))
        except Exception as error:
            world.errors.append(error)
        finally:
            turns[place].is_done = True
            turns[place].stopped.release()

    threads = [threading.Thread(target=live, args=(place,)) for place in range(len(managers))]
    for thread, turn in zip(threads, turns, strict=True):
        thread.start()
        turn.stopped.acquire()
    for place in [*schedule, *(place for place in range(len(managers)) for _ in range(80))]:
        if not turns[place].is_done:
            turns[place].step()
    for thread in threads:
        thread.join()
    world.judge(f"{schedule}, {lives}")


def _old(world: _World, store: FolderJobStore) -> None:
    world.complete(store, 1, _IN_FLIGHT, _IN_FLIGHT, _FIRST)


def _old_ends(world: _World, store: FolderJobStore) -> None:
    error = world.complete(store, 1, _IN_FLIGHT, _IN_FLIGHT, _FIRST)
    _end_or_fail(world, store, error)


def _old_suspends(world: _World, store: FolderJobStore) -> None:
    error = world.complete(store, 1, _IN_FLIGHT, _IN_FLIGHT, _FIRST, f"{_SAVED}{_IN_FLIGHT}")
    _end_or_fail(world, store, error)


def _end_or_fail(world: _World, store: FolderJobStore, error: Exception | None) -> None:
    if error is None:
        world.end(store, 1, _IN_FLIGHT)
        return
    # A manager that has failed says so, even if it failed because it was replaced; it must not be heard.
    with contextlib.suppress(FencedError):
        store.finish(1, "nobody may hear this")


def _old_is_in_doubt(world: _World, store: FolderJobStore) -> None:
    _go_back(world, store, None)


def _old_is_in_doubt_of_a_savepoint(world: _World, store: FolderJobStore) -> None:
    _go_back(world, store, f"{_SAVED}{_IN_FLIGHT}")


def _go_back(world: _World, store: FolderJobStore, target: str | None) -> None:
    """A manager does not learn that its checkpoint is there, goes back, and removes it when a later one is complete."""
    turns = store.open_blobs("").turns  # type: ignore[attr-defined]
    turns.broken = f"{_IN_FLIGHT:08d}/manifest.json" if target is None else "manifest.json"
    error = world.complete(store, 1, _IN_FLIGHT, _IN_FLIGHT, _FIRST, target)
    assert not isinstance(error, FencedError | None)
    turns.broken = ""
    if world.complete(store, 1, 3, 3, _FIRST) is None:
        store.delete([empty(_IN_FLIGHT)], (), target)
        world.complete(store, 1, 4, 4, 3)


def _new(world: _World, store: FolderJobStore) -> None:
    world.take_over(store, completes=0)


def _new_and_on(world: _World, store: FolderJobStore) -> None:
    world.take_over(store, completes=2)


def _new_and_ends(world: _World, store: FolderJobStore) -> None:
    world.take_over(store, completes=2, ends=True)


def _new_and_suspends(world: _World, store: FolderJobStore) -> None:
    world.take_over(store, completes=2, ends=True, suspends=True)


def _orders(steps: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """All orders in which managers can make so many steps each."""
    if not any(steps):
        yield ()
    for place, count in enumerate(steps):
        if count:
            for rest in _orders([left - (other == place) for other, left in enumerate(steps)]):
                yield (place, *rest)


def test_one_takes_over_while_the_old_one_completes() -> None:
    orders = list(_orders([2, 8]))
    assert len(orders) == 45
    for order in orders:
        _run(order, [_old, _new_and_on])


@pytest.mark.long("with one, and with three in random order")
def test_two_take_over_while_the_old_one_completes() -> None:
    # The two are alike: the first to begin is number 1.
    orders = [order for order in _orders([2, 4, 4]) if order.index(1) < order.index(2)]
    assert len(orders) == 1575
    for order in orders:
        _run(order, [_old, _new, _new])


@pytest.mark.parametrize("seed", range(4))
def test_three_take_over_and_go_on_and_any_of_them_is_killed(seed: int) -> None:
    steps = list(itertools.chain([0] * 2, [1] * 9, [2] * 9, [3] * 9))
    chance = random.Random(seed)
    for _ in range(60):
        chance.shuffle(steps)
        lives = [chance.choice([1000, chance.randrange(9)]) for _ in range(4)]
        _run(steps, [_old, _new_and_on, _new_and_on, _new_and_on], lives)


_OLD = (_old, _old_ends, _old_suspends, _old_is_in_doubt, _old_is_in_doubt_of_a_savepoint)
_NEW = (_new, _new_and_on, _new_and_ends, _new_and_suspends)


@pytest.mark.parametrize("old", _OLD)
def test_a_job_ends_or_goes_back_while_others_take_it_over(old: Callable[[_World, FolderJobStore], None]) -> None:
    chance = random.Random(old.__name__)
    for _ in range(_RUNS):
        managers = [old, *(chance.choice(_NEW) for _ in range(chance.choice([1, 2, 3])))]
        # Bursts: a manager makes several steps before the next one makes some, as those of one call often do.
        bursts = [place for place in range(len(managers)) for _ in range(8)]
        chance.shuffle(bursts)
        steps = [place for place in bursts for _ in range(chance.choice([1, 1, 2, 4, 8]))]
        lives = [chance.choice([1000, 1000, chance.randrange(24)]) for _ in managers]
        _run(steps, managers, lives, is_thorough=True)


def test_one_of_two_rivals_for_one_claim_gets_the_job() -> None:
    world = _begin()
    epochs = []
    turns = [_Turns(), _Turns()]

    def claim(place: int) -> None:
        with contextlib.suppress(FencedError):
            epochs.append(world.store(turns[place]).claim().epoch)
        turns[place].is_done = True
        turns[place].stopped.release()

    threads = [threading.Thread(target=claim, args=(place,)) for place in range(2)]
    for thread, turn in zip(threads, turns, strict=True):
        thread.start()
        turn.stopped.acquire()
    while not all(turn.is_done for turn in turns):
        for turn in turns:
            if not turn.is_done:
                turn.step()
    for thread in threads:
        thread.join()
    assert epochs == [3]
    assert world.store().claim().epoch == 4
