"""Looks for the preferred match that begins with a row: depth first, in order of preference, and resumable.

The operator of MATCH_RECOGNIZE holds the rows of a partition and asks; where the rows that are there do not decide it,
the search stops and resumes with further ones. What is found does not depend on how rows are cut into batches.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from penstock.engine.patterns.rows.automaton import MATCH, RowAutomaton
from penstock.engine.patterns.rows.trail import Trail, TrailLayout, Values


@dataclass(slots=True)
class PartitionRows:
    """The rows of a partition, in order.

    Args:
        times: of each (int64 ms).
        answers: of each, a bit for each variable: whether what its definition says of the row alone is true.
        values: of each.
    """

    times: list[int] = field(default_factory=list)
    answers: list[int] = field(default_factory=list)
    values: list[Values] = field(default_factory=list)

    def drop(self, count: int) -> None:
        """Forget the first rows."""
        del self.times[:count], self.answers[:count], self.values[:count]


Test: TypeAlias = Callable[[Trail, PartitionRows, int], bool]
"""Whether a row fulfils what is left of a definition: it is the last of the trail, which begins with row `int`."""


class Outcome(enum.Enum):
    """What a search has come to."""

    OPEN = "open"
    FAILED = "failed"
    MATCHED = "matched"


class Attempt:
    """A search that begins with a row.

    Args:
        start: the row.
        layout: what its trail keeps.
    """

    __slots__ = ("failed", "seen", "start", "state", "step", "trail", "waited", "ways")

    def __init__(self, start: int, layout: TrailLayout) -> None:
        self.start = start
        self.state = 0
        self.step = 0
        """The next one to try in the state."""
        self.trail = Trail(layout)
        self.ways: list[tuple[int, int, int]] = []
        """Less preferred ones: state, step, and how many rows are taken before."""
        self.failed: set[tuple[int, int]] = set()
        """States and rows from which no way leads on."""
        self.seen = start
        """The last row that was looked at."""
        self.waited = False
        """Whether it counts that no further row comes in time."""

    def move(self, count: int) -> None:
        """The first rows of the partition are forgotten."""
        self.start -= count
        self.seen -= count
        self.failed = {(state, row - count) for state, row in self.failed}


@dataclass(frozen=True, slots=True)
class RowSearch:
    """Knows the pattern.

    Args:
        automaton: of the pattern.
        tests: by variable: what its definition says of other rows, or None.
        layout: what the tests read.
        within_ms: bound on the time from the first row of a match to the last, which is outside; None for none.
    """

    automaton: RowAutomaton
    tests: Sequence[Test | None]
    layout: TrailLayout
    within_ms: int | None

    def begun(self, start: int) -> Attempt:
        """A search for a match that begins with row `start`."""
        return Attempt(start, self.layout)

    def resume(self, attempt: Attempt, rows: PartitionRows, no_more: bool) -> Outcome:
        """Search on, as far as the rows decide it.

        Args:
            attempt: where the search is; its trail is the match where there is one.
            rows: of the partition.
            no_more: whether no further row can become part of the match.
        """
        steps_of, tests, trail, ways = self.automaton.steps, self.tests, attempt.trail, attempt.ways
        # What fails behind a row fails for good only where no definition reads the rows before it.
        failed = None if any(test is not None for test in tests) else attempt.failed
        end = self._end(attempt, rows)
        state, step, row = attempt.state, attempt.step, attempt.start + len(trail.taken)
        while True:
            steps = steps_of[state]
            if step == len(steps):
                if failed is not None:
                    failed.add((state, row))
                if not ways:
                    return Outcome.FAILED
                state, step, length = ways.pop()
                trail.cut(length)
                row = attempt.start + length
                continue
            variable, target = steps[step]
            if variable == MATCH:
                return Outcome.MATCHED
            if row >= end:
                if row == len(rows.times) and not no_more:
                    attempt.state, attempt.step = state, step
                    return Outcome.OPEN
                attempt.waited = True
                step += 1
                continue
            attempt.seen = max(attempt.seen, row)
            step += 1
            if not rows.answers[row] >> variable & 1 or (failed and (target, row + 1) in failed):
                continue
            length = row - attempt.start
            trail.add(variable, rows.values[row])
            test = tests[variable]
            if test is not None and not test(trail, rows, attempt.start):
                trail.cut(length)
                continue
            if step < len(steps):
                ways.append((state, step, length))
            state, step, row = target, 0, row + 1

    def _end(self, attempt: Attempt, rows: PartitionRows) -> int:
        """The first row that comes too late for a match, or the number of rows."""
        if self.within_ms is None:
            return len(rows.times)
        deadline = rows.times[attempt.start] + self.within_ms
        row = attempt.seen
        while row < len(rows.times) and rows.times[row] < deadline:
            row += 1
        return row

    def decided_at(self, attempt: Attempt, rows: PartitionRows) -> int:
        """The time (int64 ms) at which it is known what has become of an attempt."""
        time = rows.times[attempt.seen]
        if attempt.waited and self.within_ms is not None:
            return max(time, rows.times[attempt.start] + self.within_ms - 1)
        return time
