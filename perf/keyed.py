"""Question 2: how many rows a second does a running sum per key take, behind a real shuffle?

(key int64, ts int64, v float64), keys uniform and Zipf(1.0), 1,000 and 100,000 of them; coalesced: one update for each
key and batch. Run by `perf/run.py keyed`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa

from penstock import DataGenSource, DataStream, Sequence, StreamEnvironment
from penstock import sum as sum_of
from perf.generators import Pool, uniform_keys, values, zipf_keys
from perf.harness import BenchmarkError, BoundedRun, Options, Result, Workload, null_workload, throughput

_NAME: Final = "keyed"
_KEYS: Final = {"uniform": uniform_keys, "zipf": zipf_keys}


def run(options: Options, wanted: str = "") -> Iterator[Result]:
    """Measure the variants whose name contains `wanted`."""
    workloads = [_workload(options, kind, keys) for kind in _KEYS for keys in (1_000, 100_000)]
    workloads.append(null_workload(partial(_rows, Pool(partial(uniform_keys, 1_000)))))
    yield from throughput(_NAME, [work for work in workloads if wanted in work.variant], options)


def _workload(options: Options, kind: str, keys: int) -> Workload:
    make = partial(_KEYS[kind], keys)

    def stream(env: StreamEnvironment, rows: int | None = None) -> DataStream:
        return _rows(Pool(make), env, rows).key_by("key").aggregate(total=sum_of("v")).name(_NAME)

    def check(bounded: BoundedRun) -> None:
        updates, _ = bounded(lambda env: stream(env, options.check_rows))
        _check(updates, make(), options.check_rows)

    return Workload(f"{kind} {keys // 1000}k coalesced", stream, _NAME, check)


def _rows(keys: Pool, env: StreamEnvironment, rows: int | None = None) -> DataStream:
    return env.from_source(DataGenSource({"key": keys, "ts": Sequence(), "v": Pool(values)}, rows=rows))


def _check(updates: pa.Table, keys: pa.Array, rows: int) -> None:
    numbers = np.arange(rows) % len(keys)
    given = keys.to_numpy()[numbers]
    sums = np.bincount(given, values().to_numpy()[numbers])
    # The last update of a key is its sum.
    last = dict(zip(updates.column("key").to_pylist(), updates.column("total").to_pylist(), strict=True))
    if last != {key: sums[key] for key in np.unique(given).tolist()}:
        raise BenchmarkError(
            f"keyed: {len(last)} keys with a total of {sum(last.values())}, not {sums.sum()}, or others"
        )
