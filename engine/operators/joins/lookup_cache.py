"""Rows that were looked up, kept for a while: what `lookup_join(cache=LookupCache(...))` means.

The lookup join asks it for the keys of a batch before it asks the table. It also remembers keys that have no row.
Entries go when their time is over, and where there is no room those that were not used for longest.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.engine.cells.cell_pool import CellPool
from penstock.engine.durations import Duration, format_duration, parse_duration
from penstock.engine.errors import ConfigurationError
from penstock.engine.operators.join_columns import Int64s
from penstock.engine.operators.joins.row_log import RowLog, positions
from penstock.engine.state.keys.codec import grown
from penstock.engine.windows.limits import check_count

_NEVER: Final = 2**63 - 1
_NONE: Final = -1
_SLACK_ROWS: Final = 1024
"""So many rows of forgotten keys are not worth dropping."""


@dataclass(frozen=True, slots=True)
class LookupCache:
    """How many looked-up rows each subtask keeps, and how long.

    Args:
        max_rows: rows to keep; a key without any counts as one, and a key with more is not kept.
        ttl: how long after it was looked up a key is looked up again; None means never.

    Raises:
        ConfigurationError: `max_rows` is no whole number of 1 or more; `ttl` is no duration, or 0.

    Example:
        >>> LookupCache(max_rows=1_000, ttl="10m").describe()
        'cache of 1000 rows for 10m'
    """

    max_rows: int = 10_000
    ttl: Duration | None = "10m"

    def __post_init__(self) -> None:
        check_count(self.max_rows, "LookupCache: max_rows")
        if self.ttl_ms == 0:
            raise ConfigurationError("LookupCache: ttl must be more than 0; give ttl=None to keep rows for ever")

    @property
    def ttl_ms(self) -> int | None:
        """The time to live in milliseconds."""
        return None if self.ttl is None else parse_duration(self.ttl, "LookupCache: ttl")

    def describe(self) -> str:
        kept = "" if self.ttl_ms is None else f" for {format_duration(self.ttl_ms)}"
        return f"cache of {self.max_rows} rows{kept}"


class CachedRows:
    """The cache of one subtask: a log of rows, and for each key a slot with the range of its rows there.

    Args:
        settings: its size and time to live.
        schema: the columns of the rows.
    """

    def __init__(self, settings: LookupCache, schema: pa.Schema) -> None:
        self._settings = settings
        self._empty = pa.RecordBatch.from_pylist([], schema=schema)
        self._log = RowLog()
        # The key that was not used for longest comes first.
        self._slots: OrderedDict[Any, int] = OrderedDict()
        self._pool = CellPool()
        self._begins = np.empty(0, np.int64)
        self._lengths = np.empty(0, np.int64)
        self._expires = np.empty(0, np.int64)
        self._live = 0
        self._rows = 0
        self.hits = 0
        self.misses = 0

    def __len__(self) -> int:
        """Rows kept; a key without any counts as one."""
        return self._rows

    @property
    def held(self) -> int:
        """Rows in memory, those of forgotten keys that were not dropped yet among them."""
        return len(self._log)

    def find(self, keys: Sequence[Any], now_ms: int) -> tuple[Int64s, Int64s]:
        """For each key the range of its rows: begin and length, for `take`; the length is -1 where it is not known."""
        slots = np.fromiter((self._slots.get(key, _NONE) for key in keys), np.int64, len(keys))
        known = slots != _NONE
        known[known] = self._expires[slots[known]] > now_ms
        begins, lengths = np.zeros(len(keys), np.int64), np.full(len(keys), -1)
        found = slots[known]
        begins[known], lengths[known] = self._begins[found], self._lengths[found]
        for key in compress(keys, known.tolist()):
            self._slots.move_to_end(key)
        self.hits += len(found)
        self.misses += len(keys) - len(found)
        return begins, lengths

    def take(self, begins: Int64s, lengths: Int64s) -> pa.RecordBatch:
        """The rows of these ranges, which `find` gave since the last `add`, one behind the other."""
        if not len(begins):
            return self._empty
        places = positions(begins, lengths)
        order = np.argsort(places)
        rows = self._log.take(places[order])
        places[order] = np.arange(len(places))
        return rows.take(pa.array(places))

    def add(self, keys: Sequence[Any], lengths: Int64s, rows: pa.RecordBatch, now_ms: int) -> None:
        """Keep the rows of keys that `find` did not know; not those of a key that has more than there is room for.

        Args:
            keys: distinct, each as Python values.
            lengths: how many of `rows`, one after another, each key has.
        """
        for key in keys:
            if key in self._slots:
                self._forget(self._slots.pop(key))
        fits = lengths <= self._settings.max_rows
        if not fits.all():
            rows = rows.filter(pa.array(np.repeat(fits, lengths)))
            keys, lengths = list(compress(keys, fits.tolist())), lengths[fits]
        slots = self._pool.take(len(keys))
        self._begins, self._lengths, self._expires = (
            grown(values, self._pool.end) for values in (self._begins, self._lengths, self._expires)
        )
        self._begins[slots] = self._log.append(rows) + np.cumsum(lengths) - lengths
        self._lengths[slots] = lengths
        ttl = self._settings.ttl_ms
        self._expires[slots] = _NEVER if ttl is None else now_ms + ttl
        self._slots.update(zip(keys, slots.tolist(), strict=True))
        self._live += rows.num_rows
        self._rows += int(np.maximum(lengths, 1).sum())
        while self._rows > self._settings.max_rows:
            self._forget(self._slots.popitem(last=False)[1])
        if len(self._log) > 2 * self._live + _SLACK_ROWS:
            self._compact()

    def _forget(self, slot: int) -> None:
        length = int(self._lengths[slot])
        self._live -= length
        self._rows -= max(length, 1)
        self._pool.give_back(np.array([slot]))

    def _compact(self) -> None:
        """Drop the rows of forgotten keys."""
        slots = np.fromiter(self._slots.values(), np.int64, len(self._slots))
        slots = slots[self._lengths[slots] > 0]
        slots = slots[np.argsort(self._begins[slots])]
        lengths = self._lengths[slots]
        self._log.keep(positions(self._begins[slots], lengths))
        self._begins[slots] = np.cumsum(lengths) - lengths
