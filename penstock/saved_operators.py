"""The operators of a savepoint, for EXPLAIN UPGRADE FROM: the environment gives it to the tables."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.tables.upgrade import SavedOperator


def saved_operators(path: str) -> Sequence[SavedOperator]:
    """What a savepoint or retained checkpoint holds.

    Raises:
        CheckpointError: there is none at the path, or it is damaged.
    """
    from penstock.savepoints.reader import read

    return [
        SavedOperator(
            operator.uid,
            operator.name,
            sum(state.nbytes for state in operator.all_states) + operator.native_nbytes,
            bool(operator.all_states) or operator.native is not None,
        )
        for operator in read(path).operators
    ]
