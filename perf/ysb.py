"""Question 5: the Yahoo streaming benchmark, how many events a second with their JSON parsed?

Events of seven fields as JSON; those that are views are kept, the campaign is looked up by the advertisement, and each
campaign's views are counted in tumbling windows of 10 s. A log of 131,072 events, one second long, is played again and
again from memory: an event's time is what its JSON says plus a second for each time before. Run by `perf/run.py ysb`.

Source: S. Chintapalli et al., Benchmarking Streaming Computation Engines (2016); there events come from Kafka and
counts go to Redis.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock import (
    ArrowTable,
    DataGenSource,
    DataStream,
    StreamEnvironment,
    WatermarkStrategy,
    col,
    count,
    tumbling,
)
from penstock.connectors.records import JsonFormat
from perf.generators import Pool
from perf.harness import BenchmarkError, BoundedRun, Options, Result, Workload, null_workload, throughput
from perf.peers.digest import Digest
from perf.peers.task import PeerInput, PeerTask

_NAME: Final = "ysb"
_PARSE: Final = "parse"
"""The operator whose incoming rows are the events."""
_ADS_OF_A_CAMPAIGN: Final = 10
_SIZE_MS: Final = 10_000
_START_MS: Final = 1_800_000_000_000
_LOG_ROWS: Final = 131_072
_LOG_MS: Final = 1_000
_LINE_BYTES: Final = 272
_SEED: Final = 2026
_AD_TYPES: Final = ("banner", "modal", "sponsored-search", "mail", "mobile")
_EVENT_TYPES: Final = ("view", "click", "purchase")
_EVENT: Final = {"ad_id": "string", "event_type": "string", "event_time": "int64"}
"""What the query reads of an event; a parser passes over the other fields."""
_VARIANTS: Final = {"100 campaigns": 100, "10k campaigns": 10_000}

_Int64s: TypeAlias = "npt.NDArray[np.int64]"


@dataclass(frozen=True, slots=True)
class Log:
    """The events that are played again and again.

    Args:
        campaigns: how many; each has ten advertisements.
        rows: events of the log.
        milliseconds: how long it is.
    """

    campaigns: int
    rows: int
    milliseconds: int

    @property
    def ads(self) -> list[str]:
        """The advertisements; number i belongs to campaign i // 10."""
        return _ids(self.campaigns * _ADS_OF_A_CAMPAIGN, 1)

    def lines(self) -> pa.Array:
        """The events as JSON, 272 bytes each; `event_time` is int64 ms from the beginning of the log."""
        random, ads = np.random.default_rng(_SEED), self.ads
        users, pages = _ids(self.rows, 2), _ids(self.rows, 3)
        ad, kind, event, ip = (
            random.integers(0, most, self.rows) for most in (len(ads), len(_AD_TYPES), len(_EVENT_TYPES), 256)
        )
        lines = (
            f'{{"user_id": "{users[i]}", "page_id": "{pages[i]}", "ad_id": "{ads[ad[i]]}", '
            f'"ad_type": "{_AD_TYPES[kind[i]]}", "event_type": "{_EVENT_TYPES[event[i]]}", '
            f'"event_time": {i * self.milliseconds // self.rows}, "ip_address": "10.0.0.{ip[i]}"'
            for i in range(self.rows)
        )
        return pa.array([line.ljust(_LINE_BYTES - 1) + "}" for line in lines])

    def laps(self, rows: _Int64s) -> pa.Array:
        """int64 ms that each row's log begins behind the epoch."""
        return pa.array(rows // self.rows * self.milliseconds + _START_MS)

    def table(self) -> pa.Table:
        """`ad_id` and its `campaign` (int64)."""
        ads = self.ads
        return pa.table({"ad_id": ads, "campaign": np.arange(len(ads)) // _ADS_OF_A_CAMPAIGN})

    def for_peer(self, **more: int) -> PeerInput:
        """The same for a peer."""
        settings = {"lap_rows": self.rows, "lap_ms": self.milliseconds, "start_ms": _START_MS, "size_ms": _SIZE_MS}
        columns = {"line": self.lines, "ad": lambda: pa.array(self.ads)}
        return PeerInput({**settings, "ads_of_a_campaign": _ADS_OF_A_CAMPAIGN, **more}, columns)


class Parse:
    """For `map_batches`: the columns of the query from `line` (JSON), and `lap` as it is."""

    def __init__(self) -> None:
        self._format = JsonFormat(_EVENT)

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        decoded = self._format.decode(batch.column("line").cast(pa.large_binary()))
        if decoded.bad:
            raise BenchmarkError(f"ysb: {decoded.bad[0].reason}")
        return decoded.rows.append_column("lap", batch.column("lap"))


def run(options: Options, wanted: str = "") -> Iterator[Result]:
    """Measure the variants whose name contains `wanted`."""
    workloads = [_workload(options, variant, campaigns) for variant, campaigns in _VARIANTS.items()]
    log = Log(_VARIANTS["100 campaigns"], _LOG_ROWS, _LOG_MS)
    workloads.append(null_workload(lambda env: _events(env, log), PeerTask("ad_events", log.for_peer())))
    yield from throughput(_NAME, [work for work in workloads if wanted in work.variant], options)


def _workload(options: Options, variant: str, campaigns: int) -> Workload:
    # Windows open and close within a small input: 41 s of 200 events each, a few times.
    few = Log(campaigns, 8_192, 40_960)

    def check(bounded: BoundedRun) -> None:
        rows, _ = bounded(lambda env: views(_events(env, few, options.check_rows), few))
        got = sorted(zip(*(_whole(rows.column(name)) for name in ("campaign", "window_start", "views")), strict=True))
        if got != expected(few, options.check_rows):
            raise BenchmarkError(f"ysb: {rows.num_rows} windows with {sum(row[2] for row in got)} views, or others")

    def right() -> Digest:
        return Digest.of(*zip(*expected(few, options.check_rows), strict=True))

    log = Log(campaigns, _LOG_ROWS, _LOG_MS)
    task = PeerTask(_NAME, log.for_peer(), few.for_peer(rows=options.check_rows), right)
    return Workload(variant, lambda env: views(_events(env, log), log), _PARSE, check, task)


def _events(env: StreamEnvironment, log: Log, rows: int | None = None) -> DataStream:
    return env.from_source(DataGenSource({"line": Pool(log.lines), "lap": log.laps}, rows=rows))


def views(events: DataStream, log: Log) -> DataStream:
    """The program: events as JSON to views of each campaign in 10 s."""
    parsed = events.map_batches(Parse, returns={**_EVENT, "lap": "int64"}).name(_PARSE)
    return (
        parsed.filter(col("event_type") == "view")
        .select("ad_id", ts=col("lap") + col("event_time"))
        .lookup_join(ArrowTable(log.table(), keys="ad_id"), on="ad_id")
        .assign_timestamps("ts", WatermarkStrategy.for_monotonous_timestamps())
        .key_by("campaign")
        .window(tumbling(f"{_SIZE_MS}ms"))
        .aggregate(views=count())
        .name(_NAME)
    )


def expected(log: Log, rows: int) -> list[tuple[int, int, int]]:
    """(campaign, start of window, views) of the first rows, by Python's own parser."""
    campaigns = dict(zip(log.ads, log.table().column("campaign").to_pylist(), strict=True))
    lines = [json.loads(line) for line in log.lines().to_pylist()]
    found: dict[tuple[int, int], int] = {}
    for number in range(rows):
        event: dict[str, Any] = lines[number % log.rows]
        if event["event_type"] == "view":
            at = _START_MS + number // log.rows * log.milliseconds + event["event_time"]
            window = campaigns[event["ad_id"]], at - at % _SIZE_MS
            found[window] = found.get(window, 0) + 1
    return [(campaign, start, views) for (campaign, start), views in sorted(found.items())]


def _whole(column: pa.ChunkedArray) -> list[int]:
    numbers: list[int] = column.cast(pa.int64()).to_pylist()
    return numbers


def _ids(number: int, seed: int) -> list[str]:
    """So many ids in the form of a UUID."""
    words = np.random.default_rng(seed).integers(0, 2**32, (number, 4)).tolist()
    return [f"{a:08x}-{b >> 16:04x}-{b & 0xFFFF:04x}-{c >> 16:04x}-{c & 0xFFFF:04x}{d:08x}" for a, b, c, d in words]
