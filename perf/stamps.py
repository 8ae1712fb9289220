"""A sink that leaves behind when it had rows, and what is read from that: the benchmarks of recovery and of rescales.

Flink's side of the recovery (`peers/java/bench/Recovery.java`) names its files in the same way.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from penstock.engine.connectors import ConnectorContext, Sink, SinkWriter
from penstock.engine.elements import Batch


@dataclass(frozen=True, slots=True)
class StampingSink(Sink):
    """Takes rows and forgets them; each writer leaves the times at which it had rows in a file of its own.

    A file is named by the subtask, when the writer was opened, and when it first had rows.

    Args:
        folder: of the files; on this machine, as is every process of the job.
    """

    folder: str

    def open(self, context: ConnectorContext) -> SinkWriter:
        return _StampingWriter(Path(self.folder) / f"{context.subtask}-{time.monotonic_ns()}")

    def describe(self) -> str:
        return "stamp"


class _StampingWriter(SinkWriter):
    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.open("ab", buffering=0)
        self._stamped = False

    def write(self, batch: Batch) -> None:
        if not batch.num_rows:
            return
        now = time.monotonic_ns()
        self._file.write(now.to_bytes(8, "little"))
        if not self._stamped:
            self._stamped = True
            self._path.rename(self._path.with_name(f"{self._path.name}-{now}"))

    def close(self) -> None:
        self._file.close()


def first_rows(folder: Path, since: float) -> float | None:
    """When (monotonic seconds) a writer that was opened after `since` first had rows; None: not yet."""
    stamps = [tuple(map(int, path.name.split("-")[1:])) for path in folder.iterdir() if path.name.count("-") == 2]
    return min((first / 1e9 for opened, first in stamps if opened / 1e9 > since), default=None)


def silence(folder: Path, since: float) -> tuple[float, float] | None:
    """The times (monotonic seconds) between which there were no rows, as writers were replaced; None: not yet.

    Args:
        folder: of a `StampingSink`.
        since: the newer writers were opened behind it.
    """
    first = first_rows(folder, since)
    old = [path for path in folder.iterdir() if int(path.name.split("-")[1]) / 1e9 <= since]
    last = max((int(np.fromfile(path, np.int64).max(initial=0)) for path in old), default=0)
    return (last / 1e9, first) if last and first is not None else None
