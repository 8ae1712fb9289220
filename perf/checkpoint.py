"""Question 7: what do checkpoints cost a job, by the size of its state, the interval, and how much of it changes?

A running aggregate and tumbling windows, with 10 MB, 100 MB and 1 GB of keyed state, and checkpoints every 10, 5 and
1 s; and 1 % and 10 % of the keys changing within an interval. In one job a window of time with a checkpoint and one
without follow each other again and again, so that nothing else differs. Run by `perf/run.py checkpoint`; the files go
to the system's temporary folder (set TMPDIR for another disk).
"""

from __future__ import annotations

import math
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock import DataStream, StreamEnvironment, WatermarkStrategy, tumbling
from penstock.actors.client import RayJob
from penstock.engine.job.info import CheckpointInfo
from penstock.recovery import checkpoints
from perf.generators import values
from perf.harness import BenchmarkError, CountingSink, Options, Reading, Result, rows_in, shut_down
from perf.keyed_state import (
    AGGREGATES,
    FULL_AFTER,
    STATE,
    DetailedResult,
    Keys,
    completed,
    environment,
    input_rows,
    keys_of,
    let_run,
    running,
    submitted,
    summary,
    until_full,
)
from perf.peers.digest import Digest
from perf.peers.engines import Engine, PeerError
from perf.peers.session import printed_by
from perf.peers.task import PeerInput, PeerTask

_NAME: Final = "checkpoint"
_WINDOW_MS: Final = 10_000
_START_MS: Final = 1_800_000_000_000
_INTERVALS: Final = (10.0, 5.0, 1.0)
_SIZES: Final = {"10 MB": 10, "100 MB": 100, "1 GB": 1000}
_CHURNS: Final = (0.1, 0.01)
_LEAST_CYCLES: Final = 10
"""Windows with a checkpoint, each followed by one without, of a measurement."""
_FIRST_CHECKPOINTS: Final = 3
"""Taken before anything is measured: the first has all of the state."""
_SHORT_MB: Final = 100
"""A checkpoint of so much takes half a second."""
_CHECK_KEYS: Final = 200
_PEER_STARTS: Final = 120.0
"""Seconds that a peer may take to be warm, its state full."""

_Int64s: TypeAlias = "npt.NDArray[np.int64]"
Build: TypeAlias = Callable[[StreamEnvironment, Keys, int | None], DataStream]
"""A program by its environment, its keys, and its rows (None: without end)."""


@dataclass(frozen=True, slots=True)
class Case:
    """What is measured.

    Args:
        shape: name of the program.
        size: of the state, as in the variant's name.
        size_mb: the same, in megabytes.
        interval: of the checkpoints, seconds.
        churn: the share of the keys that has rows within an interval.
    """

    shape: str
    size: str
    size_mb: float
    interval: float
    churn: float = 1.0

    @property
    def variant(self) -> str:
        """Its name."""
        churn = "" if self.churn == 1 else f" churn {self.churn:.0%}"
        return f"{self.shape} {self.size} every {self.interval:g}s{churn}"

    @property
    def window(self) -> float:
        """Seconds in which a checkpoint is taken, or none: as short as can be, as the machine's speed drifts."""
        return 1.0 if self.size_mb <= _SHORT_MB else 10.0

    @property
    def keys(self) -> Keys:
        """Its keys: those of the churn change from one checkpoint to the next."""
        return Keys(keys_of(self.size_mb), self.churn, 2 * self.window)


def windowed(env: StreamEnvironment, keys: Keys, rows: int | None = None) -> DataStream:
    """The aggregates of each key in tumbling windows; a window has each key twice, and then as many rows again."""
    times = Times(2 * FULL_AFTER * keys.count)
    strategy = WatermarkStrategy.for_monotonous_timestamps()
    keyed = input_rows(env, keys, rows, more={"ts": times}).assign_timestamps("ts", strategy).key_by("key")
    return keyed.window(tumbling(f"{_WINDOW_MS}ms")).aggregate(**AGGREGATES).name(STATE)


