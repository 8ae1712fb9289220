"""Rows that were looked up, kept for a while: what `lookup_join(cache=LookupCache(...))` means.

The lookup join asks it for the keys of a batch before it asks the table. It also remembers keys that have no row.
Entries go when their time is over, and where there is no room those that were not used for longest.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.engine.durations import Duration, format_duration, parse_duration
from penstock.engine.elements import concat_record_batches
from penstock.engine.errors import ConfigurationError
from penstock.engine.operators.join_columns import Int64s

_NEVER: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class LookupCache:
    """How many looked-up rows each subtask keeps, and how long.

    Args:
        max_rows: rows to keep; a key without any counts as one.
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
        if not isinstance(self.max_rows, int) or isinstance(self.max_rows, bool) or self.max_rows < 1:
            raise ConfigurationError(
                f"LookupCache: max_rows must be a whole number of 1 or more, not {self.max_rows!r}"
            )
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
    """The cache of one subtask: rows in one record batch, and for each key a slot with the range of its rows.

    Args:
        settings: its size and time to live.
        schema: the columns of the rows.
    """

    def __init__(self, settings: LookupCache, schema: pa.Schema) -> None:
        self._settings = settings
        self._rows = pa.RecordBatch.from_pylist([], schema=schema)
        self._slots: dict[Any, int] = {}
        self._keys: list[Any] = []
        self._begins = np.empty(0, np.int64)
        self._lengths = np.empty(0, np.int64)
        self._expires = np.empty(0, np.int64)
        self._used = np.empty(0, np.int64)
        self._live = np.empty(0, np.bool_)
        self._turn = 0
        self.hits = 0
        self.misses = 0

    def __len__(self) -> int:
        """Rows kept; a key without any counts as one."""
        return int(np.maximum(self._lengths[self._live], 1).sum())

    @property
    def rows(self) -> pa.RecordBatch:
        """What the ranges of `find` mean; valid until `add`."""
        return self._rows

    def find(self, keys: Sequence[Any], now_ms: int) -> tuple[Int64s, Int64s]:
        """For each key the range of its rows in `rows`: begin and length; the length is -1 where it is not known."""
        self._turn += 1
        slots = np.fromiter((self._slots.get(key, -1) for key in keys), np.int64, len(keys))
        known = slots >= 0
        known[known] = self._expires[slots[known]] > now_ms
        begins, lengths = np.zeros(len(keys), np.int64), np.full(len(keys), -1)
        found = slots[known]
        begins[known], lengths[known] = self._begins[found], self._lengths[found]
        self._used[found] = self._turn
        self.hits += len(found)
        self.misses += len(keys) - len(found)
        return begins, lengths

    def add(self, keys: Sequence[Any], lengths: Int64s, rows: pa.RecordBatch, now_ms: int) -> None:
        """Keep the rows of keys that `find` did not know.

        Args:
            keys: distinct, each as Python values.
            lengths: how many of `rows`, one after another, each key has.
        """
        self._forget(self._slots[key] for key in keys if key in self._slots)
        ttl, count = self._settings.ttl_ms, len(keys)
        self._slots.update(zip(keys, range(len(self._keys), len(self._keys) + count), strict=True))
        self._keys.extend(keys)
        begins = np.cumsum(lengths) - lengths + self._rows.num_rows
        self._begins = np.concatenate([self._begins, begins])
        self._lengths = np.concatenate([self._lengths, lengths])
        self._expires = np.concatenate([self._expires, np.full(count, _NEVER if ttl is None else now_ms + ttl)])
        self._used = np.concatenate([self._used, np.full(count, self._turn)])
        self._live = np.concatenate([self._live, np.ones(count, np.bool_)])
        self._rows = concat_record_batches([self._rows, rows])
        self._make_room()
        if len(self._slots) <= len(self._keys) // 2:
            self._compact()

    def _forget(self, slots: Iterable[int]) -> None:
        for slot in slots:
            del self._slots[self._keys[slot]]
            self._live[slot] = False

    def _make_room(self) -> None:
        """Forget the keys that were not used for longest, as many as have to go."""
        excess = len(self) - self._settings.max_rows
        if excess > 0:
            live = np.flatnonzero(self._live)
            oldest = live[np.argsort(self._used[live], kind="stable")]
            freed = np.cumsum(np.maximum(self._lengths[oldest], 1))
            self._forget(oldest[: np.searchsorted(freed, excess) + 1].tolist())

    def _compact(self) -> None:
        """Drop the slots and rows of forgotten keys."""
        live, begins, self._lengths = self._live, self._begins[self._live], self._lengths[self._live]
        self._begins = np.cumsum(self._lengths) - self._lengths
        places = np.arange(self._lengths.sum()) + np.repeat(begins - self._begins, self._lengths)
        self._rows = self._rows.take(pa.array(places))
        self._expires, self._used = self._expires[live], self._used[live]
        self._keys = [self._keys[slot] for slot in np.flatnonzero(live).tolist()]
        self._slots = {key: slot for slot, key in enumerate(self._keys)}
        self._live = np.ones(len(self._keys), np.bool_)
