"""Managers that take a job over while others complete checkpoints: every order of their calls to the storage.

Each checkpoint has a history, the checkpoints it goes back to. Whatever was committed, because a manager completed it
or went on from it, must be in one line, and in the history of what the next manager goes on from.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pytest

from penstock.engine.errors import CheckpointCorruptError, CheckpointError, FencedError
from penstock.savepoints.storage import BlobExistsError, Data
from penstock.savepoints.store import FolderJobStore
from tests.savepoints.samples import JOB, empty

_FIRST = 1
_IN_FLIGHT = 2


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
    left: int = 1000
    """Steps until its process is killed."""

    def wait(self) -> None:
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

    Those are the creations, and the first listing after one: what is listed earlier only finds a free number, and what
    is read after a listing never changes.
    """

    held: _Held
    turns: _Turns | None = None
    is_after_create: bool = False
    url: str = "dict://root"

    def create(self, path: str, data: Data) -> None:
        self._wait()
        self.is_after_create = True
        if path in self.held.blobs:
            raise BlobExistsError(path)
        self.held.blobs[path] = bytes(data)

    def list(self, prefix: str = "") -> Sequence[tuple[str, int]]:
        if self.is_after_create:
            self._wait()
        self.is_after_create = False
        return sorted((path, len(data)) for path, data in self.held.blobs.items() if path.startswith(prefix))

    def get(self, path: str) -> pa.Buffer:
        if path not in self.held.blobs:
            raise CheckpointCorruptError(path)
        return pa.py_buffer(self.held.blobs[path])

    def put(self, path: str, data: Data) -> None:
        raise AssertionError("nothing may be written over")

    def delete(self, paths: Iterable[str]) -> None:
        raise AssertionError("nothing is deleted here")

    def _wait(self) -> None:
        if self.turns is not None:
            self.turns.wait()


@dataclass
class _World:
    """One job, and what was committed."""

    held: _Held = field(default_factory=_Held)
    histories: dict[int, tuple[int, ...]] = field(default_factory=lambda: {0: ()})
    committed: list[tuple[int, ...]] = field(default_factory=list)

    def store(self, turns: _Turns | None = None) -> FolderJobStore:
        blobs = _SteppedBlobs(self.held, turns)
        return FolderJobStore("dict://root", JOB, "job", open_blobs=lambda url: blobs)

    def complete(self, store: FolderJobStore, epoch: int, number: int, identity: int, base: int) -> None:
        """A manager completes what goes back to `base`, and commits it unless it is told not to."""
        self.histories[identity] = (*self.histories[base], identity)
        try:
            store.complete(epoch, replace(empty(number), attempt=identity))
        except (FencedError, CheckpointError):
            return
        self.committed.append(self.histories[identity])

    def take_over(self, store: FolderJobStore, completes: int) -> None:
        """A new manager goes on from what it finds, which it commits, and completes some more."""
        try:
            claim = store.claim()
        except FencedError:
            return
        base = claim.retained[-1].attempt if claim.retained else 0
        self.committed.append(self.histories[base])
        for more in range(completes):
            identity = 100 * claim.epoch + more
            self.complete(store, claim.epoch, claim.next_checkpoint + more, identity, base)
            base = identity


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
) -> None:
    """Let the managers make steps in this order, and the rest in theirs, unless their lives are shorter; then judge."""
    world = _begin()
    turns = [_Turns(left=life) for life, _ in zip(lives, managers, strict=False)]

    def live(place: int) -> None:
        try:
            with contextlib.suppress(_KilledError):
                managers[place](world, world.store(turns[place]))
        finally:
            turns[place].is_done = True
            turns[place].stopped.release()

    threads = [threading.Thread(target=live, args=(place,)) for place in range(len(managers))]
    for thread, turn in zip(threads, turns, strict=True):
        thread.start()
        turn.stopped.acquire()
    for place in [*schedule, *(place for place in range(len(managers)) for _ in range(20))]:
        if not turns[place].is_done:
            turns[place].step()
    for thread in threads:
        thread.join()
    world.take_over(world.store(), completes=0)
    final = world.committed[-1]
    for history in world.committed:
        assert final[: len(history)] == history, f"{history} was committed, and {final} goes on; {schedule}, {lives}"


def _old(world: _World, store: FolderJobStore) -> None:
    world.complete(store, 1, _IN_FLIGHT, _IN_FLIGHT, _FIRST)


def _new(world: _World, store: FolderJobStore) -> None:
    world.take_over(store, completes=0)


def _new_and_on(world: _World, store: FolderJobStore) -> None:
    world.take_over(store, completes=2)


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


@pytest.mark.slow
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