@dataclass(frozen=True, slots=True)
class Times:
    """Timestamps (int64 ms), `rows` of them in a window."""

    rows: int

    def __call__(self, rows: _Int64s) -> pa.Array:
        return pa.array(_START_MS + rows * _WINDOW_MS // self.rows)


def _running(env: StreamEnvironment, keys: Keys, rows: int | None = None) -> DataStream:
    return running(env, keys, rows)


_SHAPES: Final[dict[str, Build]] = {"running": _running, "tumbling": windowed}


def cases() -> list[Case]:
    """All of them, small state first."""
    sizes = [
        Case(shape, size, size_mb, interval)
        for size, size_mb in _SIZES.items()
        for shape in _SHAPES
        for interval in _INTERVALS
    ]
    churns = [Case("running", "100 MB", 100, interval, churn) for interval in _INTERVALS[1:] for churn in _CHURNS]
    return [*sizes, *churns]


def run(options: Options, wanted: str = "") -> Iterator[Result]:
    """Measure the variant of that name, or else those whose name contains `wanted`."""
    named = [case for case in cases() if case.variant == wanted]
    chosen = named or [case for case in cases() if wanted in case.variant]
    for shape in {case.shape: None for case in chosen}:
        check(options, shape)
    for case in chosen:
        if options.peer is None:
            yield _result(case, case.variant, [_measure(case, options) for _ in range(options.repetitions)])
        else:
            yield from _beside(case, options, options.peer)


def _beside(case: Case, options: Options, peer: Engine) -> Iterator[Result]:
    """Ours and the peer's, in turns: a result each."""
    if _NAME not in peer.programs or case.shape != "running":
        raise BenchmarkError(f"{peer.name} has no program for {_NAME} {case.variant}")
    ours, theirs = [], []
    for _ in range(options.repetitions):
        ours.append(_measure(case, options))
        shut_down()
        theirs.append(_measure_peer(case, options, peer))
    yield _result(case, case.variant, ours)
    yield _result(case, f"{case.variant}, {peer.name} {peer.version()}", theirs)


def _measure_peer(case: Case, options: Options, peer: Engine) -> Measured:
    keys, pairs = case.keys, cycles(options.seconds, case.window)
    settings = {
        "spread_keys": keys.count,
        "full_rows": FULL_AFTER * keys.count,
        "hot_keys": int(keys.churn * keys.count) if keys.churn < 1 else 0,
        "hot_ms": int(keys.seconds * 1000),
        "warm_up_ms": int(peer.warm_up * 1000),
        "window_ms": int(case.window * 1000),
        "first_checkpoints": _FIRST_CHECKPOINTS,
        "cycles": pairs,
    }
    columns = {"v": values}
    few = PeerInput({"spread_keys": _CHECK_KEYS, "rows": options.check_rows}, columns)
    task = PeerTask(_NAME, PeerInput(settings, columns), few, partial(_right, options.check_rows))
    patience = _PEER_STARTS + (2 * pairs + _FIRST_CHECKPOINTS) * 2 * case.window
    try:
        return windows_in(printed_by(peer, task, options.parallelism, patience))
    except (PeerError, ValueError) as error:
        raise BenchmarkError(str(error)) from error


def _right(rows: int) -> Digest:
    found = _per_key(*_check_input(rows))
    return Digest.of(list(found), *zip(*found.values(), strict=True))


def windows_in(output: str) -> Measured:
    """What a peer has measured, from its lines "window RATE-WITH RATE-WITHOUT" and "checkpoint MS BYTES WRITTEN"."""
    lines = [line.split() for line in output.splitlines()]
    rates = [(float(line[1]), float(line[2])) for line in lines if line[:1] == ["window"]]
    records = [Checkpoint(*map(int, line[1:])) for line in lines if line[:1] == ["checkpoint"]]
    return Measured([on for on, _ in rates], [off for _, off in rates], records)


# The output


def check(options: Options, shape: str) -> None:
    """Compare a bounded run, with checkpoints, with NumPy.

    Raises:
        BenchmarkError: the output is wrong.
    """
    with tempfile.TemporaryDirectory() as folder:
        env = environment(options, checkpoints("100ms", folder), batch_rows=max(1, options.check_rows // 40))
        _SHAPES[shape](env, Keys(_CHECK_KEYS), options.check_rows).collect()
        found = env.submit(f"{_NAME} check").result()
    key, v = _check_input(options.check_rows)
    if shape == "tumbling":
        same = _totals(found, ["key"]) == _per_key(key, v)
    else:
        # The last update of a key, whose counts only grow, is its total.
        rows = zip(*(found.column(name).to_pylist() for name in ("key", "n", "total")), strict=True)
        same = {k: (n, total) for k, n, total in sorted(rows, key=lambda row: row[1])} == _per_key(key, v)
    if not same:
        raise BenchmarkError(f"{_NAME}, {shape}: the output of {options.check_rows} rows is wrong")


def _check_input(rows: int) -> tuple[_Int64s, npt.NDArray[np.float64]]:
    numbers = np.arange(rows)
    return Keys(_CHECK_KEYS)(numbers).to_numpy(), values().to_numpy()[numbers % len(values())]


def _totals(found: pa.Table, by: list[str]) -> dict[int, tuple[int, float]]:
    grouped = found.group_by(by).aggregate([("n", "sum"), ("total", "sum")]).to_pylist()
    return {row["key"]: (row["n_sum"], row["total_sum"]) for row in grouped}


def _per_key(key: _Int64s, v: npt.NDArray[np.float64]) -> dict[int, tuple[int, float]]:
    counts, sums = np.bincount(key).tolist(), np.bincount(key, v).tolist()
    return {k: (n, total) for k, (n, total) in enumerate(zip(counts, sums, strict=True)) if n}


# The cost


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint of a peer, as far as it says: its duration, the bytes of its state, and those written."""

    duration_ms: float
    bytes: float
    bytes_written: float


@dataclass(frozen=True, slots=True)
class Measured:
    """One job.

    Args:
        on: rates (rows/s) of the windows in which a checkpoint was taken.
        off: of the windows behind each of those, in which none was.
        checkpoints: records of those that were taken.
    """

    on: Sequence[float]
    off: Sequence[float]
    checkpoints: Sequence[Checkpoint | CheckpointInfo]


def _result(case: Case, variant: str, jobs: Sequence[Measured]) -> Result:
    records = [record for job in jobs for record in job.checkpoints]
    if not records:
        raise BenchmarkError(f"{_NAME}, {variant}: no checkpoint was complete while it was measured")
    lost = [loss for job in jobs for loss in losses(job.on, job.off)]
    share = case.window / case.interval
    readings = [Reading(statistics.fmean(job.off) * (1 - share * _mean_loss(job) / 100)) for job in jobs]
    result = Result.of(_NAME, variant, readings)
    figures = {
        "keys": case.keys.count,
        "events_per_second_without": summary([rate for job in jobs for rate in job.off]),
        "loss_percent_mean": round(share * statistics.fmean(lost), 2),
        "loss_percent_error": round(share * statistics.stdev(lost) / math.sqrt(len(lost)), 2),
        "loss_percent_median": round(share * statistics.median(lost), 2),
        "lost_ms_of_a_checkpoint": round(10 * case.window * statistics.fmean(lost), 1),
        "windows": len(lost),
        **of_records(records),
    }
    return DetailedResult(result.name, result.variant, result.ours, result.spread, result.readings, figures)


def _mean_loss(job: Measured) -> float:
    return statistics.fmean(losses(job.on, job.off))


def _measure(case: Case, options: Options) -> Measured:
    on, off = [], []
    with _ready(case, options) as job, ThreadPoolExecutor(1) as asking:
        for _ in range(_FIRST_CHECKPOINTS):
            job.control.checkpoint()
            let_run(job, case.window)
        since = time.time_ns() // 1_000_000
        at, rows = _sample(job)
        due = at
        for _ in range(cycles(options.seconds, case.window)):
            asked = asking.submit(job.control.checkpoint)
            for rates in (on, off):
                due += case.window
                let_run(job, due - time.monotonic())
                (before, rows_before), (at, rows) = (at, rows), _sample(job)
                rates.append((rows - rows_before) / (at - before))
            asked.result()
        records = [record for record in completed(job.info()) if record.triggered_ms >= since]
    return Measured(on, off, records)


def _sample(job: RayJob) -> tuple[float, int]:
    rows = rows_in(job.metrics(), STATE)
    return time.monotonic(), rows


def cycles(seconds: float, window: float) -> int:
    """How many windows with and without a checkpoint take `seconds`."""
    return max(_LEAST_CYCLES, round(seconds / (2 * window)))


def losses(on: Sequence[float], off: Sequence[float]) -> list[float]:
    """By how many percent the rate of a window with a checkpoint is below the mean of the windows around it.

    Args:
        on: rates with one.
        off: rates of the windows behind each of those; what is before the first is not known.
    """
    return [
        100 * (1 - rate / ((before + behind) / 2)) for before, rate, behind in zip(off, on[1:], off[1:], strict=False)
    ]


def of_records(records: Sequence[Checkpoint | CheckpointInfo]) -> dict[str, Any]:
    """What checkpoints took, and wrote."""
    figures = {
        "checkpoint_ms": [record.duration_ms for record in records],
        "state_mb": [record.bytes / 1e6 for record in records],
        "written_mb": [record.bytes_written / 1e6 for record in records],
    }
    summaries: dict[str, Any] = {name: summary(found) for name, found in figures.items()}
    return {**summaries, "written_mb_mean": round(statistics.fmean(figures["written_mb"]), 3) if records else None}


@contextmanager
def _ready(case: Case, options: Options) -> Iterator[RayJob]:
    """The job, its state full, that takes the checkpoints that it is asked for."""
    with tempfile.TemporaryDirectory(prefix="penstock-perf-") as folder:
        env = environment(options, checkpoints(storage=folder))
        _SHAPES[case.shape](env, case.keys, None).sink_to(CountingSink()).name("count")
        with submitted(env, f"{_NAME} {case.variant}") as job:
            until_full(job, case.keys.count)
            yield job
