"""The counters of the subtasks of a job as columns, and the rates between two readings of them.

`observed.py` makes them of each reading. A job has 160,000 subtasks where it has a hundred tasks of 1,600: what is
added up over all of them is computed by NumPy, and a subtask is made an object of only where somebody looks at it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import Any, Final, TypeAlias, overload

import numpy as np
import numpy.typing as npt

from penstock.engine.elements import MAX_TIMESTAMP, MIN_TIMESTAMP
from penstock.engine.metric_types import pending_records
from penstock.engine.metrics import OperatorMetrics, SubtaskMetrics

_Counts: TypeAlias = "npt.NDArray[np.int64]"
_Shares: TypeAlias = "npt.NDArray[np.float64]"
Place: TypeAlias = "tuple[int, int]"
_COUNTS: Final = ("rows_in", "rows_out", "bytes_out", "messages_out", "late_rows", "splits", "watermark", "behind_ms")
_TIMES: Final = ("busy", "blocked", "idle", "garbage", "alignment_ms", "sync_ms", "start_delay_ms")
_TIME_MEMBERS: Final = (
    "busy_seconds", "blocked_seconds", "idle_seconds", "garbage_seconds", "alignment_ms", "sync_ms", "start_delay_ms",
)  # fmt: skip
"""Of `SubtaskMetrics`, in the order of `_TIMES`."""
_RATES: Final = ("rows_in", "rows_out", "bytes_out", "busy", "blocked", "idle", "garbage")
_WITH_RATES: Final = 3
"""So many of the counts come first and have rates."""
_COUNTED: Final = 4
"""So many of the counts come first and are in `Totals`."""
_ACCOUNTED: Final = 3
"""So many of the times come first, and are all the time there is."""
_SHARES: Final = 4
"""So many of the times come first, and have shares of those."""
_PLACE: Final = attrgetter("task", "subtask")
_NO_OPERATORS: Final = (("", OperatorMetrics()),)
_AT_ONCE: Final = 1024


@dataclass(frozen=True, slots=True)
class Totals:
    """What a subtask has done so far: the counters of which rates are made.

    Args:
        rows_in: taken by the first operator of the chain; of a source, those that it has read, as in Flink.
        rows_out: emitted by the last one.
        bytes_out, messages_out: sent to other subtasks.
        busy, blocked, idle, garbage: seconds.
    """

    rows_in: int = 0
    rows_out: int = 0
    bytes_out: int = 0
    messages_out: int = 0
    busy: float = 0.0
    blocked: float = 0.0
    idle: float = 0.0
    garbage: float = 0.0


@dataclass(frozen=True, slots=True)
class Rates:
    """What a subtask did a second over the window; shares are from 0 to 1 of the time that it has accounted for.

    `garbage` is a part of the others: the time in which its process looked for garbage.
    """

    rows_in: float = 0.0
    rows_out: float = 0.0
    bytes_out: float = 0.0
    busy: float = 0.0
    blocked: float = 0.0
    idle: float = 0.0
    garbage: float = 0.0


@dataclass(frozen=True, slots=True)
class SubtaskView:
    """A subtask as it is shown.

    Args:
        metrics: its newest counters.
        totals, rates: made of them.
    """

    metrics: SubtaskMetrics
    totals: Totals
    rates: Rates

    @property
    def subtask(self) -> int:
        """Its index."""
        return self.metrics.subtask

    @property
    def input_watermark(self) -> int | None:
        """The event time that has come to it, int64 ms; None before the first, and at a source."""
        return _known(self.metrics.operators[0][1].input_watermark) if self.metrics.operators else None

    @property
    def watermark(self) -> int | None:
        """The event time that it has passed on; None before the first."""
        return _known(self.metrics.operators[-1][1].watermark) if self.metrics.operators else None


@dataclass(frozen=True, slots=True)
class Columns:
    """The counters of many subtasks as of one reading, a row each.

    Args:
        places: task and index of each.
        counts: int64, a column for each of `_COUNTS`.
        times: float64, a column for each of `_TIMES`.
    """

    places: Sequence[Place]
    counts: _Counts
    times: _Shares

    @staticmethod
    def of(metrics: Sequence[SubtaskMetrics]) -> Columns:
        """Those of one reading, in its order."""
        # What is asked for is sums of columns, which lie together so.
        counts = np.empty((len(metrics), len(_COUNTS)), np.int64, "F")
        times = np.empty((len(metrics), len(_TIMES)), np.float64, "F")
        # Within a column other threads wait for the interpreter, which of a wide job would be for long.
        for begin in range(0, len(metrics), _AT_ONCE):
            rows = slice(begin, begin + _AT_ONCE)
            _fill(counts[rows], times[rows], metrics[rows])
        return Columns(list(map(_PLACE, metrics)), counts, times)

    def taken(self, rows: slice) -> Columns:
        """Some of the rows."""
        return Columns(self.places[rows], self.counts[rows], self.times[rows])

    def like(self, other: Columns, missing: Columns | None) -> Columns:
        """These in the places of others.

        Args:
            other: whose places.
            missing: what stands, row by row, for those that are not here; None: nothing so far.
        """
        if self.places == other.places:
            return self
        rows = {place: row for row, place in enumerate(self.places)}
        found = np.array([rows.get(place, -1) for place in other.places], np.int64)
        counts = np.zeros_like(other.counts) if missing is None else missing.counts.copy("K")
        times = np.zeros_like(other.times) if missing is None else missing.times.copy("K")
        counts[found >= 0], times[found >= 0] = self.counts[found[found >= 0]], self.times[found[found >= 0]]
        return Columns(other.places, counts, times)


def _fill(counts: _Counts, times: _Shares, metrics: Sequence[SubtaskMetrics]) -> None:
    """Put the counters of subtasks into the rows for them: a pass over all for each column, which runs in C."""
    chains = [one.operators or _NO_OPERATORS for one in metrics]
    first, last = [chain[0][1] for chain in chains], [chain[-1][1] for chain in chains]
    columns = (
        (one.rows_in or one.rows_out for one in first),
        map(attrgetter("rows_out"), last),
        map(attrgetter("output.bytes_sent"), metrics),
        map(attrgetter("output.messages_sent"), metrics),
        map(_late_rows, chains),
        map(attrgetter("gate.splits"), metrics),
        map(attrgetter("watermark"), last),
        map(attrgetter("gate.behind_ms"), metrics),
    )
    for place, column in enumerate(columns):
        counts[:, place] = np.fromiter(column, np.int64, len(metrics))
    for place, name in enumerate(_TIME_MEMBERS):
        times[:, place] = np.fromiter(map(attrgetter(name), metrics), np.float64, len(metrics))


def _late_rows(chain: Sequence[tuple[str, OperatorMetrics]]) -> int:
    return chain[0][1].late_rows if len(chain) == 1 else sum(counters.late_rows for _, counters in chain)


def no_rates(now: Columns) -> _Shares:
    """Those of subtasks that do nothing any more."""
    return np.zeros((len(now.places), len(_RATES)))


def rates_between(before: Columns, now: Columns, seconds: float) -> _Shares:
    """Rates between two readings, a row for each subtask of the later; a column for each of `_RATES`.

    A subtask that was not there at the first has begun since. Where no time is accounted for, at the first reading and
    within a long step, shares are of where the time has gone so far.
    """
    before = before.like(now, now if seconds <= 0 else None)
    each = 1 / seconds if seconds > 0 else 0.0
    done = np.maximum(0, now.counts[:, :_WITH_RATES] - before.counts[:, :_WITH_RATES]) * each
    spent = now.times[:, :_SHARES] - before.times[:, :_SHARES]
    is_known = _accounted(spent) > 0
    spent = np.where(is_known, spent, now.times[:, :_SHARES])
    accounted = _accounted(spent)
    shares = np.divide(spent, accounted, out=np.zeros_like(spent), where=accounted > 0)
    return np.hstack([np.where(is_known, done, 0.0), shares])


def _accounted(times: _Shares) -> _Shares:
    total: _Shares = times[:, :_ACCOUNTED].sum(axis=1, keepdims=True)
    return total


class Subtasks(Sequence[SubtaskView]):
    """The subtasks of one task, by index.

    Args:
        metrics: their newest counters.
        columns: the same.
        rates: a row for each, as `rates_between` gives them.
    """

    def __init__(self, metrics: Sequence[SubtaskMetrics], columns: Columns, rates: _Shares) -> None:
        self.metrics = metrics
        self._columns = columns
        self._rates = rates

    def __len__(self) -> int:
        return len(self.metrics)

    @overload
    def __getitem__(self, index: int) -> SubtaskView: ...

    @overload
    def __getitem__(self, index: slice) -> Subtasks: ...

    def __getitem__(self, index: int | slice) -> SubtaskView | Subtasks:
        if isinstance(index, slice):
            return Subtasks(self.metrics[index], self._columns.taken(index), self._rates[index])
        metrics = self.metrics[index]
        counts, times = self._columns.counts[index].tolist(), self._columns.times[index].tolist()
        return SubtaskView(metrics, Totals(*counts[:_COUNTED], *times[:_SHARES]), Rates(*self._rates[index].tolist()))

    def __iter__(self) -> Iterator[SubtaskView]:
        # Rows of an array by themselves take many times as long as within one list.
        counts, times = self._columns.counts[:, :_COUNTED].tolist(), self._columns.times[:, :_SHARES].tolist()
        for metrics, counted, spent, rates in zip(self.metrics, counts, times, self._rates.tolist(), strict=True):
            yield SubtaskView(metrics, Totals(*counted, *spent), Rates(*rates))

    def with_rates(self, rates: _Shares) -> Subtasks:
        """The same with other rates."""
        return Subtasks(self.metrics, self._columns, rates)

    def work_out(self) -> None:
        """Have ready what is shown of all of them together: of a wide job it takes some ms."""
        _ = self._count_sums, self._time_sums, self._time_peaks, self._rate_sums, self._rate_peaks
        _ = self.skew, self.watermark

    def total(self, name: str) -> Any:
        """A counter or a time (in seconds), added up: a member of `Totals`, `late_rows` or `splits`."""
        return self._time_sums[_TIMES.index(name)] if name in _TIMES else self._count_sums[_COUNTS.index(name)]

    def most(self, name: str) -> float:
        """A time: the most that one of them has; also `alignment_ms`, `sync_ms`, `start_delay_ms`."""
        return self._time_peaks[_TIMES.index(name)]

    def rate(self, name: str) -> float:
        """A member of `Rates`, added up."""
        return self._rate_sums[_RATES.index(name)]

    def highest(self, name: str) -> float:
        """A member of `Rates`: that of the subtask that has most of it."""
        return self._rate_peaks[_RATES.index(name)]

    def each(self, name: str) -> list[Any]:
        """A counter or a time of each, as `total` and `most` know them; of `watermark`, MIN_TIMESTAMP: none yet."""
        values: list[Any] = self._column(name).tolist()
        return values

    def each_rate(self, name: str) -> list[float]:
        """A member of `Rates`, of each."""
        values: list[float] = self._rate(name).tolist()
        return values

    def busiest(self) -> SubtaskView:
        """The one that is busy for most of its time."""
        return self[int(self._rate("busy").argmax())]

    def fullest(self) -> SubtaskView:
        """The one that gets the most rows; of a source, that gives the most."""
        return self[int(self._rows.argmax())]

    @cached_property
    def skew(self) -> float:
        """How uneven the rates of rows are: the highest over the mean, minus one; 0 is even."""
        mean = float(self._rows.mean()) if len(self) else 0.0
        return float(self._rows.max()) / mean - 1 if mean > 0 else 0.0

    def unevenness(self) -> float:
        """How many times as many rows as the others on average the fullest gets; 1 where there are no others."""
        rows = self._rows
        others = float(rows.sum() - rows.max()) / (len(self) - 1) if len(self) > 1 else 0.0
        return float(rows.max()) / others if others > 0 else float("inf") if len(self) > 1 and rows.any() else 1.0

    def furthest_behind(self) -> tuple[int, SubtaskView] | None:
        """Of a source: by how many ms its furthest split is ahead of its slowest one, and the subtask that reads that.

        None before there is event time, and where it is at its end. A subtask whose splits are all idle holds nothing
        back, wherever it has come to.
        """
        marks = self._column("watermark")
        is_awaited = np.array([bool(one.gate.slowest) for one in self.metrics], np.bool_)
        is_known = (marks > MIN_TIMESTAMP) & (marks < MAX_TIMESTAMP) & is_awaited
        if not is_known.any():
            return None
        slowest = int(np.where(is_known, marks, MAX_TIMESTAMP).argmin())
        furthest = (marks + self._column("behind_ms"))[is_known].max()
        return int(furthest - marks[slowest]), self[slowest]

    @cached_property
    def pending_records(self) -> float | None:
        """Records that the subtasks of a source have not read yet, as far as they count them; None where none does."""
        return pending_records(counters.group for one in self.metrics for _, counters in one.operators)

    @cached_property
    def watermark(self) -> int | None:
        """The lowest that they have passed on; None before the first."""
        known = self._column("watermark")
        known = known[known != MIN_TIMESTAMP]
        return int(known.min()) if len(known) else None

    def marks(self) -> npt.NDArray[np.int64]:
        """The watermark that each has passed on, by its index; MIN_TIMESTAMP where none is known."""
        indexes = [subtask for _, subtask in self._columns.places]
        marks = np.full(1 + max(indexes, default=-1), MIN_TIMESTAMP, np.int64)
        marks[indexes] = self._column("watermark")
        return marks

    # Of all columns at once, as who asks for one asks for others.
    @cached_property
    def _count_sums(self) -> list[int]:
        sums: list[int] = self._columns.counts.sum(axis=0).tolist()
        return sums

    @cached_property
    def _time_sums(self) -> list[float]:
        sums: list[float] = self._columns.times.sum(axis=0).tolist()
        return sums

    @cached_property
    def _time_peaks(self) -> list[float]:
        peaks: list[float] = self._columns.times.max(axis=0, initial=0.0).tolist()
        return peaks

    @cached_property
    def _rate_sums(self) -> list[float]:
        sums: list[float] = self._rates.sum(axis=0).tolist()
        return sums

    @cached_property
    def _rate_peaks(self) -> list[float]:
        peaks: list[float] = self._rates.max(axis=0, initial=0.0).tolist()
        return peaks

    @cached_property
    def _rows(self) -> _Shares:
        given = self._rate("rows_in")
        rows: _Shares = np.where(given > 0, given, self._rate("rows_out"))
        return rows

    def _rate(self, name: str) -> _Shares:
        return self._rates[:, _RATES.index(name)]

    def _column(self, name: str) -> npt.NDArray[Any]:
        if name in _TIMES:
            return self._columns.times[:, _TIMES.index(name)]
        return self._columns.counts[:, _COUNTS.index(name)]


NO_SUBTASKS: Final = Subtasks((), Columns.of(()), np.zeros((0, len(_RATES))))


def _known(watermark: int) -> int | None:
    return None if watermark == MIN_TIMESTAMP else watermark
