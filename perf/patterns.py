"""Question: how many rows a second does a pattern take, with many keys and rows out of order?

10,000 keys; each row has a millisecond of its own, and comes up to four seconds early or late, which the watermark
allows for; so each key gets a row every ten seconds of event time. Run by `perf/run.py patterns`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock import DataGenSource, DataStream, Pattern, StreamEnvironment, WatermarkStrategy, col
from penstock.engine.patterns.conditions import MatchContext
from penstock.engine.patterns.partial import Match
from perf.generators import POOL_ROWS, Pool, uniform_keys
from perf.harness import BenchmarkError, BoundedRun, Options, Result, Workload, null_workload, throughput
from perf.peers.digest import Digest
from perf.peers.task import PeerInput, PeerTask

_NAME: Final = "patterns"
KEYS: Final = 10_000
_START_MS: Final = 1_800_000_000_000
BLOCK_ROWS: Final = 4_096
"""Rows are shuffled within blocks of so many."""
_WITHIN_MS: Final = 60_000
_SEED: Final = 7

Int64s: TypeAlias = "npt.NDArray[np.int64]"
_Values: TypeAlias = "npt.NDArray[np.float64]"
_Found: TypeAlias = list[tuple[int, int, int]]
"""First row, last row and number of rows of each match, in the rows of one key."""
_Define: TypeAlias = Callable[[Int64s, _Values], _Found]


@dataclass(frozen=True, slots=True)
class Variant:
    """A pattern, and what it means.

    Args:
        name: as the peers' program calls it.
        pattern: of ours.
        define: finds the matches among the times and values of one key, in order of time.
    """

    name: str
    pattern: Pattern
    define: _Define


def _strict(times: Int64s, v: _Values) -> _Found:
    """A value below 100, one above 500 right behind it, and then one above 900."""
    return [(i, i + 2, 3) for i in range(len(v) - 2) if v[i] < 100 and v[i + 1] > 500 and v[i + 2] > 900]


def _loop(times: Int64s, v: _Values) -> _Found:
    """A value below 100, one or more from there to 499, and then one of 900 or more, within a minute."""
    found = []
    for first in np.flatnonzero(v < 100).tolist():
        last = first + 1
        while last < len(v) and 100 <= v[last] < 500:
            last += 1
        ends = last < len(v) and v[last] >= 900
        if ends and last > first + 1 and times[last] - times[first] < _WITHIN_MS:
            found.append((first, last, last - first + 1))
    return found


def _iterative(times: Int64s, v: _Values) -> _Found:
    """A value below 20, and the next one within a minute that is more than 45 times as large."""
    found = []
    for first in np.flatnonzero(v < 20).tolist():
        for last in range(first + 1, len(v)):
            if times[last] - times[first] >= _WITHIN_MS:
                break
            if v[last] > 45 * v[first]:
                found.append((first, last, 2))
                break
    return found


def _is_much_larger(row: Any, match: MatchContext) -> bool:
    return bool(row["v"] > 45 * next(iter(match.events("a")))["v"])


def _variants() -> Sequence[Variant]:
    v = col("v")
    low = Pattern.begin("a").where(v < 100)
    loop = low.next("b").where((v >= 100) & (v < 500)).one_or_more().consecutive().next("c").where(v >= 900)
    return (
        Variant("strict", low.next("b").where(v > 500).next("c").where(v > 900), _strict),
        Variant("loop", loop.within(f"{_WITHIN_MS}ms"), _loop),
        Variant(
            "iterative",
            Pattern.begin("a").where(v < 20).followed_by("b").where(_is_much_larger).within(f"{_WITHIN_MS}ms"),
            _iterative,
        ),
    )


VARIANTS: Final = _variants()


def run(options: Options, wanted: str = "") -> Iterator[Result]:
    """Measure the variants whose name contains `wanted`."""
    workloads = [_workload(options, variant) for variant in VARIANTS]
    workloads.append(null_workload(partial(_rows, KEYS), PeerTask("events", for_peer(KEYS))))
    yield from throughput(_NAME, [work for work in workloads if wanted in work.variant], options)


def _workload(options: Options, variant: Variant) -> Workload:
    few = max(1, options.check_rows // 200)

    def right() -> list[Int64s]:
        return expected(variant.define, few, options.check_rows)

    def check(bounded: BoundedRun) -> None:
        rows, _ = bounded(lambda env: _matched(_rows(few, env, options.check_rows), variant.pattern))
        found = [np.asarray(rows.column(name)) for name in ("key", "begins", "ends", "n")]
        if Digest.of(*found) != Digest.of(*right()):
            raise BenchmarkError(f"patterns, {variant.name}: {rows.num_rows} matches, not {len(right()[0])}, or others")

    given = for_peer(few, pattern=variant.name, rows=options.check_rows)
    task = PeerTask(_NAME, for_peer(KEYS, pattern=variant.name), given, lambda: Digest.of(*right()))
    return Workload(variant.name, lambda env: _matched(_rows(KEYS, env), variant.pattern), _NAME, check, task)


def for_peer(keys: int, **more: int | str) -> PeerInput:
    """The rows for a peer, and what else its program is told."""
    settings = {"rows_per_second": 1000, "start_ms": _START_MS, "watermark_ms": BLOCK_ROWS, "within_ms": _WITHIN_MS}
    columns = {"key": partial(uniform_keys, keys), "v": _values, "delay": _delays}
    return PeerInput({**settings, **more}, columns)


def _values() -> pa.Array:
    """float64 whole numbers 0 to 999 that have nothing to do with the keys."""
    return pa.array(np.random.default_rng(_SEED + 1).integers(0, 1000, POOL_ROWS).astype(np.float64))


def _delays() -> pa.Array:
    """By how many milliseconds each row is older than its number says: rows of a block change places."""
    random = np.random.default_rng(_SEED)
    blocks = np.argsort(random.random((POOL_ROWS // BLOCK_ROWS, BLOCK_ROWS)), axis=1)
    return pa.array((np.arange(BLOCK_ROWS) - blocks).ravel())


@dataclass(frozen=True, slots=True)
class _Times:
    late_by: Pool

    def __call__(self, rows: Int64s) -> pa.Array:
        return pa.array(_START_MS + rows - self.late_by(rows).to_numpy())


def columns_of(keys: int) -> dict[str, Callable[[Int64s], Any]]:
    """What makes key, time (int64 ms) and value from row numbers."""
    return {"key": Pool(partial(uniform_keys, keys)), "ts": _Times(Pool(_delays)), "v": Pool(_values)}


def _rows(keys: int, env: StreamEnvironment, rows: int | None = None) -> DataStream:
    return env.from_source(DataGenSource(columns_of(keys), rows=rows))


def _matched(rows: DataStream, pattern: Pattern) -> DataStream:
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(f"{BLOCK_ROWS}ms")
    keyed = rows.assign_timestamps("ts", strategy).key_by("key")
    returns = {"key": "int64", "begins": "int64", "ends": "int64", "n": "int64"}
    return keyed.match(pattern).select(_match_row, returns=returns).name(_NAME)


def _match_row(match: Match) -> dict[str, int]:
    rows = [row for events in match.values() for row in events]
    return {"key": rows[0]["key"], "begins": rows[0]["ts"], "ends": rows[-1]["ts"], "n": len(rows)}


def expected(define: _Define, keys: int, rows: int) -> list[Int64s]:
    """Key, first and last time and number of rows of all matches among the first rows, in any order."""
    numbers = np.arange(rows)
    key, ts, v = (np.asarray(make(numbers)) for make in columns_of(keys).values())
    found: list[tuple[int, int, int, int]] = []
    for one in np.unique(key).tolist():
        mine = np.flatnonzero(key == one)
        mine = mine[np.argsort(ts[mine])]
        times = ts[mine]
        found += [(one, times[first], times[last], count) for first, last, count in define(times, v[mine])]
    return [np.array([match[place] for match in found], np.int64) for place in range(4)]
