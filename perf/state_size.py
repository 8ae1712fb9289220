"""How many bytes of state does SQL keep for each key or row, in a savepoint and in memory, beside Flink?

Statements of Nexmark's kind whose state stays, over folders that are looked at for more files, so that the jobs do not
end. Once all events are in, the memory is read and a savepoint is taken; memory is what the job with `--events` takes
more than the same job with a few: of ours resident memory of a process that runs both, of Flink's the heap in use
behind a full collection. State is on the heap on both sides, and no savepoint is compressed. What a statement gives is
compared with DuckDB's rows. Run by `python -m perf.state_size`, beside Flink with `--peer flink-sql`.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from penstock import StreamEnvironment, checkpoints
from penstock.engine.job.handle import JobHandle
from perf import nexmark
from perf.harness import BenchmarkError, Options
from perf.nexmark_flink import FlinkSide, as_texts, beside
from perf.nexmark_queries import Query
from perf.peers.engines import engine

ROOT: Final = Path(__file__).resolve().parents[1]
_FEW: Final = 1_000
_PATIENCE: Final = 300.0
_SETTLE_SECONDS: Final = 1.0
"""Ten times as long as rows wait for each other."""
_PARQUET: Final = "'format' = 'parquet'"
_PLAIN: Final = {"table.optimizer.distinct-agg.split.enabled": "false"}
"""Nexmark's setting for speed, which has Flink keep a distinct count in 1,024 parts of each key."""


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement whose state stays.

    Args:
        sql: in both dialects.
        reads: the tables whose rows it takes.
        kept: how many keys or rows it has to keep, as a query.
    """

    sql: str
    reads: Sequence[str]
    kept: str


STATEMENTS: Final = {
    "aggregate": Statement(
        """SELECT bidder, COUNT(*) AS n, SUM(price) AS total, MIN(price) AS least, MAX(price) AS most
        FROM bid GROUP BY bidder""",
        ["bid"],
        "SELECT COUNT(DISTINCT bidder) FROM bid",
    ),
    "last row": Statement(
        """SELECT auction, bidder, price, `at` FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY bidder, auction
        ORDER BY `at` DESC, price DESC) AS r FROM bid) WHERE r <= 1""",
        ["bid"],
        "SELECT COUNT(DISTINCT (auction, bidder)) FROM bid",
    ),
    "join of people": Statement(
        "SELECT p.name, p.city, p.state, a.id FROM auction a JOIN person p ON a.seller = p.id",
        ["auction", "person"],
        "SELECT (SELECT COUNT(*) FROM auction) + (SELECT COUNT(*) FROM person)",
    ),
    "join of bids": Statement(
        "SELECT b.auction, b.bidder, b.price, a.itemName, a.seller FROM bid b JOIN auction a ON b.auction = a.id",
        ["bid", "auction"],
        "SELECT (SELECT COUNT(*) FROM bid) + (SELECT COUNT(*) FROM auction)",
    ),
    "distinct": Statement(
        "SELECT auction, COUNT(DISTINCT bidder) AS bidders FROM bid GROUP BY auction",
        ["bid"],
        "SELECT COUNT(DISTINCT (auction, bidder)) FROM bid",
    ),
}


@dataclass(frozen=True, slots=True)
class Size:
    """What a job keeps, in bytes.

    Args:
        savepoint: of all files of a savepoint.
        memory: what the job takes more than with a few events.
    """

    savepoint: int
    memory: int


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the statements that the command line names."""
    given = _parser().parse_args(arguments)
    if given.here:
        print(json.dumps(asdict(ours(given.statements[0], Path(given.here), given.parallelism))))
        return 0
    options = Options(parallelism=given.parallelism, peer=engine(given.peer) if given.peer else None)
    print(f"{'':<15}{'kept':>10}{'savepoint, B each':>24}{'memory, B each':>24}", flush=True)
    with tempfile.TemporaryDirectory() as place:
        for name, events in (("few", _FEW), ("many", given.events)):
            nexmark.written(Path(place) / name, events, given.parallelism)
        for name in given.statements:
            print(_line(name, Path(place), options), flush=True)
    return 0


def _line(name: str, place: Path, options: Options) -> str:
    statement = STATEMENTS[name]
    kept = next(iter(nexmark.expected(Query(statement.kept), place / "many")))[0]
    _check(name, place / "many", options.parallelism)
    sizes = [_in_a_process(name, place, options.parallelism)]
    if options.peer is not None:
        # A JVM each: what it keeps of an earlier job would count as this one's.
        with beside(options.peer, options, {**_PLAIN, "execution.checkpointing.dir": (place / "f").as_uri()}) as flink:
            sizes.append(theirs(flink, statement, place))
    columns = ["".join(f"{size / kept:>12.1f}" for size in one) for one in zip(*map(_both, sizes), strict=True)]
    return f"{name:<15}{kept:>10,}{columns[0]:>24}{columns[1]:>24}"


