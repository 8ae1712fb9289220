"""The worked examples of Flink's literature come out exactly, on both runtimes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import pyarrow as pa
import pytest

import penstock as ps
from penstock import KeyedProcessFunction, StreamEnvironment, ValueStateDescriptor, WatermarkStrategy, sliding, tumbling
from penstock.engine.clock import ManualClock
from penstock.engine.connectors import ConnectorContext, Source, SourceReader, Split, Wait
from penstock.engine.operators.spec import OperatorSpec
from penstock.engine.state.snapshot import OperatorSnapshot
from tests.engine.helpers import RunningOperator, timed
from tests.engine.state.saved import snapshot_of

Runtime = Literal["local", "ray"]
LONG = pytest.mark.long("Ray gives what the local runtime does: test_commits.py, tests/actors/test_jobs.py")


@pytest.fixture(params=["local", pytest.param("ray", marks=[pytest.mark.ray, LONG])])
def runtime(request: pytest.FixtureRequest) -> Any:
    """Each example runs on both."""
    if request.param == "ray":
        request.getfixturevalue("ray_cluster")
    return request.param


def test_a_window_of_one_minute_that_slides_by_half_a_minute(runtime: Runtime) -> None:
    """Counts of cars each 15 s: 9, 6, 8, 4, then 7 and 3: 9 + 6 + 8 + 4 = 27 and 8 + 4 + 7 + 3 = 22."""
    env = StreamEnvironment(runtime=runtime, parallelism=1)
    cars = [("sensor", 15_000 * number, count) for number, count in enumerate((9, 6, 8, 4, 7, 3))]
    rows = env.from_collection(cars, schema=["at_gate", "at", "cars"]).assign_timestamps("at")
    sums = rows.key_by("at_gate").window(sliding("1m", "30s")).aggregate(total=ps.sum("cars")).collect()
    by_start = {int(row["window_start"].timestamp()): row["total"] for row in sums}
    assert by_start[0] == 27
    assert by_start[30] == 22


class _SineReader(SourceReader):
    """A sample every 10 ms of event time; they arrive in bursts, at a pace of their own."""

    def __init__(self, samples: int, context: ConnectorContext) -> None:
        self._next, self._samples, self._context = 0, samples, context
        self._waited = False

    def next_batch(self, max_rows: int) -> pa.RecordBatch | Wait | None:
        if self._next == self._samples:
            return None
        self._waited = not self._waited
        if self._waited:
            # Bursts of 37 samples, 290 to 450 ms apart: 370 on the average, but never as long as what they cover.
            return Wait(self._context.clock.monotonic() + 0.29 + 0.16 * (self._next % 5) / 4)
        numbers = range(self._next, min(self._next + 37, self._samples))
        self._next = numbers.stop
        values = [math.sin(2 * math.pi * number / 100) for number in numbers]
        return pa.record_batch({"wave": ["a"] * len(numbers), "at": [10 * number for number in numbers], "v": values})


class _Sine(Source):
    @property
    def schema(self) -> pa.Schema:
        return pa.schema({"wave": "string", "at": "int64", "v": "float64"})

    @property
    def max_parallelism(self) -> int:
        return 1

    def splits(self, parallelism: int) -> Sequence[Split]:
        return [_Whole()]

    def open(self, split: Split, context: ConnectorContext) -> SourceReader:
        return _SineReader(1_000, context)

    def describe(self) -> str:
        return "sine"


class _Whole:
    split_id = "whole"


def _sine_sums(time: Literal["event", "processing"]) -> list[float]:
    env = StreamEnvironment(runtime="local", parallelism=1, clock=ManualClock())
    rows = env.from_source(_Sine()).assign_timestamps("at")
    sums = rows.key_by("wave").window(tumbling("1s", time=time)).aggregate(total=ps.sum("v")).collect()
    return [row["total"] for row in sums]


def test_a_sine_wave_sums_to_nothing_in_each_second_of_event_time() -> None:
    sums = _sine_sums("event")
    assert len(sums) == 10
    assert all(abs(total) < 1e-9 for total in sums)


def test_a_sine_wave_drifts_in_processing_time() -> None:
    sums = _sine_sums("processing")
    assert len(sums) >= 8
    assert max(abs(total) for total in sums) > 1


def test_film_episodes_come_out_in_the_order_of_the_story(runtime: Runtime) -> None:
    released = ["IV", "V", "VI", "I", "II", "III", "VII"]
    told = ["I", "II", "III", "IV", "V", "VI", "VII"]
    env = StreamEnvironment(runtime=runtime, parallelism=1)
    films = env.from_collection([{"saga": "s", "at": 1_000 * told.index(name), "film": name} for name in released])
    in_time = films.assign_timestamps("at", WatermarkStrategy.for_bounded_out_of_orderness("6s"))
    seen = in_time.key_by("saga").window(tumbling("1s")).aggregate(films=ps.collect_list("film")).collect()
    assert [film for row in seen for film in row["films"]] == told


def test_count_windows_of_four_and_of_four_by_two(runtime: Runtime) -> None:
    cars = [9, 6, 8, 4, 7, 3, 8, 4, 2, 1, 3, 2]
    env = StreamEnvironment(runtime=runtime, parallelism=1)
    gate = env.from_collection([{"gate": "g", "cars": count} for count in cars]).key_by("gate")
    tumbled = gate.count_window(4).aggregate(total=ps.sum("cars")).collect()
    slid = gate.count_window(4, 2).aggregate(total=ps.sum("cars")).collect()
    env.execute("counts")
    assert [row["total"] for row in tumbled] == [27, 22, 8]
    assert [row["total"] for row in slid] == [15, 27, 22, 22, 15, 8]


class RunningSum(KeyedProcessFunction):
    """The sum so far, a row for each row."""

    def open(self, context: ps.RuntimeContext) -> None:
        self._total = context.get_state(ValueStateDescriptor("total", "int64", default=0))

    def process_element(self, row: dict[str, Any], ctx: Any) -> Iterator[dict[str, Any]]:
        self._total.update(self._total.value() + row["n"])
        yield {"k": ctx.current_key, "sum": self._total.value()}


BEFORE, AFTER = [("b", 2), ("b", 3), ("c", 1)], [("a", 2), ("a", 2), ("c", 2)]


def _summed(rows: Sequence[tuple[str, int]], restored: OperatorSnapshot | None = None) -> tuple[list[Any], Any]:
    env = StreamEnvironment(runtime="local")
    stream = env.from_collection([], schema={"k": "string", "n": "int64"}).key_by("k").process(RunningSum)
    role = stream._program.graph[stream._own_node("test")].role
    assert isinstance(role, OperatorSpec)
    running = RunningOperator(role.create())
    if restored is not None:
        running.operator.restore(restored)
    running.process(timed([{"k": k, "n": n, "at": 0} for k, n in rows], {"k": pa.string(), "n": pa.int64()}))
    emitted = [(row["k"], row["sum"]) for row in running.take_rows()]
    snapshot = snapshot_of(running.operator)
    running.operator.close()
    return emitted, snapshot


def test_six_records_around_a_barrier() -> None:
    first, at_the_barrier = _summed(BEFORE)
    assert first == [("b", 2), ("b", 5), ("c", 1)]
    second, _ = _summed(AFTER, at_the_barrier)
    again, _ = _summed(AFTER, at_the_barrier)
    assert second == again == [("a", 2), ("a", 4), ("c", 3)]


def test_six_records_as_a_job(runtime: Runtime) -> None:
    env = StreamEnvironment(runtime=runtime, parallelism=1)
    rows = env.from_collection([*BEFORE, *AFTER], schema={"k": "string", "n": "int64"})
    emitted = [(row["k"], row["sum"]) for row in rows.key_by("k").process(RunningSum).collect()]
    assert emitted == [("b", 2), ("b", 5), ("c", 1), ("a", 2), ("a", 4), ("c", 3)]
