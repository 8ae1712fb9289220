"""The benchmarks themselves: each runs on a tiny input, prints well-formed lines, and notices a wrong output."""

from __future__ import annotations

import importlib
import json
import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock import DataGenSource, DataStream, StreamEnvironment, session, sliding, tumbling
from penstock.engine.clock import ManualClock
from penstock.engine.connectors import ConnectorContext, SourceReader, Wait
from penstock.engine.windows.assigners import WindowAssigner
from perf import generators, harness, keyed, latency, run, trickle, wide, window, ysb
from perf.generators import Pool
from perf.harness import BenchmarkError, Options, Reading, Result, Sample, Workload
from perf.processes import ProcessTree

TINY = Options(seconds=0.02, repetitions=1, parallelism=2, batch_rows=512, runtime="local", warm_up=0.0, check_rows=800)
FIGURES = ("events_per_second", "events_per_cpu_second", "peak_rss_mb")


@pytest.fixture(autouse=True)
def small_and_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harness, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(generators, "POOL_ROWS", 4096)
    monkeypatch.setattr(generators, "LINE_POOL_ROWS", 1024)


def check_line(line: dict[str, Any], name: str) -> None:
    assert list(line) == ["name", "variant", "ours", "spread", "machine"]
    assert line["name"] == name
    assert line["variant"]
    assert list(line["ours"]) == [*FIGURES, "latency_ms"]
    assert {"p50", "p99"} <= set(line["ours"]["latency_ms"])
    assert line["machine"]["cores"] > 0
    figures = [line["ours"][figure] for figure in FIGURES] + [line["ours"]["latency_ms"]["p50"], line["spread"]]
    assert all(figure is None or figure >= 0 for figure in figures)
    assert any(figures)


@pytest.mark.parametrize(
    ("name", "variants"),
    [
        ("grep", ["1% hits", "null"]),
        (
            "keyed",
            [
                "uniform 1k coalesced",
                "uniform 100k coalesced",
                "zipf 1k coalesced",
                "zipf 100k coalesced",
                "uniform 1k per record",
                "uniform 100k per record",
                "zipf 1k per record",
                "zipf 100k per record",
                "null",
            ],
        ),
        ("process", ["row-wise", "compiled", "batch-wise", "null"]),
        ("window", ["tumbling 10s", "sliding 10s/2s", "sliding 60s/1s", "session 10s", "null"]),
    ],
)
def test_a_program_checks_its_output_and_measures_every_variant(name: str, variants: list[str]) -> None:
    results = list(importlib.import_module(f"perf.{name}").run(TINY))
    assert [result.variant for result in results] == variants
    for result in results:
        check_line(json.loads(json.dumps(result.line({"cores": 2}))), name)
        assert result.ours.events_per_second is not None
        assert result.ours.events_per_second > 0


