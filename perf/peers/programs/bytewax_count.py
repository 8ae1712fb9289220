"""A running count per key in Bytewax: `bytewax_count.py FOLDER PARALLELISM COUNTERS`.

A process for each worker, since the workers of one process share the interpreter's lock. Items are (key, value); keys
are texts, which Bytewax asks for, made before the clock starts.
"""

from __future__ import annotations

import multiprocessing
import socket
import sys
from pathlib import Path
from typing import Any

import bytewax.operators as op
from bytewax.dataflow import Dataflow
from bytewax.inputs import DynamicSource, StatelessSourcePartition
from bytewax.operators import StatefulBatchLogic
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.testing import cluster_main
from counters import Counters, Job, end_with_standard_input, print_digest, row_hash

BATCH_ROWS = 4096


class PoolSource(DynamicSource):
    """Worker s of p reads the rows s, s + p, s + 2p..."""

    def __init__(self, job: Job) -> None:
        self._job = job

    def build(self, step_id: str, worker_index: int, worker_count: int) -> _Partition:
        keys, values = self._job.int64s("key"), self._job.float64s("v")
        pool = [(str(key), value) for key, value in zip(keys, values, strict=True)]
        lane = pool[worker_index::worker_count]
        rows = self._job.rows
        return _Partition(lane, None if rows is None else len(range(worker_index, rows, worker_count)))


class _Partition(StatelessSourcePartition):
    def __init__(self, lane: list[tuple[str, float]], rows: int | None) -> None:
        self._lane = lane
        self._rows = rows
        self._next = 0

    def next_batch(self) -> list[tuple[str, float]]:
        wanted = BATCH_ROWS if self._rows is None else min(BATCH_ROWS, self._rows - self._next)
        if wanted <= 0:
            raise StopIteration
        start = self._next % len(self._lane)
        batch = self._lane[start : start + wanted]
        self._next += len(batch)
        return batch


class CountLogic(StatefulBatchLogic):
    """The running count of one key."""

    def __init__(self, count: int | None) -> None:
        self._count = count or 0

    def on_batch(self, values: list[float]) -> tuple[list[int], bool]:
        before = self._count
        self._count += len(values)
        return list(range(before + 1, self._count + 1)), StatefulBatchLogic.RETAIN

    def snapshot(self) -> int:
        return self._count


class CountingSink(DynamicSink):
    """Counts the rows; with `check`, it sums up their hashes too, in the slots behind those of the rows."""

    def __init__(self, counters: str, check: bool) -> None:
        self._counters = counters
        self._check = check

    def build(self, step_id: str, worker_index: int, worker_count: int) -> _Writer:
        return _Writer(Counters(self._counters), worker_index, worker_count, self._check)


class _Writer(StatelessSinkPartition):
    def __init__(self, counters: Counters, worker: int, workers: int, check: bool) -> None:
        self._counters = counters
        self._worker = worker
        self._workers = workers
        self._check = check
        self._rows = 0
        self._hash = 0

    def write_batch(self, items: list[Any]) -> None:
        self._rows += len(items)
        if self._check:
            for key, n in items:
                self._hash += row_hash(int(key), n)
            # As a signed number, which is what a slot holds.
            self._counters.set(self._workers + self._worker, (self._hash + 2**63) % 2**64 - 2**63)
        self._counters.set(self._worker, self._rows)


def flow(job: Job, counters: str, check: bool) -> Dataflow:
    """The dataflow of the job's program."""
    built = Dataflow(job.program)
    rows = op.input("rows", built, PoolSource(job))
    if job.program == "count":
        rows = op.stateful_batch("count", rows, CountLogic)
    op.output("out", rows, CountingSink(counters, check))
    return built


def work(folder: str, counters: str, check: bool, addresses: list[str], worker: int) -> None:
    """One process of the cluster."""
    cluster_main(flow(Job(folder), counters, check), addresses, worker)


def run(folder: Path, parallelism: int, counters: str, check: bool) -> None:
    """Run the job in the folder to its end, in as many processes."""
    addresses = free_addresses(parallelism)
    processes = [
        multiprocessing.Process(target=work, args=(str(folder), counters, check, addresses, worker), daemon=True)
        for worker in range(parallelism)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        if process.exitcode:
            sys.exit(f"a worker of Bytewax ended with {process.exitcode}")


def free_addresses(count: int) -> list[str]:
    """Addresses of this machine that nobody listens at."""
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    addresses = [f"127.0.0.1:{one.getsockname()[1]}" for one in sockets]
    for one in sockets:
        one.close()
    return addresses


def main() -> None:
    folder, parallelism, counters = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    end_with_standard_input()
    if (folder / "check").exists():
        run(folder / "check", parallelism, counters, True)
        slots = Counters(counters)
        print_digest(
            sum(slots.get(worker) for worker in range(parallelism)),
            sum(slots.get(parallelism + worker) for worker in range(parallelism)),
        )
        for slot in range(2 * parallelism):
            slots.set(slot, 0)
    run(folder / "run", parallelism, counters, False)


if __name__ == "__main__":
    main()
