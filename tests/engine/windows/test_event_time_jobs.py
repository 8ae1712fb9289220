"""Event time in whole jobs on the local runtime: films out of order, quiet streams, and sources that wait."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Rows
from typing import Any

import pyarrow as pa
import pytest

from penstock.engine.aggregates.functions import collect_list, count
from penstock.engine.clock import Clock, ManualClock
from penstock.engine.connectors import ConnectorContext, Source, SourceReader, Split, SplitOrder, Wait
from penstock.engine.elements import MAX_TIMESTAMP
from penstock.engine.errors import GraphError, JobFailedError, MissingColumnError
from penstock.engine.expressions import lit
from penstock.engine.windows.assigners import tumbling
from penstock.engine.windows.watermarks import WatermarkStrategy
from tests.engine.helpers import Row, ScriptedSource, local_environment, numbers

SEEDS = [0, 1, *(pytest.param(seed, marks=pytest.mark.long("other seeds")) for seed in range(2, 6))]
IN_ORDER = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner("n")

# In the order of release, with the year of the story: before (-) or after the battle of Yavin.
FILMS = [
    ("A New Hope", 0),
    ("The Empire Strikes Back", 3),
    ("Return of the Jedi", 4),
    ("The Phantom Menace", -32),
    ("Attack of the Clones", -22),
    ("Revenge of the Sith", -19),
    ("The Force Awakens", 34),
    ("The Last Jedi", 34),
    ("The Rise of Skywalker", 35),
]


def films_by_century(strategy: WatermarkStrategy) -> tuple[list[Row], int]:
    """The films of each ten years of the story, a millisecond for a year, and how many came too late."""
    env = local_environment(max_batch_rows=1)
    films = env.from_collection(FILMS, schema=["film", "year"])
    timed = films.assign_timestamps("year", strategy).with_columns(saga=lit("Star Wars"))
    windows = timed.key_by("saga").window(tumbling("10ms")).aggregate(films=collect_list("film")).collect()
    job = env.execute("films")
    return [{"from": int(row["window_start"].timestamp() * 1000), "films": row["films"]} for row in windows], (
        job.metrics().late_rows
    )


def test_films_told_out_of_order_meet_in_the_years_of_their_story() -> None:
    by_years, late = films_by_century(WatermarkStrategy.for_bounded_out_of_orderness("36ms"))
    assert late == 0
    assert by_years == [
        {"from": -40, "films": ["The Phantom Menace"]},
        {"from": -30, "films": ["Attack of the Clones"]},
        {"from": -20, "films": ["Revenge of the Sith"]},
        {"from": 0, "films": ["A New Hope", "The Empire Strikes Back", "Return of the Jedi"]},
        {"from": 30, "films": ["The Force Awakens", "The Last Jedi", "The Rise of Skywalker"]},
    ]


def test_films_told_out_of_order_are_late_for_those_who_expect_them_in_order() -> None:
    by_years, late = films_by_century(WatermarkStrategy.for_monotonous_timestamps())
    assert late == 3
    assert [row["from"] for row in by_years] == [0, 30]


def test_a_strategy_without_watermarks_waits_for_the_end() -> None:
    assert films_by_century(WatermarkStrategy.no_watermarks()) == films_by_century(
        WatermarkStrategy.for_bounded_out_of_orderness("1s")
    )


# Sources with event time


class Polled(Source):
    """Splits of rows with the time by the clock (seconds) at which each can be read, a row a batch.

    Keeps what was read: (split, event time), and the largest distance between splits that are being read.
    """

    def __init__(self, splits: Mapping[str, Rows[tuple[float, int]]], parallelism: int | None = None) -> None:
        self.rows = splits
        self.read: list[tuple[str, int]] = []
        self._parallelism = parallelism

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([("n", pa.int64())])

    @property
    def split_order(self) -> SplitOrder:
        return SplitOrder.INTERLEAVED

    def splits(self, parallelism: int) -> Rows[Split]:
        return [_PolledSplit(name) for name in self.rows]

    def open(self, split: Split, context: ConnectorContext) -> SourceReader:
        return _PolledReader(self, split.split_id, context.clock)

    def describe(self) -> str:
        return "polled"


class _PolledSplit:
    def __init__(self, split_id: str) -> None:
        self.split_id = split_id


class _PolledReader(SourceReader):
    def __init__(self, source: Polled, name: str, clock: Clock) -> None:
        self._source, self._name, self._clock = source, name, clock
        self._rows = list(source.rows[name])

    def next_batch(self, max_rows: int) -> pa.RecordBatch | Wait | None:
        if not self._rows:
            return None
        due, time = self._rows[0]
        if self._clock.monotonic() < due:
            return Wait(due)
        self._rows.pop(0)
        self._source.read.append((self._name, time))
        return numbers([time]).data


def windows_of(strategy: WatermarkStrategy, *sources: Source, seed: int = 0, parallelism: int = 1) -> tuple[Any, int]:
    """Rows a window of 100 ms over the union of the sources, and how many came too late."""
    env = local_environment(parallelism, seed)
    first, *others = [env.from_source(source, watermarks=strategy) for source in sources]
    keyed = (first.union(*others) if others else first).with_columns(k=1).key_by("k")
    windows = keyed.window(tumbling("100ms")).aggregate(rows=count()).collect()
    job = env.execute("windows")
    return sorted(row["rows"] for row in windows), job.metrics().late_rows


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("parallelism", [1, 2])
def test_partitions_that_are_each_in_order_have_no_late_rows(seed: int, parallelism: int) -> None:
    partitions = Polled({"a": [(0, 10 * t) for t in range(40)], "b": [(0, 7 * t) for t in range(40)]})
    assert windows_of(IN_ORDER, partitions, seed=seed, parallelism=parallelism)[1] == 0


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_files_of_any_times_have_no_late_rows_at_any_parallelism(parallelism: int) -> None:
    files = {"a": [numbers([500, 900]).data], "b": [numbers([10, 20]).data], "c": [numbers([15, 510]).data]}
    assert windows_of(IN_ORDER, ScriptedSource(files), parallelism=parallelism) == ([1, 2, 3], 0)


def quiet_and_busy(strategy: WatermarkStrategy) -> tuple[list[float], int]:
    """When (seconds, by the clock) the windows of a busy stream beside a quiet one are seen, and how many rows late."""
    clock, seen = ManualClock(), list[float]()
    env = local_environment(clock=clock, buffer_timeout="0ms")
    busy = Polled({"busy": [(t, t * 100) for t in range(20)]})
    quiet = Polled({"quiet": [(0, 0), (100, 3_000)]})
    both = env.from_source(busy, watermarks=strategy).union(env.from_source(quiet, watermarks=strategy))
    windows = both.with_columns(k=1).key_by("k").window(tumbling("500ms")).aggregate(rows=count())
    windows.map(lambda row: seen.append(clock.monotonic()) or row).collect()  # type: ignore[func-returns-value]
    return seen, env.execute("quiet").metrics().late_rows


def test_a_quiet_source_holds_windows_back_until_it_is_idle() -> None:
    assert quiet_and_busy(IN_ORDER) == ([100] * 5, 0)
    # At 19 s the busy stream ends. That does not complete event time while the idle one is open: its row is not late.
    assert quiet_and_busy(IN_ORDER.with_idleness("7s")) == ([7, 10, 15, 100, 100], 0)


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_a_quiet_partition_beside_subtasks_without_any_makes_no_row_late(parallelism: int) -> None:
    log = Polled({"only": [(0, 10), (0, 20), (60, 110), (120, 210), (180, 220)]})
    assert windows_of(IN_ORDER.with_idleness("5s"), log, parallelism=parallelism) == ([1, 2, 2], 0)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("parallelism", "drift"), [(1, 50), (2, 50), (2, 0)])
def test_a_fast_source_stays_near_a_slow_one(seed: int, parallelism: int, drift: int) -> None:
    def distances(strategy: WatermarkStrategy) -> list[int]:
        """How far each row that was read is ahead of the slowest split that still had rows."""
        fast = Polled({"fast": [(0, 10 * t) for t in range(60)], "fast too": [(0, 15 * t) for t in range(40)]})
        slow = Polled(
            {"slow": [(t / 10, 20 * t) for t in range(30)], "slow too": [(t / 20, 20 * t) for t in range(25)]}
        )
        slow.read = fast.read
        rows, late = windows_of(strategy, fast, slow, seed=seed, parallelism=parallelism)
        assert sum(rows) == 60 + 40 + 30 + 25
        assert late == 0
        at = dict.fromkeys(["fast", "fast too", "slow", "slow too"], 0)
        ends = {"fast": 590, "fast too": 585, "slow": 580, "slow too": 480}
        found = []
        for name, time in fast.read:
            at[name] = time
            reading = [t for split, t in at.items() if t < ends[split]]
            found.append(time - min(reading, default=time))
        return found

    batch = 20
    aligned = IN_ORDER.with_watermark_alignment("all", f"{drift}ms")
    assert max(distances(aligned)) <= drift + batch
    assert max(distances(IN_ORDER)) > 400


@pytest.mark.parametrize("seed", SEEDS)
def test_a_source_that_ends_or_is_idle_does_not_stop_its_group(seed: int) -> None:
    strategy = IN_ORDER.with_watermark_alignment("all", "10ms").with_idleness("5s")
    short = Polled({"short": [(0, 0), (0, 5)]})
    quiet = Polled({"quiet": [(0, 0), (1000, 2_000)]})
    long = Polled({"long": [(t, 10 * t) for t in range(100)]})
    rows, _ = windows_of(strategy, short, quiet, long, seed=seed)
    assert sum(rows) == 2 + 2 + 100
    assert long.read[-1] == ("long", 990)


def test_the_watermark_of_a_source_is_shown() -> None:
    clock = ManualClock()
    env = local_environment(clock=clock, buffer_timeout="0ms")
    partitions = Polled({"a": [(0, 100), (50, 200)], "b": [(0, 30), (60, 300)]})
    rows = iter(env.from_source(partitions, watermarks=IN_ORDER).collect())
    assert sorted(next(rows)["n"] for _ in range(3)) == [30, 100, 200]
    (job,) = env._jobs
    assert job.metrics().operators[0].current_watermark == 29
    assert [row["n"] for row in rows] == [300]
    assert job.metrics().operators[0].current_watermark == MAX_TIMESTAMP


def test_the_plan_shows_event_time_of_a_source() -> None:
    env = local_environment()
    strategy = IN_ORDER.with_idleness("30s").with_watermark_alignment("all", "1m")
    env.from_source(Polled({}), name="log", watermarks=strategy).print()
    text = "log watermarks(n, monotonous, idle after 30s, within 1m of group 'all')"
    assert f"[1] {text} (n: int64)" in env.explain()
    assert f"  source {text}\n" in env.explain()


@pytest.mark.parametrize(
    ("strategy", "error", "message"),
    [
        ("n", GraphError, "watermarks takes a WatermarkStrategy, not 'n'"),
        (WatermarkStrategy.for_monotonous_timestamps(), GraphError, r"add \.with_timestamp_assigner\(\"at\"\)"),
        (IN_ORDER.with_timestamp_assigner("m"), MissingColumnError, "from_source: no column 'm'"),
    ],
)
def test_a_strategy_that_a_source_cannot_use_is_refused(strategy: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        local_environment().from_source(Polled({}), watermarks=strategy)


def test_a_function_of_a_source_that_fails_is_named_with_its_source() -> None:
    def fail(row: Row) -> int:
        return row["n"] // 0  # type: ignore[no-any-return]

    env = local_environment()
    env.from_source(Polled({"a": [(0, 5)]}), name="log", watermarks=IN_ORDER.with_timestamp_assigner(fail)).collect()
    with pytest.raises(JobFailedError, match=r"(?s)operator 'log', subtask 0.*ZeroDivisionError.*\{'n': 5\}"):
        env.execute()


def test_ingestion_time_closes_windows_without_further_rows() -> None:
    clock, seen = ManualClock(), list[float]()
    env = local_environment(clock=clock, buffer_timeout="0ms")
    rows = env.from_source(Polled({"a": [(0.0, 1), (0.1, 2), (50.0, 3)]}))
    timed = rows.assign_timestamps(WatermarkStrategy.for_ingestion_time()).with_columns(k=1)
    windows = timed.key_by("k").window(tumbling("1s")).aggregate(rows=count())
    windows.map(lambda row: seen.append(clock.monotonic()) or row).collect()  # type: ignore[func-returns-value]
    env.execute()
    # Event time goes with the clock every 200 ms, so the first window is seen before its second is long over.
    assert [round(at, 1) for at in seen] == [1.1, 50.0]
