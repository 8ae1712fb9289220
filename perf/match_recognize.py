"""Question: how many rows a second does MATCH_RECOGNIZE take, with many keys and rows out of order?

The rows, patterns and matches of `perf/patterns.py`, as one text of SQL for both sides. Run by `perf/run.py
match_recognize`, beside Flink with `--peer flink-sql`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock import DataGenSource, DataStream, StreamEnvironment, WatermarkStrategy
from perf.harness import BenchmarkError, BoundedRun, Options, Result, Workload, throughput
from perf.patterns import BLOCK_ROWS, KEYS, VARIANTS, Int64s, Variant, columns_of, expected, for_peer
from perf.peers.digest import Digest
from perf.peers.task import PeerTask

_NAME: Final = "match_recognize"
_PATTERNS: Final = {
    "strict": "A B C) DEFINE A AS v < 100, B AS v > 500, C AS v > 900",
    "loop": "A B+ C) WITHIN INTERVAL '60' SECOND DEFINE A AS v < 100, B AS v >= 100 AND v < 500, C AS v >= 900",
    "iterative": ("A B*? C) WITHIN INTERVAL '60' SECOND DEFINE A AS v < 20, B AS B.v <= 45 * A.v, C AS C.v > 45 * A.v"),
}
"""No row fits B and C: where one does, Flink's matches that begin within others are not the shortest ones."""
_ALL: Final = "COUNT(A.v) + COUNT(B.v) + COUNT(C.v)"
_COUNTED: Final = {"strict": _ALL, "loop": _ALL, "iterative": "COUNT(A.v) + COUNT(C.v)"}
"""What `perf/patterns.py` counts: in the relaxed pattern, no rows between."""


@dataclass(frozen=True, slots=True)
class _Rowtimes:
    times: Callable[[Int64s], Any]

    def __call__(self, rows: Int64s) -> pa.Array:
        return self.times(rows).cast(pa.timestamp("ms"))


def run(options: Options, wanted: str = "") -> Iterator[Result]:
    """Measure the variants whose name contains `wanted`."""
    workloads = [_workload(options, variant) for variant in VARIANTS if wanted in variant.name]
    yield from throughput(_NAME, workloads, options)


def _workload(options: Options, variant: Variant) -> Workload:
    few, text = max(1, options.check_rows // 200), _clause(variant)

    def right() -> Sequence[Int64s]:
        return expected(variant.define, few, options.check_rows)

    def check(bounded: BoundedRun) -> None:
        rows, _ = bounded(lambda env: _matched(env, text, few, options.check_rows))
        found = [np.asarray(rows.column(name)) for name in ("key", "begins", "ends", "n")]
        if Digest.of(*found) != Digest.of(*right()):
            raise BenchmarkError(f"{_NAME}, {variant.name}: {rows.num_rows} matches, not {len(right()[0])}, or others")

    given = for_peer(few, clause=text, rows=options.check_rows)
    task = PeerTask(_NAME, for_peer(KEYS, clause=text), given, lambda: Digest.of(*right()))
    pattern = _PATTERNS[variant.name].partition(")")[0]
    return Workload(variant.name, lambda env: _matched(env, text, KEYS), f"match({pattern})", check, task)


def _clause(variant: Variant) -> str:
    return (
        "PARTITION BY key ORDER BY rowtime MEASURES A.ts AS begins, C.ts AS ends, "
        f"{_COUNTED[variant.name]} AS n ONE ROW PER MATCH AFTER MATCH SKIP TO NEXT ROW "
        f"PATTERN ({_PATTERNS[variant.name]}"
    )


def _matched(env: StreamEnvironment, clause: str, keys: int, rows: int | None = None) -> DataStream:
    columns = columns_of(keys)
    given = env.from_source(DataGenSource({**columns, "rowtime": _Rowtimes(columns["ts"])}, rows=rows))
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(f"{BLOCK_ROWS}ms")
    events = env.tables.from_stream(given.assign_timestamps("rowtime", strategy), rowtime="rowtime")
    return events.sql(f"SELECT * FROM this MATCH_RECOGNIZE ({clause})").to_stream()
