"""Whether saved accumulators are those that an operator needs: the same keys in the same order, the same columns.

Running aggregates and the vectorised windows ask when they are restored. What differs is refused with the remedy: rows
would otherwise be divided by other keys than before, or be missing in what is computed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from penstock.engine.aggregates.accumulators import INTERNAL
from penstock.engine.aggregates.grouped import GroupedAggregation
from penstock.engine.errors import StateError

ANOTHER_UID: Final = "give the operator another uid, and start with allow_non_restored_state to drop that state"
REMEDY: Final = "aggregate as before, or start without this operator's state"


def refuse_strangers(saved: Iterable[str], own: Iterable[str], keeper: str, where: str) -> None:
    """Make sure that the names of saved states are among the operator's own.

    Args:
        saved, own: names of states.
        keeper: what the operator is, with its article.
        where: the operator and subtask, for messages.

    Raises:
        StateError: another kind of operator has saved them.
    """
    if strangers := sorted({*saved} - {*own}):
        raise StateError(
            f"{where}: the saved state holds {', '.join(strangers)}, which {keeper} does not keep; {ANOTHER_UID}"
        )


def check_columns(saved: Sequence[str], aggregation: GroupedAggregation, beside: Sequence[str], where: str) -> None:
    """Make sure that saved rows have these keys and accumulators.

    Args:
        saved: the columns, but for the key group.
        aggregation: what is computed now.
        beside: internal columns that are no accumulators.
        where: the operator and subtask, for messages.

    Raises:
        StateError: other keys, the same in another order, or other accumulators.
    """
    keys = [name for name in saved if not name.startswith(INTERNAL)]
    if keys != list(aggregation.keys):
        raise StateError(
            f"{where}: the state was saved by the keys ({', '.join(keys)}), and the aggregate has the keys "
            f"({', '.join(aggregation.keys)}) now; {REMEDY}"
        )
    accumulators = [name for name in saved if name.startswith(INTERNAL)]
    grouped = [name for accumulator in aggregation.grouped for name in accumulator.names]
    needed = [*(fold.name for fold in aggregation.folds), *grouped, *beside]
    if set(accumulators) != set(needed):
        raise StateError(
            f"{where}: the state was saved with the accumulators ({', '.join(accumulators)}), and the aggregates need "
            f"({', '.join(needed)}) now; {REMEDY}"
        )
