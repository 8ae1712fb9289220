"""The rows that have come and whose time has not: kept by arrival, given out by time.

The operator of `KeyedStream.match` holds one. It guarantees that rows leave in order of time and, within one time, of
arrival, wherever batches were cut, and that it costs little to ask when nothing is due.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.engine.elements import concat_record_batches
from penstock.engine.state.capture import TableCapture
from penstock.engine.state.snapshot import KEY_GROUP, Redistribution, StateTable, keyed_table
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


class WaitingRows:
    """Rows by time.

    Args:
        schema: their columns, with plain types.
        keys: the names of the key columns.
    """

    def __init__(self, schema: pa.Schema, keys: Sequence[str]) -> None:
        self._schema = schema
        self._keys = tuple(keys)
        self._parts: list[TimedRows] = []
        """Each in order of time."""
        self._arrived = 0

    def add(self, rows: pa.RecordBatch, times: _Int64s) -> None:
        """Keep rows, in order of arrival."""
        arrivals = np.arange(self._arrived, self._arrived + len(times))
        self._arrived += len(times)
        if len(times) > 1 and (times[1:] < times[:-1]).any():
            order = np.argsort(times, kind="stable")
            rows, times, arrivals = rows.take(pa.array(order)), times[order], arrivals[order]
        self._parts.append(TimedRows(rows, times, arrivals))

    def take(self, time: int) -> TimedRows | None:
        """The rows up to `time`, in no particular order; None for none."""
        due: list[TimedRows] = []
        kept: list[TimedRows] = []
        for part in self._parts:
            end = int(np.searchsorted(part.times, time, side="right"))
            if end:
                due.append(_slice(part, 0, end))
            if end < len(part.times):
                kept.append(part if not end else _slice(part, end, len(part.times)))
        if not due:
            return None
        self._parts = kept
        return TimedRows(
            concat_record_batches([part.rows for part in due]),
            np.concatenate([part.times for part in due]),
            np.concatenate([part.arrivals for part in due]),
        )

    def __len__(self) -> int:
        return sum(len(part.times) for part in self._parts)

    def capture(self, max_parallelism: int) -> dict[str, TableCapture]:
        """All rows, as a keyed table; nothing where there are none."""
        if not self._parts:
            return {}
        parts = list(self._parts)
        return {WAITING: TableCapture(Redistribution.KEYED, lambda: self._table(parts, max_parallelism).data)}

    def _table(self, parts: Sequence[TimedRows], max_parallelism: int) -> StateTable:
        order = pa.array(np.argsort(np.concatenate([part.arrivals for part in parts])))
        rows = pa.Table.from_batches([part.rows for part in parts], self._schema).take(order)
        times = pa.array(np.concatenate([part.times for part in parts])).take(order)
        nulls = pa.nulls(len(times), pa.int64())
        columns = {name: rows.column(name) for name in self._keys} | {START: nulls, END: nulls}
        columns |= {name: rows.column(name) for name in rows.column_names if name not in self._keys}
        return keyed_table(pa.table({**columns, _TIME: times}), self._keys, max_parallelism)

    def restore(self, table: StateTable) -> None:
        """Hold what `capture` has given; there are no rows yet."""
        data = table.data.drop_columns([KEY_GROUP]).combine_chunks()
        for batch in data.select(self._schema.names).cast(self._schema).to_batches():
            times = data.column(_TIME).to_numpy()[self._arrived : self._arrived + batch.num_rows]
            self.add(batch, times)


def _slice(part: TimedRows, begin: int, end: int) -> TimedRows:
    return TimedRows(part.rows.slice(begin, end - begin), part.times[begin:end], part.arrivals[begin:end])
