"""The rows that have come and whose time has not: given out when it has.

The operator of `KeyedStream.match` holds one. It guarantees that rows of one time leave in order of arrival,
wherever batches were cut, that rows are copied at most once while they wait, and that asking for them costs little when
nothing is due.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.engine.elements import concat_record_batches
from penstock.engine.errors import StateError
from penstock.engine.operators.changelog.column_names import free_name
from penstock.engine.operators.saved_aggregates import ANOTHER_UID
from penstock.engine.state.capture import TableCapture
from penstock.engine.state.snapshot import KEY_GROUP, Redistribution, StateTable, groups_of_rows, keyed_table
from penstock.engine.state.state_tables import END, START

_Int64s: TypeAlias = npt.NDArray[np.int64]

WAITING: Final = "waiting-rows"
"""The table in snapshots: the key columns, `__start` and `__end` (null), the other columns, `__time`."""
_TIME: Final = "__time"


@dataclass(frozen=True, slots=True)
class TimedRows:
    """Rows with their times (int64 ms) and the numbers of their arrival."""

    rows: pa.RecordBatch
    times: _Int64s
    arrivals: _Int64s


class _Part(NamedTuple):
    """Rows that came together.

    Args:
        rows: in order of arrival, or of time.
        first, last: the least and the largest of their times.
        is_by_time: which of the two.
    """

    rows: TimedRows
    first: int
    last: int
    is_by_time: bool


class WaitingRows:
    """Rows by time.

    Args:
        schema: their columns, with plain types.
        keys: the names of the key columns.
    """

    def __init__(self, schema: pa.Schema, keys: Sequence[str]) -> None:
        self._schema = schema
        self._keys = tuple(keys)
        self._time = free_name(_TIME, schema.names)
        self._parts: list[_Part] = []
        """In order of arrival."""
        self._arrived = 0

    def add(self, rows: pa.RecordBatch, times: _Int64s) -> None:
        """Keep rows, in order of arrival."""
        arrivals = np.arange(self._arrived, self._arrived + len(times))
        self._arrived += len(times)
        is_by_time = not (times[1:] < times[:-1]).any()
        self._parts.append(
            _Part(TimedRows(rows, times, arrivals), int(times.min()), int(times.max()), bool(is_by_time))
        )

    def take(self, time: int) -> TimedRows | None:
        """The rows up to `time`, those of one time in order of arrival; None for none."""
        due: list[TimedRows] = []
        kept: list[_Part] = []
        for part in self._parts:
            if part.first > time:
                kept.append(part)
            elif part.last <= time:
                due.append(part.rows)
            else:
                taken, left = _split(part, time)
                due += taken
                kept.append(left)
        if not due:
            return None
        self._parts = kept
        return TimedRows(
            concat_record_batches([part.rows for part in due]),
            np.concatenate([part.times for part in due]),
            np.concatenate([part.arrivals for part in due]),
        )

    def __len__(self) -> int:
        return sum(len(part.rows.times) for part in self._parts)

    def capture(self, max_parallelism: int) -> dict[str, TableCapture]:
        """All rows, as a keyed table; nothing where there are none."""
        if not self._parts:
            return {}
        parts = [part.rows for part in self._parts]
        return {WAITING: TableCapture(Redistribution.KEYED, lambda: self._table(parts, max_parallelism).data)}

    def _table(self, parts: Sequence[TimedRows], max_parallelism: int) -> StateTable:
        order = pa.array(np.argsort(np.concatenate([part.arrivals for part in parts])))
        rows = pa.Table.from_batches([part.rows for part in parts], self._schema).take(order)
        times = pa.array(np.concatenate([part.times for part in parts])).take(order)
        nulls = pa.nulls(len(times), pa.int64())
        columns = {name: rows.column(name) for name in self._keys} | {START: nulls, END: nulls}
        columns |= {name: rows.column(name) for name in rows.column_names if name not in self._keys}
        return keyed_table(pa.table({**columns, self._time: times}), self._keys, max_parallelism)

    def restore(self, table: StateTable, max_parallelism: int, where: str) -> None:
        """Hold what `capture` has given; there are no rows yet.

        Raises:
            StateError: they lack a column, were divided by other keys, or have values that a column does not take.
        """
        data = table.data.drop_columns([KEY_GROUP]).combine_chunks()
        state = f"{where}: the rows that wait for their time were saved"
        if missing := [name for name in self._schema.names if name not in data.column_names]:
            raise StateError(f"{state} without column {missing[0]!r}; keep the columns as they were, or {ANOTHER_UID}")
        try:
            rows = data.select(self._schema.names).cast(self._schema)
        except pa.ArrowException as error:
            raise StateError(
                f"{state} with columns of other types, and do not fit into those of now: {error}; keep the types as "
                f"they were, or {ANOTHER_UID}"
            ) from error
        if (groups_of_rows(rows, self._keys, max_parallelism) != table.data.column(KEY_GROUP).to_numpy()).any():
            raise StateError(
                f"{state} by other keys than ({', '.join(self._keys)}), or by keys of other types; key by the same "
                f"columns in the same order, or {ANOTHER_UID}"
            )
        for batch in rows.to_batches():
            times = data.column(self._time).to_numpy()[self._arrived : self._arrived + batch.num_rows]
            self.add(batch, times)


def _split(part: _Part, time: int) -> tuple[list[TimedRows], _Part]:
    """The rows up to `time`, of which there are some, and the others, of which there are, too."""
    times = part.rows.times
    if part.is_by_time:
        end = int(np.searchsorted(times, time, side="right"))
        return [_slice(part.rows, 0, end)], _Part(_slice(part.rows, end, len(times)), int(times[end]), part.last, True)
    # Streams come nearly in order, so most of what is due lies in front. What is left is sorted, so no row is copied
    # more than once, however long it waits.
    front = int(np.argmax(times > time))
    behind = np.arange(front, len(times))
    is_due = times[front:] <= time
    left = behind[~is_due]
    left = left[np.argsort(times[left], kind="stable")]
    due = [_slice(part.rows, 0, front), _taken(part.rows, behind[is_due])]
    return due, _Part(_taken(part.rows, left), int(times[left[0]]), part.last, True)


def _taken(part: TimedRows, places: _Int64s) -> TimedRows:
    return TimedRows(part.rows.take(pa.array(places)), part.times[places], part.arrivals[places])


def _slice(part: TimedRows, begin: int, end: int) -> TimedRows:
    return TimedRows(part.rows.slice(begin, end - begin), part.times[begin:end], part.arrivals[begin:end])
