"""How much memory do very many keys take that each have one open partial match, and is all of it given back?

Five million keys get one row each, which begins a match of two stages within an hour, through the match operator in
this process; then their time is over, bit by bit. Run by hand: `python -m perf.pattern_memory [--keys 5000000]`; exits
with 1 where anything is left, or the peak is over `--limit-mb`. `--peer flink` weighs the same in Flink's heap, by what
lives behind a collection.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from typing import Final

import numpy as np
import pyarrow as pa

from penstock import Pattern, col
from penstock.engine.clock import SystemClock
from penstock.engine.elements import Batch, Watermark
from penstock.engine.operators.base import OperatorContext
from penstock.engine.operators.matching.match_spec import MatchPlan
from penstock.engine.operators.matching.operator import MatchOperator, MatchSpec
from penstock.engine.patterns.compiler import compile_pattern
from penstock.engine.patterns.functions import SelectFunction
from penstock.engine.state.capture import CaptureRequest, CaptureScope
from perf.peers.engines import flink_cases
from perf.window_memory import Drain, settled_mb

_BATCH_ROWS: Final = 131_072
_WITHIN_MS: Final = 3_600_000
_COLUMNS: Final = {"key": pa.int64(), "v": pa.float64()}


def _operator() -> MatchOperator:
    pattern = Pattern.begin("a").where(col("v") < 1).followed_by("b").where(col("v") > 500).within(f"{_WITHIN_MS}ms")
    result = {"key": pa.int64()}
    function = SelectFunction(lambda match: {"key": match["a"][0]["key"]}, None, None)
    plan = MatchPlan(compile_pattern(pattern), ("key",), pa.schema(_COLUMNS), function, pa.schema(result))
    operator = MatchSpec(plan).create()
    operator.open(OperatorContext("match", 0, 1, SystemClock()))
    return operator


def _open(operator: MatchOperator, keys: int, out: Drain) -> None:
    """One row for each key, in an order that looks random, a row a millisecond of time divided among all."""
    order = np.random.default_rng(42).permutation(keys)
    for begin in range(0, keys, _BATCH_ROWS):
        key = order[begin : begin + _BATCH_ROWS]
        times = 1 + np.arange(begin, begin + len(key)) * (_WITHIN_MS // 2) // keys
        operator.process_batch(Batch(pa.record_batch({"key": key, "v": np.zeros(len(key))}), pa.array(times)), 0, out)
        operator.on_watermark(Watermark(int(times[-1])), out)
        out.look()


def _end(operator: MatchOperator, out: Drain) -> None:
    """Move time on until each has timed out."""
    for time in range(_WITHIN_MS, 2 * _WITHIN_MS, _WITHIN_MS // 50):
        operator.on_watermark(Watermark(time), out)
        out.look()


def _kept(operator: MatchOperator) -> int:
    """Keys with a partial match, by the tables that a checkpoint would have."""
    capture = operator.capture(CaptureRequest(0, CaptureScope.COMPLETE))
    return sum(table.rows().num_rows for name, table in capture.tables.items() if name == "partial-matches")


def main() -> int:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=5_000_000)
    parser.add_argument("--limit-mb", type=int, default=2_000)
    parser.add_argument("--peer", choices=["flink"], help="what to weigh in our place (make bench-peers)")
    given = parser.parse_args()
    if given.peer is not None:
        done = subprocess.run(flink_cases("Memory", str(given.keys)), check=True, capture_output=True, text=True)
        print(f"{given.keys:,} partial matches in Flink: {done.stdout.strip()} bytes each")
        return 0
    # What the first batches load (compiled rules, Arrow's own pools) is not state.
    first = _operator()
    _open(first, given.keys // 100, Drain())
    assert _kept(first) == given.keys // 100
    before = settled_mb()
    operator, out = _operator(), Drain()
    _open(operator, given.keys, out)
    held = settled_mb()
    _end(operator, out)
    kept, after = _kept(operator), settled_mb()
    bytes_each = (held - before) * 2**20 / given.keys
    print("| partial matches | before MB | all open MB | peak MB | left behind time-outs | after MB | bytes each |")
    print("|---|---|---|---|---|---|---|")
    print(
        f"| {given.keys:,} | {before:.0f} | {held:.0f} | {out.peak_mb:.0f} | {kept} | {after:.0f} | {bytes_each:.0f} |"
    )
    return int(kept > 0 or out.peak_mb > given.limit_mb)


if __name__ == "__main__":
    sys.exit(main())
