"""What does a user's function with state by key cost: a running count per key, as rows, compiled, and as batches?

(key int64, ts int64, v float64), 1,000 uniform keys, behind a real shuffle; one row out for each row in. Run by
`perf/run.py process`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa

import penstock as ps
from penstock import DataGenSource, DataStream, KeyedBatch, KeyedProcessFunction, Sequence, StreamEnvironment
from penstock import ValueStateDescriptor as ValueState
from penstock.engine.functions import Context, Row, RuntimeContext
from perf.generators import Pool, uniform_keys, values
from perf.harness import BenchmarkError, BoundedRun, Options, Result, Workload, null_workload, throughput
from perf.peers.digest import Digest
from perf.peers.task import PeerInput, PeerTask

_NAME: Final = "process"
_KEYS: Final = 1_000
COUNT_COLUMNS: Final = {"key": "int64", "n": "int64"}
_PEER_COLUMNS: Final = {"key": partial(uniform_keys, _KEYS), "v": values}
_COUNT: Final = ValueState("count", "int64", default=0)


class CountRows(KeyedProcessFunction):
    """The running count, row by row."""

    def open(self, context: RuntimeContext) -> None:
        self.count = context.get_state(_COUNT)

    def process_element(self, row: Row, ctx: Context) -> Iterator[Row]:
        n = self.count.value() + 1
        self.count.update(n)
        yield {"key": row["key"], "n": n}


@ps.compiled
class CountCompiled(CountRows):
    """The same class, compiled."""


class CountBatches(KeyedProcessFunction):
    """The same with NumPy: the rank of each row within its key and batch, beyond the count so far."""

    def open(self, context: RuntimeContext) -> None:
        self.count = context.get_state(_COUNT)

    def process_batch(self, batch: KeyedBatch, ctx: Context) -> dict[str, Any]:
        counts = np.bincount(batch.groups, minlength=batch.keys.num_rows)
        order = np.argsort(batch.groups.astype(np.int16), kind="stable")
        ranks = np.empty(batch.num_rows, np.int64)
        ranks[order] = np.arange(1, batch.num_rows + 1) - np.repeat(np.cumsum(counts) - counts, counts)
        before = self.count.values().to_numpy()
        self.count.update_values(before + counts)
        return {"key": batch.data["key"], "n": before[batch.groups] + ranks}


_FUNCTIONS: Final = {"row-wise": CountRows, "compiled": CountCompiled, "batch-wise": CountBatches}


def run(options: Options, wanted: str = "") -> Iterator[Result]:
    """Measure the variants whose name contains `wanted`."""
    workloads = [_workload(options, variant, function) for variant, function in _FUNCTIONS.items()]
    workloads.append(null_workload(_rows, PeerTask("events", PeerInput(columns=_PEER_COLUMNS))))
    yield from throughput(_NAME, [work for work in workloads if wanted in work.variant], options)


def _workload(options: Options, variant: str, function: type[KeyedProcessFunction]) -> Workload:
    def stream(env: StreamEnvironment, rows: int | None = None) -> DataStream:
        return _rows(env, rows).key_by("key").process(function, returns=COUNT_COLUMNS).name(_NAME)

    def check(bounded: BoundedRun) -> None:
        counted, _ = bounded(lambda env: stream(env, options.check_rows))
        _check(counted, options.check_rows)

    # Large enough for compiled code, which small batches do without.
    batches = options.check_rows // 2_000 or 1
    return Workload(variant, stream, _NAME, check, _peer_task(options.check_rows), check_batches=batches)


def _peer_task(check_rows: int) -> PeerTask:
    def expected() -> Digest:
        keys, counts = zip(*_expected(check_rows), strict=True)
        return Digest.of(keys, counts)

    check = PeerInput({"rows": check_rows}, _PEER_COLUMNS)
    return PeerTask("count", PeerInput(columns=_PEER_COLUMNS), check, expected)


def _rows(env: StreamEnvironment, rows: int | None = None) -> DataStream:
    keys = Pool(partial(uniform_keys, _KEYS))
    return env.from_source(DataGenSource({"key": keys, "ts": Sequence(), "v": Pool(values)}, rows=rows))


def _check(counted: pa.Table, rows: int) -> None:
    got = sorted(zip(counted.column("key").to_pylist(), counted.column("n").to_pylist(), strict=True))
    if got != _expected(rows):
        raise BenchmarkError(f"process: {len(got)} rows of {len({key for key, _ in got})} keys, not {rows}, or others")


def _expected(rows: int) -> list[tuple[int, int]]:
    keys = uniform_keys(_KEYS).to_numpy()
    totals = np.bincount(keys[np.arange(rows) % len(keys)], minlength=_KEYS)
    # Each key's rows are numbered from 1, in whatever order the keys come.
    return [(key, n) for key, total in enumerate(totals.tolist()) for n in range(1, total + 1)]
