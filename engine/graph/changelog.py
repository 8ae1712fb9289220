"""The changelog mode of an operator's rows, and the refusal of operators that would misread their input.

The graph asks while it is built, so nothing has started where a program would count a delete as a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from penstock.engine.changelog import APPEND_ONLY, ChangelogMode, united
from penstock.engine.errors import ChangelogError
from penstock.engine.operators.spec import OperatorTraits

_MEANING = {
    ChangelogMode.APPEND: "rows that are only added",
    ChangelogMode.RETRACT: "updates and deletes",
    ChangelogMode.UPSERT: "updates without the rows before them, and deletes",
}


@dataclass(frozen=True, slots=True)
class ChangelogInput:
    """What comes into an operator on one edge.

    Args:
        index: which input of the operator it feeds.
        where: the operator that emits it, for messages.
        mode: how its rows are to be read.
    """

    index: int
    where: str
    mode: ChangelogMode


def output_mode(where: str, traits: OperatorTraits | None, inputs: Sequence[ChangelogInput]) -> ChangelogMode:
    """The changelog mode of what an operator emits.

    Args:
        where: the operator, for messages.
        traits: what it says of itself; None for sources and for results, which take rows that are only added.
        inputs: what comes into it.

    Raises:
        ChangelogError: it does not take the rows of one of them.
    """
    for one in inputs:
        accepted = APPEND_ONLY if traits is None else traits.accepted(one.index)
        if one.mode not in accepted:
            raise ChangelogError(
                f"{where} takes {_taken(accepted)}, but {one.where} emits {_MEANING[one.mode]} (a changelog in "
                f"{one.mode.value} mode), which it would take for new rows: {_remedy(one, accepted)}"
            )
    emitted = ChangelogMode.APPEND if traits is None else traits.emits
    return united(one.mode for one in inputs) if emitted is None else emitted


def _taken(accepted: AbstractSet[ChangelogMode]) -> str:
    return " or ".join(_MEANING[mode] for mode in ChangelogMode if mode in accepted)


def _remedy(given: ChangelogInput, accepted: AbstractSet[ChangelogMode]) -> str:
    if ChangelogMode.RETRACT in accepted:
        return f"put it before {given.where}"
    return (
        f"put it before {given.where}, or end the changelog in a sink that takes updates, such as "
        "PostgresSink(..., keys=...), RedisSink or ElasticsearchSink"
    )
