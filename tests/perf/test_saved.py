"""Saved results: base against change, and the points of the charts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from perf import charts, compare
from perf.peers.engines import PeerError
from perf.peers.session import seconds_in


def result(
    rate: float, spread: float | None = None, variant: str = "uniform 1k coalesced", **more: Any
) -> dict[str, Any]:
    ours = {"events_per_second": rate, "events_per_cpu_second": None, "peak_rss_mb": 100.0, "latency_ms": {"p50": None}}
    return {"name": "keyed", "variant": variant, "ours": ours, "spread": spread, **more}


def beside(ratio: float, rate: float = 1.0) -> dict[str, Any]:
    return {"peer": {"name": "flink 2.3.0", "events_per_second": rate}, "ratio": ratio}


def save(folder: Path, name: str, *results: dict[str, Any]) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(json.dumps({"options": {}, "results": list(results)}))
    return path


def test_a_change_says_something_where_it_is_more_than_the_spread() -> None:
    rate, memory = compare.changes([result(100.0, 0.1)], [result(120.0, 0.3)])
    assert (rate.figure, rate.old, rate.new, rate.noise) == ("rows/s", 100.0, 120.0, 0.3)
    assert rate.relative == pytest.approx(0.2)
    assert not rate.says_something
    assert "within the spread of 30%" in rate.text()
    assert memory.relative == 0
    (rate, _) = compare.changes([result(100.0, 0.1)], [result(80.0, None)])
    assert rate.says_something
    assert "-20.0%" in rate.text()


def test_variants_are_compared_with_themselves_beside_the_same_peer() -> None:
    old = [result(100.0), result(50.0, **beside(2.0))]
    found = list(compare.changes(old, [result(60.0, **beside(3.0)), result(7.0, variant="other")]))
    assert {change.variant for change in found} == {"keyed: uniform 1k coalesced / flink"}
    assert [(change.figure, change.new) for change in found if change.figure == "ratio"] == [("ratio", 3.0)]


def test_figures_that_only_some_programs_have_are_compared_by_their_medians() -> None:
    def line(loss: float, took: float) -> dict[str, Any]:
        summary = {"median": took, "least": 1.0, "most": 99.0, "readings": 3}
        return {
            **result(10.0),
            "figures": {"loss_percent_mean": loss, "checkpoint_ms": summary, "none": {"median": None}},
        }

    found = {
        change.figure: (change.old, change.new) for change in compare.changes([line(4.0, 100.0)], [line(3.0, 80.0)])
    }
    assert found["loss_percent_mean"] == (4.0, 3.0)
    assert found["checkpoint_ms"] == (100.0, 80.0)
    assert "none" not in found


def test_folders_are_compared_by_their_newest_results(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save(tmp_path / "old", "keyed-2026-01-02T000000.json", result(200.0))
    save(tmp_path / "old", "keyed-2026-01-01T000000.json", result(100.0))
    new = save(tmp_path, "new.json", result(300.0))
    assert compare.main([str(tmp_path / "old"), str(new)]) == 0
    shown = capsys.readouterr().out
    assert "+50.0%" in shown
    assert shown.count("rows/s") == 1


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"results": []}'])
def test_what_holds_no_results_is_told(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "old.json"
    path.write_text(text)
    assert compare.main([str(path), str(path)]) == 1
    assert str(path) in capsys.readouterr().err


def test_results_without_a_common_variant_cannot_be_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new = save(tmp_path, "a.json", result(1.0)), save(tmp_path, "b.json", result(1.0, variant="other"))
    assert compare.main([str(old), str(new)]) == 1
    assert "no variant in common" in capsys.readouterr().err


def test_the_key_curve_has_points_of_ours_and_of_the_peers() -> None:
    lines = [
        result(20e6, variant="uniform 1k coalesced", **beside(2.0, 10e6)),
        result(10e6, variant="uniform 100k coalesced"),
        result(30e6, variant="null"),
        {**result(4e6, variant="1M keys"), "name": "wide"},
    ]
    assert charts.by_keys(lines) == {
        "keyed uniform coalesced": [(1e3, 20.0), (1e5, 10.0)],
        "keyed uniform coalesced: flink 2.3.0": [(1e3, 10.0)],
        "wide": [(1e6, 4.0)],
    }


def test_the_latency_curve_goes_by_timeout_and_rate() -> None:
    def line(variant: str, p50: float) -> dict[str, Any]:
        return {"name": "latency", "variant": variant, "ours": {"latency_ms": {"p50": p50, "p99": 2 * p50}}}

    found = charts.by_timeout([line("50k/s timeout 100ms", 60.0), line("50k/s timeout 0", 7.0)])
    assert found == {"50k/s, p50": [(0.0, 7.0), (100.0, 60.0)], "50k/s, p99": [(0.0, 14.0), (100.0, 120.0)]}
    beside_flink = {
        **line("1.5M/s timeout 50ms", 9.0),
        "peer": {"name": "flink", "latency_ms": {"p50": 5.0, "p99": 6.0}},
    }
    assert charts.by_timeout([beside_flink]) == {
        "1.5M/s, p50": [(50.0, 9.0)],
        "1.5M/s, p50: flink": [(50.0, 5.0)],
        "1.5M/s, p99": [(50.0, 18.0)],
        "1.5M/s, p99: flink": [(50.0, 6.0)],
    }


def test_the_checkpoint_curve_goes_by_interval_and_churn() -> None:
    def line(variant: str, loss: float) -> dict[str, Any]:
        return {"name": "checkpoint", "variant": variant, "figures": {"loss_percent_mean": loss}}

    lines = [line("running 100 MB every 5s", 1.0), line("running 100 MB every 1s churn 10%", 6.0)]
    assert charts.by_interval(lines) == {"running 100 MB": [(5.0, 1.0)], "running 100 MB churn 10%": [(1.0, 6.0)]}
    peers = [
        line("running 100 MB every 5s, flink 2.3.0", 2.0),
        line("running 100 MB every 1s churn 10%, flink-rocksdb 2.3.0", 3.0),
    ]
    assert charts.by_interval(peers) == {
        "running 100 MB: flink 2.3.0": [(5.0, 2.0)],
        "running 100 MB churn 10%: flink-rocksdb 2.3.0": [(1.0, 3.0)],
    }


def test_a_chart_is_drawn_the_same_from_the_same_results(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    saved = save(tmp_path, "keyed.json", result(2e7), result(1e7, variant="uniform 100k coalesced"))
    for folder in ("a", "b"):
        assert charts.main([str(saved), "--to", str(tmp_path / folder)]) == 0
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["keys.svg"]
    drawn = (tmp_path / "a" / "keys.svg").read_text()
    assert drawn == (tmp_path / "b" / "keys.svg").read_text()
    assert "<svg" in drawn


def test_results_without_points_make_no_chart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved = save(tmp_path, "keyed.json", result(2e7, variant="null"))
    assert charts.main([str(saved), "--to", str(tmp_path / "charts")]) == 1
    assert "no" in capsys.readouterr().err
    assert not (tmp_path / "charts").exists()


def test_the_time_that_a_peer_has_taken_is_read_from_its_line() -> None:
    assert seconds_in("news\nseconds 0.25\n") == 0.25
    with pytest.raises(PeerError, match="no time:\nout of memory"):
        seconds_in("", "out of memory")
