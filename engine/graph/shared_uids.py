"""The uids of what a statement computes once for several places: no statement that computes it for each has them.

SQL's lowering gives them; where a restore finds state of the one and not of the other, it tells which option to set.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

_OPTION: Final = "table.optimizer.reuse-sub-plan-enabled"


def numbered(base: str, number: int, is_shared: bool) -> str:
    """The uid of an operator.

    Args:
        base: what it computes.
        number: of it among those of one node of a plan, from 0.
        is_shared: whether it is computed once for several places.

    Example:
        >>> numbered("sql1-aggregate-058cea9e7ef7", 0, is_shared=True)
        'sql1-aggregate-058cea9e7ef7-shared-0'
    """
    return f"{base}{'-shared' if is_shared else ''}-{number}"


def other_setting(lost: Collection[str], known: Collection[str]) -> str:
    """What a statement has to set to find its state again; empty where that is not what it lacks.

    Args:
        lost: uids of state that the program does not have.
        known: uids that it has.

    Example:
        >>> other_setting({"sum-shared-0"}, {"sum-0", "sum-0.2"})
        "; equal parts of a statement were computed once then: SET 'table.optimizer.reuse-sub-plan-enabled' = 'true'"
    """
    if _shared_forms(known) & {*lost}:
        return f"; equal parts of a statement were computed once then: SET '{_OPTION}' = 'true'"
    if _shared_forms(lost) & {*known}:
        return f"; equal parts of a statement were computed each for itself then: SET '{_OPTION}' = 'false'"
    return ""


def _shared_forms(uids: Collection[str]) -> set[str]:
    """The uids that those of second copies would have, were these computed once."""
    second = (re.fullmatch(r"(.+)-(\d+)\.2", uid) for uid in uids)
    return {numbered(copy[1], int(copy[2]), True) for copy in second if copy}
