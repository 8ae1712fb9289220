"""A model of a keyed job from 2 to 10,000 subtasks: rows a second, rows a message, delay, and load of the coordinator.

`python -m perf.scale_model run idle fit 1 2 4 8 16` measures a keyed running sum on this machine and keeps the figures;
`python -m perf.scale_model` fits the costs, compares the model with the readings, and shows what it says of clusters.
The model is `predict`; what it leaves out is said in perf/README.md.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from penstock import JobHandle
    from perf.harness import Sampler

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
IDLE: Final = (2, 8, 16)
"""Parallelism of the runs that show what a subtask costs that has nothing to do."""
CLUSTERS: Final = (10, 100, 1_000, 10_000)
_COORDINATED: Final = (200, 400, 800)


@dataclass(frozen=True, slots=True)
class Costs:
    """CPU-seconds over all processes.

    Args:
        row: of each row: made, divided, sent, taken in, summed.
        message: of each message between subtasks, both ends, and its share of what makes it.
        large: of each message of more than `LARGE_BYTES`, beside that.
        crowding: of each message, beside that, for each doubling of the subtasks that share a core.
        idle: of a subtask that has nothing to do, a second.
    """

    row: float
    message: float
    large: float
    crowding: float
    idle: float


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

    @property
    def subtasks(self) -> int:
        """Sources and sums."""
        return 2 * self.parallelism

    @property
    def doublings(self) -> float:
        """How often their number has doubled since there was one for each core."""
        return max(0.0, math.log2(self.subtasks / self.cores))


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
        rate = affordable(costs, setting, rows)
        step = setting.parallelism * setting.batch_rows / rate
        if steps * step >= setting.timeout or steps == setting.parallelism:
            return Prediction(rate, rows, rate / rows, step * (1 + steps / 2))
    raise AssertionError("a message is full after as many steps as there are channels")


def affordable(costs: Costs, setting: Setting, rows: float) -> float:
    """Rows a second that the cores are good for where messages have so many rows."""
    large = costs.large * (rows * ROW_BYTES > LARGE_BYTES)
    message = costs.message + large + costs.crowding * setting.doublings
    return (setting.cores - costs.idle * setting.subtasks) / (costs.row + message / rows)


def fit(readings: Sequence[Reading], idle: float) -> Costs:
    """The costs that are nearest to the readings, by relative errors; none is negative.

    Raises:
        ValueError: there are fewer readings than costs.
    """
    if len(readings) < 4:
        raise ValueError(f"four costs cannot be fitted to {len(readings)} readings")
    cores = np.array([reading.setting.cores - idle * reading.setting.subtasks for reading in readings])
    cost = cores / [reading.rows_per_second for reading in readings]
    rows = np.array([reading.rows_per_message for reading in readings])
    large = rows * ROW_BYTES > LARGE_BYTES
    doublings = np.array([reading.setting.doublings for reading in readings])
    parts = np.column_stack([np.ones(len(cost)), 1 / rows, large / rows, doublings / rows]) / cost[:, None]
    return Costs(*_not_negative(parts, np.ones(len(cost))), idle)


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
    from perf.harness import go_on_until, rows_in
    from perf.harness import reading as reading_of

    with _running(setting, None) as (job, sampler):
        samples, messages = [sampler.sample()], rows_in(job.metrics(), "count")
        go_on_until(job, time.monotonic() + seconds)
        samples, messages = [*samples, sampler.sample()], rows_in(job.metrics(), "count") - messages
    cost = reading_of(samples)
    assert cost.events_per_second is not None
    assert cost.events_per_cpu_second is not None
    cores = cost.events_per_second / cost.events_per_cpu_second
    rows = (samples[-1].rows - samples[0].rows) / messages
    return Reading(replace(setting, cores=cores), cost.events_per_second, rows)


def measured_idle(parallelism: int, seconds: float) -> Setting:
    """The same job with a row a second in all: `cores` are those that its subtasks keep busy all the same."""
    from perf.harness import go_on_until

    setting = Setting(parallelism, 0.0)
    with _running(setting, 1.0) as (job, sampler):
        before = sampler.sample()
        go_on_until(job, time.monotonic() + seconds)
        after = sampler.sample()
    return replace(setting, cores=(after.cpu_seconds - before.cpu_seconds) / (after.at - before.at))


@contextmanager
def _running(setting: Setting, rate: float | None) -> Iterator[tuple[JobHandle, Sampler]]:
    """A running sum per key that gives one row for each message, warm; ends with the block."""
    from penstock import DataGenSource, KeyedBatch
    from penstock.engine.functions import Context
    from perf.generators import Pool, uniform_keys, values
    from perf.harness import CountingSink, Options, Sampler, go_on_until, wait_for_whole
    from perf.keyed import RunningSum

    class LastSum(RunningSum):
        def process_batch(self, batch: KeyedBatch, ctx: Context) -> dict[str, Any]:
            return {name: column[-1:] for name, column in super().process_batch(batch, ctx).items()}

    options = Options(parallelism=setting.parallelism, batch_rows=setting.batch_rows)
    env = options.environment(buffer_timeout=f"{setting.timeout * 1000:g}ms")
    source = DataGenSource({"key": Pool(partial(uniform_keys, KEYS)), "v": Pool(values)}, rate=rate)
    summed = env.from_source(source).key_by("key").process(LastSum, returns={"key": "int64", "total": "float64"})
    summed.name("scale").sink_to(CountingSink()).name("count")
    job = env.submit("scale")
    try:
        wait_for_whole(job, "scale", 1)
        go_on_until(job, time.monotonic() + options.warm_up)
        yield job, Sampler(job, "scale")
    finally:
        job.cancel()


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
    parser.add_argument("run", nargs="*", metavar="run WHAT", help="run idle, fit, or parallelisms: measure and keep")
    parser.add_argument("--seconds", type=float, default=4.0, help="length of a measurement (default 4)")
    parser.add_argument("--json", action="store_true", help="one object instead of tables")
    given = parser.parse_args(arguments)
    if given.run:
        if given.run[0] != "run" or not all(what in ("idle", "fit") or what.isdigit() for what in given.run[1:]):
            parser.error("say run idle, run fit, or run and parallelisms")
        for line in _measured(given.run[1:], given.seconds):
            READINGS.parent.mkdir(exist_ok=True)
            with READINGS.open("a") as kept:
                kept.write(json.dumps(line) + "\n")
            print(line, file=sys.stderr)
        return 0
    idle = line_through(*zip(*((one.subtasks, one.cores) for one in _kept_idle()), strict=True))[1]
    report = evaluated(fit(_kept("fit"), idle), _kept("check"), coordinator_line())
    print(json.dumps(report) if given.json else "\n".join(_shown(report)))
    return 0


def _measured(named: Sequence[str], seconds: float) -> Iterator[dict[str, Any]]:
    """What is kept of each run."""
    for what in named:
        if what == "idle":
            yield from ({"kind": what, "setting": asdict(measured_idle(one, seconds))} for one in IDLE)
        elif what == "fit":
            settings = (Setting(parallelism, 0.0, rows, timeout) for parallelism, rows, timeout in FIT)
            yield from ({"kind": what, **asdict(measured(setting, seconds))} for setting in settings)
        else:
            yield {"kind": "check", **asdict(measured(Setting(int(what), 0.0), seconds))}


def _kept_lines(kind: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in READINGS.read_text().splitlines()] if READINGS.exists() else []
    return [line for line in lines if line["kind"] == kind]


def _kept_idle() -> list[Setting]:
    return [Setting(**line["setting"]) for line in _kept_lines("idle")]


def _kept(kind: str) -> list[Reading]:
    return [
        Reading(Setting(**line["setting"]), line["rows_per_second"], line["rows_per_message"])
        for line in _kept_lines(kind)
    ]


def evaluated(costs: Costs, checks: Sequence[Reading], coordinator: tuple[float, float]) -> dict[str, Any]:
    """The costs, the model beside the readings, and what it says of clusters with a core for each subtask."""
    checked = []
    for reading in sorted(checks, key=lambda reading: reading.setting.parallelism):
        # What part of the machine a run gets is no matter of the job: compared is what the same CPU time is good for.
        told = predict(costs, reading.setting)
        checked.append(
            {
                "subtasks": reading.setting.subtasks,
                "cores": reading.setting.cores,
                "measured": reading.rows_per_second,
                "predicted": told.rows_per_second,
                "error": told.rows_per_second / reading.rows_per_second - 1,
                "error_of_costs": affordable(costs, reading.setting, reading.rows_per_message) / reading.rows_per_second
                - 1,
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
    row, message, large, crowding, idle = (costs[name] for name in ("row", "message", "large", "crowding", "idle"))
    messages = f"a message {message * 1e6:.0f} us, and {large * 1e6:.0f} us more from 512 KiB on"
    crowded = f"{crowding * 1e6:.0f} us more for each doubling of the subtasks on a core"
    yield f"CPU: a row {row * 1e9:.0f} ns, {messages}, {crowded}; an idle subtask {idle * 1e3:.0f} ms a second"
    yield "subtasks  cores   measured  predicted  error  rows a message  predicted  error with those measured"
    for one in report["checked"]:
        rates = f"{one['measured'] / 1e6:8.2f} M {one['predicted'] / 1e6:8.2f} M"
        full = f"{one['rows_per_message']:15.0f} {one['predicted_rows_per_message']:10.0f}"
        errors = f"{one['error']:+6.0%} {full} {one['error_of_costs']:+10.0%}"
        yield f"{one['subtasks']:8} {one['cores']:6.2f} {rates} {errors}"
    yield "subtasks      rows/s  rows a message  messages/s   delay  coordinator"
    for one in report["clusters"]:
        messages = f"{one['rows_per_message']:12,.0f} {one['messages_per_second']:12,.0f}"
        seconds = f"{one['delay']:7.2f} s {one['checkpoint_seconds']:8.3f} s"
        yield f"{one['subtasks']:8,} {one['rows_per_second'] / 1e6:9,.0f} M {messages} {seconds}"


if __name__ == "__main__":
    sys.exit(main())
