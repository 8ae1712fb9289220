"""What the tables of an environment need of the rest: its sources, its program, connectors, and savepoints.

`StreamEnvironment.tables` calls it once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from penstock.engine.graph.logical import GraphBuilder
from penstock.table_connectors.registry import CONNECTORS
from penstock.tables.environment import TableEnvironment
from penstock.tables.upgrade import SavedOperator

if TYPE_CHECKING:
    from penstock.environment import StreamEnvironment


def tables_of(environment: StreamEnvironment, graph: Callable[[], GraphBuilder]) -> TableEnvironment:
    """The tables of an environment.

    Args:
        environment: whose programs read and write them.
        graph: the program that is being written.
    """
    return TableEnvironment(
        environment.from_source,
        environment.from_collection,
        CONNECTORS,
        environment.configure,
        graph,
        saved_operators,
    )


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
