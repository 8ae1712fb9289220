"""A model of a keyed job from 2 to 10,000 subtasks: rows a second, rows a message, delay, and load of the coordinator.

`python -m perf.scale_model run fit 1 2 4 8 16` measures a keyed running sum on this machine and keeps the readings;
`python -m perf.scale_model` fits the costs, compares the model with the readings, and shows what it says of clusters.
The model is `predict`; what it leaves out is said in perf/README.md.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from penstock import DataStream, JobHandle, StreamEnvironment

ROOT: Final = Path(__file__).resolve().parents[1]
READINGS: Final = ROOT / "perf" / "results" / "scale.jsonl"
KEYS: Final = 1_000
"""In all runs; few, so that what is looked up for each key of a message is a small part of what the message costs."""
BATCH_ROWS: Final = 16_384
TIMEOUT: Final = 0.05
"""Seconds that rows wait for a batch to fill, at most: the engine's default."""
ROW_BYTES: Final = 16
"""Of the rows that are sent: key int64, v float64."""
LARGE_BYTES: Final = 512 * 1024
"""Larger messages go through Ray's object store (docs/adr/0033)."""
FIT: Final = (
    *((2, rows, TIMEOUT) for rows in (1_024, 2_048, 4_096, 8_192, 32_768, 65_536, 131_072)),
    *((parallelism, rows, 0.0) for parallelism in (2, 4) for rows in (4_096, 8_192, 16_384)),
)
"""Parallelism, most rows of a batch and time-out of the runs whose costs are fitted. In the first seven, messages are
full, one for each step of a source; in the others each step makes several."""
CLUSTERS: Final = (10, 100, 1_000, 10_000)
_COORDINATED: Final = (200, 400, 800)
_START_SECONDS: Final = 120.0
"""For the processes of 32 subtasks on two cores."""
_POLL_SECONDS: Final = 0.1


@dataclass(frozen=True, slots=True)
class Costs:
    """CPU-seconds over all processes.

    Args:
        row: of each row: made, divided, sent, taken in, summed.
        step: of each batch that a source makes and divides, beside its rows.
        message: of each message between subtasks, both ends.
        large: of each message of more than `LARGE_BYTES`, beside that.
    """

    row: float
    step: float
    message: float
    large: float


@dataclass(frozen=True, slots=True)
class Setting:
    """A keyed job: `parallelism` sources send to as many sums, all to all.

    Args:
        cores: that the job may use.
        batch_rows: most rows of a batch of the source, and of a message.
        timeout: seconds that rows wait for a message to fill.
    """

    parallelism: int
    cores: float
    batch_rows: int = BATCH_ROWS
    timeout: float = TIMEOUT


@dataclass(frozen=True, slots=True)
class Reading:
    """One run.

    Args:
        setting: of it, `cores` are those that it kept busy, over all processes.
        rows_per_message: how full messages were.
    """

    setting: Setting
    rows_per_second: float
    rows_per_message: float


@dataclass(frozen=True, slots=True)
class Prediction:
    """What a job does at its highest rate.

    Args:
        rows_per_message: how full messages are.
        messages_per_second: over all channels.
        delay: seconds that a row is under way from its source's step to its sum, half of the way waiting on average.
    """

    rows_per_second: float
    rows_per_message: float
    messages_per_second: float
    delay: float


def predict(costs: Costs, setting: Setting) -> Prediction:
    """The model, for a job that has its cores busy.

    Each step of a source adds its share of a batch to each of its channels. A channel is flushed when what waits fills
    a message, or has waited for the time-out; so a message holds the shares of as many steps as fit into the time-out,
    at least one. The more rows a message has, the fewer messages a row pays for.
    """
    share = setting.batch_rows / setting.parallelism
    for steps in range(1, setting.parallelism + 1):
        rows = steps * share
        rate = setting.cores / row_cost(costs, setting.batch_rows, rows)
        step = setting.parallelism * setting.batch_rows / rate
        if steps * step >= setting.timeout or steps == setting.parallelism:
            return Prediction(rate, rows, rate / rows, step * (1 + steps / 2))
    raise AssertionError("a message is full after as many steps as there are channels")


def row_cost(costs: Costs, batch_rows: int, rows: float) -> float:
    """CPU-seconds of a row where sources make batches of `batch_rows` and messages have `rows`."""
    large = costs.large * (rows * ROW_BYTES > LARGE_BYTES)
    return costs.row + costs.step / batch_rows + (costs.message + large) / rows


