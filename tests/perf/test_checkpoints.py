"""The benchmarks of checkpoints, recovery and rescaling: their input, their checks, and what they make of readings."""

from __future__ import annotations

import itertools
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from penstock import StreamEnvironment
from penstock.engine.clock import ManualClock
from penstock.engine.connectors import ConnectorContext
from penstock.engine.elements import Batch
from penstock.engine.job.info import JobInfo, RestartInfo
from penstock.engine.job.status import JobStatus
from perf import checkpoint, generators, keyed_state, recovery, rescale, run
from perf.arrivals import MARKED, Due, arrivals, flow, latencies
from perf.harness import BenchmarkError, Options, Reading
from perf.keyed_state import FULL_AFTER, DetailedResult, Keys, spread, summary
from perf.stamps import StampingSink, first_rows, silence

LOCAL = Options(seconds=0.02, repetitions=1, parallelism=2, batch_rows=512, runtime="local", check_rows=800)
MACHINE = {"cores": 2}


@pytest.fixture(autouse=True)
def small_pools(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generators, "POOL_ROWS", 4096)


@pytest.mark.parametrize("count", [1, 2, 7, 1000, 4096])
@pytest.mark.parametrize("begin", [0, 3, 10**9])
def test_each_key_comes_among_two_rows_a_key(count: int, begin: int) -> None:
    keys = spread(begin + np.arange(FULL_AFTER * count), count)
    assert set(keys.tolist()) == set(range(count))


def test_a_row_has_the_same_key_however_rows_are_cut() -> None:
    numbers = np.arange(10_000)
    whole = Keys(700)(numbers).to_pylist()
    assert Keys(700)(numbers[::2]).to_pylist() == whole[::2]
    assert whole != sorted(whole)


@pytest.mark.parametrize("churn", [0.1, 0.01])
def test_churn_is_the_share_of_keys_with_rows_in_any_interval(monkeypatch: pytest.MonkeyPatch, churn: float) -> None:
    keys, now = Keys(10_000, churn, seconds=5.0), 100.0
    monkeypatch.setattr(keyed_state.time, "monotonic", lambda: now)
    assert set(keys(np.arange(20_000)).to_pylist()) == set(range(10_000))
    touched: list[set[int]] = []
    for interval in range(3):
        touched.append(set())
        for step in range(100):
            now = 100.0 + 5.0 * interval + 0.05 * step
            first = 20_000 + (interval * 100 + step) * 1000
            touched[-1].update(keys(np.arange(first, first + 1000)).to_pylist())
    for found in touched:
        assert churn <= len(found) / 10_000 <= 1.1 * churn + 0.001
    assert all(len(one & other) <= len(one) / 8 for one, other in itertools.combinations(touched, 2))


@pytest.mark.parametrize("shape", ["running", "tumbling"])
def test_the_program_is_checked_with_checkpoints(monkeypatch: pytest.MonkeyPatch, shape: str) -> None:
    checkpoint.check(LOCAL, shape)
    monkeypatch.setattr(checkpoint, "values", lambda: pa.array(np.full(4096, 1.0)))
    with pytest.raises(BenchmarkError, match="is wrong"):
        checkpoint.check(LOCAL, shape)


def test_every_size_and_interval_is_a_variant_of_its_own() -> None:
    variants = [case.variant for case in checkpoint.cases()]
    assert len(set(variants)) == len(variants) == 22
    assert {"running 100 MB every 1s", "tumbling 1 GB every 10s", "running 100 MB every 5s churn 1%"} <= set(variants)


def test_a_measurement_has_windows_enough() -> None:
    assert checkpoint.cycles(60.0, 1.0) == 30
    assert checkpoint.cycles(60.0, 10.0) == checkpoint.cycles(1.0, 1.0) == 10


def test_a_loss_is_to_the_windows_around() -> None:
    # The machine gets slower all the time, and each checkpoint takes a tenth.
    on, off = [0.9 * rate for rate in (100.0, 80.0, 60.0)], [90.0, 70.0, 50.0]
    assert checkpoint.losses(on, off) == pytest.approx([10.0, 10.0])


