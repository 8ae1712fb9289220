"""The last rows of a running stream, for people who ask: a tap is put on an operator's output, and taken off again.

Runtimes attach it between two steps of a task. While there is none, the stream goes its way without it: nothing is
asked, counted or kept for one that might come.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.engine.elements import Batch, Control
from penstock.engine.errors import StateError
from penstock.engine.redaction import VARIABLE, is_hidden, quotable

MOST_ROWS: Final = 1000
LONGEST_SECONDS: Final = 60.0
"""Nobody is shown more at once, or may look for longer."""
SEEN: Final = b"penstock.seen"
"""Where `TappedRows.seen` is kept in the metadata of a table that travels as a stream of Arrow."""
SUBTASK: Final = "subtask"
EVENT_TIME: Final = "event_time"
ROW_KIND: Final = "row_kind"
_KINDS: Final = ("+I", "-U", "+U", "-D")
"""By the number of the kind, as Flink prints them."""


@dataclass(frozen=True, slots=True)
class TappedRows:
    """What has passed an operator's output while somebody looked.

    Args:
        rows: the newest, in their order; secrets in them are masked.
        seen: how many have passed.
    """

    rows: pa.Table
    seen: int


class RowTap:
    """A collector that keeps the newest rows.

    Args:
        most: how many.
        enough: of how many on nobody waits for more.
        on_enough: called once, when so many have come.
    """

    def __init__(self, most: int, enough: int, on_enough: Callable[[], object]) -> None:
        self._most = most
        self._enough = enough
        self._on_enough = on_enough
        self._parts: deque[Batch] = deque()
        self._held = 0
        self.seen = 0

    def collect(self, batch: Batch) -> None:
        part = batch.slice(max(0, batch.num_rows - self._most))
        self._parts.append(part)
        self._held += part.num_rows
        while self._held - self._parts[0].num_rows >= self._most:
            self._held -= self._parts.popleft().num_rows
        was_enough = self.seen >= self._enough
        self.seen += batch.num_rows
        if self.seen >= self._enough and not was_enough:
            self._on_enough()

    def broadcast(self, element: Control) -> None:
        """Control elements are no rows."""

    def rows(self, subtask: int) -> TappedRows:
        """What has been kept, masked; once nothing is added any more.

        The columns are the stream's, behind `subtask`, `event_time` (where the stream has timestamps) and `row_kind`
        (where it is a changelog); of two of a name, the stream's own stays.

        Args:
            subtask: where it comes from.

        Raises:
            StateError: this process shows no values.
        """
        if is_hidden():
            raise StateError(f"the processes of the job show no values of rows: {VARIABLE} is set to hidden there")
        tables = [_table(part, subtask) for part in self._parts]
        if not tables:
            return TappedRows(pa.table({}), self.seen)
        joined = pa.concat_tables(tables, promote_options="default")
        return TappedRows(joined.slice(max(0, joined.num_rows - self._most)), self.seen)


def _table(part: Batch, subtask: int) -> pa.Table:
    beside: dict[str, pa.Array] = {SUBTASK: pa.repeat(pa.scalar(subtask, pa.int32()), part.num_rows)}
    if part.timestamps is not None:
        beside[EVENT_TIME] = part.timestamps.cast(pa.timestamp("ms", "UTC"))
    if part.kinds is not None:
        beside[ROW_KIND] = pc.take(pa.array(_KINDS), part.kinds)
    # A copy of these rows alone: a slice would travel with, and hold, the whole batch.
    data = quotable(part.data.take(pa.array(range(part.num_rows), pa.int32())))
    ours = {name: column for name, column in beside.items() if name not in data.schema.names}
    return pa.table([*ours.values(), *data.columns], names=[*ours, *data.schema.names])


def newest_of_all(given: Sequence[TappedRows], most: int) -> TappedRows:
    """The newest rows of several subtasks, of each about as many.

    Args:
        given: theirs.
        most: how many rows in all.
    """
    kept, left = dict[int, pa.Table](), most
    fewest_first = sorted(enumerate(given), key=lambda one: one[1].rows.num_rows)
    for behind, (place, one) in enumerate(fewest_first):
        share = min(one.rows.num_rows, -(-left // (len(fewest_first) - behind)))
        if share:
            kept[place] = one.rows.slice(one.rows.num_rows - share)
            left -= share
    tables = [kept[place] for place in sorted(kept)]
    rows = pa.concat_tables(tables, promote_options="permissive") if tables else pa.table({})
    return TappedRows(rows, sum(one.seen for one in given))