def fit(readings: Sequence[Reading]) -> Costs:
    """The costs that are nearest to the readings, by relative errors; none is negative.

    Raises:
        ValueError: there are fewer readings than costs.
    """
    if len(readings) < 4:
        raise ValueError(f"four costs cannot be fitted to {len(readings)} readings")
    cost = np.array([reading.setting.cores / reading.rows_per_second for reading in readings])
    batch = np.array([reading.setting.batch_rows for reading in readings], np.float64)
    rows = np.array([reading.rows_per_message for reading in readings])
    large = rows * ROW_BYTES > LARGE_BYTES
    parts = np.column_stack([np.ones(len(cost)), 1 / batch, 1 / rows, large / rows]) / cost[:, None]
    return Costs(*_not_negative(parts, np.ones(len(cost))))


def _not_negative(parts: npt.NDArray[np.float64], wanted: npt.NDArray[np.float64]) -> list[float]:
    """Least squares, where what would be negative is nothing."""
    used = list(range(parts.shape[1]))
    while used:
        solution = np.linalg.lstsq(parts[:, used], wanted, rcond=None)[0]
        if (solution >= 0).all():
            break
        used.pop(int(np.argmin(solution)))
    found = np.zeros(parts.shape[1])
    found[used] = solution if used else 0.0
    return [float(value) for value in found]


def line_through(xs: Sequence[float], ys: Sequence[float]) -> tuple[float, float]:
    """What y is at 0, and how much it grows with x, by least squares."""
    slope, start = np.polyfit(xs, ys, 1)
    return float(start), float(slope)


# Measuring


def measured(setting: Setting, seconds: float) -> Reading:
    """Run the job on Ray for so long, on as many cores as it gets."""
    from perf.harness import CountingSink, Options, Sampler, rows_in
    from perf.harness import reading as reading_of

    options = Options(seconds=seconds, parallelism=setting.parallelism, batch_rows=setting.batch_rows)
    env = options.environment(buffer_timeout=f"{setting.timeout * 1000:g}ms")
    _summed(env).sink_to(CountingSink()).name("count")
    job = env.submit("scale")
    try:
        sampler = Sampler(job, "scale")
        deadline = time.monotonic() + _START_SECONDS
        while not rows_in(job.metrics(), "scale") and time.monotonic() < deadline:
            job.pump(_POLL_SECONDS)
        _pump(job, options.warm_up)
        samples, messages = [sampler.sample()], rows_in(job.metrics(), "count")
        _pump(job, seconds)
        samples, messages = [*samples, sampler.sample()], rows_in(job.metrics(), "count") - messages
    finally:
        job.cancel()
    cost = reading_of(samples)
    assert cost.events_per_second is not None
    assert cost.events_per_cpu_second is not None
    cores = cost.events_per_second / cost.events_per_cpu_second
    rows = (samples[-1].rows - samples[0].rows) / messages
    return Reading(replace(setting, cores=cores), cost.events_per_second, rows)


def _summed(env: StreamEnvironment) -> DataStream:
    """A running sum per key that gives one row for each message."""
    from penstock import DataGenSource, KeyedBatch
    from penstock.engine.functions import Context
    from perf.generators import Pool, uniform_keys, values
    from perf.keyed import RunningSum

    class LastSum(RunningSum):
        def process_batch(self, batch: KeyedBatch, ctx: Context) -> dict[str, Any]:
            return {name: column[-1:] for name, column in super().process_batch(batch, ctx).items()}

    source = DataGenSource({"key": Pool(partial(uniform_keys, KEYS)), "v": Pool(values)})
    summed = env.from_source(source).key_by("key").process(LastSum, returns={"key": "int64", "total": "float64"})
    return summed.name("scale")


def _pump(job: JobHandle, seconds: float) -> None:
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        job.pump(min(left, _POLL_SECONDS))


