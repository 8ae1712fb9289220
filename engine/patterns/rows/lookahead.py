"""Which rows may begin a match, of all rows of many partitions at once, by the rows right behind them.

The operator of MATCH_RECOGNIZE asks before it makes objects of rows. It guarantees that no match is missed, and that an
attempt with a row that is ruled out would have failed before a later one can match, so that no match gets another time.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from penstock.engine.patterns.rows.automaton import MATCH, RowAutomaton

Bools: TypeAlias = npt.NDArray[np.bool_]
NEVER: Final = 1 << 62
"""The bit of a row's answers, above those of all variables, which says that no match begins with it."""
_DEEPEST: Final = 3
"""Rows to look at: each costs as much for all rows, and rules out fewer than the one before."""


class Lookahead:
    """Knows the pattern.

    Args:
        automaton: of the pattern.
    """

    def __init__(self, automaton: RowAutomaton) -> None:
        self._steps = automaton.steps
        # A later match sees at least as many rows as the shortest has.
        self._depth = min(_shortest(automaton) + 1, _DEEPEST)

    def may_begin(self, answers: npt.NDArray[np.int64], is_last: Bools) -> Bools:
        """With which rows a match may begin.

        Args:
            answers: of rows by partition and time: a bit for each variable that may take the row.
            is_last: whether a row is the last one of its partition so far; what comes behind it is not known.
        """
        found = self._leads_on(0, self._depth, answers, is_last)
        return np.ones(len(answers), np.bool_) if found is None else found

    def _leads_on(self, state: int, depth: int, answers: npt.NDArray[np.int64], is_last: Bools) -> Bools | None:
        """At which rows the pattern can be taken on from a state; None for all of them."""
        steps = self._steps[state]
        if depth == 0 or any(step.variable == MATCH for step in steps):
            return None
        found = np.zeros(len(answers), np.bool_)
        for variable, target in steps:
            fits = (answers >> variable & 1).astype(np.bool_)
            behind = self._leads_on(target, depth - 1, answers, is_last)
            if behind is not None:
                fits[:-1] &= behind[1:] | is_last[:-1]
            found |= fits
        return found


def _shortest(automaton: RowAutomaton) -> int:
    """How many rows a match has at least."""
    states, rows = {0}, 0
    while not any(step.variable == MATCH for state in states for step in automaton.steps[state]):
        states = {step.target for state in states for step in automaton.steps[state]}
        rows += 1
    return rows
