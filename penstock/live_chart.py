"""The chart of a running job in a notebook: rows per second of its operators over time, beside the live view.

`live_view` adds a reading at each redraw. The picture is SVG within the cell's HTML: nothing is loaded from anywhere,
and it stays in the notebook when that is saved.
"""

from __future__ import annotations

import html
import itertools
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final

from penstock.engine.metrics import JobMetrics

_KEPT: Final = 240
"""Readings: two minutes, at two a second."""
_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP = 680, 150, 90, 18, 6
_COLORS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00")
"""Told apart by the colour-blind, too. Source: Okabe and Ito, "Color Universal Design"."""


class RateChart:
    """Rows per second that the first six operators with output have given, over the last two minutes."""

    def __init__(self) -> None:
        self._counts: deque[tuple[float, dict[tuple[int, int], int]]] = deque(maxlen=_KEPT)
        self._names: dict[tuple[int, int], str] = {}

    def add(self, metrics: JobMetrics, now: float) -> None:
        """A reading, taken at `now`, monotonic seconds."""
        counts = {(one.task, one.number): one.rows_out for one in metrics.operators}
        self._names.update({(one.task, one.number): one.name for one in metrics.operators})
        self._counts.append((now, counts))

    def svg(self) -> str:
        """The picture; empty before there are two rates to draw a line between."""
        lines = list(self._lines())
        if not lines:
            return ""
        began, ended = lines[0][1][0][0], max(points[-1][0] for _, points in lines)
        most = max(1.0, *(rate for _, points in lines for _, rate in points))
        seconds = max(ended - began, 1e-9)
        drawn = [self._line(number, name, points, began, seconds, most) for number, (name, points) in enumerate(lines)]
        height = _HEIGHT + 16 * len(lines)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" role="img" '
            'aria-label="rows per second by operator" font-family="sans-serif" font-size="11" fill="gray">'
            f'<path d="M{_LEFT} {_TOP}V{_HEIGHT - _BOTTOM}H{_WIDTH}" fill="none" stroke="gray"/>'
            f'<text x="{_LEFT - 4}" y="{_TOP + 8}" text-anchor="end">{most:,.0f}/s</text>'
            f'<text x="{_LEFT}" y="{_HEIGHT - 4}">rows per second, the last {seconds:.0f} s</text>'
            f"{''.join(drawn)}</svg>"
        )

    def _lines(self) -> Iterator[tuple[str, Sequence[tuple[float, float]]]]:
        """Of each operator, when it gave how many rows a second."""
        readings = list(self._counts)
        given = [place for place in self._names if readings and readings[-1][1].get(place)]
        for place in given[: len(_COLORS)]:
            pairs = itertools.pairwise(readings)
            rates = [
                # Counters begin anew behind a restart.
                (now, max(0, after.get(place, 0) - before.get(place, 0)) / (now - earlier))
                for (earlier, before), (now, after) in pairs
                if now > earlier
            ]
            if len(rates) > 1:
                yield self._names[place], rates

    @staticmethod
    def _line(
        number: int, name: str, points: Sequence[tuple[float, float]], began: float, seconds: float, most: float
    ) -> str:
        high, color = _HEIGHT - _BOTTOM - _TOP, _COLORS[number]
        path = " ".join(
            f"{_LEFT + (at - began) / seconds * (_WIDTH - _LEFT):.1f},{_TOP + high * (1 - rate / most):.1f}"
            for at, rate in points
        )
        y = _HEIGHT + 16 * number + 10
        legend = f'<text x="{_LEFT + 14}" y="{y}">{html.escape(name)}</text>'
        mark = f'<rect x="{_LEFT}" y="{y - 9}" width="10" height="10" fill="{color}"/>'
        return f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="1.5"/>{mark}{legend}'
