"""How many rows a task should have before it: as many as it processes in a stated time, by what it has measured.

The loop tells it what each batch cost; the head gives batches of `rows`, and the input gate lets senders know `worth`.
What a batch costs is taken for a fixed part and a part for each row, so that neither a slow function gets seconds of
work at once, nor one that waits for a service its rows one by one. Time spent blocked counts: rows wait then, too.

Source: Flink's documentation, "Network Buffer Tuning", "The Buffer Debloating Mechanism". Here docs/adr/0045.
"""

from __future__ import annotations

import math
from typing import Final

FIRST_ROWS: Final = 256
"""Rows of a batch before anything has been measured: half a second of a function that takes 2 ms a row."""
_GROWTH: Final = 16.0
"""So many times as many rows the next batch may have."""
_MEMORY: Final = 0.7
"""What the time spent blocked counts for when the next batch has come."""
_UNLIKE: Final = 1.5
"""Batches one after another whose sizes differ by this factor tell what is fixed."""
_BELIEF, _SLOWER, _FASTER = 0.5, 0.7, 0.3
"""Parts of what is believed that two such batches change, and one that took longer or less than is believed."""
_MOST_OFF: Final = 16.0
"""A batch takes no more than so many times what is believed, as far as that goes: a process may lose its core."""
_PROBES, _PROBE_PART = 16, 4
"""Every so many batches, where they are not full, one has so small a part of the rows."""
_MOST_MESSAGES: Final = 16
"""What is worth the target is no more than so many messages: nobody has that many under way."""
_FIXED_TIMES: Final = 2.0
"""A batch may take so many times as long over its rows as over what is fixed, whatever the target."""


class Pace:
    """The pace of one task. `add` follows each batch, and `heed` goes before the next one where there is reason to.

    Args:
        target: seconds that what is before the task should be worth; 0: batches are bounded by their size alone.
        most: the most rows of a batch.

    Attributes:
        rows: of the next batch, at the most.
        worth: rows that are worth `target`, under way to the task from all its senders; infinity where there is no
            target.
        may_grow: whether more rows would be worth it, as far as the task itself goes.

    Example:
        >>> pace = Pace(0.1, 100_000)
        >>> pace.add(pace.rows, busy=pace.rows * 0.002)
        >>> pace.rows
        25
    """

    def __init__(self, target: float, most: int) -> None:
        self._target = target
        self._most = most
        self._fixed = self._each = self._share = 0.0
        self._last_rows, self._last_busy = 0, 0.0
        self._count = 0
        self._recent_rows = self._blocked = 0.0
        self._half = FIRST_ROWS if target else math.inf
        self.rows = min(FIRST_ROWS, most) if target else most
        self.worth = 2 * self._half
        self.may_grow = False

    def add(self, rows: int, busy: float) -> None:
        """A batch of `rows` has been processed in `busy` seconds."""
        if not self._target:
            return
        self._count += 1
        self._learn(rows, busy)
        self._recent_rows = self._recent_rows * _MEMORY + rows
        self._blocked *= _MEMORY
        self._share = max(self._target / 2 - self._fixed, _FIXED_TIMES * self._fixed)
        affordable = self._share / self._each if self._each else math.inf
        if affordable < self._half:
            self._choose(affordable)
        elif self.rows < self._most:
            self._choose(self._half)
        self.may_grow = affordable > self._half and self._half < _MOST_MESSAGES * self._most

    def _learn(self, rows: int, busy: float) -> None:
        """Correct what is believed of the fixed part of a batch, and of that for each row."""
        last_rows, last_busy = self._last_rows, self._last_busy
        self._last_rows, self._last_busy = rows, busy
        if not last_rows:
            self._each = busy / rows
        elif max(rows, last_rows) >= _UNLIKE * min(rows, last_rows):
            each = min(max((busy - last_busy) / (rows - last_rows), 0.0), busy / rows)
            self._each += _BELIEF * (each - self._each)
            self._fixed += _BELIEF * (busy - each * rows - self._fixed)
        elif believed := self._fixed + self._each * rows:
            off = min(busy / believed, _MOST_OFF) - 1
            change = 1 + off * (_SLOWER if off > 0 else _FASTER)
            self._fixed *= change
            self._each *= change
        else:
            self._each = busy / rows

    def heed(self, blocked: float, wanted: float) -> None:
        """Follow the receivers of what the task emits.

        Args:
            blocked: seconds that the task has been blocked since the batch before.
            wanted: the rows of input of which they get as much as they want at once. Never fewer are taken because
                receivers are slow, as those that have fixed costs would be slower still.
        """
        self._blocked += blocked
        each = self._each + (self._blocked / self._recent_rows if self._recent_rows else 0.0)
        half = self._share / each if each else math.inf
        half = min(max(half, wanted) if self._blocked else half, _GROWTH * self._half)
        self._choose(min(half, max(2 * wanted, self._half)))

    def _choose(self, half: float) -> None:
        self._half = half
        self.worth = 2 * half
        if half >= self._most:
            self.rows = self._most
            return
        self.rows = int(half / _PROBE_PART if self._count % _PROBES == 0 else half) or 1
