"""The kinds of changelog rows, and what they mean for a count of rows.

`Batch.kinds` holds them, numbered as Flink's `RowKind`: +I 0, -U 1, +U 2, -D 3.
"""

from __future__ import annotations

import enum
from typing import Final

import numpy as np
import numpy.typing as npt

from penstock.engine.elements import Batch

INSERT: Final = 0
"""+I: a row is there that was not."""
UPDATE_BEFORE: Final = 1
"""-U: what a row was before an update."""
UPDATE_AFTER: Final = 2
"""+U: what a row is after an update."""
DELETE: Final = 3
"""-D: a row is there no longer."""

_WEIGHTS: Final = np.array([1, -1, 1, -1])


class Takes(enum.Enum):
    """What may come to an operator."""

    INSERTS = "inserts"
    """Rows that stay: nothing that only a retraction needs is kept."""
    CHANGES = "changes"
    """Rows that come and go, by all kinds of rows. Updates are said with what was before."""


class Images(enum.Enum):
    """How an operator says that a row was updated."""

    BEFORE_AND_AFTER = "before and after"
    """By -U and +U: for operators that take rows back by their content."""
    AFTER = "after"
    """By +U alone: for those that know the row by its key."""


def weights(batch: Batch) -> npt.NDArray[np.int64]:
    """1 for each row that comes, -1 for each that goes.

    Example:
        >>> rows = pa.record_batch({"n": [5, 5, 6]})
        >>> weights(Batch(rows, kinds=pa.array([0, 3, 2], pa.int8()))).tolist()
        [1, -1, 1]
    """
    if batch.kinds is None:
        return np.ones(batch.num_rows, np.int64)
    signs: npt.NDArray[np.int64] = _WEIGHTS[batch.kinds.to_numpy()]
    return signs
