"""The watermarks of all subtasks of a job over the last minutes, of which the page of a task draws a line for each.

`Observed` keeps them for jobs that run. They are numbers in columns, fewer points of a job that is wide; what a page
gets of a wide task is the slowest and the fastest of its subtasks, and what all of them are between.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from penstock.engine.elements import MAX_TIMESTAMP, MIN_TIMESTAMP
from penstock.web.figures import Subtasks

Marks: TypeAlias = "npt.NDArray[np.int64]"
"""Of one task, by subtask; MIN_TIMESTAMP where there is none yet."""
Point: TypeAlias = "tuple[int, Mapping[int, Marks]]"
"""When (civil time, ms), and the marks of each task by its id."""
MARKS_KEPT: Final = 2_000_000
"""Of all jobs together: 16 MB."""
MOST_POINTS: Final = 300
MOST_LINES: Final = 8
"""A task with so many subtasks has a line for each."""
SLOWEST: Final = 4
FASTEST: Final = 2
_LONGEST_MS: Final = 600_000
_EARLY_MS: Final = 500
"""By so much readings may come before their time."""


class Watermarks:
    """Those of one job, the newest ten minutes."""

    def __init__(self) -> None:
        self._points: deque[Point] = deque()

    def add(self, at_ms: int, tasks: Mapping[int, Subtasks], most: int) -> None:
        """Take in a reading, unless the one before has just been.

        Args:
            at_ms: when it was, civil time.
            tasks: the subtasks of each.
            most: points that there is room for.
        """
        most = min(MOST_POINTS, max(2, most))
        if self._points and at_ms - self._points[-1][0] < _LONGEST_MS // most - _EARLY_MS:
            return
        self._points.append((at_ms, {task: subtasks.marks() for task, subtasks in tasks.items()}))
        while len(self._points) > most or at_ms - self._points[0][0] > _LONGEST_MS:
            self._points.popleft()

    def points(self) -> Sequence[Point]:
        """The oldest first."""
        return tuple(self._points)

    def clear(self) -> None:
        """Forget them."""
        self._points.clear()


def watermarks_document(points: Sequence[Point], task: int) -> dict[str, Any]:
    """What the page of a task draws.

    Args:
        points: of its job.
        task: its id.

    Returns:
        `at_ms`; `subtasks`, each with its index and its `watermark` at each time; of all subtasks the `lowest`,
        `median` and `highest` at each time; `left_out`, how many have no line. Watermarks are int64 ms; null before
        the first and at the end of input.
    """
    points = [point for point in points if len(point[1].get(task, ()))]
    table = _table([marks[task] for _, marks in points])
    lines = _chosen(table)
    # Those that are not known come last in each row.
    ordered = np.sort(np.where(_is_known(table), table, MAX_TIMESTAMP), axis=1)
    last = np.maximum(_is_known(table).sum(axis=1) - 1, 0)

    def ranked(places: Marks) -> list[int | None]:
        return _shown(ordered[np.arange(len(table)), places]) if len(table) else []

    return {
        "at_ms": [at_ms for at_ms, _ in points],
        "subtasks": [{"subtask": line, "watermark": _shown(table[:, line])} for line in lines],
        "lowest": ranked(np.zeros_like(last)),
        "median": ranked(last // 2),
        "highest": ranked(last),
        "left_out": table.shape[1] - len(lines),
    }


def _table(marks: Sequence[Marks]) -> Marks:
    """A row for each point, a column for each subtask; the job may have been rescaled in between."""
    table = np.full((len(marks), max(map(len, marks), default=0)), MIN_TIMESTAMP, np.int64)
    for row, found in zip(table, marks, strict=True):
        row[: len(found)] = found
    return table


def _is_known(table: Marks) -> npt.NDArray[np.bool_]:
    return (table > MIN_TIMESTAMP) & (table < MAX_TIMESTAMP)


def _chosen(table: Marks) -> list[int]:
    """The subtasks that get a line: all of few, else those that are slowest and fastest now."""
    width = table.shape[1]
    if width <= MOST_LINES:
        return list(range(width))
    known = np.flatnonzero(_is_known(table[-1]))
    order = known[np.argsort(table[-1, known], kind="stable")]
    return sorted({*order[:SLOWEST].tolist(), *order[-FASTEST:].tolist()})


def _shown(marks: Marks) -> list[int | None]:
    return [mark if MIN_TIMESTAMP < mark < MAX_TIMESTAMP else None for mark in marks.tolist()]
