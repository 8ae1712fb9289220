"""Question 12: how long does `import penstock` take, and how long a job to its first output on a cluster that runs?

Every import is one of a new interpreter. Run by `perf/run.py startup`.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from penstock import DataGenSource, RandomInt, count
from perf.harness import BenchmarkError, Options, Reading, Result, spread

_NAME: Final = "startup"
_IMPORT: Final = "import time; start = time.perf_counter(); import penstock; print(time.perf_counter() - start)"
_ROWS: Final = 1000


def run(options: Options, wanted: str = "") -> Iterator[Result]:
    """Measure the variants whose name contains `wanted`."""
    if wanted in "import":
        yield _result("import", [import_seconds() for _ in range(options.repetitions)])
    if wanted in "first output, warm":
        first_output_seconds(options)  # The first job starts the cluster.
        yield _result("first output, warm", [first_output_seconds(options) for _ in range(options.repetitions)])


def import_seconds() -> float:
    """Seconds that `import penstock` takes in an interpreter that has just started."""
    done = subprocess.run([sys.executable, "-c", _IMPORT], capture_output=True, text=True, check=True)
    return float(done.stdout)


def first_output_seconds(options: Options) -> float:
    """Seconds from submitting a keyed count to its first row on the client.

    Raises:
        BenchmarkError: no row came.
    """
    env = options.environment()
    stream = env.from_source(DataGenSource({"key": RandomInt(0, 10)}, rows=_ROWS))
    rows = iter(stream.key_by("key").aggregate(n=count()).collect())
    start = time.monotonic()
    if next(rows, None) is None:
        raise BenchmarkError("startup: the job gave no row")
    seconds = time.monotonic() - start
    for _ in rows:
        pass
    return seconds


def _result(variant: str, seconds: Sequence[float]) -> Result:
    """The repetitions are the distribution: each of them has one latency only."""
    latency = {name: float(np.quantile(seconds, quantile)) * 1000 for name, quantile in (("p50", 0.5), ("p99", 0.99))}
    readings = [Reading(latency_ms={"p50": second * 1000, "p99": second * 1000}) for second in seconds]
    return Result(_NAME, variant, Reading(latency_ms=latency), spread(list(seconds)), readings)