def _both(size: Size) -> tuple[int, int]:
    return size.savepoint, size.memory


# Ours


def _check(name: str, folder: Path, parallelism: int) -> None:
    query = Query(STATEMENTS[name].sql)
    if nexmark.given(query, folder, parallelism) != nexmark.expected(query, folder):
        raise BenchmarkError(f"{name} gives other rows than DuckDB")


def ours(name: str, place: Path, parallelism: int) -> Size:
    """Measure a statement in this process, which has run nothing large before: what that had taken would be used again.

    What is compiled for large batches alone counts as memory of the state.
    """
    statement = STATEMENTS[name]
    _, few = _measured(statement, place / "few", parallelism)
    savepoint, many = _measured(statement, place / "many", parallelism)
    return Size(savepoint, many - few)


def _measured(statement: Statement, folder: Path, parallelism: int) -> tuple[int, int]:
    """The bytes of a savepoint and of this process, once all rows are in."""
    query = Query(statement.sql)
    with tempfile.TemporaryDirectory() as output:
        env = StreamEnvironment(
            runtime="local", parallelism=parallelism, max_batch_rows=16_384, checkpoints=checkpoints("10m", output)
        )
        for definition in [*_open_ended(folder), nexmark.results(query, folder, output)]:
            env.sql(definition)
        env.sql(f"INSERT INTO results {statement.sql}")
        job = env.submit("state")
        _take(job, sum(_rows(folder, table) for table in statement.reads), len(statement.reads))
        memory = _resident()
        job.savepoint(f"{output}/savepoints")
        job.cancel()
        return _size(Path(output) / "savepoints"), memory


def _take(job: JobHandle, rows: int, sources: int) -> None:
    """Let the sources give all rows, and what is behind them take these."""
    deadline = time.monotonic() + _PATIENCE
    while _given(job, sources) < rows:
        job.pump(0.1)
        if time.monotonic() > deadline:
            raise BenchmarkError(f"of {rows:,} rows {_given(job, sources):,} have come in {_PATIENCE:g} s")
    end = time.monotonic() + _SETTLE_SECONDS
    while time.monotonic() < end:
        job.pump(0.1)


def _given(job: JobHandle, sources: int) -> int:
    of_sources = [one for one in job.metrics().operators if one.name in ("bid", "auction", "person")]
    assert len({one.name for one in of_sources}) in (0, sources), "the tables that it reads, and no others"
    return sum(one.rows_out for one in of_sources)


def _resident() -> int:
    """Bytes of this process that are in memory, without those that allocators keep for later."""
    gc.collect()
    pa.default_memory_pool().release_unused()
    ctypes.CDLL(None).malloc_trim(0)
    found = re.search(r"VmRSS:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found, "Linux tells it"
    return int(found[1]) * 1024


def _in_a_process(name: str, place: Path, parallelism: int) -> Size:
    command = [sys.executable, "-m", "perf.state_size", "--here", str(place), "--statements", name]
    command += ["--parallelism", str(parallelism)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, cwd=ROOT)
    return Size(**json.loads(done.stdout))


# Flink


def theirs(flink: FlinkSide, statement: Statement, place: Path) -> Size:
    """Measure a statement in Flink.

    Raises:
        BenchmarkError: it gives other rows than DuckDB.
    """
    _, few = _measured_by(flink, statement, place / "few")
    savepoint, many = _measured_by(flink, statement, place / "many")
    return Size(savepoint, many - few)


def _measured_by(flink: FlinkSide, statement: Statement, folder: Path) -> tuple[int, int]:
    flink.start(_open_ended(folder), statement.sql)
    flink.wait_for(as_texts(nexmark.expected(Query(statement.sql), folder)), _PATIENCE)
    memory = flink.heap_in_use()
    return _size(flink.savepoint()), memory


# Both


def _open_ended(folder: Path) -> list[str]:
    """The statements that make the tables of a folder, which is looked at for more files again and again."""
    statements = [statement for statement in nexmark.ddl(folder) if _PARQUET in statement]
    return [text.replace(_PARQUET, f"{_PARQUET}, 'source.monitor-interval' = '1s'") for text in statements]


def _rows(folder: Path, table: str) -> int:
    return sum(pq.read_metadata(file).num_rows for file in (folder / table).iterdir())


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = list(STATEMENTS)
    parser.add_argument("--statements", nargs="+", choices=names, default=names, help="default: all")
    parser.add_argument("--events", type=int, default=500_000, help="of all tables (default: 500,000)")
    parser.add_argument("--parallelism", type=int, default=2, help="subtasks of each operator (default: 2)")
    parser.add_argument("--peer", choices=["flink-sql"], help="measure this engine, too")
    parser.add_argument("--here", help="measure the first statement in this process, as JSON; a folder of events")
    return parser


if __name__ == "__main__":
    sys.exit(main())
