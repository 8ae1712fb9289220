"""The rows that are due, sorted by key and time, with the answers of a pattern's expressions.

The operator of `KeyedStream.match` makes one at each watermark. Whatever is done for all rows is done on columns; only
the rows that can matter to a partial match become Python dicts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.engine.operators.functions.function_operator import key_values
from penstock.engine.operators.matching.event_tests import Bits
from penstock.engine.operators.matching.waiting_rows import TimedRows
from penstock.engine.row_numbers import distinct_of
from penstock.engine.rows import batch_rows
from penstock.engine.state.backend import Key


class KeyRows(NamedTuple):
    """Which rows are those of a key: from `begin` up to `end`, in order of time."""

    key: Key
    begin: int
    end: int


class DueRows:
    """Rows by key and time.

    Args:
        due: the rows.
        keys: the names of the key columns.
        bits_of: the answers of the expressions for rows.
        starts: whether a row with such answers may begin a match.
        where: operator and subtask, for messages.

    Attributes:
        times, arrivals, bits, may_start: of each row, as lists.
    """

    def __init__(
        self,
        due: TimedRows,
        keys: Sequence[str],
        bits_of: Callable[[pa.RecordBatch], Bits],
        starts: Callable[[int], bool],
        where: str,
    ) -> None:
        self._where = where
        numbers, distinct = distinct_of([due.rows.column(name) for name in keys])
        order = np.lexsort((due.arrivals, due.times, numbers))
        self._data = due.rows.take(pa.array(order))
        columns = pa.RecordBatch.from_arrays(distinct, names=list(keys))
        self._keys = key_values(batch_rows(columns, where), keys)
        self._ends = np.cumsum(np.bincount(numbers, minlength=len(self._keys))).tolist()
        bits = bits_of(self._data)
        answers, places = np.unique(bits, return_inverse=True)
        may_start = np.array([starts(int(answer)) for answer in answers.tolist()], np.bool_)[places]
        self._starts = np.flatnonzero(may_start)
        self.times: list[int] = due.times[order].tolist()
        self.arrivals: list[int] = due.arrivals[order].tolist()
        self.bits: list[int] = bits.tolist()
        self.may_start: list[bool] = may_start.tolist()
        self._rows: list[Any] = []
        self._row_numbers: list[int] = []

    def by_key(self) -> Iterator[KeyRows]:
        """The keys, in order of first arrival, with their rows."""
        begin = 0
        for key, end in zip(self._keys, self._ends, strict=True):
            yield KeyRows(key, begin, end)
            begin = end

    def from_first_start(self, of_key: KeyRows) -> KeyRows:
        """The rows of a key without those that come before the first that may begin a match."""
        place = int(np.searchsorted(self._starts, of_key.begin))
        begin = int(self._starts[place]) if place < len(self._starts) else of_key.end
        return KeyRows(of_key.key, min(begin, of_key.end), of_key.end)

    def make_rows(self, wanted: Sequence[KeyRows]) -> None:
        """Make dicts of these rows, for `row`."""
        numbers = np.full(self._data.num_rows, -1)
        parts = [np.arange(one.begin, one.end) for one in wanted if one.begin < one.end]
        if not parts:
            return
        taken = np.concatenate(parts)
        numbers[taken] = np.arange(len(taken))
        data = self._data if len(taken) == self._data.num_rows else self._data.take(pa.array(taken))
        if data is self._data:
            numbers = np.arange(self._data.num_rows)
        self._rows = batch_rows(data, self._where)
        self._row_numbers = numbers.tolist()

    def row(self, index: int) -> Any:
        """A row as a dict, of those that were made."""
        return self._rows[self._row_numbers[index]]
