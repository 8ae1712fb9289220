"""Reads references of MATCH_RECOGNIZE from the trail of a match, row by row, and keeps running values of aggregates.

Tests of rows and results of matches have each a `ReferenceReaders` of their own, with what they read in its layout.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

from penstock.engine.patterns.rows.search import PartitionRows
from penstock.engine.patterns.rows.trail import Running, Trail, TrailLayout, Values
from penstock.tables.plan.row_references import Reference, ReferenceKind
from penstock.tables.types import INTEGERS, Kind, SqlType

Reader: TypeAlias = Callable[[Trail, PartitionRows, int], Any]
"""Gives the value at the last row of the trail, which begins with row `int` of the partition; None for null."""
_EXACT: Final = decimal.Context(prec=76, rounding=decimal.ROUND_HALF_UP)


class ReferenceReaders:
    """Makes the readers of some references.

    Args:
        references: all of the clause.
        read: the places of those that are read.
        names: the variables of the pattern, by number.
    """

    def __init__(self, references: Sequence[Reference], read: Sequence[int], names: Sequence[str]) -> None:
        self._names = tuple(names)
        self._groups: list[frozenset[int]] = []
        self._running: list[tuple[int, Running]] = []
        self.by_place: dict[int, Reader] = {place: self._reader(references[place]) for place in read}
        self.layout = TrailLayout(tuple(self._groups), tuple(self._running), len(self._names))

    def _group(self, reference: Reference) -> int:
        wanted = self._names if reference.variables is None else reference.variables
        group = frozenset(self._names.index(name) for name in wanted)
        if group not in self._groups:
            self._groups.append(group)
        return self._groups.index(group)

    def _reader(self, reference: Reference) -> Reader:
        match reference.kind:
            case ReferenceKind.AGGREGATE:
                return self._aggregate(reference)
            case ReferenceKind.CLASSIFIER:
                return self._classifier(reference)
            case ReferenceKind.ROW:
                return self._row(reference)
        raise AssertionError("the time of a match is no value of its rows")

    def _place(self, reference: Reference) -> Callable[[Trail], int]:
        """Which row of the trail is meant; -1 for none."""
        offset, from_first = reference.offset, reference.from_first
        if reference.variables is None:
            if from_first:
                return lambda trail: offset if offset < len(trail.taken) else -1
            return lambda trail: max(len(trail.taken) - 1 - offset, -1)
        group = self._group(reference)

        def place(trail: Trail) -> int:
            places = trail.places[group]
            if offset >= len(places):
                return -1
            return places[offset] if from_first else places[-1 - offset]

        return place

    def _row(self, reference: Reference) -> Reader:
        place_of, back, value = self._place(reference), reference.back, reference.value
        assert value is not None, "a row's value has a place"

        def read(trail: Trail, rows: PartitionRows, start: int) -> Any:
            place = place_of(trail)
            row = start + place - back
            return None if place < 0 or row < 0 else rows.values[row][value]

        return read

    def _classifier(self, reference: Reference) -> Reader:
        place_of, names = self._place(reference), self._names

        def read(trail: Trail, rows: PartitionRows, start: int) -> Any:
            place = place_of(trail)
            return None if place < 0 else names[trail.taken[place]]

        return read

    def _aggregate(self, reference: Reference) -> Reader:
        step, finish = aggregated(reference)
        number = len(self._running)
        self._running.append((self._group(reference), step))

        def read(trail: Trail, rows: PartitionRows, start: int) -> Any:
            kept = trail.running[number]
            return finish(kept[-1] if kept else None)

        return read


def aggregated(reference: Reference) -> tuple[Running, Callable[[Any], Any]]:
    """How a row changes an aggregate's value, which is None at first, and the result."""
    value = reference.value
    match reference.function:
        case "COUNT":
            return _counted(value), lambda kept: kept or 0
        case "SUM":
            return _over_values(value, _plus(reference.type)), lambda kept: kept
        case "AVG":
            plus = _plus(reference.type)
            pairs = _over_values(value, lambda kept, new: (plus(kept[0], new), kept[1] + 1), lambda new: (new, 1))
            return pairs, lambda kept: None if kept is None else _mean(kept[0], kept[1], reference.type)
        case "MIN":
            return _over_values(value, min), lambda kept: kept
        case "MAX":
            return _over_values(value, max), lambda kept: kept
    raise AssertionError(reference.function)


def _counted(value: int | None) -> Running:
    if value is None:
        return lambda kept, values: (kept or 0) + 1
    return lambda kept, values: (kept or 0) + (values[value] is not None)


def _over_values(
    value: int | None, joined: Callable[[Any, Any], Any], first: Callable[[Any], Any] = lambda new: new
) -> Running:
    """Nulls change nothing."""
    assert value is not None, "an aggregate of values has an argument"

    def step(kept: Any, values: Values) -> Any:
        new = values[value]
        if new is None:
            return kept
        return first(new) if kept is None else joined(kept, new)

    return step


def _plus(kind: SqlType) -> Callable[[Any, Any], Any]:
    return _EXACT.add if kind.kind is Kind.DECIMAL else lambda kept, new: kept + new


def _mean(total: Any, count: int, kind: SqlType) -> Any:
    """As SQL has it: whole numbers stay whole, towards zero."""
    if kind.kind in INTEGERS:
        return abs(total) // count * (1 if total >= 0 else -1)
    if kind.kind is Kind.DECIMAL:
        return _EXACT.divide(total, decimal.Decimal(count)).quantize(
            decimal.Decimal(1).scaleb(-kind.scale), context=_EXACT
        )
    return total / count
