"""What a sequence of single stages means, written from its definition: which choices of events are matches."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations


def all_matches(stages: Sequence[tuple[str, str]], letters: Sequence[str], within: int) -> list[tuple[int, ...]]:
    """All matches among events that come one a millisecond, each the places of its events.

    Args:
        stages: contiguity to the stage before, and the letters that fit.
        letters: the events.
        within: the match takes less than this; 0 for any time.
    """
    chosen = combinations(range(len(letters)), len(stages))
    return [places for places in chosen if _is_match(stages, letters, places, within)]


def _is_match(stages: Sequence[tuple[str, str]], letters: Sequence[str], places: tuple[int, ...], within: int) -> bool:
    if within and places[-1] - places[0] >= within:
        return False
    if any(letters[place] not in fitting for place, (_, fitting) in zip(places, stages, strict=True)):
        return False
    for before, place, (contiguity, fitting) in zip(places, places[1:], stages[1:], strict=False):
        between = letters[before + 1 : place]
        if contiguity == "next" and between:
            return False
        if contiguity == "followed_by" and any(letter in fitting for letter in between):
            return False
    return True
