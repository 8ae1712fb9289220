"""Question 7: what do checkpoints cost a job, by the size of its state, the interval, and how much of it changes?

A running aggregate and tumbling windows, with 10 MB, 100 MB and 1 GB of keyed state, without checkpoints and with one
every 10, 5 and 1 s, two jobs in turns; and 1 % and 10 % of the keys changing within an interval. Run by
`perf/run.py checkpoint`; the files go to the system's temporary folder (set TMPDIR for another disk).
"""

from __future__ import annotations

import math
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock import DataStream, StreamEnvironment, WatermarkStrategy, tumbling
from penstock.actors.client import RayJob
from penstock.engine.config import DEFAULTS
from penstock.recovery import checkpoints
from perf.generators import values
from perf.harness import (
    BenchmarkError,
    CountingSink,
    Options,
    Reading,
    Result,
    Sampler,
    reading,
)
from perf.keyed_state import (
    AGGREGATES,
    FULL_AFTER,
    STATE,
    DetailedResult,
    Info,
    Keys,
    completed,
    environment,
    input_rows,
    keys_of,
    let_run,
    running,
    submitted,
    summary,
    until_checkpoints,
    until_full,
)
from perf.turns import TurnTaking

_NAME: Final = "checkpoint"
_WINDOW_MS: Final = 10_000
_START_MS: Final = 1_800_000_000_000
_INTERVALS: Final = (10.0, 5.0, 1.0)
_SIZES: Final = {"10 MB": 10, "100 MB": 100, "1 GB": 1000}
_CHURNS: Final = (0.1, 0.01)
_TURNS: Final = 4
"""Of each job of a pair."""
_LEAST_CYCLES: Final = 2
"""A measurement is a whole number of intervals, so that each has its share of checkpoints."""
_CHECK_KEYS: Final = 200

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
    def keys(self) -> Keys:
        """Its keys."""
        return Keys(keys_of(self.size_mb), self.churn, self.interval)


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
        yield _measured(case, options)


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
    numbers = np.arange(options.check_rows)
    key = Keys(_CHECK_KEYS)(numbers).to_numpy()
    v = values().to_numpy()[numbers % len(values())]
    if shape == "tumbling":
        same = _totals(found, ["key"]) == _per_key(key, v)
    else:
        # The last update of a key, whose counts only grow, is its total.
        rows = zip(*(found.column(name).to_pylist() for name in ("key", "n", "total")), strict=True)
        same = {k: (n, total) for k, n, total in sorted(rows, key=lambda row: row[1])} == _per_key(key, v)
    if not same:
        raise BenchmarkError(f"{_NAME}, {shape}: the output of {options.check_rows} rows is wrong")


def _totals(found: pa.Table, by: list[str]) -> dict[int, tuple[int, float]]:
    grouped = found.group_by(by).aggregate([("n", "sum"), ("total", "sum")]).to_pylist()
    return {row["key"]: (row["n_sum"], row["total_sum"]) for row in grouped}


def _per_key(key: _Int64s, v: npt.NDArray[np.float64]) -> dict[int, tuple[int, float]]:
    counts, sums = np.bincount(key).tolist(), np.bincount(key, v).tolist()
    return {k: (n, total) for k, (n, total) in enumerate(zip(counts, sums, strict=True)) if n}


# The cost


def _measured(case: Case, options: Options) -> Result:
    pairs = [_pair(case, options, first=number % 2) for number in range(options.repetitions)]
    records = [record for pair in pairs for record in pair.checkpoints]
    if not records:
        raise BenchmarkError(f"{_NAME}, {case.variant}: no checkpoint was complete while it was measured")
    result = Result.of(_NAME, case.variant, [pair.on for pair in pairs])
    figures = {
        "keys": case.keys.count,
        "events_per_second_without": summary([_rate(pair.off) for pair in pairs]),
        **losses_of([(_rate(pair.off), _rate(pair.on)) for pair in pairs], "loss"),
        **losses_of([(_cpu_rate(pair.off), _cpu_rate(pair.on)) for pair in pairs], "loss_cpu"),
        **of_records(records),
    }
    return DetailedResult(result.name, result.variant, result.ours, result.spread, result.readings, figures)


