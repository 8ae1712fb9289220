"""What random operators must give, in plain Python: a row at a time, as the documentation says."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tests.parity.rows import Row, Rows
from tests.parity.windows import aggregated, summed
from tests.property.cuts.runs import Given
from tests.property.cuts.steps import Mark, Push, Step, Tick

_NEVER = -(2**63)
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)
Window = tuple[int, int]


class _Windows:
    """The windows of one key that have rows, and those that have fired."""

    def __init__(self) -> None:
        self.rows: dict[Window, Rows] = {}
        self.fired: set[Window] = set()

    def merged(self, window: Window) -> Window:
        """The session that this one becomes part of, with all that it touches."""
        touched = [one for one in self.rows if one[0] <= window[1] and window[0] <= one[1]]
        if not touched:
            return window
        return min(window[0], *(one[0] for one in touched)), max(window[1], *(one[1] for one in touched))

    def merge_into(self, whole: Window) -> None:
        """One session of all that are within it."""
        parts = [one for one in self.rows if whole[0] <= one[0] and one[1] <= whole[1]]
        self.rows[whole] = [row for one in parts for row in self.rows.pop(one)]


class SessionsOfOne:
    """The sessions of one key, by numbers of rows."""

    def __init__(self) -> None:
        self._open: dict[Window, list[int]] = {}

    def closed(self, watermark: int) -> list[tuple[list[int], Window]]:
        """Sessions that the watermark has passed, which are then gone."""
        passed = [one for one in self._open if one[1] - 1 <= watermark]
        return [(self._open.pop(one), one) for one in passed]

    def add(self, number: int, time: int, gap: int, watermark: int) -> None:
        """A row, unless it is late."""
        touched = [one for one in self._open if one[0] <= time + gap and time <= one[1]]
        whole = (min([time, *(one[0] for one in touched)]), max([time + gap, *(one[1] for one in touched)]))
        if whole[1] - 1 > watermark:
            self._open[whole] = [*(row for one in touched for row in self._open.pop(one)), number]


def windows_model(
    keys: Sequence[str],
    bounds: Callable[[int], Iterator[Window]] | None,
    gap: Callable[[Row], int],
    lateness: int,
    verb: str,
    names: Sequence[str],
) -> Callable[[Sequence[Step]], list[Given]]:
    """Windows of event time with the default trigger: see `tests.property.cuts.windows`."""

    def result(key: tuple[Any, ...], window: Window, rows: Rows) -> tuple[Row, int]:
        start, end = window
        if verb == "normal":
            return {**summed(rows), "j": min(row["j"] for row in rows), "t": max(row["t"] for row in rows)}, end - 1
        moments = {name: _moment(time) for name, time in (("window_start", start), ("window_end", end))}
        return {**dict(zip(keys, key, strict=True)), **moments, **aggregated(names, rows)}, end - 1

    def model(steps: Sequence[Step]) -> list[Given]:
        watermark, found = _NEVER, [Given()]
        of_keys: dict[tuple[Any, ...], _Windows] = {}
        for step in [*steps, Mark(None, 2**63 - 1)]:
            match step:
                case Push(_, rows):
                    for row in rows:
                        key = tuple(row[name] for name in keys)
                        of_key = of_keys.setdefault(key, _Windows())
                        fired, is_late = _add(of_key, row, bounds, gap(row), lateness, watermark)
                        found[-1].rows += [result(key, one, of_key.rows[one]) for one in fired]
                        if is_late:
                            found[-1].sides.setdefault("late", []).append(row)
                case Mark(_, watermark):
                    found.append(Given())
                    for key, of_key in of_keys.items():
                        due = [one for one in of_key.rows if one[1] - 1 <= watermark and one not in of_key.fired]
                        found[-1].rows += [result(key, one, of_key.rows[one]) for one in due]
                        of_key.fired |= set(due)
                        for one in [one for one in of_key.rows if one[1] - 1 + lateness <= watermark]:
                            del of_key.rows[one]
                case Tick():
                    found.append(Given())
        return found

    return model


def _add(
    of_key: _Windows,
    row: Row,
    bounds: Callable[[int], Iterator[Window]] | None,
    gap: int,
    lateness: int,
    watermark: int,
) -> tuple[list[Window], bool]:
    """The windows that a row makes fire at once, and whether it is late for all of its windows."""
    time = row["t"]
    if bounds is None:
        whole = of_key.merged((time, time + gap))
        windows = [] if whole[1] - 1 + lateness <= watermark else [whole]
        for one in windows:
            of_key.merge_into(one)
            of_key.fired.discard(one)
        is_late = not windows
    else:
        all_windows = list(bounds(time))
        windows = [one for one in all_windows if one[1] - 1 + lateness > watermark]
        is_late = not windows and bool(all_windows or time + lateness <= watermark)
    fired = []
    for one in windows:
        of_key.rows.setdefault(one, []).append(row)
        if one[1] - 1 <= watermark:
            of_key.fired.add(one)
            fired.append(one)
    return fired, is_late


def _moment(time: int) -> dt.datetime:
    return _EPOCH + dt.timedelta(milliseconds=time)


def interval_model(keys: Sequence[str], first: int, last: int) -> Callable[[Sequence[Step]], list[Given]]:
    """Pairs of rows of equal keys, at once; rows at or behind the watermark are late."""

    def model(steps: Sequence[Step]) -> list[Given]:
        watermark, found = _Merged(), [Given()]
        kept: tuple[Rows, Rows] = ([], [])
        for step in steps:
            match step:
                case Push(to, rows):
                    for row in rows:
                        if row["t"] <= watermark.time:
                            found[-1].sides.setdefault(("one late", "other late")[to], []).append(row)
                            continue
                        kept[to].append(row)
                        others = [other for other in kept[1 - to] if all(other[key] == row[key] for key in keys)]
                        pairs = [(row, other) if to == 0 else (other, row) for other in others]
                        found[-1].rows += [
                            (_joined(one, other, keys), max(one["t"], other["t"]))
                            for one, other in pairs
                            if one["t"] + first <= other["t"] <= one["t"] + last
                        ]
                case Mark(to, time):
                    watermark.mark(to, time)
                    found.append(Given())
                case Tick():
                    found.append(Given())
        return [*found, Given()]

    return model


def window_join_model(
    keys: Sequence[str], bounds: Callable[[int], Iterator[Window]] | None, gap: int, how: str
) -> Callable[[Sequence[Step]], list[Given]]:
    """Pairs of rows of equal keys in one window, at its end; rows of windows that have ended are late."""
    names = ("k", "j", "v", "f", "x", "t")

    def pairs(window: Window, rows: Rows) -> Iterator[tuple[Row, int]]:
        sides = [[row for row in rows if row["side"] == side] for side in (0, 1)]
        moments = {"window_start": _moment(window[0]), "window_end": _moment(window[1])}
        ones = sides[0] or ([None] if how in ("right", "full") else [])
        others = sides[1] or ([None] if how in ("left", "full") else [])
        for one in ones:
            for other in others:
                known = one or other or {}
                left = one or {name: known[name] if name in keys else None for name in names}
                right = other or dict.fromkeys(names)
                yield {**_joined(left, right, keys), **moments}, window[1] - 1

    def model(steps: Sequence[Step]) -> list[Given]:
        watermark, found = _Merged(), [Given()]
        of_keys: dict[tuple[Any, ...], _Windows] = {}
        for step in [*steps, Mark(None, 2**63 - 1)]:
            match step:
                case Push(to, rows):
                    for row in rows:
                        of_key = of_keys.setdefault(tuple(row[name] for name in keys), _Windows())
                        _add(of_key, {**row, "side": to}, bounds, gap, 0, watermark.time)
                case Mark(to, time):
                    watermark.mark(to, time)
                    found.append(Given())
                    for of_key in of_keys.values():
                        for window in [one for one in of_key.rows if one[1] - 1 <= watermark.time]:
                            found[-1].rows += pairs(window, of_key.rows.pop(window))
                case Tick():
                    found.append(Given())
        return found

    return model


class _Merged:
    """Event time of two inputs: the least of both."""

    def __init__(self) -> None:
        self._times = [_NEVER, _NEVER]

    def mark(self, to: int | None, time: int) -> None:
        self._times = [time if to in (None, one) else self._times[one] for one in (0, 1)]

    @property
    def time(self) -> int:
        return min(self._times)


def _joined(one: Row, other: Row, keys: Sequence[str]) -> Row:
    left = {name: value for name, value in one.items() if name != "side"}
    right = {f"{name}_right": value for name, value in other.items() if name not in keys and name != "side"}
    return {**left, **right}
