"""Question 1: how many 100-byte lines a second pass a regular expression with a class and an alternation, 1 % hits?

source -> filter -> count, all in one chain. Run by `perf/run.py grep`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from penstock import DataGenSource, DataStream, StreamEnvironment, col
from perf.generators import LINE_PATTERN, Pool, log_lines
from perf.harness import BenchmarkError, BoundedRun, Options, Result, Workload, null_workload, throughput
from perf.peers.digest import of_texts
from perf.peers.task import PeerInput, PeerTask

_NAME: Final = "grep"


def run(options: Options, wanted: str = "") -> Iterator[Result]:
    """Measure the variants whose name contains `wanted`."""

    def check(bounded: BoundedRun) -> None:
        rows = options.check_rows
        found, _ = bounded(lambda env: _hits(_lines(env, rows)))
        expected = _expected(rows)
        if sorted(found.column("line").to_pylist()) != sorted(expected):
            raise BenchmarkError(f"grep found {found.num_rows} of {len(expected)} lines, or others")

    workloads = [
        Workload("1% hits", lambda env: _hits(_lines(env)), _NAME, check, _peer_task(options.check_rows)),
        null_workload(_lines, PeerTask("lines", PeerInput(columns={"line": log_lines}))),
    ]
    yield from throughput(_NAME, [work for work in workloads if wanted in work.variant], options)


def _expected(rows: int) -> list[str]:
    lines = log_lines().to_pylist()
    return [line for number in range(rows) if re.search(LINE_PATTERN, line := lines[number % len(lines)])]


def _peer_task(check_rows: int) -> PeerTask:
    settings, columns = {"pattern": LINE_PATTERN}, {"line": log_lines}
    check = PeerInput({**settings, "rows": check_rows}, columns)
    return PeerTask(_NAME, PeerInput(settings, columns), check, lambda: of_texts(_expected(check_rows)))


def _lines(env: StreamEnvironment, rows: int | None = None) -> DataStream:
    return env.from_source(DataGenSource({"line": Pool(log_lines)}, rows=rows))


def _hits(lines: DataStream) -> DataStream:
    return lines.filter(col("line").str.contains(LINE_PATTERN)).name(_NAME)
