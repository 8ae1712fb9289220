"""Simulated storage: a disk that outlives the processes, with calls that fail, take long, succeed in secret, or kill.

The world makes one disk a run; every store of a job opens its folders there. What a call does to the disk is certain,
what its caller learns of it is not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeVar

import pyarrow as pa

from penstock.engine.clock import ManualClock
from penstock.engine.errors import CheckpointCorruptError, CheckpointError
from penstock.savepoints.content import Data, whole
from penstock.savepoints.storage import BlobExistsError
from penstock.testing.simulation.faults import Crash, Dice

T = TypeVar("T")

_HASH: Final = re.compile("[0-9a-f]{64}|(?<=probe-)[0-9a-f]{16}|(?<=-)[0-9a-f]{12}")
_SLOW_S: Final = (0.05, 2.0)
_FULL_STEPS: Final = (20, 600)


class SimulatedClock(ManualClock):
    """A clock whose civil time can jump."""

    def __init__(self) -> None:
        super().__init__(1_000_000)
        self._jumped_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self._jumped_ms

    def jump(self, ms: int) -> None:
        """Set civil time forward, or back."""
        self._jumped_ms += ms


class Disk:
    """All blobs of a run, by URL.

    Args:
        dice: decides which calls fail.
        clock: passes where a call is slow.
        meanwhile: called before each call: other processes may do something in the middle of this one's work.
    """

    def __init__(self, dice: Dice, clock: ManualClock, meanwhile: Callable[[], None] = lambda: None) -> None:
        self.blobs: dict[str, bytes] = {}
        self.dice = dice
        self.clock = clock
        self.meanwhile = meanwhile
        self._full_until = 0

    def open(self, url: str) -> SimulatedBlobs:
        """The folder `url`."""
        return SimulatedBlobs(self, url.rstrip("/"))

    def fill(self) -> None:
        """Nothing can be written for a while."""
        self._full_until = self.dice.step + self.dice.chosen.randint(*_FULL_STEPS)

    @property
    def is_full(self) -> bool:
        """Whether nothing can be written now."""
        return self.dice.step < self._full_until

    def flip(self, url: str) -> None:
        """Change one byte of a blob."""
        content = bytearray(self.blobs[url])
        content[self.dice.chosen.randrange(len(content))] ^= 1 << self.dice.chosen.randrange(8)
        self.blobs[url] = bytes(content)

    def under(self, url: str) -> list[str]:
        """The paths of all blobs under the folder `url`, sorted."""
        return sorted(name[len(url) + 1 :] for name in self.blobs if name.startswith(f"{url}/"))


class SimulatedBlobs:
    """A folder of the disk, as a `BlobStore` on an unreliable network.

    Args:
        disk: keeps the blobs.
        url: of the folder.
    """

    def __init__(self, disk: Disk, url: str) -> None:
        self._disk = disk
        self.url = url

    def put(self, path: str, data: Data) -> None:
        self._call(f"put {_short(path)}", lambda: self._write(path, data))

    def create(self, path: str, data: Data) -> None:
        try:
            self._call(f"create {_short(path)}", lambda: self._create(path, data))
        except BlobExistsError:
            if self._disk.blobs[self._name(path)] != _bytes(data):
                raise

    def get(self, path: str) -> pa.Buffer:
        self._disk.meanwhile()
        content = self._disk.blobs.get(self._name(path))
        if content is None:
            raise CheckpointCorruptError(f"{self._name(path)} is missing")
        return pa.py_buffer(content)

    def list(self, prefix: str = "") -> Sequence[tuple[str, int]]:
        self._disk.meanwhile()
        begin = f"{self.url}/{prefix}/" if prefix else f"{self.url}/"
        skipped, blobs = len(self.url) + 1, self._disk.blobs
        return sorted((name[skipped:], len(data)) for name, data in blobs.items() if name.startswith(begin))

    def delete(self, paths: Iterable[str]) -> None:
        named = list(paths)
        self._call(f"delete {len(named)} files", lambda: self._delete(named))

    def _name(self, path: str) -> str:
        return f"{self.url}/{path}"

    def _write(self, path: str, data: Data) -> None:
        if self._disk.is_full:
            raise CheckpointError(f"simulated: no space left for {self._name(path)}")
        self._disk.blobs[self._name(path)] = _bytes(data)

    def _create(self, path: str, data: Data) -> None:
        if self._name(path) in self._disk.blobs:
            raise BlobExistsError(f"{self._name(path)} exists")
        self._write(path, data)

    def _delete(self, paths: Sequence[str]) -> None:
        for path in paths:
            self._disk.blobs.pop(self._name(path), None)

    def _call(self, what: str, act: Callable[[], T]) -> T:
        disk, dice = self._disk, self._disk.dice
        disk.meanwhile()
        rate = dice.rates.storage / 3
        if dice.strikes(dice.rates.slow, f"{what} is slow"):
            disk.clock.advance(dice.chosen.uniform(*_SLOW_S))
        if dice.strikes(rate, f"{what} fails"):
            raise CheckpointError(f"simulated: {what} failed")
        if dice.strikes(rate, f"process dies in {what}"):
            if dice.chosen.random() < 0.5:
                act()
            raise Crash
        done = act()
        if dice.strikes(rate, f"{what} fails after it took effect"):
            raise CheckpointError(f"simulated: no answer to {what}")
        return done


def _short(path: str) -> str:
    """The path without hashes and tokens, which say nothing to a reader."""
    return _HASH.sub("*", path)


def _bytes(data: Data) -> bytes:
    return whole(data).tobytes()
