"""The position of a reader that counts rows: what the readers of collections, generators and files keep in checkpoints.

A reader gives `row_position`, and its source reads it back with `row_of`. The rows of a split are numbered from 0.
"""

from __future__ import annotations

from penstock.engine.connectors import Position
from penstock.engine.errors import RestoreError


def row_position(row: int) -> Position:
    """The position in front of row number `row`."""
    return {"row": row}


def row_of(position: Position, where: str) -> int:
    """The number of the row that a reader is to resume at.

    Args:
        position: from `row_position`.
        where: which source and split, for messages.

    Raises:
        RestoreError: the position is another source's.

    Example:
        >>> row_of({"row": 7}, "collection")
        7
    """
    row = position.get("row")
    if not isinstance(row, int) or isinstance(row, bool) or row < 0:
        raise RestoreError(
            f"{where}: a position must have a row number, not {dict(position)!r}; the checkpoint was taken with "
            "another source under this uid: give the new source a uid of its own"
        )
    return row
