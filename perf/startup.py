"""Question 12: how long does `import penstock` take, and how long a job to its first output on a cluster that runs?

Every import is one of a new interpreter. Run by `perf/run.py startup`.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from collections.abc import Sequence as Seq
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa

from penstock import DataGenSource, Sequence
from perf.generators import Pool, uniform_keys, values
from perf.harness import BenchmarkError, ComparedResult, Options, Reading, Result, shut_down, spread
from perf.peers.engines import Engine, PeerError
from perf.peers.session import first_output_seconds as peer_first_output_seconds
from perf.peers.task import PeerInput, PeerTask
from perf.process import COUNT_COLUMNS, CountRows

_NAME: Final = "startup"
_IMPORT: Final = "import time; start = time.perf_counter(); import penstock; print(time.perf_counter() - start)"
_ROWS: Final = 1000
_WARM: Final = 8
_REST_SECONDS: Final = 30.0
_LOADED_SECONDS: Final = 6.0
"""In so long a process that waits loads what only some need (`penstock.warm_imports`)."""


def _keys() -> pa.Array:
    """No more than there are rows: reading them is in the time."""
    return uniform_keys(10).slice(0, _ROWS)


def _values() -> pa.Array:
    return values().slice(0, _ROWS)


_COLUMNS: Final = {"key": _keys, "v": _values}


def run(options: Options, wanted: str = "") -> Iterator[Result]:
    """Measure the variants whose name contains `wanted`."""
    if wanted in "import" and options.peer is None:
        yield _result("import", [import_seconds() for _ in range(options.repetitions)])
    if wanted in "first output, warm" and options.peer is not None:
        yield _beside(options, options.peer)
    elif wanted in "first output, warm":
        options = replace(options, warm_processes=_WARM)
        first_output_seconds(options)  # The first job starts the cluster.
        yield _result("first output, warm", [_rested(options) for _ in range(options.repetitions)])


def _beside(options: Options, peer: Engine) -> Result:
    """Ours and Flink's in turns, each on a cluster that has run the same job once."""
    if peer.name != "flink":
        raise BenchmarkError(f"startup: {peer.name} has no cluster to submit to: --peer flink has")
    options = replace(options, warm_processes=_WARM)
    task = PeerTask("count", PeerInput({"rows": _ROWS}, _COLUMNS))
    pairs = []
    for _ in range(options.repetitions):
        first_output_seconds(options)
        ours = _rested(options)
        shut_down()
        try:
            theirs = peer_first_output_seconds(task, options.parallelism)
        except PeerError as error:
            raise BenchmarkError(str(error)) from error
        pairs.append((_reading(ours), _reading(theirs)))
    return ComparedResult.of_pairs(_NAME, "first output, warm", f"{peer.name} {peer.version()}", pairs)


def _reading(seconds: float) -> Reading:
    return Reading(latency_ms={"p50": seconds * 1000, "p99": seconds * 1000})


def import_seconds() -> float:
    """Seconds that `import penstock` takes in an interpreter that has just started."""
    done = subprocess.run([sys.executable, "-c", _IMPORT], capture_output=True, text=True, check=True)
    return float(done.stdout)


def _rested(options: Options) -> float:
    """As `first_output_seconds`, once the job before has left its warm processes."""
    if options.runtime == "ray":
        from penstock.actors.nodes import addresses, own_node
        from penstock.actors.raylet import idle_workers

        (raylet,) = addresses([own_node()]).values()
        # A manager, and two tasks.
        wanted, deadline = 1 + 2 * options.parallelism, time.monotonic() + _REST_SECONDS
        while (idle_workers(raylet) or 0) < min(wanted, _WARM) and time.monotonic() < deadline:
            time.sleep(0.2)
        time.sleep(_LOADED_SECONDS)
    return first_output_seconds(options)


def first_output_seconds(options: Options) -> float:
    """Seconds from submitting a running count by key, row by row, to its first row on the client.

    Raises:
        BenchmarkError: rows are missing.
    """
    env = options.environment()
    source = DataGenSource({"key": Pool(_keys), "ts": Sequence(), "v": Pool(_values)}, rows=_ROWS)
    rows = iter(env.from_source(source).key_by("key").process(CountRows, returns=COUNT_COLUMNS).collect())
    start = time.monotonic()
    next(rows, None)
    seconds = time.monotonic() - start
    given = 1 + sum(1 for _ in rows)
    if given != _ROWS:
        raise BenchmarkError(f"startup: {given} rows, not {_ROWS}")
    return seconds


def _result(variant: str, seconds: Seq[float]) -> Result:
    """The repetitions are the distribution: each of them has one latency only."""
    latency = {name: float(np.quantile(seconds, quantile)) * 1000 for name, quantile in (("p50", 0.5), ("p99", 0.99))}
    readings = [_reading(second) for second in seconds]
    return Result(_NAME, variant, Reading(latency_ms=latency), spread(list(seconds)), readings)
