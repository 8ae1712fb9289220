"""Question 4: how many rows a second do tumbling windows take with 1 and 10 million keys, and how many bytes a key?

Windows of 10 s. Keys follow the golden ratio: a window has as many rows as there are keys, most keys have one or two
in it, and those that follow each other lie far apart. Whole windows are measured, from the row at which one ends to
that at which another does, so that adding to windows and emptying them have their right shares. Bytes a key are the
most memory, less that of the same job with 1,000 keys. Run by `perf/run.py wide`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock import DataGenSource, DataStream, StreamEnvironment, WatermarkStrategy, count, tumbling
from penstock import max as max_of
from penstock import min as min_of
from penstock import sum as sum_of
from perf.generators import Pool, values
from perf.harness import BenchmarkError, BoundedRun, ComparedResult, Options, Result, Workload, throughput
from perf.keyed_state import Keys
from perf.peers.digest import Digest
from perf.peers.task import PeerInput, PeerTask
from perf.window import expected

_NAME: Final = "wide"
_SIZE_MS: Final = 10_000
_START_MS: Final = 1_800_000_000_000
_VARIANTS: Final = {"1k keys": 1_000, "1M keys": 1_000_000, "10M keys": 10_000_000}
_CHECK_KEYS: Final = 5_000
_LEAST_ROWS_PER_SECOND: Final = 100_000

_Int64s: TypeAlias = "npt.NDArray[np.int64]"


def run(options: Options, wanted: str = "") -> Iterator[Result]:
    """Measure the variants whose name contains `wanted`."""
    workloads = [_workload(options, variant, keys) for variant, keys in _VARIANTS.items() if wanted in variant]
    few = None
    for result in throughput(_NAME, workloads, options):
        few = few or result
        if few is not result:
            keys = _VARIANTS[result.variant] - _VARIANTS[few.variant]
            print(f"wide: {result.variant}: {_bytes_a_key(few, result, keys)}", file=sys.stderr)
        yield result


def _bytes_a_key(few: Result, many: Result, keys: int) -> str:
    """What so many keys more take, by resident memory: ours, and the peer's."""
    pairs = [("ours", few.ours, many.ours)]
    if isinstance(few, ComparedResult) and isinstance(many, ComparedResult):
        pairs.append((many.peer_name, few.peer, many.peer))
    return ", ".join(
        f"{name} {((after.peak_rss_mb or 0) - (before.peak_rss_mb or 0)) * 2**20 / keys:.0f} bytes a key"
        for name, before, after in pairs
    )


def _workload(options: Options, variant: str, keys: int) -> Workload:
    per_second = max(keys * 1000 // _SIZE_MS, _LEAST_ROWS_PER_SECOND)
    check_per_second = max(1, options.check_rows // 40)

    def check(bounded: BoundedRun) -> None:
        rows, _ = bounded(lambda env: _windowed(_rows(env, _CHECK_KEYS, check_per_second, options.check_rows)))
        right = _expected(check_per_second, options.check_rows)
        order = [("key", "ascending"), ("window_start", "ascending")]
        if not rows.cast(right.schema).sort_by(order).equals(right.sort_by(order)):
            raise BenchmarkError(f"wide: {rows.num_rows} windows, not {right.num_rows}, or others")

    def right_digest() -> Digest:
        return Digest.of(*_expected(check_per_second, options.check_rows).columns)

    task = PeerTask(
        "window",
        _for_peer(keys, per_second),
        _for_peer(_CHECK_KEYS, check_per_second, rows=options.check_rows),
        right_digest,
    )
    window_rows = per_second * _SIZE_MS // 1000
    return Workload(variant, lambda env: _windowed(_rows(env, keys, per_second)), _NAME, check, task, whole=window_rows)


def _for_peer(keys: int, per_second: int, **more: int) -> PeerInput:
    settings = {
        "spread_keys": keys,
        "rows_per_second": per_second,
        "start_ms": _START_MS,
        "watermark_ms": 0,
        "size_ms": _SIZE_MS,
        "slide_ms": _SIZE_MS,
        **more,
    }
    return PeerInput(settings, {"v": values, "delay": partial(pa.array, [0], pa.int64())})


def _rows(env: StreamEnvironment, keys: int, per_second: int, rows: int | None = None) -> DataStream:
    columns = {"key": Keys(keys), "ts": partial(_times, per_second), "v": Pool(values)}
    return env.from_source(DataGenSource(columns, rows=rows))


def _times(per_second: int, rows: _Int64s) -> pa.Array:
    return pa.array(rows * 1000 // per_second + _START_MS)


def _windowed(rows: DataStream) -> DataStream:
    keyed = rows.assign_timestamps("ts", WatermarkStrategy.for_monotonous_timestamps()).key_by("key")
    aggregates = {"n": count(), "total": sum_of("v"), "low": min_of("v"), "high": max_of("v")}
    return keyed.window(tumbling("10s")).aggregate(**aggregates).name(_NAME)


def _expected(per_second: int, rows: int) -> pa.Table:
    numbers = np.arange(rows)
    made = (Keys(_CHECK_KEYS)(numbers), _times(per_second, numbers), Pool(values)(numbers))
    key, ts, v = (np.asarray(column) for column in made)
    return expected(tumbling("10s"), (key, ts, v))