def coordinator_line() -> tuple[float, float]:
    """Seconds of the coordinator for a checkpoint: with no subtask, and more for each."""
    from perf.coordinator import PARTS, SimulatedJob

    seconds = []
    for subtasks in _COORDINATED:
        with tempfile.TemporaryDirectory(prefix="penstock-scale-") as folder:
            job = SimulatedJob(Path(folder), subtasks)
            rounds = [job.checkpoint() for _ in range(8)]
        seconds.append(float(np.median([sum(one[part] for part in PARTS) for one in rounds[4:]])) / 1000)
    return line_through(_COORDINATED, seconds)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, or show what the model makes of what was measured."""
    parser = argparse.ArgumentParser(prog="python -m perf.scale_model", description="A model of many subtasks.")
    parser.add_argument("run", nargs="*", metavar="run WHAT", help="run fit, or parallelisms: measure and keep")
    parser.add_argument("--seconds", type=float, default=4.0, help="length of a measurement (default 4)")
    parser.add_argument("--json", action="store_true", help="one object instead of tables")
    given = parser.parse_args(arguments)
    if given.run:
        if given.run[0] != "run" or not all(what == "fit" or what.isdigit() for what in given.run[1:]):
            parser.error("say run fit, or run and parallelisms")
        for kind, setting in _wanted(given.run[1:]):
            reading = measured(setting, given.seconds)
            READINGS.parent.mkdir(exist_ok=True)
            with READINGS.open("a") as kept:
                kept.write(json.dumps({"kind": kind, **asdict(reading)}) + "\n")
            print(f"{kind}: {reading}", file=sys.stderr)
        return 0
    report = evaluated(_kept("fit"), _kept("check"), coordinator_line())
    print(json.dumps(report) if given.json else "\n".join(_shown(report)))
    return 0


def _wanted(named: Sequence[str]) -> Iterator[tuple[str, Setting]]:
    for what in named:
        if what == "fit":
            yield from (("fit", Setting(parallelism, 0.0, rows, timeout)) for parallelism, rows, timeout in FIT)
        else:
            yield "check", Setting(int(what), 0.0)


def _kept(kind: str) -> list[Reading]:
    lines = [json.loads(line) for line in READINGS.read_text().splitlines()] if READINGS.exists() else []
    return [
        Reading(Setting(**line["setting"]), line["rows_per_second"], line["rows_per_message"])
        for line in lines
        if line["kind"] == kind
    ]


def evaluated(fitted: Sequence[Reading], checks: Sequence[Reading], coordinator: tuple[float, float]) -> dict[str, Any]:
    """The costs, the model beside the readings, and what it says of clusters with a core for each subtask."""
    costs = fit(fitted)
    checked = []
    for reading in sorted(checks, key=lambda reading: reading.setting.parallelism):
        # What part of the machine a run gets is no matter of the job: compared is what the same CPU time is good for.
        told = predict(costs, reading.setting)
        checked.append(
            {
                "subtasks": 2 * reading.setting.parallelism,
                "cores": reading.setting.cores,
                "measured": reading.rows_per_second,
                "predicted": told.rows_per_second,
                "error": told.rows_per_second / reading.rows_per_second - 1,
                "rows_per_message": reading.rows_per_message,
                "predicted_rows_per_message": told.rows_per_message,
            }
        )
    clusters = []
    for subtasks in CLUSTERS:
        setting = Setting(subtasks // 2, float(subtasks), 131_072)
        seconds = coordinator[0] + coordinator[1] * subtasks
        clusters.append({"subtasks": subtasks, **asdict(predict(costs, setting)), "checkpoint_seconds": seconds})
    return {"costs": asdict(costs), "checked": checked, "clusters": clusters}


def _shown(report: Mapping[str, Any]) -> Iterator[str]:
    costs = report["costs"]
    row, step, message, large = (costs[name] for name in ("row", "step", "message", "large"))
    messages = f"a message {message * 1e6:.0f} us, and {large * 1e6:.0f} us more from 512 KiB on"
    yield f"CPU: a row {row * 1e9:.0f} ns, a step of a source {step * 1e6:.0f} us, {messages}"
    yield "subtasks  cores   measured  predicted  error  rows a message  predicted"
    for one in report["checked"]:
        rates = f"{one['measured'] / 1e6:8.2f} M {one['predicted'] / 1e6:8.2f} M"
        full = f"{one['rows_per_message']:15.0f} {one['predicted_rows_per_message']:10.0f}"
        yield f"{one['subtasks']:8} {one['cores']:6.2f} {rates} {one['error']:+6.0%} {full}"
    yield "subtasks      rows/s  rows a message  messages/s   delay  coordinator"
    for one in report["clusters"]:
        messages = f"{one['rows_per_message']:12,.0f} {one['messages_per_second']:12,.0f}"
        seconds = f"{one['delay']:7.2f} s {one['checkpoint_seconds']:8.3f} s"
        yield f"{one['subtasks']:8,} {one['rows_per_second'] / 1e6:9,.0f} M {messages} {seconds}"


if __name__ == "__main__":
    sys.exit(main())
