"""Runs patterns whose tests are columns alone over the rows of many keys at once, on arrays of integers.

The operator of `KeyedStream.match` uses it where `fits` says so; what it finds is what `matcher.py` finds. The rules
are those of `machine_rules.py`, compiled where there are many rows.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from penstock.engine.patterns import machine_rules, memory_rules
from penstock.engine.patterns.automaton import CompiledPattern, StateKind
from penstock.engine.patterns.limits import NO_LIMITS, MatchLimits, Overflow
from penstock.engine.patterns.machine_rules import Done, Int64s, Memory, Program, Work
from penstock.engine.patterns.plans import Plan, Planner
from penstock.engine.patterns.row_order import by_code_and_time, has_few_digits
from penstock.engine.patterns.skip import SkipKind

_MOST_STATES: Final = 1_000
_MOST_LEAVES: Final = 62
_MOST_PLANS: Final = 1 << 20
_MANY_ROWS: Final = 20_000
"""From so many rows on it is worth while to load numba."""
_SKIPS: Final = {
    SkipKind.NO_SKIP: machine_rules.NO_SKIP,
    SkipKind.TO_NEXT: machine_rules.TO_NEXT,
    SkipKind.PAST_LAST: machine_rules.PAST_LAST,
    SkipKind.TO_FIRST: machine_rules.TO_FIRST,
    SkipKind.TO_LAST: machine_rules.TO_LAST,
}


def fits(pattern: CompiledPattern) -> bool:
    """Whether the machine can run a pattern: no function is asked row by row, and no match may fail the job."""
    if len(pattern.leaves) > _MOST_LEAVES or len(pattern.states) > _MOST_STATES or pattern.skip.throws_on_miss:
        return False
    # The plans of all answers that may come.
    if len(pattern.states) << min(len(pattern.leaves), 20) > _MOST_PLANS:
        return False
    return all(leaf.is_columnar for leaf in pattern.leaves)


class Machine:
    """Runs one pattern.

    Args:
        pattern: the automaton, which `fits`.
        limits: of each key; where more is to fail the job, `Done.most` says so.
    """

    def __init__(self, pattern: CompiledPattern, limits: MatchLimits = NO_LIMITS) -> None:
        self.pattern = pattern
        self._planner = Planner(pattern)
        self._variables = {name: number for number, name in enumerate(pattern.variables)}
        skip = pattern.skip
        variable = -1 if skip.variable is None else self._variables[skip.variable]
        goes_by_time = pattern.has_bounds or limits.ttl_ms is not None
        self._bounds = np.array([pattern.start, pattern.within_ms, _SKIPS[skip.kind], variable, goes_by_time], np.int64)
        newest_go = limits.overflow is Overflow.DROP_NEWEST
        self._limits = np.array([limits.most or 0, newest_go, limits.ttl_ms or 0], np.int64)
        self._gaps = np.array(pattern.gaps_ms, np.int64)
        self._is_pending = np.array([state.kind is StateKind.PENDING for state in pattern.states])
        # Few enough, as the pattern fits.
        self._known = np.full(1 << len(pattern.leaves), -1)
        self._starts = np.zeros(len(self._known), np.bool_)
        self._plans: list[list[tuple[int, int, int, int]]] = []
        """By answer and state."""
        self._moves: list[tuple[int, int, int]] = []
        self._program: Program | None = None
        self._rows_so_far = 0

    def answers(self, bits: npt.NDArray[np.int64]) -> tuple[Int64s, npt.NDArray[np.bool_]]:
        """The numbers of the rows' answers, and which rows may begin a match."""
        for one in np.flatnonzero(np.bincount(bits)).tolist():
            if self._known[one] < 0:
                self._known[one], self._starts[one] = self._number(one), self._may_start(one)
        return self._known[bits], self._starts[bits]

    def _may_start(self, bits: int) -> bool:
        return bool(self._plan(self.pattern.start, bits).moves)

    def _plan(self, state: int, bits: int) -> Plan:
        plan = self._planner.plan_of_bits(state, bits)
        assert plan is not None, "no condition is a function"
        return plan

    def _number(self, bits: int) -> int:
        self._plans.append([self._planned(state.number, bits) for state in self.pattern.states])
        self._program = None
        return len(self._plans) - 1

    def _planned(self, state: int, bits: int) -> tuple[int, int, int, int]:
        kind = self.pattern.states[state].kind
        if kind in (StateKind.FINAL, StateKind.STOP):
            return 0, 0, 0, 0
        plan = self._plan(state, bits)
        first = len(self._moves)
        for variable, target, completions in plan.moves:
            # Where a match is stopped, the event may belong to a variable that must not come: nobody reads it.
            self._moves.append((-1 if variable is None else self._variables[variable], target, completions))
        is_start = state == self.pattern.start
        made = max(len(plan.moves) + is_start, sum(move.completions for move in plan.moves))
        return first, len(self._moves), int(plan.takes), made

    @property
    def program(self) -> Program:
        """The pattern as arrays, for the answers that have come so far."""
        if self._program is None:
            plans = np.array(self._plans, np.int64).reshape(-1, len(self.pattern.states), 4).transpose(1, 0, 2)
            moves = np.array([*self._moves, (0, 0, 0)], np.int64)
            self._program = Program(
                self._bounds,
                self._limits,
                self._gaps,
                self._is_pending,
                np.ascontiguousarray(plans),
                np.ascontiguousarray(moves),
            )
        return self._program

    def order(self, codes: Int64s, times: Int64s) -> Int64s:
        """As `by_code_and_time`."""
        if not self._has_many_rows or not len(times) or not has_few_digits(times):
            return by_code_and_time(codes, times)
        order: Int64s = _kernel().by_digits(codes, times)
        return order

    def run(self, memory: Memory, work: Work) -> Done:
        """Take rows, and move time on."""
        self._rows_so_far += len(work.times)
        rules: Any = _kernel() if self._has_many_rows else machine_rules
        # Java's and numba's differences of times wrap without a word.
        with np.errstate(over="ignore"):
            done: Done = rules.run(self.program, memory, work)
        return done

    def paths(self, steps: Int64s, last: Int64s) -> tuple[Int64s, Int64s]:
        """As `memory_rules.paths`."""
        found: tuple[Int64s, Int64s] = self._of_memory.paths(steps, last)
        return found

    def compacted(self, memory: Memory) -> Memory:
        """As `memory_rules.compacted`."""
        kept: Memory = self._of_memory.compacted(memory)
        return kept

    def owners(self, memory: Memory) -> tuple[Int64s, Int64s]:
        """As `memory_rules.owners`."""
        found: tuple[Int64s, Int64s] = self._of_memory.owners(memory)
        return found

    @property
    def _has_many_rows(self) -> bool:
        return self._rows_so_far >= _MANY_ROWS

    @property
    def _of_memory(self) -> Any:
        return _kernel() if self._has_many_rows else memory_rules


def _kernel() -> ModuleType:
    from penstock.engine.patterns import machine_kernel

    return machine_kernel
