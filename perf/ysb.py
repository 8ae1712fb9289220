"""Question 5: the Yahoo streaming benchmark, how many events a second with their JSON parsed?

Events of seven fields as JSON; those that are views are kept, the campaign is looked up by the advertisement, and each
campaign's views are counted in tumbling windows of 10 s. A log of 131,072 events, one second long, is played again and
again from memory: an event's time is what its JSON says plus a second for each time before. Run by `perf/run.py ysb`.

Source: S. Chintapalli et al., Benchmarking Streaming Computation Engines (2016); there events come from Kafka and
counts go to Redis, as in `ysb_kafka`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

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
ADS_OF_A_CAMPAIGN: Final = 10
_SIZE_MS: Final = 10_000
START_MS: Final = 1_800_000_000_000
"""When the log is played for the first time (civil time, ms)."""
_LINE_BYTES: Final = 272
_SEED: Final = 2026
_AD_TYPES: Final = ("banner", "modal", "sponsored-search", "mail", "mobile")
_EVENT_TYPES: Final = ("view", "click", "purchase")
EVENT: Final = {"ad_id": "string", "event_type": "string", "event_time": "int64"}
"""What the query reads of an event; a parser passes over the other fields."""

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
    def ads(self) -> pa.StringArray:
        """The advertisements; number i belongs to campaign i // 10."""
        return _ids(self.campaigns * ADS_OF_A_CAMPAIGN, 1)

    def lines(self, begin_ms: int = 0) -> pa.Array:
        """The events as JSON, 272 bytes each; `event_time` is int64 ms, `begin_ms` that of the log's beginning."""
        random, ads = np.random.default_rng(_SEED), self.ads
        users, pages = (_ids(self.rows, seed).to_pylist() for seed in (2, 3))
        ad, kind, event, ip = (
            random.integers(0, most, self.rows) for most in (len(ads), len(_AD_TYPES), len(_EVENT_TYPES), 256)
        )
        chosen = ads.take(pa.array(ad)).to_pylist()
        lines = (
            f'{{"user_id": "{users[i]}", "page_id": "{pages[i]}", "ad_id": "{chosen[i]}", '
            f'"ad_type": "{_AD_TYPES[kind[i]]}", "event_type": "{_EVENT_TYPES[event[i]]}", '
            f'"event_time": {begin_ms + i * self.milliseconds // self.rows}, "ip_address": "10.0.0.{ip[i]}"'
            for i in range(self.rows)
        )
        return pa.array([line.ljust(_LINE_BYTES - 1) + "}" for line in lines])

    def laps(self, rows: _Int64s) -> pa.Array:
        """int64 ms that each row's log begins behind the epoch."""
        return pa.array(rows // self.rows * self.milliseconds + START_MS)

    def table(self) -> pa.Table:
        """`ad_id` and its `campaign` (int64)."""
        ads = self.ads
        return pa.table({"ad_id": ads, "campaign": np.arange(len(ads)) // ADS_OF_A_CAMPAIGN})

    def for_peer(self, **more: int) -> PeerInput:
        """The same for a peer."""
        settings = {"lap_rows": self.rows, "lap_ms": self.milliseconds, "start_ms": START_MS, "size_ms": _SIZE_MS}
        columns = {"line": self.lines, "ad": lambda: self.ads}
        return PeerInput({**settings, "ads_of_a_campaign": ADS_OF_A_CAMPAIGN, **more}, columns)


_LOGS: Final = {
    "100 campaigns": Log(100, 131_072, 1_000),
    "10k campaigns": Log(10_000, 131_072, 1_000),
    # As many events a second; a third of them are views, so that a window has views of three tenths of the campaigns.
    "1M campaigns": Log(1_000_000, 1_048_576, 8_000),
}


class Parse:
    """For `map_batches`: the columns of the query from `line` (JSON), and `lap` as it is."""

    def __init__(self) -> None:
        self._format = JsonFormat(EVENT)

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        decoded = self._format.decode(batch.column("line").cast(pa.large_binary()))
        if decoded.bad:
            raise BenchmarkError(f"ysb: {decoded.bad[0].reason}")
        return decoded.rows.append_column("lap", batch.column("lap"))


def run(options: Options, wanted: str = "") -> Iterator[Result]:
    """Measure the variants whose name contains `wanted`."""
    workloads = [_workload(options, variant, log) for variant, log in _LOGS.items()]
    log = _LOGS["100 campaigns"]
    workloads.append(null_workload(lambda env: _events(env, log), PeerTask("ad_events", log.for_peer())))
    yield from throughput(_NAME, [work for work in workloads if wanted in work.variant], options)


def _workload(options: Options, variant: str, log: Log) -> Workload:
    # Windows open and close within a small input: 41 s of 200 events each, a few times.
    few = Log(log.campaigns, 8_192, 40_960)

    def check(bounded: BoundedRun) -> None:
        rows, _ = bounded(lambda env: views(_events(env, few, options.check_rows), few))
        got = sorted(zip(*(_whole(rows.column(name)) for name in ("campaign", "window_start", "views")), strict=True))
        if got != expected(few, options.check_rows):
            raise BenchmarkError(f"ysb: {rows.num_rows} windows with {sum(row[2] for row in got)} views, or others")

    def right() -> Digest:
        return Digest.of(*zip(*expected(few, options.check_rows), strict=True))

    task = PeerTask(_NAME, log.for_peer(), few.for_peer(rows=options.check_rows), right)
    return Workload(variant, lambda env: views(_events(env, log), log), _PARSE, check, task)


def _events(env: StreamEnvironment, log: Log, rows: int | None = None) -> DataStream:
    return env.from_source(DataGenSource({"line": Pool(log.lines), "lap": log.laps}, rows=rows))


def views(events: DataStream, log: Log) -> DataStream:
    """The program: events as JSON to views of each campaign in 10 s."""
    parsed = events.map_batches(Parse, returns={**EVENT, "lap": "int64"}).name(_PARSE)
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
    lines = [json.loads(line) for line in log.lines().to_pylist()]
    seen = pa.array({line["ad_id"] for line in lines})
    table = log.table()
    shown = table.filter(pc.is_in(table.column("ad_id"), seen))
    campaigns = dict(zip(*(column.to_pylist() for column in shown.columns), strict=True))
    found: dict[tuple[int, int], int] = {}
    for number in range(rows):
        event: dict[str, Any] = lines[number % log.rows]
        if event["event_type"] == "view":
            at = START_MS + number // log.rows * log.milliseconds + event["event_time"]
            window = campaigns[event["ad_id"]], at - at % _SIZE_MS
            found[window] = found.get(window, 0) + 1
    return [(campaign, start, views) for (campaign, start), views in sorted(found.items())]


def _whole(column: pa.ChunkedArray) -> list[int]:
    numbers: list[int] = column.cast(pa.int64()).to_pylist()
    return numbers


def _ids(number: int, seed: int) -> pa.StringArray:
    """So many ids in the form of a UUID."""
    digits = np.frombuffer(b"0123456789abcdef", np.uint8)[
        np.random.default_rng(seed).integers(0, 16, (number, 32), np.uint8)
    ]
    parts = np.split(digits, (8, 12, 16, 20), axis=1)
    dash = np.full((number, 1), ord("-"), np.uint8)
    text = np.concatenate([part for each in parts for part in (each, dash)][:-1], axis=1)
    ends = np.arange(number + 1, dtype=np.int32) * text.shape[1]
    return pa.StringArray.from_buffers(number, pa.py_buffer(ends), pa.py_buffer(np.ascontiguousarray(text)))
