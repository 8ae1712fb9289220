"""Does a job run whose keyed state is several times larger than the memory that its process may take?

A job of one subtask keeps some kilobytes of noise for each key in RocksDB, takes checkpoints of it, is ended between
two of them, and is resumed; every value is read again and compared. It runs in a process of its own under a limit on
its data (`RLIMIT_DATA`, of which 1.2 GB are addresses that libraries reserve and do not use). Anonymous memory is
looked at a hundred times a second: what is mapped from files is the disk's, and Linux takes it back when it likes. Run
by `python -m perf.large_state`; exits with another code than 0 where the job did not end as it should.
"""

from __future__ import annotations

import argparse
import random
import re
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
_CHECKPOINTS: Final = 4
_MIB: Final = 2**20


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job within the limit."""
    given = _parser().parse_args(arguments)
    if given.here:
        print(run(given.here, given.keys, given.bytes))
        return 0
    print(f"{given.keys * given.bytes / _MIB:,.0f} MB of state, {given.limit_mb:,} MB of data for the process")
    command = [sys.executable, "-m", "perf.large_state", "--here", "rocksdb"]
    command += ["--keys", str(given.keys), "--bytes", str(given.bytes)]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (given.limit_mb * _MIB,) * 2),
    )  # fmt: skip
    last = (done.stdout or done.stderr).strip().splitlines()[-1:] or [f"ended by {done.returncode}"]
    print(last[0])
    return done.returncode


def run(backend: str, keys: int, size: int) -> str:
    """Fill the state, end the job, resume it, and compare every value."""
    import penstock as ps
    from penstock.engine.functions import Context, RuntimeContext

    class Kept(ps.KeyedProcessFunction):
        """Keeps what belongs to a key when it comes first, and says whether it is there the second time."""

        def open(self, context: RuntimeContext) -> None:
            self.noise = context.get_state(ps.ValueStateDescriptor("noise", "binary"))

        def process_element(self, row: dict[str, Any], context: Context) -> Iterator[dict[str, Any]]:
            expected = random.Random(row["key"]).randbytes(size)
            found = self.noise.value()
            if found is None:
                self.noise.update(expected)
            else:
                yield {"same": found == expected}

    def submit(folder: str, resume: Any = None) -> tuple[Any, Any]:
        env = ps.StreamEnvironment(
            runtime="local", parallelism=1, state_backend=backend, max_batch_rows=1_000,
            checkpoints=ps.checkpoints("0s", f"{folder}/checkpoints"),
        )  # fmt: skip
        source = ps.DataGenSource({"key": lambda number: number * 7919 % keys}, rows=2 * keys)
        kept = env.from_source(source).uid("source").key_by("key").process(Kept, returns={"same": "bool"}).uid("kept")
        rows = kept.key_by("same").aggregate(n=ps.count()).uid("counts").collect()
        return env.submit("large", resume=resume), rows

    started, peak = time.perf_counter(), _Peak()
    peak.start()
    with tempfile.TemporaryDirectory() as folder:
        job, _ = submit(folder)
        for number in range(1, _CHECKPOINTS + 1):
            while _rows(job) < number * keys // _CHECKPOINTS:
                job.pump(0.01)
            job.checkpoint()
        job.suspend()
        stored = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())
        job, rows = submit(folder, "latest")
        counts = {row["same"]: row["n"] for row in rows}
        assert counts == {True: keys}, counts
    took = time.perf_counter() - started
    checkpoints = f"{stored / _MIB:,.0f} MB in checkpoints"
    return f"peak {peak.mb:,.0f} MB anonymous memory, {checkpoints}, {took:.0f} s, every value right"


class _Peak(threading.Thread):
    """The most anonymous memory of this process, MiB."""

    mb = 0.0

    def __init__(self) -> None:
        super().__init__(daemon=True)

    def run(self) -> None:
        while True:
            found = re.search(r"RssAnon:\s+(\d+) kB", Path("/proc/self/status").read_text())
            assert found, "Linux tells it"
            self.mb = max(self.mb, int(found[1]) / 1024)
            time.sleep(0.01)


def _rows(job: Any) -> int:
    """How many rows its source has given."""
    return sum(operator.rows_out for operator in job.metrics().operators[:1])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=60_000, help="distinct keys (default: 60,000)")
    parser.add_argument("--bytes", type=int, default=16_384, help="of each key (default: 16,384)")
    parser.add_argument("--limit-mb", type=int, default=1_700, help="of data of the process (default: 1,700)")
    parser.add_argument("--here", help="run on this backend in this process")
    return parser


if __name__ == "__main__":
    sys.exit(main())
