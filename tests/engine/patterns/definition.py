"""What a pattern means, written from its definition: every choice of events that its stages allow is a match.

No automaton, no clock and no queue: stages take events one behind the other, and each way to do so is tried. Slow, and
short enough to be read. Cases are those of `cases.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from tests.engine.patterns.cases import Case, fulfils

Way = tuple[tuple[str, int], ...]
"""Variable and place of each event, in order."""
_NOT: Final = ("notNext", "notFollowedBy")


@dataclass(frozen=True)
class Open:
    """What holds from the last event to the next one, which is included: conditions that no event may fulfil."""

    forbidden: tuple[Case, ...] = ()


@dataclass(frozen=True)
class Definition:
    """A case over the events of one key.

    Args:
        given: the case.
        events: dicts with `name`, `value` and `at`, in order of time.
    """

    given: Case
    events: Sequence[dict[str, Any]]

    @cached_property
    def matches(self) -> list[Way]:
        """All matches, before any strategy skips some; as often as there are ways to find them."""
        ways = self._chain(self.given["pattern"]["stages"], (), Open(), None)
        return [way for way, behind in ways if way and self._is_over(way, behind)]

    def is_given(self, emitted: Sequence[Way]) -> bool:
        """Whether the skip strategy may give these matches, in this order.

        Of the matches that are left, one of those that began first is given; it ends others, until none is left.
        """
        left = list(self.matches)
        for way in emitted:
            if way not in left or way[0][1] != min(other[0][1] for other in left):
                return False
            left.remove(way)
            bound = self._bound(way)
            left = [other for other in left if other[0][1] >= bound]
        return not left

    def _bound(self, way: Way) -> int:
        """What began before this event goes."""
        kind, variable = self.given["skip"]["kind"], self.given["skip"]["variable"]
        places = [place for name, place in way if name == variable]
        match kind:
            case "to_next":
                return way[0][1] + 1
            case "past_last":
                return way[-1][1] + 1
            case "to_first" | "to_last" if places:
                return places[0] if kind == "to_first" else places[-1]
            case _:
                return 0

    # Chains

    def _chain(
        self, stages: Sequence[Case], taken: Way, behind: Open, contiguity: str | None
    ) -> Iterator[tuple[Way, Open]]:
        """The ways through stages; `contiguity` is that of the first one where a group says so."""
        if not stages:
            yield taken, behind
            return
        stage = {**stages[0], "contiguity": contiguity or stages[0]["contiguity"]}
        for way, open_ in self._stage(stage, taken, behind):
            yield from self._chain(stages[1:], way, open_, None)

    def _stage(self, stage: Case, taken: Way, behind: Open) -> Iterator[tuple[Way, Open]]:
        if stage["contiguity"] == "notFollowedBy" or (stage["contiguity"] == "notNext" and not taken):
            # Where all before it is left out, the match must not begin with such an event.
            yield taken, Open((*behind.forbidden, stage["condition"]))
        elif stage["contiguity"] == "notNext":
            following = taken[-1][1] + 1
            if self._is_in_time(taken, following) and not self._holds(stage["condition"], taken, following):
                yield taken, behind
        else:
            least, most = _often(stage)
            if stage.get("optional") or least == 0:
                yield taken, self._left_to(stage, behind)
            yield from self._rounds(stage, 0, max(least, 1), most, taken, behind)

    def _rounds(
        self, stage: Case, count: int, least: int, most: int | None, taken: Way, behind: Open
    ) -> Iterator[tuple[Way, Open]]:
        """One event, or round of a group, after the other; `count` of them have been."""
        if count >= least:
            yield taken, self._left_to(stage, behind)
        if count == most:
            return
        contiguity = _between(stage) if count else stage["contiguity"]
        if "group" in stage:
            for way, open_ in self._chain(stage["group"], taken, behind, contiguity):
                yield from self._rounds(stage, count + 1, least, most, way, open_)
            return
        for place in self._next_places(stage, taken, behind, contiguity, is_again=count > 0):
            yield from self._rounds(stage, count + 1, least, most, (*taken, (stage["name"], place)), Open())

    def _next_places(
        self, stage: Case, taken: Way, behind: Open, contiguity: str | None, *, is_again: bool
    ) -> Iterator[int]:
        """Where the next event of a stage may be."""
        first = taken[-1][1] + 1 if taken else 0
        for place in range(first, len(self.events)):
            if taken and not self._is_in_time(taken, place):
                return
            is_forbidden = any(self._holds(condition, taken, place) for condition in behind.forbidden)
            if is_forbidden and taken:
                return
            ends = "until" in stage and self._holds(stage["until"], taken, place)
            if ends and is_again:
                return
            fits = self._holds(stage["condition"], taken, place) and not ends and not is_forbidden
            gap = stage.get("gap_ms")
            if gap is not None and taken and self._at(place) - self._at(taken[-1][1]) >= gap:
                return
            if fits:
                yield place
            # Any event may be a first one.
            if taken and (contiguity == "next" or (fits and contiguity == "followedBy")):
                return

    def _left_to(self, stage: Case, behind: Open) -> Open:
        """Behind a greedy loop, its events are its own."""
        least, most = _often(stage)
        is_loop = stage.get("greedy") and least != most
        return Open((*behind.forbidden, stage["condition"])) if is_loop else behind

    # Time and conditions

    def _is_over(self, way: Way, behind: Open) -> bool:
        """Whether nothing comes that must not, as long as the match may last."""
        if self.given["pattern"]["stages"][-1]["contiguity"] != "notFollowedBy":
            return True
        later = range(way[-1][1] + 1, len(self.events))
        in_time = [place for place in later if self._is_in_time(way, place)]
        return not any(self._holds(condition, way, place) for place in in_time for condition in behind.forbidden)

    def _is_in_time(self, taken: Way, place: int) -> bool:
        if place >= len(self.events):
            return False
        bound = self.given["within_ms"]
        return bound is None or self._at(place) - self._at(taken[0][1]) < bound

    def _at(self, place: int) -> int:
        at: int = self.events[place]["at"]
        return at

    def _holds(self, condition: Case, taken: Way, place: int) -> bool:
        def so_far(variable: str) -> list[dict[str, Any]]:
            return [self.events[one] for name, one in taken if name == variable]

        return fulfils(condition, self.events[place], so_far)


def _often(stage: Case) -> tuple[int, int | None]:
    """The least and the largest number of events; None for any number."""
    match stage.get("quantifier"):
        case None:
            return 1, 1
        case {"kind": "times", "n": count}:
            return count, count
        case {"kind": "times_range", "from": least, "to": most}:
            return least, most
        case {"kind": "times_or_more", "n": least}:
            return least, None
        case _:
            return 1, None


def _between(stage: Case) -> str:
    """The contiguity between two events of a loop."""
    if stage.get("consecutive"):
        return "next"
    return "followedByAny" if stage.get("combinations") else "followedBy"
