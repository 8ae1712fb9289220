"""Nexmark's queries in Flink's SQL, in one JVM beside this process, kept for all of them.

Called by `perf/nexmark.py`, whose events and texts these are. A query is planned before its time begins, as ours is.
"""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, Final, TypeAlias

from perf.harness import BenchmarkError, Options, Reading
from perf.peers import batch
from perf.peers.batch import BatchPeer
from perf.peers.engines import Engine, PeerError, flink_nexmark
from perf.processes import ProcessTree

PROGRAM: Final = "nexmark"
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
        self._order("check")
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
def beside(peer: Engine, options: Options) -> Iterator[FlinkSide]:
    """The peer, which ends with the context.

    Raises:
        BenchmarkError: it has no such program, or cannot be started.
    """
    if PROGRAM not in peer.programs:
        raise BenchmarkError(f"{peer.name} has no program for {PROGRAM}: --peer flink-sql has")
    try:
        command = flink_nexmark(options.parallelism)
    except PeerError as error:
        raise BenchmarkError(str(error)) from error
    with tempfile.TemporaryDirectory(prefix="penstock-peer-") as folder, batch.started(command) as process:
        yield FlinkSide(process, Path(folder))
