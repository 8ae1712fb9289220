"""Simulated storage: blobs in memory that outlive the processes, with calls that fail, succeed in secret, or kill."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import pyarrow as pa

from penstock.engine.errors import CheckpointError
from penstock.savepoints.storage import BlobExistsError, BlobStore, Data
from penstock.testing.simulation.faults import Crash, Dice

T = TypeVar("T")


class SimulatedBlobs:
    """A blob store on an unreliable network.

    Args:
        inner: keeps the blobs.
        dice: decides which calls fail.
    """

    def __init__(self, inner: BlobStore, dice: Dice) -> None:
        self._inner = inner
        self._dice = dice

    @property
    def url(self) -> str:
        return self._inner.url

    def put(self, path: str, data: Data) -> None:
        self._call(f"put {_short(path)}", lambda: self._inner.put(path, data))

    def create(self, path: str, data: Data) -> None:
        try:
            self._call(f"create {_short(path)}", lambda: self._inner.create(path, data))
        except BlobExistsError:
            if self._inner.get(path).to_pybytes() != memoryview(data).tobytes():
                raise

    def get(self, path: str) -> pa.Buffer:
        return self._inner.get(path)

    def list(self, prefix: str = "") -> Sequence[tuple[str, int]]:
        return self._inner.list(prefix)

    def delete(self, paths: Iterable[str]) -> None:
        named = list(paths)
        self._call(f"delete {len(named)} files", lambda: self._inner.delete(named))

    def _call(self, what: str, act: Callable[[], T]) -> T:
        rate = self._dice.rates.storage / 3
        if self._dice.strikes(rate, f"{what} fails"):
            raise CheckpointError(f"simulated: {what} failed")
        if self._dice.strikes(rate, f"process dies in {what}"):
            if self._dice.chosen.random() < 0.5:
                act()
            raise Crash
        done = act()
        if self._dice.strikes(rate, f"{what} fails after it took effect"):
            raise CheckpointError(f"simulated: no answer to {what}")
        return done


def _short(path: str) -> str:
    """The path without the hash of the content, which says nothing to a reader."""
    return re.sub("[0-9a-f]{64}", "*", path)
