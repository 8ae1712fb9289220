"""Nexmark's queries in Flink's SQL, in one JVM beside this process, kept for all of them.

Called by `perf/nexmark.py`, whose events and texts these are. A query is planned before its time begins, as ours is.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, Final, TypeAlias

from perf.harness import BenchmarkError, Options, Reading
from perf.peers import batch
from perf.peers.batch import BatchPeer
from perf.peers.engines import NO_SETTINGS, Engine, PeerError, flink_nexmark
from perf.processes import ProcessTree

PROGRAM: Final = "nexmark"
_POLL_SECONDS: Final = 1.0
Texts: TypeAlias = "Counter[tuple[str, ...]]"


class FlinkSide:
    """A cluster that takes one query behind the other.

    Args:
        process: it, at work; see `java/nexmark/Main.java`.
        folder: where its orders are written.
    """

    def __init__(self, process: BatchPeer, folder: Path) -> None:
        self._process, self._folder = process, folder

    def given(self, tables: Sequence[str], query: str) -> Texts:
        """The rows that a query has in the end, each value as a text."""
        self._write(tables, "query.sql", query)
        return self._rows("check")

    def start(self, tables: Sequence[str], query: str) -> None:
        """Start a query over tables that do not end; `savepoint` ends it."""
        self._write(tables, "query.sql", query)
        self._order("start")

    def wait_for(self, rows: Texts, seconds: float) -> None:
        """Wait until the query that was started has these rows.

        Raises:
            BenchmarkError: it has others after so many seconds.
        """
        deadline = time.monotonic() + seconds
        while self._rows("rows") != rows:
            if time.monotonic() > deadline:
                raise BenchmarkError(f"after {seconds:g} s the peer has other rows than these {rows.total():,}")
            time.sleep(_POLL_SECONDS)

    def heap_in_use(self) -> int:
        """Bytes of the heap that are in use behind a full collection, without the rows, which are forgotten."""
        self._order("heap")
        return int(self._output.read_text())

    def savepoint(self) -> Path:
        """The folder of a savepoint, in the canonical format, of the query that was started, and ends."""
        folder = self._folder / "savepoints"
        shutil.rmtree(folder, ignore_errors=True)
        self._order("savepoint")
        return folder

    def _rows(self, order: str) -> Texts:
        self._order(order)
        lines = [line.split("\t") for line in self._output.read_text().splitlines()]
        return Counter({tuple(values): int(count) for count, *values in lines})

    def measure(self, tables: Sequence[str], insert: str, events: int) -> Reading:
        """The time of a statement, of which so many events count."""
        self._write(tables, "insert.sql", insert)
        self._order("plan")
        tree = ProcessTree(self._process.pid)
        begin, cpu = time.perf_counter(), tree.cpu_seconds()
        self._order("run")
        seconds, used = time.perf_counter() - begin, tree.cpu_seconds() - cpu
        return Reading(events / seconds, events / used if used > 0 else None)

    @property
    def _output(self) -> Path:
        return self._folder / "rows"

    def _write(self, tables: Sequence[str], name: str, text: str) -> None:
        (self._folder / "tables.sql").write_text(";\n".join(tables))
        (self._folder / name).write_text(text)

    def _order(self, order: str) -> None:
        try:
            self._process.run(order, self._folder, self._output)
        except PeerError as error:
            raise BenchmarkError(str(error)) from error


def as_texts(rows: Counter[tuple[Any, ...]]) -> Texts:
    """Rows as `FlinkSide.given` tells them."""
    return Counter({tuple(_text(value) for value in row): count for row, count in rows.items()})


def _text(value: object) -> str:
    if isinstance(value, datetime):
        return value.isoformat(" ", "milliseconds")
    return "null" if value is None else str(value)


@contextmanager
def beside(peer: Engine, options: Options, settings: Mapping[str, str] = NO_SETTINGS) -> Iterator[FlinkSide]:
    """The peer, which ends with the context; `settings` are other ones than its own.

    Raises:
        BenchmarkError: it has no such program, or cannot be started.
    """
    if PROGRAM not in peer.programs:
        raise BenchmarkError(f"{peer.name} has no program for {PROGRAM}: --peer flink-sql has")
    try:
        command = flink_nexmark(options.parallelism, settings)
    except PeerError as error:
        raise BenchmarkError(str(error)) from error
    with tempfile.TemporaryDirectory(prefix="penstock-peer-") as folder, batch.started(command) as process:
        yield FlinkSide(process, Path(folder))
