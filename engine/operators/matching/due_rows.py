"""The rows that are due, sorted by key and time, with the answers of a pattern's expressions.

The operator of `KeyedStream.match` makes one at each watermark. Whatever is done for all rows is done on columns; only
the rows that can matter to a partial match become Python dicts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.engine.operators.functions.function_operator import key_values
from penstock.engine.operators.matching.event_tests import Bits
from penstock.engine.operators.matching.waiting_rows import TimedRows
from penstock.engine.row_numbers import distinct_of
from penstock.engine.rows import batch_rows, row_reader
from penstock.engine.state.backend import Key

_Int64s: TypeAlias = npt.NDArray[np.int64]
_WORD_BITS: Final = 63


class KeyRows(NamedTuple):
    """Which rows are those of a key: from `begin` up to `end`, in order of time.

    Before `start` none of them may begin a match.
    """

    key: Key
    begin: int
    start: int
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
        times, arrivals, bits: of each row, as lists.
        next_start: for each row the first one from it on that may begin a match, of whatever key.
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
        order = by_code_and_time(numbers, due.times)
        self._data = due.rows.take(pa.array(order))
        columns = pa.RecordBatch.from_arrays(distinct, names=list(keys))
        self._keys = key_values(batch_rows(columns, where), keys)
        self._ends = np.cumsum(np.bincount(numbers, minlength=len(self._keys)))
        bits = bits_of(self._data)
        answers, places = np.unique(bits, return_inverse=True)
        may_start = np.array([starts(int(answer)) for answer in answers.tolist()], np.bool_)[places]
        rows = len(order)
        next_start = np.where(may_start, np.arange(rows), rows)
        self._next_start = np.minimum.accumulate(next_start[::-1])[::-1]
        self.times: list[int] = due.times[order].tolist()
        self.arrivals: list[int] = due.arrivals[order].tolist()
        self.bits: list[int] = bits.tolist()
        self.next_start: list[int] = self._next_start.tolist()
        self._row: Callable[[int], Any] = _no_row
        self._row_numbers: list[int] = []

    def by_key(self) -> Iterator[KeyRows]:
        """The keys, in order of first arrival, with their rows."""
        begins = self._ends - np.diff(self._ends, prepend=0)
        starts = np.minimum(self._next_start[begins], self._ends)
        spans = zip(self._keys, begins.tolist(), starts.tolist(), self._ends.tolist(), strict=True)
        return map(KeyRows._make, spans)

    def read(self, wanted: Sequence[tuple[int, int]]) -> None:
        """Read the rows of these spans, for `row`."""
        numbers = np.full(self._data.num_rows, -1)
        parts = [np.arange(begin, end) for begin, end in wanted if begin < end]
        if not parts:
            return
        taken = np.concatenate(parts)
        numbers[taken] = np.arange(len(taken))
        self._row = row_reader(self._data.take(pa.array(taken)), self._where)
        self._row_numbers = numbers.tolist()

    def row(self, index: int) -> Any:
        """A row of those that were read, as a dict of its own."""
        return self._row(self._row_numbers[index])


def by_code_and_time(codes: _Int64s, times: _Int64s) -> _Int64s:
    """The places of rows by code and then time; those of one time as they stand.

    Code, time and place stand in one number where they fit: numbers sort several times as fast as places by numbers.
    """
    if not len(times):
        return np.empty(0, np.int64)
    begin = int(times.min())
    bits_of_time, bits_of_place = (int(times.max()) - begin).bit_length(), (len(times) - 1).bit_length()
    if int(codes.max()).bit_length() + bits_of_time + bits_of_place > _WORD_BITS:
        return np.lexsort((times, codes))
    packed = codes.astype(np.int64) << bits_of_time
    packed |= times - begin
    packed <<= bits_of_place
    packed |= np.arange(len(times))
    packed.sort()
    packed &= (1 << bits_of_place) - 1
    return packed


def _no_row(number: int) -> Any:
    raise AssertionError("rows are read first")
