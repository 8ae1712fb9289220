"""Looks for row patterns in many partitions at once, on arrays, where definitions ask of each row alone (`fits`).

The operator of MATCH_RECOGNIZE uses it; what it finds is what `RowSearch` finds, and when. The rules are those of
`column_rules.py`, compiled where there are many rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import numpy as np

from penstock.engine.patterns.rows import column_rules
from penstock.engine.patterns.rows.automaton import RowAutomaton
from penstock.engine.patterns.rows.column_rules import Done, Int64s, Memory, Program, Work
from penstock.engine.patterns.rows.lookahead import NEVER

_MOST_STATES: Final = 62
"""A bit each, of those from which no way leads on."""
_MANY_ROWS: Final = 20_000
"""From so many rows on it is worth while to load numba."""
_MIN_GARBAGE: Final = 65_536
"""Rows that nobody needs any more, below which it is not worth while to look for them."""


def fits(automaton: RowAutomaton) -> bool:
    """Whether a pattern is small enough."""
    return len(automaton.steps) <= _MOST_STATES


class ColumnSearch:
    """The partitions of one pattern, by slot; rows are numbered from 0 as they come.

    Args:
        automaton: of the pattern, which `fits`.
        within_ms: bound on the time from the first row of a match to the last, which is outside; None for none.
        skip: where the search resumes, a constant of `column_rules`.
        skip_variables: the numbers of those that it goes to.
    """

    def __init__(
        self, automaton: RowAutomaton, within_ms: int | None, skip: int, skip_variables: Iterable[int]
    ) -> None:
        steps = [step for of_state in automaton.steps for step in of_state]
        begins = np.cumsum([0, *map(len, automaton.steps)])
        first = _bits(automaton.first_variables)
        within = -1 if within_ms is None else within_ms
        bounds = np.array([first, NEVER, within, skip, _bits(skip_variables)], np.int64)
        self._program = Program(np.array(steps, np.int64), begins.astype(np.int64), bounds)
        self._memory = _empty_memory()
        self._rows_so_far = 0
        self._live = 0
        """Rows when they were compacted last."""

    @property
    def rows(self) -> int:
        """How many are held, those that nobody needs any more included."""
        return int(self._memory.used[0])

    def is_under_way(self, slots: Int64s) -> Any:
        """Whether each slot has rows of a match under way."""
        known = slots < len(self._memory.slots)
        found = np.zeros(len(slots), np.bool_)
        found[known] = self._memory.slots[slots[known], column_rules.FIRST] >= 0
        return found

    def under_way(self) -> Int64s:
        """The slots that have rows of a match under way."""
        return np.flatnonzero(self._memory.slots[:, column_rules.FIRST] >= 0)

    def run(self, work: Work) -> Done:
        """Add rows, and search the slots of `work`."""
        self._rows_so_far += len(work.times)
        slots = self._memory.slots
        most = int(work.runs[:, 0].max(initial=-1)) + 1
        if most > len(slots):
            slots = np.full((max(most, 2 * len(slots)), column_rules.SLOT_WIDTH), -1, np.int64)
            slots[:, column_rules.TIMED] = column_rules.NO_BOUND
            slots[: len(self._memory.slots)] = self._memory.slots
        # Arrow's arrays cannot be written to, and numba would compile once more for those that can.
        work = work._replace(times=_read_only(work.times), answers=_read_only(work.answers))
        done: Done = self._rules.run(self._program, self._memory._replace(slots=slots), work)
        self._memory = done.memory
        return done

    def held(self) -> Int64s:
        """As `column_rules.held`."""
        held: Int64s = self._rules.held(self._memory)
        return held

    def answers(self, rows: Int64s) -> Int64s:
        """Those of some rows."""
        found: Int64s = self._memory.rows[rows, column_rules.ANSWERS]
        return found

    def compact(self) -> Int64s | None:
        """Forget rows that nobody needs any more, if there are many.

        Returns:
            the rows that are kept, which are numbered anew in their order; None where all are.
        """
        if self.rows < 2 * self._live + _MIN_GARBAGE:
            return None
        is_kept = self.held() >= 0
        kept: Int64s = np.flatnonzero(is_kept)
        self._memory = self._rules.compacted(self._memory, is_kept, np.cumsum(is_kept) - 1, kept)
        self._live = self.rows
        return kept

    @property
    def _rules(self) -> Any:
        if self._rows_so_far < _MANY_ROWS:
            return column_rules
        from penstock.engine.patterns.rows import column_kernel

        return column_kernel


def _read_only(numbers: Int64s) -> Int64s:
    view: Int64s = numbers.view()
    view.flags.writeable = False
    return view


def _bits(numbers: Iterable[int]) -> int:
    return sum(1 << number for number in numbers)


def _empty_memory() -> Memory:
    widths = (column_rules.SLOT_WIDTH, column_rules.ROW_WIDTH, 5)
    slots, rows, ways = (np.empty((0, width), np.int64) for width in widths)
    return Memory(slots, rows, ways, np.zeros(2, np.int64))
