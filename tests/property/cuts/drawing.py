"""Draws random operators, one or two behind each other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Final

from tests.property.cuts import compiled, functions, joins, windows
from tests.property.cuts.runs import Operators, all_rows

Draw = Callable[[Random, str], Operators]
DRAWS: Final[Mapping[Draw, int]] = {
    windows.window: 20,
    functions.keyed_process: 4,
    functions.numbered: 1,
    functions.reduced: 1,
    functions.running: 3,
    functions.row_wise: 2,
    functions.punctuated: 1,
    functions.keyed_both: 2,
    functions.both: 1,
    functions.ruled: 2,
    compiled.compiled: 2,
    joins.window_join: 4,
    joins.co_group: 2,
    joins.interval_join: 3,
    joins.temporal_join: 3,
    joins.lookup_join: 1,
    joins.matched: 4,
}


def random_operators(random: Random, kind: str) -> Operators:
    """Operators over rows whose `x` is of that type."""
    first = _drawn(random, kind)
    if first.is_normal and first.is_in_order and random.random() < 0.5:
        second = _drawn(random, kind)
        if second.inputs == 1:
            return _behind(first, second)
    return first


def _drawn(random: Random, kind: str) -> Operators:
    return random.choices(list(DRAWS), list(DRAWS.values()))[0](random, kind)


def _behind(first: Operators, second: Operators) -> Operators:
    """Both, one behind the other; they are resumed where the order of rows is that of one key in both."""
    # Where the first one gives several rows at once, results of late ones may be fewer.
    twin = second.twin if second.fewer is all_rows else None
    return Operators(
        f"{first.text}; then {second.text}",
        lambda *streams: second.build(first.build(*streams)),
        first.inputs,
        first.keys if first.keys == second.keys else (),
        sides=(*first.sides, *(tag for tag in second.sides if tag not in first.sides)),
        fewer=second.fewer,
        # In which order rows of both come to one side output, goes by batches.
        is_in_order=second.is_in_order and not {*first.sides} & {*second.sides},
        has_lists_in_order=second.has_lists_in_order,
        can_resume=first.keys == second.keys,
        twin=None if twin is None else lambda *streams: twin(first.build(*streams)),
    )
