"""The columns of a frame, and the pieces of SQL, that relations of all kinds are made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

TIME: Final = "t"
"""The column of event timestamps (int64 ms)."""
ERROR: Final = "raise_error('the engine would refuse this row')"


def columns_of(schema: pa.Schema) -> list[str]:
    """What the columns of a relation are called in its frame."""
    return [f"c{number}" for number in range(len(schema))]


def renamed(columns: Sequence[str]) -> list[str]:
    """Expressions as the columns of a frame, in order."""
    return [f"{column} c{number}" for number, column in enumerate(columns)]


def key(column: str) -> str:
    """A column that rows are brought together by: null is an error."""
    return f"if(isnotnull({column}), {column}, {ERROR})"


def last_start(time: str, step: int, offset: int) -> str:
    """The last multiple of `step`, moved by `offset`, that is not after `time`."""
    moved = f"{time} - {offset}L" if offset else time
    return f"{time} - pmod({moved}, {step}L)"
