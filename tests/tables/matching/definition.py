"""What MATCH_RECOGNIZE means, written from the standard: of all ways through a pattern the preferred one."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from penstock.engine.patterns.rows.syntax import Alternatives, Repeated, RowPattern, Variable
from penstock.engine.patterns.rows.syntax import Sequence as InSequence

Rows = Sequence[tuple[int, int]]
"""Times and values of the rows of one partition, in order."""
Holds = Callable[[Rows, int, list[str]], bool]
"""Whether the last of these variables may take its row; the first has row `int`."""


def moment(millis: int) -> datetime.datetime:
    """A time of rows."""
    return datetime.datetime(1970, 1, 1) + datetime.timedelta(milliseconds=millis)


@dataclass(frozen=True)
class Meaning:
    """A clause over rows with a time and a value."""

    pattern: RowPattern
    definitions: dict[str, Holds]
    past_last_row: bool
    within: int | None

    def matches(self, rows: Rows) -> list[tuple[int, list[str]]]:
        """First row and variables of each match."""
        found = []
        start = 0
        while start < len(rows):
            taken = next(self._ways(self.pattern, rows, start, []), None)
            if taken:
                found.append((start, taken))
            start += len(taken) if taken and self.past_last_row else 1
        return found

    def empty_ways(self) -> Iterator[list[str]]:
        """The ways that take no row; with one the clause is refused."""
        return (way for way in self._ways(self.pattern, [], 0, []) if not way)

    def _ways(self, part: RowPattern, rows: Rows, start: int, taken: list[str]) -> Iterator[list[str]]:
        match part:
            case Variable():
                row = start + len(taken)
                in_time = row < len(rows) and (self.within is None or rows[row][0] - rows[start][0] < self.within)
                if in_time and self.definitions[part.name](rows, start, [*taken, part.name]):
                    yield [*taken, part.name]
            case InSequence():
                yield from self._in_sequence(part.parts, rows, start, taken)
            case Alternatives():
                for one in part.parts:
                    yield from self._ways(one, rows, start, taken)
            case Repeated():
                yield from self._repeated(part, 0, rows, start, taken)

    def _in_sequence(
        self, parts: Sequence[RowPattern], rows: Rows, start: int, taken: list[str]
    ) -> Iterator[list[str]]:
        if not parts:
            yield taken
            return
        for way in self._ways(parts[0], rows, start, taken):
            yield from self._in_sequence(parts[1:], rows, start, way)

    def _repeated(self, part: Repeated, count: int, rows: Rows, start: int, taken: list[str]) -> Iterator[list[str]]:
        if part.is_greedy or count < part.least:
            yield from self._again(part, count, rows, start, taken)
        if count >= part.least:
            yield taken
            if not part.is_greedy:
                yield from self._again(part, count, rows, start, taken)

    def _again(self, part: Repeated, count: int, rows: Rows, start: int, taken: list[str]) -> Iterator[list[str]]:
        if part.most is not None and count >= part.most:
            return
        for way in self._ways(part.part, rows, start, taken):
            # A round without rows would go on for ever in a loop without bound, so it is none there.
            if len(way) > len(taken) or count < part.least or part.most is not None:
                yield from self._repeated(part, count + 1, rows, start, way)
