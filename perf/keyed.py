"""Question 2: how many rows a second does a running sum per key take, behind a real shuffle?

(key int64, ts int64, v float64), keys uniform and Zipf(1.0), 1,000 and 100,000 of them; coalesced: one update for each
key and batch; per record: one for each row, by a process function that works on batches, with a compiled loop. The peer
of the first is SQL with mini-batches (`flink-sql`), that of the second a process function (`flink`). Run by
`perf/run.py keyed`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock import DataGenSource, DataStream, KeyedBatch, KeyedProcessFunction, Sequence, StreamEnvironment
from penstock import ValueStateDescriptor as ValueState
from penstock import sum as sum_of
from penstock.engine.api.streams import KeyedStream
from penstock.engine.functions import Context, RuntimeContext
from perf.generators import Pool, uniform_keys, values, zipf_keys
from perf.harness import BenchmarkError, BoundedRun, Options, Result, Workload, null_workload, throughput
from perf.peers.digest import Digest
from perf.peers.task import Column, PeerInput, PeerTask

_Floats: TypeAlias = "npt.NDArray[np.float64]"
_Places: TypeAlias = "npt.NDArray[np.integer[Any]]"

_NAME: Final = "keyed"
_KEYS: Final = {"uniform": uniform_keys, "zipf": zipf_keys}
_TOTAL: Final = ValueState("total", "float64", default=0.0)


class RunningSum(KeyedProcessFunction):
    """The running sum: rows in the order in which they came, one after another, by a loop that numba compiles."""

    def open(self, context: RuntimeContext) -> None:
        self.total = context.get_state(_TOTAL)
        self.add_up = _compiled_sums()
        # Compiled here, and not while the first rows wait.
        self.add_up(np.zeros(1), np.zeros(1, np.int64), np.zeros(1))

    def process_batch(self, batch: KeyedBatch, ctx: Context) -> dict[str, Any]:
        totals = self.total.values().to_numpy().copy()
        updates = self.add_up(totals, batch.groups, batch.data["v"].to_numpy())
        self.total.update_values(totals)
        return {"key": batch.data["key"], "total": updates}


@cache
def _compiled_sums() -> Callable[[_Floats, _Places, _Floats], _Floats]:
    import numba

    def add_up(totals: _Floats, places: _Places, values: _Floats) -> _Floats:
        """Add each value to the total in its place; the total of each row just behind it."""
        updates = np.empty(len(values))
        for row in range(len(values)):
            totals[places[row]] += values[row]
            updates[row] = totals[places[row]]
        return updates

    compiled: Callable[[_Floats, _Places, _Floats], _Floats] = numba.njit(nogil=True)(add_up)
    return compiled


def run(options: Options, wanted: str = "") -> Iterator[Result]:
    """Measure the variants whose name contains `wanted`."""
    workloads = [
        workload(options, kind, keys, updates) for updates in _UPDATES for kind in _KEYS for keys in (1_000, 100_000)
    ]
    keys = partial(uniform_keys, 1_000)
    null = PeerTask("events", PeerInput(columns={"key": keys, "v": values}))
    workloads.append(null_workload(partial(_rows, Pool(keys)), null))
    yield from throughput(_NAME, [work for work in workloads if wanted in work.variant], options)


def _coalesced(rows: KeyedStream) -> DataStream:
    return rows.aggregate(total=sum_of("v"))


def _per_record(rows: KeyedStream) -> DataStream:
    return rows.process(RunningSum, returns={"key": "int64", "total": "float64"})


_UPDATES: Final = {"coalesced": (_coalesced, "keyed_coalesced"), "per record": (_per_record, "keyed")}
"""How updates are given, by us and by the peer's program."""


def workload(options: Options, kind: str, keys: int, updates: str) -> Workload:
    """The running sum over so many keys of a kind (`uniform`, `zipf`), with updates as `_UPDATES` has them."""
    make = partial(_KEYS[kind], keys)
    summed, program = _UPDATES[updates]

    def stream(env: StreamEnvironment, rows: int | None = None) -> DataStream:
        return summed(_rows(Pool(make), env, rows).key_by("key")).name(_NAME)

    def check(bounded: BoundedRun) -> None:
        got, _ = bounded(lambda env: stream(env, options.check_rows))
        if updates == "per record":
            _check_each(got, make(), options.check_rows)
        _check(got, make(), options.check_rows)

    task = _peer_task(program, make, options.check_rows)
    return Workload(f"{kind} {keys // 1000}k {updates}", stream, _NAME, check, task)


def _peer_task(program: str, keys: Column, check_rows: int) -> PeerTask:
    columns = {"key": keys, "v": values}

    def expected() -> Digest:
        sums = _sums(keys(), check_rows)
        return Digest.of(list(sums), list(sums.values()))

    check = PeerInput({"rows": check_rows}, columns)
    return PeerTask(program, PeerInput(columns=columns), check, expected)


def _rows(keys: Pool, env: StreamEnvironment, rows: int | None = None) -> DataStream:
    return env.from_source(DataGenSource({"key": keys, "ts": Sequence(), "v": Pool(values)}, rows=rows))


def _check(updates: pa.Table, keys: pa.Array, rows: int) -> None:
    sums = _sums(keys, rows)
    # The last update of a key is its sum, and the largest one, since no value is negative.
    last: dict[int, float] = {}
    for key, total in zip(updates.column("key").to_pylist(), updates.column("total").to_pylist(), strict=True):
        last[key] = max(total, last.get(key, 0.0))
    if last != sums:
        raise BenchmarkError(
            f"keyed: {len(last)} keys with a total of {sum(last.values())}, not {sum(sums.values())}, or others"
        )


def _check_each(updates: pa.Table, keys: pa.Array, rows: int) -> None:
    """There is an update for each row: sorted, the totals of a key grow by its values, in whatever order rows came."""
    key, total = (updates.column(name).to_numpy() for name in ("key", "total"))
    order = np.lexsort((total, key))
    key, total = key[order], total[order]
    grown = np.diff(total, prepend=0.0)
    first = np.diff(key, prepend=-1) != 0
    grown[first] = total[first]
    numbers = np.arange(rows) % len(keys)
    given, added = keys.to_numpy()[numbers], values().to_numpy()[numbers]
    if not np.array_equal(_sorted(key, grown), _sorted(given, added)):
        raise BenchmarkError(f"keyed: {len(key)} updates for {rows} rows, or by other values than the rows have")


def _sorted(key: Any, value: Any) -> Any:
    order = np.lexsort((value, key))
    return np.stack([key[order], value[order]])


def _sums(keys: pa.Array, rows: int) -> dict[int, float]:
    numbers = np.arange(rows) % len(keys)
    given = keys.to_numpy()[numbers]
    sums = np.bincount(given, values().to_numpy()[numbers])
    return {key: float(sums[key]) for key in np.unique(given).tolist()}
