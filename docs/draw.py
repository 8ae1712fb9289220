"""Draws the pictures of `docs/concepts` and `docs/patterns.md`: what the engine gives for a small input.

Run by `make docs`; a test draws them again and compares. Each picture is plain SVG with a title.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

import penstock as ps
from penstock import (
    AfterMatchSkipStrategy,
    Choice,
    DataGenSource,
    Pattern,
    StreamEnvironment,
    WatermarkStrategy,
    col,
    cumulative,
    savepoints,
    session,
    sliding,
    tumbling,
)
from penstock.engine.clock import ManualClock

PICTURES: Final = Path(__file__).parent / "concepts" / "pictures"

_WIDTH: Final = 760
_LEFT: Final = 90
_COLOURS: Final = {"ann": "#2a6f97", "bob": "#c1660c", "cat": "#5a7d2a"}
_LETTERS: Final = {"A": "#2a6f97", "B": "#c1660c", "C": "#8a8a8a"}
_INK: Final = "#333333"
_PALE: Final = "#8a8a8a"
_LATE: Final = "#b3261e"

CLICKS: Final = [
    ("ann", 1, 3), ("bob", 2, 1), ("ann", 4, 2), ("cat", 5, 4), ("bob", 9, 2), ("ann", 11, 1), ("cat", 12, 2),
    ("ann", 13, 5), ("bob", 17, 3), ("cat", 18, 1), ("ann", 22, 2), ("bob", 23, 4), ("cat", 27, 3), ("ann", 29, 1),
]  # fmt: skip
"""User, second, clicks."""
DISORDER: Final = [2, 1, 4, 3, 7, 5, 9, 8, 12, 10, 3, 14, 13, 17, 15]
"""Seconds of event time, in the order in which the rows come."""
DELAY: Final = 3
CLIENTS: Final = {"web": 1.0, "phone": 0.65}
"""Rows a second of each source of the picture of checkpoints."""
CUTS: Final = (1, 2, 3)
"""Checkpoints shown there."""


@dataclass(frozen=True, slots=True)
class Axis:
    """Maps numbers to pixels."""

    low: float
    high: float
    begin: float
    end: float

    def at(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low)
        return round(self.begin + share * (self.end - self.begin), 1)


class Svg:
    """One picture under way."""

    def __init__(self, height: int, title: str) -> None:
        self._height = height
        self._parts = [f"<title>{escape(title)}</title>", f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>']

    def line(self, x1: float, y1: float, x2: float, y2: float, colour: str = _PALE, dash: str = "") -> None:
        dashed = f' stroke-dasharray="{dash}"' if dash else ""
        self._parts.append(f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="{colour}"{dashed}/>')

    def path(self, points: Sequence[tuple[float, float]], colour: str) -> None:
        text = " ".join(f"{x},{y}" for x, y in points)
        self._parts.append(f'<polyline points="{text}" fill="none" stroke="{colour}" stroke-width="2"/>')

    def box(self, x: float, y: float, width: float, height: float, colour: str) -> None:
        self._parts.append(
            f'<rect x="{x}" y="{y}" width="{round(width, 1)}" height="{height}" rx="4" fill="{colour}" '
            f'fill-opacity="0.13" stroke="{colour}"/>'
        )

    def dot(self, x: float, y: float, colour: str) -> None:
        self._parts.append(f'<circle cx="{x}" cy="{y}" r="5" fill="{colour}"/>')

    def text(self, x: float, y: float, text: str, colour: str = _INK, anchor: str = "middle") -> None:
        self._parts.append(f'<text x="{x}" y="{y}" fill="{colour}" text-anchor="{anchor}">{escape(text)}</text>')

    def render(self) -> str:
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {self._height}" role="img" '
            'font-family="sans-serif" font-size="13">'
        )
        return "\n".join([head, *self._parts, "</svg>", ""])


def results(windows: Any) -> list[tuple[str, int, int, int]]:
    """User, start and end (seconds) and sum of clicks of each window, as the engine computes them."""
    env = StreamEnvironment(runtime="local", parallelism=1)
    rows = env.from_collection([(user, at * 1000, n) for user, at, n in CLICKS], schema=["user", "at", "clicks"])
    timed = rows.assign_timestamps("at", WatermarkStrategy.for_monotonous_timestamps())
    sums = timed.key_by("user").window(windows).aggregate(total=ps.sum("clicks")).collect()
    fired = [
        (row["user"], *(int(row[bound].timestamp()) for bound in ("window_start", "window_end")), row["total"])
        for row in sums
    ]
    return sorted(fired)


def _time_axis(picture: Svg, axis: Axis, y: float) -> None:
    picture.line(axis.begin, y, axis.end, y, _INK)
    for second in range(int(axis.low), int(axis.high) + 1, 5):
        picture.line(axis.at(second), y, axis.at(second), y + 5, _INK)
        picture.text(axis.at(second), y + 20, f"{second} s")
    picture.text((axis.begin + axis.end) / 2, y + 38, "event time", _PALE)


def by_user(title: str, windows: Any, high: int = 30) -> str:
    """Windows of each user in a lane of its own, with their sums."""
    fired = results(windows)
    lanes = {user: _rows_of_boxes([(start, end) for name, start, end, _ in fired if name == user]) for user in _COLOURS}
    heights = {user: 40 + 26 * (max(places, default=0) + 1) for user, places in lanes.items()}
    height = sum(heights.values()) + 70
    picture = Svg(height, title)
    axis = Axis(0, high, _LEFT, _WIDTH - 20)
    top = 10.0
    for user, colour in _COLOURS.items():
        picture.text(15, top + 22, user, colour, "start")
        for (_, start, end, total), place in zip([one for one in fired if one[0] == user], lanes[user], strict=True):
            x, y = axis.at(max(start, 0)), top + 36 + 26 * place
            picture.box(x, y, axis.at(min(end, high)) - x, 22, colour)
            picture.text(x + (axis.at(min(end, high)) - x) / 2, y + 16, f"{total}", colour)
        for name, at, clicks in CLICKS:
            if name == user:
                picture.dot(axis.at(at), top + 20, colour)
                picture.text(axis.at(at), top + 10, f"{clicks}", colour)
        top += heights[user]
        picture.line(_LEFT, top, _WIDTH - 20, top, "#e4e4e4")
    _time_axis(picture, axis, top + 4)
    return picture.render()


def _rows_of_boxes(spans: Sequence[tuple[int, int]]) -> list[int]:
    """For each span, the first row where it overlaps none before it."""
    ends: list[int] = []
    places = []
    for start, end in spans:
        place = next((row for row, last in enumerate(ends) if last <= start), len(ends))
        ends[place : place + 1] = [end]
        places.append(place)
    return places


def watermarks() -> str:
    """Rows out of order, the watermark behind them, and the row that is late."""
    late, counts = _tumbled()
    picture = Svg(420, "Rows out of order, and the watermark that stays behind the largest event time")
    axis_x = Axis(0, len(DISORDER) + 1, _LEFT, _WIDTH - 20)
    axis_y = Axis(0, 20, 360, 20)
    for second in range(0, 21, 5):
        picture.line(_LEFT, axis_y.at(second), _WIDTH - 20, axis_y.at(second), "#e4e4e4")
        picture.text(_LEFT - 12, axis_y.at(second) + 4, f"{second} s", anchor="end")
    line: list[tuple[float, float]] = []
    largest = 0
    for number, second in enumerate(DISORDER, start=1):
        if largest:
            line.append((axis_x.at(number), axis_y.at(max(largest - DELAY, 0))))
        largest = max(largest, second)
        line.append((axis_x.at(number), axis_y.at(max(largest - DELAY, 0))))
    line.append((_WIDTH - 20, line[-1][1]))
    picture.path(line, _COLOURS["bob"])
    for number, second in enumerate(DISORDER, start=1):
        colour = _LATE if number in late else _COLOURS["ann"]
        picture.dot(axis_x.at(number), axis_y.at(second), colour)
        if number in late:
            picture.text(axis_x.at(number), axis_y.at(second) + 20, "late", _LATE)
    picture.text(_LEFT + 8, 36, f"watermark: largest event time - {DELAY} s", _COLOURS["bob"], "start")
    totals = ", ".join(f"{start}-{start + 5} s: {count}" for start, count in counts)
    picture.text(_LEFT + 8, 56, f"rows in windows of 5 s: {totals}", _INK, "start")
    picture.text((_LEFT + _WIDTH) / 2, 390, "order of arrival", _PALE)
    picture.text(15, 390, "event time \N{UPWARDS ARROW}", _PALE, "start")
    return picture.render()


def _tumbled() -> tuple[set[int], list[tuple[int, int]]]:
    """Numbers of the late rows, and the count of each window, as the engine sees them."""
    tag = ps.OutputTag("late")
    env = StreamEnvironment(runtime="local", parallelism=1, max_batch_rows=1)
    rows = [{"user": "ann", "number": number, "at": at * 1000} for number, at in enumerate(DISORDER, start=1)]
    timed = env.from_collection(rows).assign_timestamps(
        "at", WatermarkStrategy.for_bounded_out_of_orderness(f"{DELAY}s")
    )
    windows = timed.key_by("user").window(tumbling("5s")).side_output_late_data(tag)
    counted = windows.aggregate(n=ps.count())
    late = counted.get_side_output(tag).select(col("number")).collect()
    fired = counted.collect()
    return {row["number"] for row in late}, sorted((int(r["window_start"].timestamp()), r["n"]) for r in fired)


def checkpoints() -> str:
    """Rows of two sources, the line that the barriers of each checkpoint draw through them, and the state behind it."""
    picture = Svg(250, "Two streams, cut by the barriers of three checkpoints, and the counts in each checkpoint")
    axis = Axis(0, 15, _LEFT, _WIDTH - 20)
    lanes = dict(zip(CLIENTS, (60, 140), strict=True))
    for source, y in lanes.items():
        picture.text(15, y + 4, source, anchor="start")
        picture.line(_LEFT, y, _WIDTH - 20, y, "#e4e4e4")
        for number, user in enumerate(_users(source)):
            picture.dot(axis.at(number + 0.5), y, _COLOURS[user])
    for (user, colour), x in zip(_COLOURS.items(), (_WIDTH - 195, _WIDTH - 125, _WIDTH - 55), strict=True):
        picture.dot(x, 204, colour)
        picture.text(x + 12, 209, user, colour, "start")
    picture.text(15, 209, "counts", anchor="start")
    for number, (read, counts) in zip(CUTS, _cuts(), strict=True):
        web, phone = axis.at(read["web"]), axis.at(read["phone"])
        picture.path([(web, 35), (web, 80), (phone, 120), (phone, 185)], _INK)
        picture.text(web, 30, f"checkpoint {number}")
        for place, user in enumerate(_COLOURS):
            picture.text(phone - 24 + 24 * place, 209, f"{counts[user]}", _COLOURS[user])
        picture.text(phone, 230, f"of {read['web']} + {read['phone']} rows", _PALE)
    return picture.render()


def _clicks(source: str, rows: int | None, rate: float | None) -> DataGenSource:
    return DataGenSource({"user": Choice(list(_COLOURS))}, rows=rows, rate=rate, seed=len(source))


def _users(source: str) -> list[str]:
    """The users of the rows of a source."""
    env = StreamEnvironment(runtime="local", parallelism=1)
    return [row["user"] for row in env.from_source(_clicks(source, 15, None)).collect()]


def _cuts() -> list[tuple[dict[str, int], dict[str, int]]]:
    """Of each checkpoint of a job that counts by user: the rows read of each source, and the counts."""
    clock = ManualClock(start_ms=0)
    env = StreamEnvironment(
        runtime="local",
        parallelism=1,
        clock=clock,
        checkpoints=ps.checkpoints("4300ms", "memory://pictures", retained=len(CUTS) + 1),
    )
    web, phone = (env.from_source(_clicks(name, None, rate)).uid(name) for name, rate in CLIENTS.items())
    web.union(phone).key_by("user").aggregate(n=ps.count()).uid("counts").collect()
    job = env.submit("clicks")
    while clock.monotonic() < 4.3 * len(CUTS) + 0.5:
        job.pump()
    folder = job.checkpoint().rpartition("/")[0]
    found = [savepoints.read(f"{folder}/chk-{number:08d}") for number in CUTS]
    cuts = []
    for checkpoint in found:
        read = {name: _row(checkpoint.source_positions(name)) for name in CLIENTS}
        (state,) = checkpoint.operator("counts").states
        table = state.to_arrow().to_pydict()
        cuts.append((read, dict(zip(table["user"], table["count(*)"], strict=True))))
    job.cancel()
    return cuts


def _row(positions: pa.Table) -> int:
    return int(json.loads(positions["position"][0].as_py())["row"])


def patterns(title: str, events: str, lanes: dict[str, Pattern]) -> str:
    """Events in a row, and below them, for each pattern, every match that the engine finds, its events joined."""
    found = {name: _matches(pattern, events) for name, pattern in lanes.items()}
    picture = Svg(70 + sum(26 * max(len(matches), 1) + 14 for matches in found.values()), title)
    axis = Axis(0, len(events) - 1, 300, _WIDTH - 40)
    for place, letter in enumerate(events):
        picture.dot(axis.at(place), 22, _LETTERS[letter.upper()])
        picture.text(axis.at(place), 46, letter, _LETTERS[letter.upper()])
    top = 60.0
    for name, matches in found.items():
        picture.line(15, top, _WIDTH - 20, top, "#e4e4e4")
        picture.text(15, top + 24, name, anchor="start")
        if not matches:
            picture.text(300, top + 24, "nothing", _PALE, "start")
        for number, places in enumerate(matches):
            y = top + 20 + 26 * number
            picture.line(axis.at(places[0]), y, axis.at(places[-1]), y, _PALE)
            for place in places:
                picture.dot(axis.at(place), y, _LETTERS[events[place].upper()])
        top += 26 * max(len(matches), 1) + 14
    return picture.render()


def _matches(pattern: Pattern, events: str) -> list[list[int]]:
    """The places of the events of each match, in order of the matches."""
    env = StreamEnvironment(runtime="local", parallelism=1)
    rows = [{"key": 1, "name": name, "at": at} for at, name in enumerate(events, start=1)]
    keyed = env.from_collection(rows).assign_timestamps("at").key_by("key")
    found = keyed.match(pattern).select(
        lambda match: {"at": [row["at"] - 1 for taken in match.values() for row in taken]}
    )
    return [row["at"] for row in found.collect()]


def _contiguities() -> dict[str, Pattern]:
    a = Pattern.begin("a").where(col("name") == "a")
    return {
        "a.next(b)": a.next("b").where(col("name") == "b"),
        "a.followed_by(b)": a.followed_by("b").where(col("name") == "b"),
        "a.followed_by_any(b)": a.followed_by_any("b").where(col("name") == "b"),
        "a.not_followed_by(c).followed_by(b)": a.not_followed_by("c")
        .where(col("name") == "c")
        .followed_by("b")
        .where(col("name") == "b"),
    }


def _loops() -> dict[str, Pattern]:
    loop = Pattern.begin("a").where(col("name") == "a").times(2)
    return {
        "a.times(2)": loop,
        "a.times(2).consecutive()": loop.consecutive(),
        "a.times(2).allow_combinations()": loop.allow_combinations(),
    }


def _skips() -> dict[str, Pattern]:
    skip = AfterMatchSkipStrategy
    strategies = {
        "no_skip()": skip.no_skip(),
        "skip_to_next()": skip.skip_to_next(),
        "skip_past_last_event()": skip.skip_past_last_event(),
        "skip_to_first('b')": skip.skip_to_first("b"),
        "skip_to_last('b')": skip.skip_to_last("b"),
    }
    loops = {
        name: Pattern.begin("a", one).where(col("name") == "a").one_or_more().consecutive()
        for name, one in strategies.items()
    }
    return {name: loop.next("b").where(col("name") == "b") for name, loop in loops.items()}


DRAWN: Final[dict[str, Callable[[], str]]] = {
    "tumbling": lambda: by_user("Tumbling windows of 10 s: clicks summed by user", tumbling("10s")),
    "sliding": lambda: by_user("Sliding windows of 10 s, every 5 s: clicks summed by user", sliding("10s", "5s"), 35),
    "session": lambda: by_user("Sessions with a gap of 4 s: clicks summed by user", session("4s"), 35),
    "cumulative": lambda: by_user("Cumulative windows up to 15 s, every 5 s", cumulative("15s", "5s")),
    "watermarks": watermarks,
    "checkpoints": checkpoints,
    "pattern-contiguity": lambda: patterns("What may lie between two stages", "acbbab", _contiguities()),
    "pattern-loops": lambda: patterns("What may lie between the events of a loop", "acaa", _loops()),
    "pattern-skips": lambda: patterns(
        "Matches of a.one_or_more().consecutive().next(b) with each strategy", "aaab", _skips()
    ),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Write all pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=PICTURES, help="where to (default: docs/concepts/pictures)")
    folder = parser.parse_args(arguments).folder
    folder.mkdir(parents=True, exist_ok=True)
    for name, draw in DRAWN.items():
        (folder / f"{name}.svg").write_text(draw())
        print(f"{folder.name}/{name}.svg")  # noqa: T201 - tells what the docs build made
    return 0


if __name__ == "__main__":
    sys.exit(main())
