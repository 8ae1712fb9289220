"""How much memory do windows of very many keys take, and do they give it back?

Ten million distinct keys go through the tumbling-window operator in this process: all in one window, then a million in
each of ten. The table shows the resident set before the first row, at its peak, and behind the last window.
Run it by hand: `python perf/window_memory.py [--keys 10000000]`.
"""

from __future__ import annotations

import argparse
import gc
import resource
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from penstock import count
from penstock import max as max_of
from penstock import min as min_of
from penstock import sum as sum_of
from penstock.engine.aggregates.grouped import GroupedAggregation
from penstock.engine.clock import SystemClock
from penstock.engine.elements import MAX_TIMESTAMP, Batch, Control, Watermark
from penstock.engine.free_memory import free_memory
from penstock.engine.operators.base import OperatorContext
from penstock.engine.operators.windows.window_aggregate import WindowAggregate, WindowAggregateSpec
from penstock.engine.windows.assigners import tumbling

_BATCH_ROWS: Final = 131_072
_WINDOW_MS: Final = 10_000
_ROWS_A_KEY: Final = 2


class Drain:
    """Counts the rows that are emitted, and the largest resident set meanwhile."""

    def __init__(self) -> None:
        self.rows = 0
        self.peak_mb = 0.0

    def collect(self, batch: Batch) -> None:
        self.rows += batch.num_rows
        self.look()

    def broadcast(self, element: Control) -> None:
        """Nothing to count."""

    def look(self) -> None:
        self.peak_mb = max(self.peak_mb, resident_mb())


def resident_mb() -> float:
    """Of this process; Linux says it in pages."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 2**20


def settled_mb() -> float:
    """The same, once all that is free has been given back."""
    gc.collect()
    free_memory()
    return resident_mb()


def _operator() -> WindowAggregate:
    aggregates = {"n": count(), "total": sum_of("v"), "low": min_of("v"), "high": max_of("v")}
    operator = WindowAggregateSpec(tumbling(f"{_WINDOW_MS}ms"), GroupedAggregation(["key"], aggregates)).create()
    operator.open(OperatorContext("window", 0, 1, SystemClock()))
    return operator


def _feed(operator: WindowAggregate, keys: int, windows: int, out: Drain) -> None:
    """Two rows of each key, in an order that looks random; window by window, each with its share of the keys."""
    share = keys // windows
    rng = np.random.default_rng(42)
    for window in range(windows):
        order = rng.permutation(np.tile(np.arange(window * share, (window + 1) * share), _ROWS_A_KEY))
        for begin in range(0, len(order), _BATCH_ROWS):
            key = order[begin : begin + _BATCH_ROWS]
            times = window * _WINDOW_MS + np.arange(begin, begin + len(key)) * _WINDOW_MS // len(order)
            data = pa.record_batch({"key": key, "v": key * 0.5})
            operator.process_batch(Batch(data, pa.array(times)), 0, out)
            operator.on_watermark(Watermark(int(times[-1]) - 1), out)
            out.look()
    operator.on_watermark(Watermark(MAX_TIMESTAMP), out)


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=10_000_000)
    keys = parser.parse_args().keys
    # What the first batch loads (compiled kernels, Arrow's own pools) is not state.
    _feed(_operator(), keys // 100, 1, Drain())
    print("| windows | keys in each | rows out | before MB | peak MB | after MB | bytes a key at the peak |")
    print("|---|---|---|---|---|---|---|")
    for windows in (1, 10):
        before = settled_mb()
        operator, out = _operator(), Drain()
        _feed(operator, keys, windows, out)
        after = settled_mb()
        each = keys // windows
        grown = (out.peak_mb - before) * 2**20 / each
        print(f"| {windows} | {each:,} | {out.rows:,} | {before:.0f} | {out.peak_mb:.0f} | {after:.0f} | {grown:.0f} |")


if __name__ == "__main__":
    main()
