"""How much memory does keyed state take, and how fast is it, on `heap` and on `rocksdb`?

Each backend runs in a process of its own: every key gets a value that is read and set twice, in an order that no cache
likes; then a snapshot is taken and its sum is compared. Memory is the process's peak resident set (VmHWM), of which an
interpreter with the engine takes some 90 MB. Run by `python perf/state_memory.py`; exits with 1 where a sum was wrong,
or `rocksdb` took more than `--limit-mb`.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from penstock.engine.state.capture import CaptureRequest, CaptureScope

ROOT: Final = Path(__file__).resolve().parents[1]
BACKENDS: Final = ("heap", "rocksdb")
_LIMITED: Final = "rocksdb"
_PASSES: Final = 2
# An odd factor permutes the numbers below 2**32: distinct keys, and neighbours in time far apart in order.
_FACTOR: Final = 2_654_435_761
_NUMBERS: Final = 2**32
_AMOUNTS: Final = 1000


@dataclass(frozen=True, slots=True)
class Reading:
    """What one backend took.

    Args:
        backend: its name.
        keys: distinct keys.
        update_seconds: for `value()` and `update(...)` of each key, twice.
        snapshot_seconds: for the snapshot.
        update_peak_mb: peak resident set before the snapshot, MiB.
        peak_mb: the same with the snapshot.
        is_right: whether the sum of all values was.
    """

    backend: str
    keys: int
    update_seconds: float
    snapshot_seconds: float
    update_peak_mb: float
    peak_mb: float
    is_right: bool


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the backends that the command line names."""
    given = _parser().parse_args(arguments)
    if given.here:
        print(json.dumps(asdict(measure(given.backends[0], given.keys))))
        return 0
    failed = False
    print(f"{'backend':<9}{'keys':>12}{'updates/s':>12}{'us/update':>11}{'peak MB':>9}{'snapshot s':>12}{'peak MB':>9}")
    for backend in given.backends:
        reading = _in_a_process(backend, given.keys)
        updates = _PASSES * reading.keys
        print(
            f"{backend:<9}{reading.keys:>12,}{updates / reading.update_seconds:>12,.0f}"
            f"{reading.update_seconds / updates * 1e6:>11.1f}{reading.update_peak_mb:>9,.0f}"
            f"{reading.snapshot_seconds:>12.1f}{reading.peak_mb:>9,.0f}",
            flush=True,
        )
        if not reading.is_right:
            print(f"{backend}: the sum of all values is wrong", file=sys.stderr)
            failed = True
        if backend == _LIMITED and reading.peak_mb > given.limit_mb:
            print(f"{backend}: {reading.peak_mb:,.0f} MB is over the limit of {given.limit_mb:,} MB", file=sys.stderr)
            failed = True
    return int(failed)


def measure(backend: str, keys: int) -> Reading:
    """Fill and read a backend in this process, whose peak memory is measured."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from penstock.engine.clock import SystemClock
    from penstock.engine.state.backend import BackendContext
    from penstock.engine.state.backends import create_backend
    from penstock.engine.state.descriptors import ValueStateDescriptor

    state = create_backend(backend, BackendContext("operator 'sum', subtask 0", ("key",), 128, SystemClock()))
    total = state.value_state(ValueStateDescriptor("total", "int64", default=0))
    state.bind_keys(pa.schema([("key", pa.int64())]))
    started = time.perf_counter()
    for _ in range(_PASSES):
        for number in range(keys):
            state.set_current_key(number * _FACTOR % _NUMBERS)
            total.update(total.value() + number % _AMOUNTS)
    updated, update_peak_mb = time.perf_counter(), _peak_mb()
    table = state.capture(CaptureRequest(0, CaptureScope.COMPLETE)).tables["total"].rows()
    snapshot = time.perf_counter()
    expected = _PASSES * sum(number % _AMOUNTS for number in range(keys))
    is_right = table.num_rows == keys and pc.sum(table.column("value")).as_py() == expected
    peak_mb = _peak_mb()
    state.close()
    return Reading(backend, keys, updated - started, snapshot - updated, update_peak_mb, peak_mb, is_right)


def _in_a_process(backend: str, keys: int) -> Reading:
    command = [sys.executable, str(Path(__file__).resolve()), "--backends", backend, "--keys", str(keys), "--here"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, cwd=ROOT)
    return Reading(**json.loads(done.stdout))


def _peak_mb() -> float:
    status = Path("/proc/self/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found, "Linux tells the peak of the resident set"
    return int(found[1]) / 1024


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backends", nargs="+", choices=BACKENDS, default=list(BACKENDS), help="default: both")
    parser.add_argument("--keys", type=int, default=5_000_000, help="distinct keys (default: 5,000,000)")
    parser.add_argument("--limit-mb", type=int, default=500, help="most memory that rocksdb may take (default: 500)")
    parser.add_argument("--here", action="store_true", help="measure the first backend in this process, as JSON")
    return parser


if __name__ == "__main__":
    sys.exit(main())