def test_what_a_peer_has_measured_is_read_from_its_lines() -> None:
    output = "digest 1 2\nwindow 90.5 100.0\ncheckpoint 250 1000 10\nwindow 80.0 100.0\ncheckpoint 260 1000 20\n"
    measured = checkpoint.windows_in(output)
    assert (measured.on, measured.off) == ([90.5, 80.0], [100.0, 100.0])
    assert checkpoint.of_records(measured.checkpoints)["written_mb_mean"] == 0.0
    assert [record.duration_ms for record in measured.checkpoints] == [250, 260]


def test_checkpoints_are_summed_up() -> None:
    records = [checkpoint.Checkpoint(ms, 5e6, written) for ms, written in ((10, 1e6), (30, 3e6))]
    figures = checkpoint.of_records(records)
    assert figures["checkpoint_ms"] == {"median": 20.0, "least": 10.0, "most": 30.0, "readings": 2}
    assert (figures["state_mb"]["median"], figures["written_mb_mean"]) == (5.0, 2.0)
    assert checkpoint.of_records([])["written_mb"] == summary([])


@pytest.mark.parametrize("name", ["checkpoint", "recovery", "rescale"])
def test_processes_are_measured_on_ray_only(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main([name, "--runtime", "local"]) == 1
    assert "only a job on Ray" in capsys.readouterr().err


def test_a_sink_stamps_the_first_rows_of_each_writer(tmp_path: Path) -> None:
    sink = StampingSink(str(tmp_path))
    context = ConnectorContext("stamp", 0, 1, ManualClock())
    before = sink.open(context)
    before.write(_rows(1))
    first = first_rows(tmp_path, 0.0)
    assert first is not None
    after = sink.open(context)
    before.write(_rows(1))
    after.write(_rows(0))
    assert first_rows(tmp_path, first) is None
    after.write(_rows(2))
    again = first_rows(tmp_path, first)
    assert again is not None
    after.write(_rows(2))
    assert again > first == first_rows(tmp_path, 0.0)
    assert again == first_rows(tmp_path, first)
    for writer in (before, after):
        writer.close()


def _rows(count: int) -> Batch:
    return Batch(pa.record_batch({"n": list(range(count))}, schema=pa.schema([("n", pa.int64())])))


def test_a_recovery_counts_from_the_kill() -> None:
    restart = RestartInfo("failure", "", 0, detected_monotonic=10.05, restore_ms=400.0, first_output_ms=600.0)
    times = recovery.by_manager(restart, killed=10.0)
    assert times == pytest.approx({"detect_ms": 50.0, "restore_ms": 450.0, "first_output_ms": 650.0})
    times = recovery.by_new_manager(
        JobInfo("", "", JobStatus.RUNNING, since_ms=9000, started_ms=7000), killed_ms=5000.0
    )
    assert times == {"manager_started_ms": 2000.0, "restore_ms": 4000.0}


def test_recoveries_make_medians_and_a_line() -> None:
    recoveries = [recovery.Recovery(seen, {"detect_ms": seen / 10}) for seen in (300.0, 100.0, 200.0)]
    line = recovery.result_of("some", recoveries, 900.0).line(MACHINE)
    assert list(line) == ["name", "variant", "ours", "spread", "machine", "figures"]
    assert line["ours"]["latency_ms"] == {"p50": 200.0, "p99": 298.0}
    assert line["figures"]["detect_ms"] == {"median": 20.0, "least": 10.0, "most": 30.0, "readings": 3}


def test_every_recovery_is_a_variant_of_its_own() -> None:
    variants = [case.variant for case in recovery.CASES]
    assert not any(one in other for one in variants for other in variants if one is not other)


def test_a_rescale_notices_rows_that_were_lost_or_came_twice(tmp_path: Path) -> None:
    given = rescale.Input(keys=50, rows=1000)
    env = StreamEnvironment(parallelism=2, runtime="local", max_batch_rows=16)
    folders = rescale.Folders(tmp_path)
    found = rescale.program(env, given, None, folders).to_arrow()
    rescale.check(found, given)
    rescale.check_beside(folders, given)
    assert found.num_rows < 1000
    with pytest.raises(BenchmarkError, match="1 updates came twice"):
        rescale.check(pa.concat_tables([found, found.slice(0, 1)]), given)
    last = found.column("n").to_numpy() == max(found.column("n").to_pylist())
    with pytest.raises(BenchmarkError, match="0 updates came twice"):
        rescale.check(found.filter(pa.array(~last)), given)
    (folders.beside / "again").write_bytes(np.ones(2, np.int64).tobytes())
    with pytest.raises(BenchmarkError, match=r"\d+ rows came beside the state"):
        rescale.check_beside(folders, given)


def test_a_row_is_as_old_as_the_time_since_it_was_due(tmp_path: Path) -> None:
    second = 10**6
    # One due every 10 ms of 3 s: 20 ms old, but those of the second second up to a second, as nothing came meanwhile.
    due = np.arange(0, 3 * second, second // 100)
    came = np.where((due >= second) & (due < 2 * second), 2 * second, due) + 20_000
    (tmp_path / "a").write_bytes(np.column_stack([due, came])[::2].tobytes())
    (tmp_path / "b").write_bytes(np.column_stack([due, came])[1::2].tobytes())
    found = arrivals(tmp_path)
    assert latencies(found, 0, 1) == {"p50": 20.0, "p99": 20.0, "most": 20.0, "worst_p99": 20.0}
    during = latencies(found, 0, 3)
    assert (during["p50"], during["most"]) == (20.0, 1020.0)
    assert during["worst_p99"] == pytest.approx(1010.0, abs=1)
    assert latencies(found, 5, 6)["p99"] is None
    rate, gap = flow(found, 0, 3)
    assert (rate, gap) == (pytest.approx(100, abs=1), 1010.0)


def test_a_source_that_is_held_up_makes_its_rows_old() -> None:
    due = Due(rate=100.0, marked_from=500)
    made = time.monotonic() * 1e6
    first = due(np.arange(0, 51)).to_numpy()
    assert first[0] < made <= first[-1], "rows that are made together have waited for the last one of them"
    assert due(np.arange(10, 11)).to_numpy()[0] - first[0] == pytest.approx(1e5, abs=2)
    made = time.monotonic() * 1e6
    assert made <= due(np.arange(100, 401)).to_numpy()[-1] <= time.monotonic() * 1e6, "what comes early is due then"
    assert due(np.arange(500, 502)).to_pylist() == [MARKED, MARKED]


def test_an_operator_is_silent_from_its_last_rows_to_the_first_of_those_that_replace_it(tmp_path: Path) -> None:
    sink = StampingSink(str(tmp_path))
    env = StreamEnvironment(parallelism=2, runtime="local")
    for _ in range(2):
        seconds = time.monotonic()
        assert silence(tmp_path, seconds) is None
        env.from_collection([{"n": 1}, {"n": 2}]).sink_to(sink)
        env.execute("rows")
    assert silence(tmp_path, time.monotonic()) is None
    silent = silence(tmp_path, seconds)
    assert silent is not None
    assert silent[0] < seconds < silent[1]


def test_pauses_make_a_result_each(capsys: pytest.CaptureFixture[str]) -> None:
    pauses = [rescale.Pause(1500.0, 1000.0, 3000.0), rescale.Pause(2500.0, 2000.0, 5000.0)]
    result = rescale.result_of("2 to 3", pauses, [100.0, 100.0])
    assert result.ours.latency_ms["p50"] == 1500.0
    assert isinstance(result, DetailedResult)
    assert "call_to_first_output_ms: 4,000.0 (3,000.0 to 5,000.0; 2 readings)" in result.lines


def test_figures_are_shown_below_the_table(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    figures = {"loss_percent": summary([1.5]), "written_mb": summary([]), "keys": 7}
    result = DetailedResult("checkpoint", "only", Reading(2e6), None, [Reading(2e6)], figures)
    monkeypatch.setattr(checkpoint, "run", lambda options, wanted: iter([result]))
    assert run.main(["checkpoint"]) == 0
    shown = capsys.readouterr().out
    assert "loss_percent: 1.5 (1.5 to 1.5; 1 readings)" in shown
    assert "written_mb: none" in shown
    assert "keys: 7" in shown