def test_wide_measures_whole_windows_and_tells_the_bytes_a_key(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(wide, "_VARIANTS", {"few": 10, "many": 1000})
    monkeypatch.setattr(wide, "_LEAST_ROWS_PER_SECOND", 100)
    results = list(wide.run(TINY))
    assert [result.variant for result in results] == ["few", "many"]
    assert "wide: many: ours " in capsys.readouterr().err


def test_the_yahoo_benchmark_counts_views_and_notices_a_wrong_count(monkeypatch: pytest.MonkeyPatch) -> None:
    logs = {"100 campaigns": ysb.Log(100, 1024, 1000), "many campaigns": ysb.Log(10_000, 2048, 2000)}
    monkeypatch.setattr(ysb, "_LOGS", logs)
    results = list(ysb.run(TINY))
    assert [result.variant for result in results] == ["100 campaigns", "many campaigns", "null"]
    assert all(result.ours.events_per_second for result in results)
    right = ysb.expected
    monkeypatch.setattr(ysb, "expected", lambda log, rows: right(log, rows - 10))
    with pytest.raises(BenchmarkError, match=r"ysb: .* views, or others"):
        list(ysb.run(TINY, "100 campaigns"))


def test_startup_measures_the_import_and_the_first_row() -> None:
    imported, first_row = importlib.import_module("perf.startup").run(TINY)
    for result in (imported, first_row):
        check_line(result.line({"cores": 2}), "startup")
        assert result.ours.latency_ms["p50"] > 0


def test_the_command_prints_one_json_object_a_variant(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[tuple[Options, str]] = []

    def measure(options: Options, wanted: str) -> Iterator[Result]:
        asked.append((options, wanted))
        yield Result.of("keyed", "first", [Reading(10.0, 5.0, 1.0), Reading(20.0, 5.0, 3.0)])
        yield Result.of("keyed", "second", [Reading(10.0)])

    monkeypatch.setattr(keyed, "run", measure)
    arguments = "keyed --json --seconds 0.5 --pairs 2 --parallelism 3 --batch-rows 99 --variant x --runtime local"
    assert run.main(arguments.split()) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    for line in lines:
        check_line(line, "keyed")
    assert [line["ours"]["events_per_second"] for line in lines] == [15.0, 10.0]
    assert [line["ours"]["peak_rss_mb"] for line in lines] == [2.0, None]
    assert [line["spread"] for line in lines] == [0.6667, None]
    expected = Options(seconds=0.5, repetitions=2, parallelism=3, batch_rows=99, runtime="local")
    assert asked == [(expected, "x")]


def test_the_command_runs_several_programs_and_shows_tables(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    result = Result.of("keyed", "only", [Reading(2_500_000.0, 1_250_000.0, 300.0)])
    for program in (keyed, window):
        monkeypatch.setattr(program, "run", lambda options, wanted: iter([result]))
    assert run.main(["keyed", "window"]) == 0
    shown = capsys.readouterr().out
    assert shown.index(" keyed ") < shown.index(" window ")
    assert shown.count("2.50 M") == 2


def test_a_wrong_output_ends_the_command_with_1_and_gives_no_figure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(keyed, "values", lambda: pa.array(np.full(4096, 1.0)))
    right = pa.array(np.arange(4096.0))
    monkeypatch.setattr(keyed, "_rows", lambda keys, env, rows=None: _rows_of(env, keys, Pool(lambda: right), rows))
    assert run.main(["keyed", "--json", "--variant", "uniform 1k", "--runtime", "local"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "keyed: " in captured.err


def _rows_of(env: StreamEnvironment, keys: Pool, v: Pool, rows: int | None) -> DataStream:
    return env.from_source(DataGenSource({"key": keys, "ts": keys, "v": v}, rows=rows))


def test_an_update_that_is_missing_or_wrong_is_noticed_though_the_last_ones_are_right() -> None:
    keys = pa.array([1, 2] * 2048)
    v = generators.values().to_numpy()[:8]
    totals = [*np.cumsum(v[::2]), *np.cumsum(v[1::2])]
    right = pa.table({"key": [1] * 4 + [2] * 4, "total": totals})
    keyed._check_each(right.take(pa.array([4, 0, 1, 5, 2, 6, 7, 3])), keys, 8)
    missing = right.take(pa.array([0, 1, 3, 4, 5, 6, 7]))
    wrong = right.set_column(1, "total", pa.array([totals[0] + 1, *totals[1:]]))
    for updates in (missing, wrong):
        keyed._check(updates, keys, 8)
        with pytest.raises(BenchmarkError, match="updates for 8 rows, or by other values"):
            keyed._check_each(updates, keys, 8)


@pytest.mark.parametrize("arguments", ["", "nothing", "keyed --seconds 0", "keyed --pairs 0", "keyed --batch-rows x"])
def test_wrong_arguments_are_usage_errors(arguments: str) -> None:
    with pytest.raises(SystemExit) as ended:
        run.main(arguments.split())
    assert ended.value.code == 2


def test_a_variant_that_no_program_has_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main(["keyed", "--variant", "nothing", "--runtime", "local"]) == 2
    assert "no variant's name contains 'nothing'" in capsys.readouterr().err


def test_a_job_without_rows_gives_no_figure() -> None:
    still = [Sample(1.0, 5, 1.0, 10.0), Sample(2.0, 5, 1.5, 10.0)]
    with pytest.raises(BenchmarkError, match="stands still"):
        harness.reading(still)


def test_a_job_that_ends_too_soon_gives_no_figure() -> None:
    workload = Workload("bounded", lambda env: keyed._rows(Pool(generators.values), env, 10), "count", lambda run: None)
    with pytest.raises(BenchmarkError, match="ended while it was measured"):
        list(harness.throughput("test", [workload], TINY))


def test_a_reading_is_the_difference_of_the_counters() -> None:
    samples = [Sample(10.0, 1000, 2.0, 50.0), Sample(11.0, 1500, 3.0, 90.0), Sample(14.0, 9000, 6.0, 70.0)]
    reading = harness.reading(samples)
    assert (reading.events_per_second, reading.events_per_cpu_second, reading.peak_rss_mb) == (2000.0, 2000.0, 90.0)


def test_the_process_tree_counts_this_process() -> None:
    tree = ProcessTree()
    before = tree.cpu_seconds()
    assert before > 0
    # The OS counts in ticks of 10 ms, and what the tree itself uses is taken off.
    assert tree.cpu_seconds() >= before - 0.1
    assert tree.memory_mb() > 10


@pytest.mark.parametrize("step", [1, 2, 3])
@pytest.mark.parametrize("count", [0, 1, 2, 700])
@pytest.mark.parametrize("first", [0, 5, 4095, 123_457])
def test_a_pool_gives_row_i_the_value_i_modulo_its_size(first: int, count: int, step: int) -> None:
    rows = first + step * np.arange(count)
    values = pa.array(np.arange(4096) * 7)
    pool = Pool(lambda: values)
    assert pool(rows).to_pylist() == values.take(pa.array(rows % 4096)).to_pylist()
    assert pool(rows).type == values.type


def test_a_pool_travels_without_its_values() -> None:
    pool = Pool(generators.values)
    rows = np.arange(100)
    before = pool(rows)
    packed = pickle.dumps(pool)
    assert len(packed) < 200
    assert pickle.loads(packed)(rows).equals(before)


def test_the_lines_are_100_bytes_with_one_hit_in_a_hundred() -> None:
    lines = generators.log_lines()
    assert {len(line) for line in lines.to_pylist()} == {100}
    hits = pa.compute.match_substring_regex(lines, generators.LINE_PATTERN).to_numpy(zero_copy_only=False)
    assert 0.008 < hits.mean() < 0.012


def test_zipf_keys_are_drawn_in_proportion_to_their_rank() -> None:
    keys = np.bincount(generators.zipf_keys(100).to_numpy(), minlength=100)
    assert len(keys) == 100
    assert 1.5 < keys[0] / keys[1] < 2.7
    assert keys[0] / keys[50:].mean() > 30


def test_a_fifth_of_the_rows_is_delayed_and_few_come_too_late() -> None:
    late_by = window.Events().columns()["ts"]
    late = generators.delays(0.2, 4000, 0.01, 14_000).to_numpy()
    assert 0.15 < np.mean((late > 0) & (late <= 4000)) < 0.25
    assert 0.004 < np.mean(late > 4000) < 0.02
    assert late.max() <= 14_000
    times = late_by(np.arange(10)).to_numpy()
    assert times.max() <= window._START_MS


@pytest.mark.parametrize("windows", [tumbling("10s"), sliding("10s", "2s"), session("10s")])
def test_the_expected_windows_equal_those_of_a_loop_over_rows(windows: WindowAssigner) -> None:
    key, ts, v = window.Events(keys=8, rows_per_second=1, late=0.0, cohorts=4).arrays(60)
    rows = window.expected(windows, (key, ts, v)).to_pylist()
    assert rows
    for row in rows:
        inside = [
            x
            for k, t, x in zip(key, ts, v, strict=True)
            if k == row["key"] and row["window_start"] <= t < row["window_end"]
        ]
        assert (row["n"], row["total"]) == (len(inside), sum(inside))
        assert (row["low"], row["high"]) == (min(inside), max(inside))
    covering = 5 if windows == sliding("10s", "2s") else 1
    assert sum(row["n"] for row in rows) == covering * 60


def test_a_row_is_due_by_its_number_however_late_it_is_read() -> None:
    clock = ManualClock()
    source = latency.PacedSource(rate=100, rows=40)
    reader = source.open(source.splits(2)[1], ConnectorContext("source", 1, 2, clock))
    assert reader.next_batch(1000) == Wait(0.01)
    clock.advance(0.01)
    assert _due(reader, 1000) == [0.01]
    clock.advance(0.2)
    assert _due(reader, 3) == pytest.approx([0.03, 0.05, 0.07])
    assert _due(reader, 1000)[-1] == pytest.approx(0.21)
    clock.advance(10)
    assert len(_due(reader, 1000)) == 9
    assert reader.next_batch(1000) is None


def _due(reader: SourceReader, most: int) -> list[float]:
    batch = reader.next_batch(most)
    assert isinstance(batch, pa.RecordBatch)
    due: list[float] = batch.column("due").to_pylist()
    return due


def test_latency_counts_from_the_time_at_which_a_row_is_due() -> None:
    env = StreamEnvironment(parallelism=2, runtime="local", buffer_timeout="0", clock=ManualClock())
    measured = latency.measured_rows(env, latency.PacedSource(rate=100, rows=150)).collect().to_arrow()
    # The manual clock stands still while rows are under way, so each arrives when it is due.
    assert max(measured.column("latency").to_pylist()) < 0.001
    quantiles = latency.latency_ms(measured, 100, 0.1, 0.5)
    assert set(quantiles) == {"p50", "p99", "p99.9"}
    late = measured.set_column(1, "latency", pa.array(np.full(measured.num_rows, 0.25)))
    assert latency.latency_ms(late, 100, 0.1, 0.5)["p99"] == pytest.approx(250.0)


def test_a_timed_result_is_compared_and_spread_by_its_latency() -> None:
    """Its rows come at a given rate, whatever it is like."""
    ours, theirs = (
        [Reading(events_per_second=1000.0, latency_ms={"p50": p50, "p99": 9.0}) for p50 in of]
        for of in ((10.0, 20.0), (5.0, 5.0))
    )
    assert Result.of("latency", "one", ours).spread == pytest.approx(10 / 15)
    pairs = list(zip(ours, theirs, strict=True))
    assert harness.ComparedResult.of_pairs("latency", "one", "other", pairs).ratio == pytest.approx(0.375)


def test_of_many_rows_an_even_share_is_timed() -> None:
    env = StreamEnvironment(parallelism=2, runtime="local", buffer_timeout="0", clock=ManualClock())
    measured = latency.measured_rows(env, latency.PacedSource(rate=100, rows=400), every=5).collect().to_arrow()
    due = np.sort(measured.column("due").to_numpy())
    assert len(due) > 20
    assert np.allclose(np.diff(due), 0.05)
    assert [latency._every(rate) for rate in (10_000, 50_000, 500_000)] == [1, 1, 10]


def test_missing_rows_make_no_latency() -> None:
    few = pa.table({"due": np.arange(0.0, 1.0, 0.01), "latency": np.zeros(100)})
    assert latency.latency_ms(few, 100, 0.1, 0.8)["p50"] == 0.0
    with pytest.raises(BenchmarkError, match="arrived in time"):
        latency.latency_ms(few, 110, 0.1, 0.8)


def test_a_trickle_goes_through_all_its_shuffles_and_is_measured_on_ray_alone() -> None:
    env = StreamEnvironment(runtime="local", parallelism=2)
    rows = trickle.trickle(env, rate=1_000.0, rows=3).collect()
    env.execute()
    assert len(rows.to_arrow()) == 3
    with pytest.raises(BenchmarkError, match="leave out --runtime local"):
        list(trickle.run(TINY))
