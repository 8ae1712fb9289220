"""Draws what the benchmarks have found: `python perf/charts.py RESULTS... --to FOLDER`.

SVG from what `perf/run.py --save` has kept. Four charts, where their results are among the files: latency by buffer
timeout, rate by number of keys (ours and the peers'), loss by checkpoint interval, how a job followed a sine of load.
Nothing is measured here.
"""

from __future__ import annotations

import argparse
import itertools
import math
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
from perf.following import Second, Work

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Curves: TypeAlias = Mapping[str, Sequence[tuple[float, float]]]
"""Points by the name of their curve, from left to right."""

_TIMEOUT: Final = re.compile(r"(?P<rate>[\d.]+[kM]/s) timeout (?P<ms>\d+)(ms)?")
_KEYS: Final = re.compile(r"(?P<kind>\w+ )?(?P<number>\d+)(?P<unit>k|M)( keys)?( (?P<updates>.+))?")
_INTERVAL: Final = re.compile(r"(?P<shape>.+) every (?P<seconds>\d+)s(?P<churn> churn \d+%)?(, (?P<peer>.+))?")
_UNITS: Final = {"k": 10**3, "M": 10**6}
_BESIDE: Final = ": "
"""Stands between the name of our curve and the peer's."""
_COLOURS: Final = ("#2a8fc7", "#d9822b", "#4f9d50", "#c2569b", "#8f7be0", "#a08a3c", "#d65f5f", "#3fa39b")
_INK: Final = "#808890"
"""These can be read on white and on black; the charts are transparent."""
_STYLE: Final = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 10,
    **dict.fromkeys(
        ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color", "grid.color"), _INK
    ),
}


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
    sines = [line for line in lines if line["name"] == "sine"]
    if sines:
        drawn.append(draw_sine(sines[-1], given.to))
    for path in drawn:
        print(path)
    if not drawn:
        print("charts: none of these results has points for a chart", file=sys.stderr)
    return 0 if drawn else 1


def draw(chart: Chart, curves: Curves, folder: Path) -> Path:
    """Write one chart; its file. The same results give the same bytes."""

    def plot(figure: Figure) -> None:
        _plot(chart, curves, figure.subplots())

    return _write(folder, chart.file, (8, 4.5), plot)


def draw_sine(line: Line, folder: Path) -> Path:
    """Write the chart of a run of `perf/sine.py`, second by second; its file."""
    work, seconds = Work(**line["work"]), [Second(**one) for one in line["seconds"]]
    minutes = [one.at / 60 for one in seconds]
    panels: Sequence[tuple[str, Mapping[str, Sequence[float | None]]]] = (
        ("events/s", {"load": [one.load for one in seconds]}),
        (
            "subtasks",
            {
                "parallelism": [one.parallelism for one in seconds],
                "ideal": [work.ideal(one.load) for one in seconds],
            },
        ),
        ("seconds", {"lag of event time": [one.behind for one in seconds]}),
        (
            "CPUs",
            {
                "of nodes": [one.node_cpus for one in seconds],
                "of slots": [one.slot_cpus for one in seconds],
            },
        ),
    )

    def plot(figure: Figure) -> None:
        colours = iter(_COLOURS)
        for axes, (unit, curves) in zip(figure.subplots(len(panels), sharex=True), panels, strict=True):
            for name, values in curves.items():
                points = [math.nan if value is None else value for value in values]
                axes.plot(minutes, points, label=name, color=next(colours), drawstyle="steps-post")
            axes.set(ylabel=unit)
            axes.set_ylim(bottom=0)
            axes.grid(alpha=0.3)
            axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
        axes.set(xlabel="minutes")

    return _write(folder, "sine", (8, 8), plot)


def _write(folder: Path, name: str, size: tuple[float, float], plot: Callable[[Figure], None]) -> Path:
    import matplotlib

    matplotlib.use("svg")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.svg"
    with matplotlib.rc_context({**_STYLE, "svg.hashsalt": name}):
        from matplotlib import pyplot

        figure = pyplot.figure(figsize=size)
        try:
            plot(figure)
            figure.savefig(path, bbox_inches="tight", transparent=True, metadata={"Date": None})
        finally:
            pyplot.close(figure)
    # matplotlib leaves blanks at the ends of lines.
    path.write_text("".join(f"{line.rstrip()}\n" for line in path.read_text().splitlines()))
    return path


def _plot(chart: Chart, curves: Curves, axes: Axes) -> None:
    """Draw the curves; a peer's is dashed, in the colour of ours."""
    ours = dict(zip(dict.fromkeys(map(_ours, curves)), itertools.cycle(_COLOURS)))
    markers = dict(zip(dict.fromkeys(name.removeprefix(_ours(name)) for name in curves), itertools.cycle("os^vD")))
    for name, points in curves.items():
        what, peer = _ours(name), name.removeprefix(_ours(name))
        style = {"color": ours[what], "marker": markers[peer], "linestyle": "--" if peer else "-"}
        axes.plot([x for x, _ in points], [y for _, y in points], label=name, **style)
    axes.set(title=chart.title, xlabel=chart.across, ylabel=chart.up, **chart.scale)
    if "yscale" not in chart.scale:
        axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)


def _ours(name: str) -> str:
    """The name of our curve that a curve belongs to."""
    return name.partition(_BESIDE)[0]


def by_timeout(lines: Sequence[Line]) -> Curves:
    """p50 and p99 by buffer timeout in milliseconds, a curve for each rate."""
    points: dict[str, dict[float, float]] = defaultdict(dict)
    for line, found in _matching(lines, "latency", _TIMEOUT):
        for quantile in ("p50", "p99"):
            of = points[f"{found['rate']}, {quantile}"]
            of[float(found["ms"])] = line["ours"]["latency_ms"][quantile]
            if "peer" in line:
                of = points[f"{found['rate']}, {quantile}{_BESIDE}{line['peer']['name']}"]
                of[float(found["ms"])] = line["peer"]["latency_ms"][quantile]
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
                points[f"{what}{_BESIDE}{line['peer']['name']}"][keys] = line["peer"]["events_per_second"] / 1e6
    return _sorted(points)


def by_interval(lines: Sequence[Line]) -> Curves:
    """Loss in percent by the seconds between two checkpoints, a curve for each job."""
    points: dict[str, dict[float, float]] = defaultdict(dict)
    for line, found in _matching(lines, "checkpoint", _INTERVAL):
        loss = line["figures"]["loss_percent_mean"]
        peer = f"{_BESIDE}{found['peer']}" if found["peer"] else ""
        points[found["shape"] + (found["churn"] or "") + peer][float(found["seconds"])] = loss
    return _sorted(points)


def _matching(lines: Sequence[Line], name: str, pattern: re.Pattern[str]) -> list[tuple[Line, re.Match[str]]]:
    matches = [(line, pattern.fullmatch(line["variant"])) for line in lines if line["name"] == name]
    return [(line, match) for line, match in matches if match]


def _sorted(points: Mapping[str, Mapping[float, Any]]) -> Curves:
    return {name: sorted(curve.items()) for name, curve in points.items()}


CHARTS: Final = (
    Chart("buffer-timeout", "Latency by buffer timeout", "buffer timeout, ms", "latency, ms", by_timeout, {}),
    Chart("keys", "Rate by number of keys", "keys", "million rows/s", by_keys, {"xscale": "log", "yscale": "log"}),
    Chart(
        "checkpoints",
        "Cost of checkpoints",
        "seconds between two checkpoints",
        "loss of throughput, %",
        by_interval,
        {},
    ),
)


if __name__ == "__main__":
    sys.exit(main())
