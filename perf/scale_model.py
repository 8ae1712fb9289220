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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

ROOT: Final = Path(__file__).resolve().parents[1]
READINGS: Final = ROOT / "perf" / "results" / "scale.jsonl"
KEYS: Final = 1_000
"""In all runs; few, so that what is looked up for each key of a message is a small part of what the message costs."""
BATCH_ROWS: Final = 16_384
TIMEOUT: Final = 0.05
"""Seconds that rows wait for a batch to fill, at most: the engine's default."""
ROW_BYTES: Final = 16
"""Of the rows that are sent: key int64, v float64."""
LARGE_BYTES: Final = 100 * 1024
"""Ray hands larger arguments of a call over through its object store (`max_direct_call_object_size`)."""
FIT: Final = (1_024, 2_048, 4_096, 8_192, 32_768, 131_072)
"""Most rows of a batch in the runs whose costs are fitted, with parallelism 2: all of their messages are full."""
CLUSTERS: Final = (10, 100, 1_000, 10_000)
_COORDINATED: Final = (200, 400, 800)


@dataclass(frozen=True, slots=True)
class Costs:
    """CPU-seconds over all processes.

    Args:
        row: of each row: made, divided, sent, taken in, summed.
        message: of each message between subtasks, both ends.
        large: of each message of more than `LARGE_BYTES`, beside that.
    """

    row: float
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
    """

    setting: Setting
    rows_per_second: float


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
        rate = setting.cores / row_cost(costs, rows)
        step = setting.parallelism * setting.batch_rows / rate
        if steps * step >= setting.timeout or steps == setting.parallelism:
            return Prediction(rate, rows, rate / rows, step * (1 + steps / 2))
    raise AssertionError("a message is full after as many steps as there are channels")


def row_cost(costs: Costs, rows: float) -> float:
    """CPU-seconds of a row in messages of so many rows."""
    return costs.row + (costs.message + costs.large * (rows * ROW_BYTES > LARGE_BYTES)) / rows


def fit(readings: Sequence[Reading]) -> Costs:
    """The costs that are nearest to the readings of full messages, by relative errors; none is negative.

    Raises:
        ValueError: there are fewer readings than costs.
    """
    if len(readings) < 3:
        raise ValueError(f"three costs cannot be fitted to {len(readings)} readings")
    cost = np.array([reading.setting.cores / reading.rows_per_second for reading in readings])
    rows = np.array([reading.setting.batch_rows for reading in readings], np.float64)
    large = rows * ROW_BYTES > LARGE_BYTES
    parts = np.column_stack([np.ones(len(cost)), 1 / rows, large / rows]) / cost[:, None]
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


def measured(parallelism: int, batch_rows: int, seconds: float) -> Reading:
    """Run the job on Ray for so long."""
    from penstock import DataGenSource, DataStream, StreamEnvironment
    from perf.generators import Pool, uniform_keys, values
    from perf.harness import Options, Workload, measure_once
    from perf.keyed import RunningSum

    def stream(env: StreamEnvironment) -> DataStream:
        source = DataGenSource({"key": Pool(partial(uniform_keys, KEYS)), "v": Pool(values)})
        summed = env.from_source(source).key_by("key").process(RunningSum, returns={"key": "int64", "total": "float64"})
        return summed.name("scale")

    workload = Workload("scale", stream, "scale", lambda run: None)
    options = Options(seconds=seconds, parallelism=parallelism, batch_rows=batch_rows)
    reading = measure_once("scale", workload, options)
    assert reading.events_per_second is not None
    assert reading.events_per_cpu_second is not None
    cores = reading.events_per_second / reading.events_per_cpu_second
    return Reading(Setting(parallelism, cores, batch_rows), reading.events_per_second)


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
        for kind, parallelism, batch_rows in _wanted(given.run[1:]):
            reading = measured(parallelism, batch_rows, given.seconds)
            READINGS.parent.mkdir(exist_ok=True)
            with READINGS.open("a") as kept:
                kept.write(json.dumps({"kind": kind, **asdict(reading)}) + "\n")
            print(f"{kind}: {reading}", file=sys.stderr)
        return 0
    report = evaluated(_kept("fit"), _kept("check"), coordinator_line())
    print(json.dumps(report) if given.json else "\n".join(_shown(report)))
    return 0


def _wanted(named: Sequence[str]) -> Iterator[tuple[str, int, int]]:
    for what in named:
        if what == "fit":
            yield from (("fit", 2, batch_rows) for batch_rows in FIT)
        else:
            yield "check", int(what), BATCH_ROWS


def _kept(kind: str) -> list[Reading]:
    lines = [json.loads(line) for line in READINGS.read_text().splitlines()] if READINGS.exists() else []
    return [Reading(Setting(**line["setting"]), line["rows_per_second"]) for line in lines if line["kind"] == kind]


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
                "rows_per_message": told.rows_per_message,
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
    row, message, large = (costs[name] for name in ("row", "message", "large"))
    messages = f"a message {message * 1e6:.0f} us, and {large * 1e6:.0f} us more from 100 KiB on"
    yield f"CPU: a row {row * 1e9:.0f} ns, {messages}"
    yield "subtasks  cores   measured  predicted  error  rows a message"
    for one in report["checked"]:
        rates = f"{one['measured'] / 1e6:8.2f} M {one['predicted'] / 1e6:8.2f} M"
        yield f"{one['subtasks']:8} {one['cores']:6.2f} {rates} {one['error']:+6.0%} {one['rows_per_message']:10.0f}"
    yield "subtasks      rows/s  rows a message  messages/s   delay  coordinator"
    for one in report["clusters"]:
        messages = f"{one['rows_per_message']:12,.0f} {one['messages_per_second']:12,.0f}"
        seconds = f"{one['delay']:7.2f} s {one['checkpoint_seconds']:8.3f} s"
        yield f"{one['subtasks']:8,} {one['rows_per_second'] / 1e6:9,.0f} M {messages} {seconds}"


if __name__ == "__main__":
    sys.exit(main())
