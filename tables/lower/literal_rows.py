"""The rows of VALUES, computed when the program is built."""

from __future__ import annotations

import pyarrow as pa

from penstock.tables.functions.signatures import SessionValues
from penstock.tables.lower.evaluation import Evaluation
from penstock.tables.plan.nodes import Values
from penstock.tables.types import arrow_type


def literal_rows(node: Values, zone: str) -> pa.Table:
    """The rows as a table; of rows without columns one that has a column all the same, as sources need one."""
    if not node.columns:
        return pa.table({"row": pa.array(range(len(node.rows)), pa.int32())})
    one = Evaluation((), 1, SessionValues(zone))
    rows = [[one.value(value) for value in row] for row in node.rows]
    columns = []
    for place, column in enumerate(node.columns):
        kind = arrow_type(column.type)
        columns.append(pa.concat_arrays([row[place].cast(kind) for row in rows]))
    return pa.table(columns, names=[column.name for column in node.columns])
