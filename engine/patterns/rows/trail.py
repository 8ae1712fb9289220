"""The rows that a search has taken so far, by variable, with running values over them.

`RowSearch` adds rows and takes them back; conditions and measures read it. What is read costs the same however long
the match is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

Values: TypeAlias = tuple[Any, ...]
"""What is known of a row: the values that conditions and measures read."""
Running: TypeAlias = Callable[[Any, Values], Any]
"""Makes the value with a further row of the value before it, which is None at first."""


@dataclass(frozen=True)
class TrailLayout:
    """What a trail keeps.

    Args:
        groups: sets of variables whose rows are looked up.
        running: values over the rows of a group: the group's number, and how a row changes the value.
        variables: how many variables there are.
    """

    groups: tuple[frozenset[int], ...]
    running: tuple[tuple[int, Running], ...]
    variables: int

    @cached_property
    def groups_of(self) -> list[list[int]]:
        """By variable: the groups that have it."""
        return [
            [number for number, group in enumerate(self.groups) if variable in group]
            for variable in range(self.variables)
        ]

    @cached_property
    def running_of(self) -> list[list[tuple[int, Running]]]:
        """By variable: the running values that its rows change, and how."""
        return [
            [(number, step) for number, (group, step) in enumerate(self.running) if group in groups]
            for groups in self.groups_of
        ]


class Trail:
    """The rows of one search.

    Args:
        layout: what is kept.
    """

    __slots__ = ("_groups_of", "_running_of", "places", "running", "taken")

    def __init__(self, layout: TrailLayout) -> None:
        self.taken: list[int] = []
        """The variable of each row."""
        self.places: list[list[int]] = [[] for _ in layout.groups]
        """By group: which of the rows are in it."""
        self.running: list[list[Any]] = [[] for _ in layout.running]
        """By running value: the value at each of the rows of its group."""
        self._groups_of = layout.groups_of
        self._running_of = layout.running_of

    def add(self, variable: int, values: Values) -> None:
        """Take the next row."""
        place = len(self.taken)
        self.taken.append(variable)
        for group in self._groups_of[variable]:
            self.places[group].append(place)
        for number, step in self._running_of[variable]:
            kept = self.running[number]
            kept.append(step(kept[-1] if kept else None, values))

    def cut(self, length: int) -> None:
        """Take back all rows but the first `length`."""
        taken = self.taken
        while len(taken) > length:
            variable = taken.pop()
            for group in self._groups_of[variable]:
                self.places[group].pop()
            for number, _ in self._running_of[variable]:
                self.running[number].pop()
