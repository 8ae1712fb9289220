"""Draws what the benchmarks have found: `python perf/charts.py RESULTS... --to FOLDER`.

SVG from what `perf/run.py --save` has kept. Three charts, each where its results are among the files: latency by buffer
timeout, rate by number of keys (ours and the peers'), loss by checkpoint interval. Nothing is measured here.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from perf.compare import CompareError, Line, read

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Curves: TypeAlias = Mapping[str, Sequence[tuple[float, float]]]
"""Points by the name of their curve, from left to right."""

_TIMEOUT: Final = re.compile(r"(?P<rate>\d+k/s) timeout (?P<ms>\d+)(ms)?")
_KEYS: Final = re.compile(r"(?P<kind>\w+ )?(?P<number>\d+)(?P<unit>k|M)( keys)?( (?P<updates>.+))?")
_INTERVAL: Final = re.compile(r"(?P<shape>.+) every (?P<seconds>\d+)s(?P<churn> churn .+)?")
_UNITS: Final = {"k": 10**3, "M": 10**6}


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart: what its points are, and what the axes say."""

    file: str
    title: str
    across: str
    up: str
    curves: Callable[[Sequence[Line]], Curves]
    scale: Mapping[str, str]


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw the charts that the results have points for; 1 where there is none."""
    parser = argparse.ArgumentParser(prog="perf/charts.py", description="Charts of saved results.")
    parser.add_argument("results", nargs="+", type=Path, help="files of perf/run.py --save, or folders of them")
    parser.add_argument("--to", type=Path, required=True, help="folder for the charts")
    given = parser.parse_args(arguments)
    try:
        lines = [line for path in given.results for line in read(path)]
    except CompareError as error:
        print(f"charts: {error}", file=sys.stderr)
        return 1
    drawn = [draw(chart, curves, given.to) for chart in CHARTS if (curves := chart.curves(lines))]
    for path in drawn:
        print(path)
    if not drawn:
        print("charts: none of these results has points for a chart", file=sys.stderr)
    return 0 if drawn else 1


def draw(chart: Chart, curves: Curves, folder: Path) -> Path:
    """Write one chart; its file. The same results give the same bytes."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = chart.file
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4))
    try:
        _plot(chart, curves, axes)
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{chart.file}.svg"
        figure.savefig(path, bbox_inches="tight", metadata={"Date": None})
    finally:
        pyplot.close(figure)
    return path


def _plot(chart: Chart, curves: Curves, axes: Axes) -> None:
    for name, points in curves.items():
        axes.plot([x for x, _ in points], [y for _, y in points], marker="o", label=name)
    axes.set(title=chart.title, xlabel=chart.across, ylabel=chart.up, **chart.scale)
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend()


def by_timeout(lines: Sequence[Line]) -> Curves:
    """p50 and p99 by buffer timeout in milliseconds, a curve for each rate."""
    points: dict[str, dict[float, float]] = defaultdict(dict)
    for line, found in _matching(lines, "latency", _TIMEOUT):
        for quantile in ("p50", "p99"):
            points[f"{found['rate']}, {quantile}"][float(found["ms"])] = line["ours"]["latency_ms"][quantile]
    return _sorted(points)


def by_keys(lines: Sequence[Line]) -> Curves:
    """Million rows a second by number of keys, ours and the peers'."""
    points: dict[str, dict[float, float]] = defaultdict(dict)
    for program in ("keyed", "wide"):
        for line, found in _matching(lines, program, _KEYS):
            keys = float(found["number"]) * _UNITS[found["unit"]]
            what = " ".join(filter(None, (program, (found["kind"] or "").strip(), found["updates"])))
            points[what][keys] = line["ours"]["events_per_second"] / 1e6
            if "peer" in line:
                points[f"{what}: {line['peer']['name']}"][keys] = line["peer"]["events_per_second"] / 1e6
    return _sorted(points)


def by_interval(lines: Sequence[Line]) -> Curves:
    """Loss in percent by the seconds between two checkpoints, a curve for each job."""
    points: dict[str, dict[float, float]] = defaultdict(dict)
    for line, found in _matching(lines, "checkpoint", _INTERVAL):
        loss = line["figures"]["loss_percent_mean"]
        points[found["shape"] + (found["churn"] or "")][float(found["seconds"])] = loss
    return _sorted(points)


def _matching(lines: Sequence[Line], name: str, pattern: re.Pattern[str]) -> list[tuple[Line, re.Match[str]]]:
    matches = [(line, pattern.fullmatch(line["variant"])) for line in lines if line["name"] == name]
    return [(line, match) for line, match in matches if match]


def _sorted(points: Mapping[str, Mapping[float, Any]]) -> Curves:
    return {name: sorted(curve.items()) for name, curve in points.items()}


CHARTS: Final = (
    Chart("buffer-timeout", "Latency by buffer timeout", "buffer timeout, ms", "ms", by_timeout, {}),
    Chart("keys", "Rate by number of keys", "keys", "million rows/s", by_keys, {"xscale": "log"}),
    Chart("checkpoints", "Cost of checkpoints", "seconds between two checkpoints", "loss, %", by_interval, {}),
)


if __name__ == "__main__":
    sys.exit(main())
