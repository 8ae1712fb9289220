"""What the tables of an environment need of the rest: its sources, its program, connectors, and savepoints.

`StreamEnvironment.tables` calls it once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from penstock.engine.api.streams import DataStream
from penstock.engine.graph.logical import GraphBuilder
from penstock.table_connectors.registry import CONNECTORS
from penstock.tables.environment import TableEnvironment
from penstock.tables.lower.base import FromSource
from penstock.tables.session_options import JobOptions
from penstock.tables.upgrade import SavedOperator


def tables_of(
    from_source: FromSource,
    from_rows: Callable[[pa.Table], DataStream],
    apart: Callable[[pa.Table], DataStream],
    job_options: JobOptions,
    graph: Callable[[], GraphBuilder],
) -> TableEnvironment:
    """The tables of an environment.

    Args:
        from_source, from_rows: verbs of the environment.
        apart: as `from_rows`, in a program of its own, with no settings of the environment.
        job_options: what SET and RESET do with settings of jobs.
        graph: the program that is being written.
    """
    return TableEnvironment(from_source, from_rows, apart, CONNECTORS, job_options, graph, saved_operators)


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
