"""Question 3: how many rows a second do event-time windows take, with rows out of order and late?

10,000 keys; tumbling 10 s, sliding 10/2 s and 60/1 s, sessions with a gap of 10 s; count, sum, min, max. 100,000 rows
are one second of event time, so at 2 M rows/s a tumbling window fires twice a second. 20 % of the rows come up to 4 s
late, which the watermark allows for, and 0.1 % later than that, by up to 14 s. Run by `perf/run.py window`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock import DataGenSource, DataStream, StreamEnvironment, WatermarkStrategy, count, session, sliding, tumbling
from penstock import max as max_of
from penstock import min as min_of
from penstock import sum as sum_of
from penstock.engine.windows.assigners import AlignedWindows, SessionWindows, WindowAssigner
from perf.generators import Pool, delays, uniform_keys, values
from perf.harness import BenchmarkError, BoundedRun, Options, Result, Workload, null_workload, throughput
from perf.peers.digest import Digest
from perf.peers.task import PeerInput, PeerTask

_NAME: Final = "window"
_START_MS: Final = 1_800_000_000_000
_WATERMARK_MS: Final = 4_000
_LATEST_MS: Final = 14_000
_DELAYED: Final = 0.2
_LATE: Final = 0.001
_COHORTS: Final = 4
_COHORT_SECONDS: Final = 5
_WINDOWS: Final[dict[str, WindowAssigner]] = {
    "tumbling 10s": tumbling("10s"),
    "sliding 10s/2s": sliding("10s", "2s"),
    "sliding 60s/1s": sliding("60s", "1s"),
    "session 10s": session("10s"),
}

_Int64s: TypeAlias = "npt.NDArray[np.int64]"
_Rows: TypeAlias = tuple[_Int64s, _Int64s, "npt.NDArray[np.float64]"]
"""Keys, timestamps and values."""


@dataclass(frozen=True, slots=True)
class Events:
    """The rows of the input.

    Args:
        keys: how many.
        rows_per_second: rows in a second of event time.
        late: the share of rows that come later than the watermark allows for.
        cohorts: groups of keys, of which one at a time has rows, for 5 s; sessions end while the others have theirs.
    """

    keys: int = 10_000
    rows_per_second: int = 100_000
    late: float = _LATE
    cohorts: int = 1

    def columns(self) -> dict[str, Callable[[_Int64s], Any]]:
        """What makes the values of each column from row numbers."""
        return {
            "key": _CohortKeys(self, Pool(partial(uniform_keys, self.keys // self.cohorts))),
            "ts": _Times(self, Pool(self._delays)),
            "v": Pool(values),
        }

    def for_peer(self) -> PeerInput:
        """The same rows for a peer."""
        settings = {
            "rows_per_second": self.rows_per_second,
            "start_ms": _START_MS,
            "watermark_ms": _WATERMARK_MS,
            "cohorts": self.cohorts,
            "cohort_seconds": _COHORT_SECONDS,
            "cohort_keys": self.keys // self.cohorts,
        }
        keys = partial(uniform_keys, self.keys // self.cohorts)
        return PeerInput(settings, {"key": keys, "v": values, "delay": self._delays})

    def late_rows(self, rows: int) -> int:
        """How many of the first rows come later than the watermark allows for."""
        late_by = self._delays().to_numpy()
        return int(np.count_nonzero(late_by[np.arange(rows) % len(late_by)] > _WATERMARK_MS))

    def _delays(self) -> pa.Array:
        return delays(_DELAYED, _WATERMARK_MS, self.late, _LATEST_MS)

    def arrays(self, rows: int) -> _Rows:
        """The first rows, as arrays."""
        numbers = np.arange(rows)
        key, ts, v = (np.asarray(make(numbers)) for make in self.columns().values())
        return key, ts, v


@dataclass(frozen=True, slots=True)
class _CohortKeys:
    events: Events
    within: Pool

    def __call__(self, rows: _Int64s) -> pa.Array:
        keys = self.within(rows)
        if self.events.cohorts == 1:
            return keys
        cohort = rows // (self.events.rows_per_second * _COHORT_SECONDS) % self.events.cohorts
        return pa.array(keys.to_numpy() + cohort * (self.events.keys // self.events.cohorts))


@dataclass(frozen=True, slots=True)
class _Times:
    events: Events
    late_by: Pool

    def __call__(self, rows: _Int64s) -> pa.Array:
        times = rows * 1000
        times //= self.events.rows_per_second
        times += _START_MS
        times -= self.late_by(rows).to_numpy()
        return pa.array(times)


def run(options: Options, wanted: str = "") -> Iterator[Result]:
    """Measure the variants whose name contains `wanted`."""
    workloads = [workload(options, variant, windows) for variant, windows in _WINDOWS.items()]
    workloads.append(null_workload(partial(_rows, Events()), PeerTask("events", Events().for_peer())))
    yield from throughput(_NAME, [work for work in workloads if wanted in work.variant], options)


def workload(options: Options, variant: str, windows: WindowAssigner) -> Workload:
    """The aggregates in some windows."""
    cohorts = _COHORTS if isinstance(windows, SessionWindows) else 1
    # Few keys and 100 s of event time, so that a small input fills and closes many windows.
    few = Events(100, max(1, options.check_rows // 100), 0.02, cohorts)

    punctual = Events(few.keys, few.rows_per_second, 0.0, cohorts)

    def check(bounded: BoundedRun) -> None:
        rows, metrics = bounded(lambda env: _windowed(_rows(punctual, env, options.check_rows), windows))
        _check_equal(variant, rows, expected(windows, punctual.arrays(options.check_rows)))
        if metrics.late_rows:
            raise BenchmarkError(f"window, {variant}: {metrics.late_rows} rows dropped as late, and none was")
        rows, metrics = bounded(lambda env: _windowed(_rows(few, env, options.check_rows), windows))
        _check_late(variant, windows, rows, metrics.late_rows, few, options.check_rows)

    events = Events(cohorts=cohorts)
    task = _peer_task(windows, events, punctual, options.check_rows)
    return Workload(variant, lambda env: _windowed(_rows(events, env), windows), _NAME, check, task)


def _peer_task(windows: WindowAssigner, events: Events, punctual: Events, check_rows: int) -> PeerTask:
    def right() -> Digest:
        return Digest.of(*expected(windows, punctual.arrays(check_rows)).columns)

    def given(of: Events, **more: int) -> PeerInput:
        return PeerInput({**of.for_peer().settings, **_settings(windows), **more}, of.for_peer().columns)

    return PeerTask(_NAME, given(events), given(punctual, rows=check_rows), right)


def _settings(windows: WindowAssigner) -> dict[str, int]:
    if isinstance(windows, AlignedWindows):
        return {"size_ms": windows.size_ms, "slide_ms": windows.slide_ms}
    if isinstance(windows, SessionWindows):
        return {"gap_ms": windows.gap_ms}
    raise TypeError(f"peers have no program for {windows}")


def _rows(events: Events, env: StreamEnvironment, rows: int | None = None) -> DataStream:
    return env.from_source(DataGenSource(events.columns(), rows=rows))


def _windowed(rows: DataStream, windows: WindowAssigner) -> DataStream:
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(f"{_WATERMARK_MS}ms")
    keyed = rows.assign_timestamps("ts", strategy).key_by("key")
    aggregates = {"n": count(), "total": sum_of("v"), "low": min_of("v"), "high": max_of("v")}
    return keyed.window(windows).aggregate(**aggregates).name(_NAME)


def expected(windows: WindowAssigner, rows: _Rows) -> pa.Table:
    """The windows of the rows, none of them late, by NumPy.

    Returns:
        key, window_start and window_end (int64 ms), n, total, low, high; in any order.
    """
    key, ts, v = rows
    if isinstance(windows, SessionWindows):
        order = np.lexsort((ts, key))
        key, ts, v = key[order], ts[order], v[order]
        opens = np.ones(len(key), np.bool_)
        opens[1:] = (key[1:] != key[:-1]) | (ts[1:] - ts[:-1] > windows.gap_ms)
        group = np.cumsum(opens) - 1
        first, last = np.flatnonzero(opens), np.append(np.flatnonzero(opens)[1:], len(key)) - 1
        return _grouped(key[first], ts[first], ts[last] + windows.gap_ms, group, v)
    key, starts, v = _in_each_window(windows, key, ts, v)
    pairs = np.stack([key, starts])
    (keys, begins), group = np.unique(pairs, axis=1, return_inverse=True)
    return _grouped(keys, begins, begins + windows.size_ms, group.ravel(), v)


def _in_each_window(windows: AlignedWindows, key: _Int64s, ts: _Int64s, v: Any) -> tuple[_Int64s, _Int64s, Any]:
    """Each row once for each window that it belongs to, with the window's start."""
    times = windows.size_ms // windows.slide_ms
    back = np.tile(np.arange(times) * windows.slide_ms, len(ts))
    starts = np.repeat(ts - (ts - windows.offset_ms) % windows.slide_ms, times) - back
    return np.repeat(key, times), starts, np.repeat(v, times)


