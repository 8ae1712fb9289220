"""A row pattern as an automaton whose steps are in order of preference.

`RowSearch` walks it. A state says which variables may take the next row, the preferred one first; a step to a match
stands where the pattern may end, and what would be less preferred than that is left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from penstock.engine.errors import PatternError
from penstock.engine.patterns.rows.syntax import (
    Alternatives,
    Repeated,
    RowPattern,
    Sequence,
    Variable,
    shown,
    variables_of,
)

MATCH: Final = -1
"""The variable of the step that ends the pattern."""
_MOST_INSTRUCTIONS: Final = 20_000


class Step(NamedTuple):
    """What may come next.

    Args:
        variable: the number of the variable that takes the next row, or `MATCH`.
        target: the state behind it.
    """

    variable: int
    target: int


@dataclass(frozen=True, slots=True)
class RowAutomaton:
    """A compiled row pattern; it starts in state 0.

    Args:
        variables: their names, by number.
        steps: by state, in order of preference.
    """

    variables: tuple[str, ...]
    steps: tuple[tuple[Step, ...], ...]

    @property
    def first_variables(self) -> frozenset[int]:
        """Those that may take the first row of a match."""
        return frozenset(step.variable for step in self.steps[0])


def compiled(pattern: RowPattern) -> RowAutomaton:
    """The automaton of a pattern.

    Raises:
        PatternError: no row makes a match of it, or its bounds make it too large.

    Example:
        >>> from penstock.engine.patterns.rows.syntax import Repeated, Sequence, Variable
        >>> compiled(Sequence((Variable("A"), Repeated(Variable("B"), 0, None, True)))).steps
        ((Step(variable=0, target=1),), (Step(variable=1, target=1), Step(variable=-1, target=-1)))
    """
    names = variables_of(pattern)
    program = _Program({name: number for number, name in enumerate(names)}, pattern)
    entry = program.added(pattern, program.end)
    numbers = {entry: 0}
    steps: list[tuple[Step, ...]] = []
    waiting = [entry]
    for place in waiting:
        found = []
        for variable, behind in program.reached(place):
            if variable != MATCH and behind not in numbers:
                numbers[behind] = len(numbers)
                waiting.append(behind)
            found.append(Step(variable, MATCH if variable == MATCH else numbers[behind]))
        steps.append(tuple(found))
    if any(step.variable == MATCH for step in steps[0]):
        raise PatternError(
            f"PATTERN ({shown(pattern)}): it may be a match of no rows at all; let one variable be needed, such as A+ "
            "instead of A*"
        )
    return RowAutomaton(names, tuple(steps))


@dataclass(frozen=True, slots=True)
class _Take:
    variable: int
    behind: int


@dataclass(slots=True)
class _Choice:
    """Places to continue from, the preferred one first."""

    places: tuple[int, ...]


class _Program:
    """Instructions, by place; each part is added in front of what comes behind it."""

    def __init__(self, numbers: dict[str, int], pattern: RowPattern) -> None:
        self._numbers = numbers
        self._pattern = pattern
        self._instructions: list[_Take | _Choice] = [_Take(MATCH, MATCH)]
        self.end = 0

    def added(self, part: RowPattern, behind: int) -> int:
        """The place where the part begins."""
        match part:
            case Variable():
                return self._add(_Take(self._numbers[part.name], behind))
            case Sequence():
                for one in reversed(part.parts):
                    behind = self.added(one, behind)
                return behind
            case Alternatives():
                return self._add(_Choice(tuple(self.added(one, behind) for one in part.parts)))
            case Repeated():
                return self._repeated(part, behind)

    def _repeated(self, part: Repeated, behind: int) -> int:
        if part.most is None:
            choice = _Choice(())
            place = self._add(choice)
            choice.places = _preferred(self.added(part.part, place), behind, part.is_greedy)
        else:
            place = behind
            for _ in range(part.most - part.least):
                place = self._add(_Choice(_preferred(self.added(part.part, place), behind, part.is_greedy)))
        for _ in range(part.least):
            place = self.added(part.part, place)
        return place

    def _add(self, instruction: _Take | _Choice) -> int:
        if len(self._instructions) >= _MOST_INSTRUCTIONS:
            raise PatternError(
                f"PATTERN ({shown(self._pattern)[:200]}): its quantifiers make more than {_MOST_INSTRUCTIONS:,} steps; "
                "give smaller bounds, or * and + with a condition on COUNT"
            )
        self._instructions.append(instruction)
        return len(self._instructions) - 1

    def reached(self, place: int) -> list[tuple[int, int]]:
        """Which variables may take the next row from there, and the places behind them."""
        found: dict[tuple[int, int], None] = {}
        seen: set[int] = set()
        stack = [place]
        while stack:
            here = stack.pop()
            if here in seen:
                continue
            seen.add(here)
            instruction = self._instructions[here]
            if isinstance(instruction, _Choice):
                stack.extend(reversed(instruction.places))
                continue
            found.setdefault((instruction.variable, instruction.behind))
            if instruction.variable == MATCH:
                break
        return list(found)


def _preferred(again: int, behind: int, is_greedy: bool) -> tuple[int, int]:
    return (again, behind) if is_greedy else (behind, again)
