"""A sink that leaves behind how old rows were when they came, and what is read from that: `perf/rescale.py`.

Rows carry the time at which they were due. So a source that is held up makes them old, and does not leave them out.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.engine.connectors import ConnectorContext, Sink, SinkWriter
from penstock.engine.elements import Batch

MARKED: Final = 1 << 62
"""Stands where a row has no time, over all times."""
_SECOND_US: Final = 10**6
_SLICE_SECONDS: Final = 1.0

Times: TypeAlias = "npt.NDArray[np.int64]"


class Due:
    """A column of `DataGenSource`: when each row is due at a rate, microseconds by the monotonic clock of this machine.

    Args:
        rate: rows a second; None: each is due when it is made.
        marked_from: rows from this number on have `MARKED` instead.
    """

    def __init__(self, rate: float | None, marked_from: int) -> None:
        self._rate, self._marked_from = rate, marked_from
        self._started = math.inf

    def __reduce__(self) -> tuple[Any, ...]:
        return Due, (self._rate, self._marked_from)

    def __call__(self, rows: Times) -> pa.Array:
        """The times of rows in ascending order, which are made together: none of them is due behind that."""
        now = time.monotonic()
        if self._rate is None or not len(rows):
            due = np.full(len(rows), now)
        else:
            self._started = min(self._started, now - float(rows[-1]) / self._rate)
            due = self._started + rows / self._rate
        return pa.array(np.where(rows < self._marked_from, (due * _SECOND_US).astype(np.int64), MARKED))


@dataclass(frozen=True, slots=True)
class ArrivalsSink(Sink):
    """Takes rows; each writer leaves when they were due and when they came, in a file of its own.

    Args:
        folder: of the files; on this machine, as is every process of the job.
        column: with the times at which they were due, as `Due` makes them.
        every: of so many rows one is kept, at even distances.
    """

    folder: str
    column: str
    every: int = 1

    def open(self, context: ConnectorContext) -> SinkWriter:
        return _ArrivalsWriter(Path(self.folder) / f"{context.subtask}-{time.monotonic_ns()}", self.column, self.every)

    def describe(self) -> str:
        return "arrivals"


class _ArrivalsWriter(SinkWriter):
    def __init__(self, path: Path, column: str, every: int) -> None:
        self._file = path.open("ab", buffering=0)
        self._column, self._every = column, every
        self._next = 0

    def write(self, batch: Batch) -> None:
        now = time.monotonic_ns() // 1000
        due = batch.data.column(self._column).to_numpy()[self._next :: self._every]
        self._next = (self._next - batch.num_rows) % self._every
        if len(due):
            self._file.write(np.column_stack([due, np.full(len(due), now)]).astype(np.int64).tobytes())

    def close(self) -> None:
        self._file.close()


def arrivals(folder: Path) -> Times:
    """What the writers of a folder have left: (due, arrived) of each row that was kept, microseconds, by arrival."""
    kept = [np.fromfile(path, np.int64) for path in folder.iterdir()]
    # A writer may be at work.
    pairs = np.concatenate([one[: len(one) // 2 * 2] for one in kept] or [np.empty(0, np.int64)]).reshape(-1, 2)
    return pairs[np.argsort(pairs[:, 1], kind="stable")]


def latencies(came: Times, since: float, until: float) -> Mapping[str, float | None]:
    """How old rows were that were due between two times, in milliseconds; None: there were none.

    Args:
        came: of `arrivals`.
        since, until: monotonic seconds.

    Returns:
        `p50`, `p99` and `most`; and `worst_p99`, of the worst of the seconds that it consists of.
    """
    within = _between(came[came[:, 0] < MARKED], 0, since, until)
    if not len(within):
        return dict.fromkeys(("p50", "p99", "most", "worst_p99"))
    old = (within[:, 1] - within[:, 0]) / 1000
    p50, p99 = np.quantile(old, [0.5, 0.99]).tolist()
    number = ((within[:, 0] / _SECOND_US - since) // _SLICE_SECONDS).astype(np.int64)
    worst = max(float(np.quantile(old[number == one], 0.99)) for one in np.unique(number))
    return {"p50": p50, "p99": p99, "most": float(old.max()), "worst_p99": worst}


def flow(came: Times, since: float, until: float) -> tuple[float, float]:
    """Rows a second that came between two times, and the longest time without any, in milliseconds."""
    within = _between(came, 1, since, until)[:, 1]
    edges = np.concatenate([[since * _SECOND_US], within, [until * _SECOND_US]])
    return len(within) / (until - since), float(np.diff(edges).max()) / 1000


def _between(came: Times, column: int, since: float, until: float) -> Times:
    at = came[:, column]
    found: Times = came[(at >= since * _SECOND_US) & (at < until * _SECOND_US)]
    return found
