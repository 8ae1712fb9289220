"""What rows do to the table that a stream describes: the kinds of rows, and the modes that a changelog can be in.

Batches carry the kinds (`Batch.kinds`); operators and sinks say which modes they take and give, and the graph compares
them where it is built (`graph/changelog.py`). Source: Flink's documentation, "Dynamic Tables".
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import Final


class RowKind(enum.IntEnum):
    """What one row does to the table that a changelog describes; the numbers are Flink's."""

    INSERT = 0
    """A new row."""
    UPDATE_BEFORE = 1
    """A row as it was before an update; its `UPDATE_AFTER` follows."""
    UPDATE_AFTER = 2
    """A row as it is after an update."""
    DELETE = 3
    """A row that is no longer there."""


class ChangelogMode(enum.Enum):
    """Which row kinds a stream may hold."""

    APPEND = "append"
    """Inserts alone; batches need no kinds."""
    RETRACT = "retract"
    """All kinds; each `UPDATE_AFTER` comes behind the `UPDATE_BEFORE` of the row that it replaces."""
    UPSERT = "upsert"
    """Inserts, `UPDATE_AFTER` and `DELETE`: a row replaces the one with its key, whose old values nobody sends."""


_WEAKEST_LAST: Final = tuple(ChangelogMode)

APPEND_ONLY: Final = frozenset({ChangelogMode.APPEND})
WITH_BEFORE_IMAGES: Final = frozenset({ChangelogMode.APPEND, ChangelogMode.RETRACT})
"""For what handles each row by itself, and may drop it: it would drop the update of a row that it had let through."""
ANY_MODE: Final = frozenset(ChangelogMode)


def united(modes: Iterable[ChangelogMode]) -> ChangelogMode:
    """The mode of a stream with the rows of several.

    Example:
        >>> united([ChangelogMode.APPEND, ChangelogMode.RETRACT])
        <ChangelogMode.RETRACT: 'retract'>
    """
    return max(modes, key=_WEAKEST_LAST.index, default=ChangelogMode.APPEND)
