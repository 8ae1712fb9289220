"""Says which row has no value: expressions fail for a whole batch, and users look for the row.

The operators that evaluate expressions compute their batches by it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, TypeVar

import pyarrow as pa

from penstock.engine.errors import RecordError
from penstock.engine.rows import shown_row
from penstock.tables.functions.user import UserFunctionError

_OF_A_ROW: Final = (ValueError, ArithmeticError, re.error, pa.ArrowException)
"""What an expression raises that has no value for a row."""
_REMEDY: Final = "use TRY_CAST or CASE for such rows"
_OF_FUNCTIONS: Final = "mend the function, or keep such rows from it by CASE"
_Computed = TypeVar("_Computed")


def computed(where: str, rows: pa.RecordBatch, compute: Callable[[pa.RecordBatch], _Computed]) -> _Computed:
    """What `compute` makes of the rows.

    Args:
        where: what computes, for the message.
        rows: what expressions read.
        compute: evaluates expressions over rows.

    Raises:
        RecordError: a row has no value; it shows the first one.
    """
    try:
        return compute(rows)
    except _OF_A_ROW as error:
        raise _placed(where, rows, compute, error) from error


def _placed(
    where: str, rows: pa.RecordBatch, compute: Callable[[pa.RecordBatch], object], error: Exception
) -> RecordError:
    for row in range(rows.num_rows):
        try:
            compute(rows.slice(row, 1))
        except _OF_A_ROW as found:
            remedy = _OF_FUNCTIONS if isinstance(found, UserFunctionError) else _REMEDY
            return RecordError(f"{where}: {found} in row {shown_row(rows, row)}; {remedy}")
    return RecordError(f"{where}: {error}")
