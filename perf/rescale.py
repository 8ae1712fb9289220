"""How long does a job with 100 MB of keyed state stand still while it is rescaled, 2 -> 3 -> 1? Is its output exact?

As a whole; and in other runs the operator with the state alone, live, while the others run on. How old are rows when
they come behind it meanwhile, and do those beside it, which are not concerned, come as before?

A running aggregate over a bounded input at 400,000 rows/s, as long as the rescales need. The last rows have each key
once and are marked, so that what comes out behind them is the whole of each key, and is compared with NumPy's. Run by
`perf/run.py rescale`.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock import DataStream, StreamEnvironment, col
from penstock import max as max_of
from penstock.actors.client import RayJob
from penstock.engine.graph.scale import ParallelismRequest
from penstock.engine.job.handle import CollectResult
from penstock.recovery import checkpoints
from perf.arrivals import MARKED, ArrivalsSink, Due, arrivals, flow, latencies
from perf.generators import values
from perf.harness import BenchmarkError, Options, Reading, Result, spread
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
    submitted,
    summary,
    until,
    until_checkpoints,
    until_full,
)
from perf.rescale_steps import steps_since
from perf.stamps import StampingSink, silence

_NAME: Final = "rescale"
_SIZE_MB: Final = 100
_RATE: Final = 400_000.0
"""About half of the load. Where as many come as can, batches are full and rows cost half: that load tells nothing."""
_INTERVAL: Final = 5.0
_BETWEEN_SECONDS: Final = 3.0
_BEFORE_SECONDS: Final = 2.0
"""Before a rescale, with which what is seen during it is compared."""
_SECONDS_A_STEP: Final = 20
"""Of input, for the seconds between two rescales, and those that one takes on a busy machine."""
_SLOT_CPUS: Final = 0.5
"""So that three slots fit on two cores."""
_PARALLELISM: Final = (3, 2)
_TIMED_EVERY: Final = 16
"""Of so many rows one is timed."""
_BESIDE_EVERY: Final = 8
"""Of so many keys the rows of one go beside the state too."""
_WAYS: Final[Mapping[str, Callable[[int], ParallelismRequest]]] = {
    "": lambda parallelism: parallelism,
    ", live": lambda parallelism: {STATE: parallelism},
}
"""What is asked for, by what stands behind the name of a variant."""


@dataclass(frozen=True, slots=True)
class Input:
    """The rows.

    Args:
        keys: how many.
        rows: how many, at least 2 a key of which come before the marked ones.
    """

    keys: int
    rows: int

    @property
    def marked_from(self) -> int:
        """The number of the first marked row."""
        return self.rows - FULL_AFTER * self.keys


def run(options: Options, wanted: str = "") -> Iterator[Result]:
    """Measure, if the name of a variant contains `wanted`."""
    for way in _WAYS:
        variants = [_variant(options, step, way) for step in range(len(_PARALLELISM))]
        if not any(wanted in variant for variant in variants):
            continue
        runs = [_rescaled(options, way) for _ in range(options.repetitions)]
        for step, variant in enumerate(variants):
            if wanted in variant:
                yield result_of(variant, [pauses[step] for pauses, _ in runs], [mb for _, mb in runs])


def _variant(options: Options, step: int, way: str) -> str:
    before, after = [options.parallelism, *_PARALLELISM][step : step + 2]
    return f"{before} to {after}{way}"


@dataclass(frozen=True, slots=True)
class Pause:
    """One rescale, in milliseconds.

    Args:
        said: how long the job stood still, as it says: from the moment at which the checkpoint was begun.
        silent: without rows of the operator: from the last ones of the old subtasks to the first ones of the new.
        seen: from the call, which starts processes first, to the first rows of the new subtasks.
        steps: of a live one, when the job manager heard of their ends, since it began the last checkpoint.
        effects: other figures, by name, each with its unit: what rows behind the operator and beside it have noticed.
    """

    said: float
    silent: float
    seen: float
    steps: dict[str, float] = field(default_factory=dict)
    effects: dict[str, float] = field(default_factory=dict)


def result_of(variant: str, pauses: Sequence[Pause], state_mb: Sequence[float]) -> Result:
    """The result for repeated rescales; latency is the time without rows of the operator."""
    silent = [pause.silent for pause in pauses]
    figures = {
        "pause_ms": summary(silent),
        "said_ms": summary([pause.said for pause in pauses]),
        "call_to_first_output_ms": summary([pause.seen for pause in pauses]),
        "state_mb": summary(state_mb),
        **{f"{step}_ms": summary([pause.steps[step] for pause in pauses]) for step in shared_steps(pauses)},
        **{name: summary([pause.effects[name] for pause in pauses]) for name in pauses[0].effects},
        "output": "exact",
    }
    readings = [_reading([one]) for one in silent]
    return DetailedResult(_NAME, variant, _reading(silent), spread(silent), readings, figures)


def shared_steps(pauses: Sequence[Pause]) -> Sequence[str]:
    """The steps that all of them had."""
    return [step for step in pauses[0].steps if all(step in pause.steps for pause in pauses)]


def _reading(silent: Sequence[float]) -> Reading:
    p50, p99 = np.quantile(silent, [0.5, 0.99]).tolist()
    return Reading(None, None, None, {"p50": p50, "p99": p99})


@dataclass(frozen=True, slots=True)
class Folders:
    """Where sinks leave when rows came.

    Args:
        root: of the folders, which there are then.
    """

    root: Path

    def __post_init__(self) -> None:
        for folder in (self.stamps, self.behind, self.beside):
            folder.mkdir(parents=True, exist_ok=True)

    @property
    def stamps(self) -> Path:
        """Of all rows behind the state, by their batches."""
        return self.root / "stamps"

    @property
    def behind(self) -> Path:
        """Of some of them, and when they were due."""
        return self.root / "behind"

    @property
    def beside(self) -> Path:
        """Of the rows beside the state, and when they were due."""
        return self.root / "beside"


def program(env: StreamEnvironment, given: Input, rate: float | None, folders: Folders) -> CollectResult:
    """Running aggregates of the rows, stamped; those behind marked rows are collected. Some rows go beside them."""
    more = {"mark": Due(rate, given.marked_from)}
    rows = input_rows(env, Keys(given.keys), given.rows, rate, more)
    beside = rows.filter(col("key") % _BESIDE_EVERY == 0).rebalance()
    beside.sink_to(ArrivalsSink(str(folders.beside), "mark")).name("beside")
    keyed: DataStream = rows.key_by("key").aggregate(**AGGREGATES, mark=max_of("mark")).name(STATE)
    keyed.sink_to(StampingSink(str(folders.stamps))).name("stamp")
    keyed.sink_to(ArrivalsSink(str(folders.behind), "mark", _TIMED_EVERY)).name("behind")
    return keyed.filter(col("mark") == MARKED).collect()


def check(found: pa.Table, given: Input) -> None:
    """Compare what was collected with NumPy's: no update twice, and the last one of each key has all of its rows.

    Raises:
        BenchmarkError: it is wrong.
    """
    key, n, total, low, high = (found.column(name).to_numpy() for name in ("key", "n", "total", "low", "high"))
    order = np.lexsort((n, key))
    key, n, total, low, high = (column[order] for column in (key, n, total, low, high))
    last = np.append(key[1:] != key[:-1], True)
    twice = int(np.count_nonzero((key[1:] == key[:-1]) & (n[1:] == n[:-1])))
    right = expected(given)
    same = all(
        np.array_equal(column[last], wanted) for column, wanted in zip((key, n, total, low, high), right, strict=True)
    )
    if twice or not same:
        raise BenchmarkError(
            f"{_NAME}: {twice} updates came twice, and {int(last.sum())} keys have {int(n[last].sum())} rows with a "
            f"total of {total[last].sum()}, not {len(right[0])} with {given.rows} and {right[2].sum()}, or other values"
        )


def expected(given: Input) -> tuple[np.ndarray[Any, Any], ...]:
    """Keys, counts, sums, lowest and highest values, by NumPy, ascending by key."""
    pool = values().to_numpy()
    counts, sums = np.zeros(given.keys, np.int64), np.zeros(given.keys)
    low, high = np.full(given.keys, np.inf), np.full(given.keys, -np.inf)
    for begin in range(0, given.rows, len(pool)):
        numbers = np.arange(begin, min(begin + len(pool), given.rows))
        key = Keys(given.keys)(numbers).to_numpy()
        v = pool[numbers % len(pool)]
        counts += np.bincount(key, minlength=given.keys)
        sums += np.bincount(key, v, minlength=given.keys)
        np.minimum.at(low, key, v)
        np.maximum.at(high, key, v)
    return np.arange(given.keys), counts, sums, low, high


def check_beside(folders: Folders, given: Input) -> None:
    """Compare the number of rows beside the state with NumPy's.

    Raises:
        BenchmarkError: it is another.
    """
    came = len(arrivals(folders.beside))
    right = int(expected(given)[1][::_BESIDE_EVERY].sum())
    if came != right:
        raise BenchmarkError(f"{_NAME}: {came} rows came beside the state, not {right}")


def effects(folders: Folders, called: float, first: float) -> dict[str, float]:
    """What rows have noticed of a rescale.

    Args:
        folders: where sinks leave when rows came.
        called, first: when it was called for, and when the first rows of new subtasks came; monotonic seconds.
    """
    behind, beside = arrivals(folders.behind), arrivals(folders.beside)
    found: dict[str, float] = {}
    for when, since, until_ in (("before", called - _BEFORE_SECONDS, called), ("during", called, first)):
        for name, value in latencies(behind, since, until_).items():
            if value is not None:
                found[f"latency_{name}_{when}_ms"] = value
        found[f"beside_rows_per_second_{when}"], found[f"beside_longest_gap_{when}_ms"] = flow(beside, since, until_)
    return found


@contextmanager
def _job(options: Options, given: Input) -> Iterator[tuple[RayJob, Path, Folders]]:
    """The job, whose state is full, the folder of its checkpoints, and those of its sinks."""
    with tempfile.TemporaryDirectory(prefix="penstock-perf-") as folder:
        folders, kept = Folders(Path(folder)), Path(folder) / "checkpoints"
        env = environment(options, checkpoints(f"{_INTERVAL:g}s", str(kept)), slot_cpus=_SLOT_CPUS)
        program(env, given, _RATE, folders)
        with submitted(env, _NAME) as job:
            until_full(job, given.keys)
            yield job, kept, folders


def _rescaled(options: Options, way: str) -> tuple[list[Pause], float]:
    """The pauses of one run, whose output was exact; and its state, in megabytes."""
    keys = keys_of(_SIZE_MB)
    given = Input(keys, int(2 * FULL_AFTER * keys + _RATE * _SECONDS_A_STEP * (len(_PARALLELISM) + 1)))
    with _job(options, given) as (job, kept, folders):
        info = until_checkpoints(job, 1, _INTERVAL)
        measured = [_rescale(job, _WAYS[way](parallelism), kept, folders) for parallelism in _PARALLELISM]
        check(job.result(), given)
        check_beside(folders, given)
        for pause, (called, first) in measured:
            pause.effects.update(effects(folders, called, first))
    return [pause for pause, _ in measured], completed(info)[-1].bytes / 1e6


def _rescale(
    job: RayJob, request: ParallelismRequest, kept: Path, folders: Folders
) -> tuple[Pause, tuple[float, float]]:
    """One rescale, and when it was called for and the first rows of new subtasks came; monotonic seconds."""
    let_run(job, _BETWEEN_SECONDS)
    called = time.monotonic()
    said = job.rescale(request)
    until(job, lambda info: silence(folders.stamps, called) is not None, "rows of new subtasks")
    silent = silence(folders.stamps, called)
    assert silent is not None
    last, first = silent
    # The log is written behind what it tells.
    let_run(job, _BETWEEN_SECONDS / 2)
    steps = dict(steps_since(kept, called))
    return Pause(said * 1000, (first - last) * 1000, (first - called) * 1000, steps), (called, first)
