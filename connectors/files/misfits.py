"""The rows of a CSV file with more or fewer fields than its header, until their block comes, in little more memory.

`kept_csv` notes them. Of a file in which no row has the right number of fields Arrow gives no block before its end, so
that all of its rows wait here.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import NamedTuple


class Misfit(NamedTuple):
    """One of them: its number, how many fields it has, and its bytes."""

    number: int
    fields: int
    raw: bytes


class Misfits:
    """They are noted and taken in the order of their numbers."""

    def __init__(self) -> None:
        self._numbers, self._fields, self._ends = array("q"), array("q"), array("q")
        self._raw = bytearray()
        self._gone = 0
        self._newest = 0

    def __len__(self) -> int:
        return len(self._numbers)

    def note(self, number: int, fields: int, raw: bytes) -> None:
        """Note a row; one that was noted already, before a block was read again, counts once."""
        if number <= self._newest:
            return
        self._newest = number
        self._numbers.append(number)
        self._fields.append(fields)
        self._raw += raw
        self._ends.append(self._gone + len(self._raw))

    def run(self, number: int, most: int) -> int:
        """How many stand one behind the other from this row on, `most` at most."""
        count = min(most, len(self))
        while count and self._numbers[count - 1] != number + count - 1:
            count -= 1
        return count

    def behind(self, number: int, others: int) -> int:
        """The number of the row behind so many other ones from this row on, and behind these up to there."""
        for misfit in self._numbers:
            if misfit - number > others:
                break
            others -= misfit - number
            number = misfit + 1
        return number + others

    def take(self, end: int) -> Iterator[Misfit]:
        """Those before the row with this number, which are let go of when all have been asked for."""
        begin = count = 0
        for number, fields, stop in zip(self._numbers, self._fields, self._ends, strict=True):
            if number >= end:
                break
            yield Misfit(number, fields, bytes(self._raw[begin : stop - self._gone]))
            begin = stop - self._gone
            count += 1
        del self._numbers[:count], self._fields[:count], self._ends[:count], self._raw[:begin]
        self._gone += begin
