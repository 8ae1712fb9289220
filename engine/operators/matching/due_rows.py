"""The rows that are due, sorted by key and time, with the answers of a pattern's expressions.

The operator of `KeyedStream.match` makes one at each watermark. Whatever is done for all rows is done on columns; only
the rows of keys that have a partial match, or may begin one, are sorted and read, and become Python dicts one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.engine.operators.functions.function_operator import key_values
from penstock.engine.operators.matching.event_tests import Bits
from penstock.engine.operators.matching.waiting_rows import TimedRows
from penstock.engine.patterns.row_order import by_code_and_time
from penstock.engine.row_numbers import distinct_of
from penstock.engine.rows import batch_rows, row_reader
from penstock.engine.state.backend import Key

_Int64s: TypeAlias = npt.NDArray[np.int64]


class KeyRows(NamedTuple):
    """Which rows are those of a key: from `begin` up to `end`, in order of time.

    Before `start` none of them may begin a match.
    """

    key: Key
    begin: int
    start: int
    end: int


class DueRows:
    """Rows by key and time, of keys that are chosen.

    Args:
        due: the rows.
        keys: the names of the key columns.
        bits: the answers of the expressions for each row.
        starts: whether a row with such answers may begin a match.
        where: operator and subtask, for messages.

    Attributes:
        keys: all of them, in order of first arrival.
        may_begin: for each key whether a row of it may begin a match.
        times, arrivals, bits: of each row that was chosen, as lists.
        next_start: for each row the first one from it on that may begin a match, of whatever key.
    """

    def __init__(
        self, due: TimedRows, keys: Sequence[str], bits: Bits, starts: Callable[[int], bool], where: str
    ) -> None:
        self._due = due
        self._where = where
        self._numbers, distinct = distinct_of([due.rows.column(name) for name in keys])
        columns = pa.RecordBatch.from_arrays(distinct, names=list(keys))
        self.keys: list[Key] = key_values(batch_rows(columns, where), keys)
        self._bits = bits
        self._starts = _per_answer(bits, starts)
        begins = np.zeros(len(self.keys), np.bool_)
        begins[self._numbers[self._starts]] = True
        self.may_begin: list[bool] = begins.tolist()
        self.times: list[int] = []
        self.arrivals: list[int] = []
        self.bits: list[int] = []
        self.next_start: list[int] = []
        self._row: Callable[[int], Any] = _no_row

    def chosen(self, wanted: Sequence[bool]) -> Iterator[KeyRows]:
        """The keys that are wanted, of all `keys`, with their rows, which are there to be read from now on."""
        is_wanted = np.array(wanted, np.bool_)
        places = np.flatnonzero(is_wanted[self._numbers])
        due, numbers = self._due, self._numbers[places]
        order = by_code_and_time(numbers, due.times[places])
        places, ends = places[order], np.cumsum(np.bincount(numbers, minlength=len(wanted)))
        rows = len(places)
        next_start = np.where(self._starts[places], np.arange(rows), rows)
        next_start = np.minimum.accumulate(next_start[::-1])[::-1]
        self.times = due.times[places].tolist()
        self.arrivals = due.arrivals[places].tolist()
        self.bits = self._bits[places].tolist()
        self.next_start = next_start.tolist()
        if rows:
            self._row = row_reader(due.rows.take(pa.array(places)), self._where)
        chosen = np.flatnonzero(is_wanted)
        begins = (ends - np.diff(ends, prepend=0))[chosen]
        ends = ends[chosen]
        starts = np.minimum(next_start[begins], ends)
        keys = [self.keys[number] for number in chosen.tolist()]
        return map(KeyRows, keys, begins.tolist(), starts.tolist(), ends.tolist())

    def row(self, index: int) -> Any:
        """A row of those that were chosen, as a dict of its own."""
        return self._row(index)


def _per_answer(bits: Bits, starts: Callable[[int], bool]) -> npt.NDArray[np.bool_]:
    """Of each row what `starts` says of its answers, which is asked once for all that are alike."""
    if bits.dtype == np.int64 and len(bits) and bits.max() < len(bits):
        may_start = np.zeros(int(bits.max()) + 1, np.bool_)
        for answer in np.flatnonzero(np.bincount(bits)).tolist():
            may_start[answer] = starts(answer)
        return may_start[bits]
    answers, places = np.unique(bits, return_inverse=True)
    found: npt.NDArray[np.bool_] = np.array([starts(int(answer)) for answer in answers.tolist()], np.bool_)[places]
    return found


def _no_row(number: int) -> Any:
    raise AssertionError("rows are read first")
