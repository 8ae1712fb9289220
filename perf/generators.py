"""Input for the benchmarks, prepared before the clock starts.

The programs build `DataGenSource` columns from these. Row i's value is value i modulo the pool's size, whatever the
parallelism: an engine in another language can generate the same rows from the same arrays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

POOL_ROWS: Final = 2**20
LINE_POOL_ROWS: Final = 2**16
LINE_BYTES: Final = 100
LINE_PATTERN: Final = "(error|fatal|panic) code=[45][0-9]{2}"
"""What grep looks for: a class and an alternation."""
_LONGEST_RUN: Final = 131_072
"""The most rows of a batch, unless a job says otherwise."""
_SEED: Final = 2026
_WORDS: Final = ("alpha", "beta", "gamma", "delta", "login", "logout", "service", "request", "session", "error")

Rows: TypeAlias = "npt.NDArray[np.int64]"


class Pool:
    """A column of `DataGenSource` that repeats a prepared array, handed out in slices without a copy.

    Args:
        make: gives the array; called where the rows are needed, so that the pool travels as a few bytes.

    Example:
        >>> Pool(lambda: pa.array([5, 6, 7]))(np.array([1, 2, 3])).to_pylist()
        [6, 7, 5]
    """

    def __init__(self, make: Callable[[], pa.Array]) -> None:
        self._make = make
        self._values: pa.Array | None = None
        self._lanes: dict[tuple[int, int], pa.Array] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return Pool, (self._make,)

    def __call__(self, rows: Rows) -> pa.Array:
        """The values of rows that are evenly spaced, as a source's subtask reads them."""
        if self._values is None:
            self._values = self._make()
        values = self._values
        if len(rows) < 2:
            return values.take(pa.array(rows % len(values)))
        first, step = int(rows[0]), int(rows[1] - rows[0])
        if len(values) % step or len(rows) > _LONGEST_RUN:
            return values.take(pa.array(rows % len(values)))
        return self._lane(values, first % step, step).slice(first % len(values) // step, len(rows))

    def _lane(self, values: pa.Array, first: int, step: int) -> pa.Array:
        """Every `step`-th value from `first` on, and the beginning once more, so that no run crosses the end."""
        lane = self._lanes.get((first, step))
        if lane is None:
            size = len(values) // step
            order = np.arange(size + _LONGEST_RUN) % size * step + first
            lane = self._lanes[first, step] = values.take(pa.array(order))
        return lane


def uniform_keys(keys: int) -> pa.Array:
    """int64 keys 0 to `keys` - 1, each as likely as any other."""
    return pa.array(_random().integers(0, keys, POOL_ROWS))


def zipf_keys(keys: int) -> pa.Array:
    """int64 keys 0 to `keys` - 1, key k in proportion to 1 / (k + 1)."""
    cumulative = np.cumsum(1.0 / np.arange(1, keys + 1))
    drawn = np.searchsorted(cumulative, _random().random(POOL_ROWS) * cumulative[-1], side="right")
    return pa.array(np.minimum(drawn, keys - 1))


def values() -> pa.Array:
    """float64 whole numbers 0 to 999: sums of them are exact, in whatever order they are added."""
    return pa.array(_random().integers(0, 1000, POOL_ROWS).astype(np.float64))


def delays(delayed: float, most_ms: int, late: float, latest_ms: int) -> pa.Array:
    """int64 milliseconds that rows come late: 0 but for two shares of them.

    Args:
        delayed: the share of rows that come up to `most_ms` late.
        late: the share of rows that come later than that, up to `latest_ms`.
    """
    random = _random()
    drawn = random.random(POOL_ROWS)
    moved = random.integers(0, most_ms + 1, POOL_ROWS)
    too_late = random.integers(most_ms + 1, max(latest_ms, most_ms + 1) + 1, POOL_ROWS)
    return pa.array(np.where(drawn < late, too_late, np.where(drawn < late + delayed, moved, 0)))


def log_lines() -> pa.Array:
    """Lines of 100 bytes, of which 1 % match `LINE_PATTERN` and 5 % nearly do."""
    random = _random()
    return pa.array([_line(random, number) for number in range(LINE_POOL_ROWS)])


def _line(random: np.random.Generator, number: int) -> str:
    words = [_WORDS[place] for place in random.integers(0, len(_WORDS), 16)]
    # Spread evenly over the pool, so that each run of rows has its 1 %.
    if number % 100 == 7:
        words[int(random.integers(0, 10))] = (
            f"{random.choice(['error', 'fatal', 'panic'])} code={random.integers(400, 600)}"
        )
    elif number % 20 == 3:
        words[int(random.integers(0, 10))] = f"error code={random.integers(200, 400)}"
    return " ".join(words)[:LINE_BYTES].ljust(LINE_BYTES, ".")


def _random() -> np.random.Generator:
    return np.random.default_rng(_SEED)