@dataclass(frozen=True, slots=True)
class Pair:
    """A job without checkpoints and one with them, side by side.

    Args:
        off, on: means over their turns.
        checkpoints: those that were triggered and completed while they were measured.
    """

    off: Reading
    on: Reading
    checkpoints: Sequence[Info]


def _pair(case: Case, options: Options, first: int) -> Pair:
    """Start both jobs, the one without checkpoints first or (1) second, and let them take turns."""
    seconds = measured_seconds(options.seconds, case.interval)

    def turn(job: RayJob) -> tuple[Reading, list[Info]]:
        # Behind this the caches are full again, and the checkpoint that was due is over.
        let_run(job, options.warm_up)
        sampler, since = Sampler(job, STATE), time.time_ns() // 1_000_000
        before = sampler.sample()
        let_run(job, seconds)
        measured = reading([before, sampler.sample()])
        return measured, [record for record in completed(job.info()) if record["triggered_ms"] >= since]

    # Where the memory of two processes lies can make more of a difference than checkpoints, for as long as they live.
    intervals = [None, case.interval] if first == 0 else [case.interval, None]
    with ExitStack() as jobs:
        started = {interval: jobs.enter_context(_ready(case, options, interval)) for interval in intervals}
        with TurnTaking(started[None], started[case.interval]) as turns:
            taken = list(turns.pairs(_TURNS, turn))
    off, on = ([one for one, _ in of_job] for of_job in zip(*taken, strict=True))
    return Pair(_mean(off), _mean(on), [record for _, (_, records) in taken for record in records])


def _mean(turns: Sequence[Reading]) -> Reading:
    """Two jobs stand in memory, so that what they take says nothing."""
    return Reading(statistics.fmean(map(_rate, turns)), statistics.fmean(map(_cpu_rate, turns)))


def losses_of(pairs: Sequence[tuple[float, float]], name: str) -> dict[str, Any]:
    """The loss in percent: of each pair, and their mean with its standard error."""
    found = losses(pairs)
    error = statistics.stdev(found) / math.sqrt(len(found)) if len(found) > 1 else None
    return {
        f"{name}_percent": summary(found),
        f"{name}_percent_mean": round(statistics.fmean(found), 2) if found else None,
        f"{name}_percent_error": None if error is None else round(error, 2),
    }


def losses(pairs: Sequence[tuple[float, float]]) -> list[float]:
    """By how many percent each second rate is below the first."""
    return [100 * (1 - on / off) for off, on in pairs if off]


def of_records(records: Sequence[Info]) -> dict[str, Any]:
    """What checkpoints took, and wrote."""
    figures = {
        "checkpoint_ms": [record["duration_ms"] for record in records],
        "state_mb": [record["bytes"] / 1e6 for record in records],
        "written_mb": [record["bytes_written"] / 1e6 for record in records],
    }
    summaries: dict[str, Any] = {name: summary(found) for name, found in figures.items()}
    return {**summaries, "written_mb_mean": round(statistics.fmean(figures["written_mb"]), 3) if records else None}


def _rate(measured: Reading) -> float:
    return measured.events_per_second or 0.0


def _cpu_rate(measured: Reading) -> float:
    return measured.events_per_cpu_second or 0.0


@contextmanager
def _ready(case: Case, options: Options, interval: float | None) -> Iterator[RayJob]:
    """The job, its state full and, with an interval, the first checkpoints complete."""
    with tempfile.TemporaryDirectory(prefix="penstock-perf-") as folder:
        # A job without checkpoints is the very same, but for the files: it has no storage.
        settings = checkpoints(f"{interval * 1000:.0f}ms", folder) if interval is not None else None
        # There is room for two jobs, which work one at a time.
        env = environment(options, settings, slot_cpus=DEFAULTS.slot_cpus / 2)
        _SHAPES[case.shape](env, case.keys, None).sink_to(CountingSink()).name("count")
        name = f"{_NAME} {case.variant}{'' if interval is None else ', with checkpoints'}"
        with submitted(env, name) as job:
            until_full(job, case.keys.count)
            if interval is not None:
                until_checkpoints(job, _LEAST_CYCLES, interval)
            yield job


def measured_seconds(seconds: float, interval: float) -> float:
    """How long to measure: at least `seconds`, and a whole number of intervals."""
    return interval * max(_LEAST_CYCLES, round(np.ceil(seconds / interval)))
