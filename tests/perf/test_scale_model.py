"""The model of many subtasks: its pure parts, against loops that do what it says in so many words."""

from __future__ import annotations

import json
import math
import random
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from perf import scale_model
from perf.scale_model import Costs, Prediction, Reading, Setting, affordable, evaluated, fit, predict

COSTS = Costs(row=100e-9, message=1e-3, large=2e-3, crowding=0.4e-3, idle=0.01)
RUNS = [Setting(parallelism, 1.9, rows, timeout) for parallelism, rows, timeout in scale_model.FIT]


def _reading(costs: Costs, setting: Setting, noise: float = 0.0) -> Reading:
    """What a run shows where the costs are these: messages are full, or each has what one step gives to its channel."""
    rows = setting.batch_rows if setting.timeout else setting.batch_rows / setting.parallelism
    return Reading(setting, affordable(costs, setting, rows) / (1 + noise), rows)


def test_the_costs_that_made_the_readings_are_found() -> None:
    found = fit([_reading(COSTS, run) for run in RUNS], COSTS.idle)
    assert asdict(found) == pytest.approx(asdict(COSTS))


def test_noise_of_a_few_per_cent_moves_them_by_little() -> None:
    noise = random.Random(3)
    found = fit([_reading(COSTS, run, noise.uniform(-0.03, 0.03)) for run in RUNS * 5], COSTS.idle)
    assert found.row == pytest.approx(COSTS.row, rel=0.1)
    assert found.message + found.crowding == pytest.approx(COSTS.message + COSTS.crowding, rel=0.1)


def test_no_cost_is_negative() -> None:
    cheaper = replace(COSTS, large=-0.5e-3)
    found = fit([_reading(cheaper, run) for run in RUNS], COSTS.idle)
    assert found.large == 0
    assert found.message > 0


def test_too_few_readings_are_refused() -> None:
    with pytest.raises(ValueError, match="fitted to 3 readings"):
        fit([_reading(COSTS, run) for run in RUNS[:3]], 0.0)


def _step_by_step(costs: Costs, setting: Setting) -> Prediction:
    """The same by a source that makes batch after batch, at the rate that its messages allow for, until it flushes."""
    crowded, share = 0.0, 2 * setting.parallelism / setting.cores
    if share > 1:
        crowded = costs.crowding * math.log(share) / math.log(2)
    rate = 10_000.0
    while rate < 100_000_000:
        rate *= 1.003
        step = setting.parallelism * setting.batch_rows / rate
        rows, waited = 0.0, 0.0
        while rows < setting.batch_rows and (not rows or waited < setting.timeout):
            rows += setting.batch_rows / setting.parallelism
            waited += step
        message = costs.message + crowded + (costs.large if rows * 16 > 512 * 1024 else 0.0)
        afforded = (setting.cores - costs.idle * 2 * setting.parallelism) / (costs.row + message / rows)
        if afforded <= rate:
            return Prediction(afforded, rows, afforded / rows, 0.0)
    raise AssertionError("no rate is too high")


@pytest.mark.parametrize("parallelism", [1, 2, 4, 16])
@pytest.mark.parametrize("batch_rows", [4_096, 65_536])
def test_the_model_says_what_a_source_does_that_flushes_by_time(parallelism: int, batch_rows: int) -> None:
    setting = Setting(parallelism, 2.0, batch_rows)
    told, stepped = predict(COSTS, setting), _step_by_step(COSTS, setting)
    assert told.rows_per_message == stepped.rows_per_message
    assert told.rows_per_second == pytest.approx(stepped.rows_per_second, rel=0.01)


def test_more_subtasks_on_the_same_cores_send_smaller_messages_and_take_fewer_rows() -> None:
    costs = replace(COSTS, large=0.0, idle=0.0)
    told = [predict(costs, Setting(parallelism, 2.0)) for parallelism in (2, 8, 32, 128)]
    assert sorted(told, key=lambda one: -one.rows_per_second) == told
    assert sorted(told, key=lambda one: -one.rows_per_message) == told
    assert sorted(told, key=lambda one: one.delay) == told


def test_the_report_compares_readings_and_looks_at_clusters() -> None:
    right = predict(COSTS, Setting(4, 1.9))
    checked = Reading(Setting(4, 1.9), right.rows_per_second / 1.1, 2 * right.rows_per_message)
    report = json.loads(json.dumps(evaluated(COSTS, [checked], (0.01, 1e-4))))
    (checked,) = report["checked"]
    assert (checked["subtasks"], checked["error"]) == (8, pytest.approx(0.1, rel=0.01))
    assert checked["rows_per_message"] == 2 * checked["predicted_rows_per_message"]
    assert [one["subtasks"] for one in report["clusters"]] == [10, 100, 1_000, 10_000]
    assert report["clusters"][-1]["checkpoint_seconds"] == pytest.approx(1.01)
    lines = list(scale_model._shown(report))
    assert len(lines) == 3 + 1 + 4
    assert "+10%" in lines[2]


def test_the_readings_that_are_kept_can_be_fitted_and_compared() -> None:
    costs = fit(scale_model._kept("fit"), 0.0)
    checks = scale_model._kept("check")
    assert min(costs.row, costs.message) > 0
    assert sorted(reading.setting.subtasks for reading in checks) == [2, 4, 8, 16, 32]
    assert len(scale_model._kept_idle()) == len(scale_model.IDLE)
    assert len(evaluated(costs, checks, (0.0, 1e-4))["checked"]) == len(checks)


def test_the_command_keeps_what_it_measures(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(scale_model, "READINGS", tmp_path / "results" / "scale.jsonl")
    monkeypatch.setattr(scale_model, "measured", lambda setting, seconds: _reading(COSTS, replace(setting, cores=1.9)))
    monkeypatch.setattr(
        scale_model, "measured_idle", lambda parallelism, seconds: Setting(parallelism, 0.1 + 0.02 * parallelism)
    )
    monkeypatch.setattr(scale_model, "coordinator_line", lambda: (0.0, 1e-4))
    assert scale_model.main(["run", "idle", "fit", "2"]) == 0
    assert scale_model.main(["--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["costs"] == pytest.approx(asdict(COSTS))
    assert [one["subtasks"] for one in report["checked"]] == [4]
    with pytest.raises(SystemExit) as ended:
        scale_model.main(["run", "nothing"])
    assert ended.value.code == 2
