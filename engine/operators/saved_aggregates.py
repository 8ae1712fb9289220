"""Whether saved accumulators are those that an operator needs: the same keys in the same order, the same columns.

Running aggregates and the vectorised windows ask when they are restored. What differs is refused with the remedy: rows
would otherwise be divided by other keys than before, or be missing in what is computed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import pyarrow as pa

from penstock.engine.aggregates.accumulators import INTERNAL
from penstock.engine.aggregates.grouped import GroupedAggregation
from penstock.engine.elements import join_schemas
from penstock.engine.errors import RecordError, StateError

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


def check_types(saved: pa.Schema, came: pa.Schema, where: str) -> pa.Schema | None:
    """Make sure that the first rows behind a restore have the types of the saved state.

    Args:
        saved: the columns of the state.
        came: the keys and accumulators of rows.
        where: the operator and subtask, for messages.

    Returns:
        `saved`, where a column has nothing but nulls so far, so that the next rows are to be looked at too; else None.

    Raises:
        StateError: they have others.
    """
    try:
        join_schemas(pa.schema([saved.field(name) for name in came.names]), came, "saved state")
    except RecordError as error:
        kinds = [", ".join(f"{name}: {schema.field(name).type}" for name in came.names) for schema in (saved, came)]
        raise StateError(
            f"{where}: the state was saved as ({kinds[0]}), and the rows now make ({kinds[1]}); {REMEDY}"
        ) from error
    return saved if any(map(pa.types.is_null, came.types)) else None