def _grouped(keys: _Int64s, starts: _Int64s, ends: _Int64s, group: _Int64s, v: Any) -> pa.Table:
    low, high = np.full(len(keys), np.inf), np.full(len(keys), -np.inf)
    np.minimum.at(low, group, v)
    np.maximum.at(high, group, v)
    columns = {"key": keys, "window_start": starts, "window_end": ends, "n": np.bincount(group)}
    return pa.table({**columns, "total": np.bincount(group, v), "low": low, "high": high})


def _check_equal(variant: str, rows: pa.Table, right: pa.Table) -> None:
    order = [("key", "ascending"), ("window_start", "ascending")]
    if not rows.cast(right.schema).sort_by(order).equals(right.sort_by(order)):
        raise BenchmarkError(
            f"window, {variant}: {rows.num_rows} windows with {sum(rows.column('n').to_pylist())} rows, not "
            f"{right.num_rows} with {sum(right.column('n').to_pylist())}, or other values"
        )


def _check_late(variant: str, windows: WindowAssigner, rows: pa.Table, late: int, events: Events, given: int) -> None:
    """Every row is in its windows or counted as late; how many are late depends on which source was ahead."""
    times = windows.size_ms // windows.slide_ms if isinstance(windows, AlignedWindows) else 1
    kept = sum(rows.column("n").to_pylist())
    # A row may be late for some of its windows only; it is then in the others, and not counted.
    most, least = (given - late) * times, (given - events.late_rows(given)) * times
    if not least <= kept <= most or (times == 1 and kept != most):
        raise BenchmarkError(f"window, {variant}: {kept} rows in windows and {late} late do not make {given} rows")
