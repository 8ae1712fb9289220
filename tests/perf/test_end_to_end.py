"""The end-to-end benchmark: its feed passes lines on, its job counts each event, and missing events are told."""

from __future__ import annotations

import threading
import time
import urllib.request

import pyarrow as pa
import pytest

from penstock import StreamEnvironment
from penstock.connectors.http import HttpSource
from perf.end_to_end import _EVENT, counted, latency_ms
from perf.event_feed import PATH, event_feed
from perf.harness import BenchmarkError

EVENTS = 500


def test_a_job_behind_the_feed_has_each_event_with_its_time() -> None:
    with event_feed() as address:
        url = f"{address}{PATH}"
        env = StreamEnvironment(runtime="local", parallelism=2)
        rows = counted(env, HttpSource(url, format=_EVENT)).collect()
        stop = threading.Event()

        def post() -> None:
            # Until somebody reads, what is posted is dropped.
            number = 0
            while not stop.is_set():
                line = b'{"key":%d,"due":%f,"v":1}\n' % (number % 7, time.monotonic())
                urllib.request.urlopen(urllib.request.Request(url, data=line, method="POST")).close()
                number += 1

        poster = threading.Thread(target=post)
        poster.start()
        found = []
        for row in rows:
            found.append(row)
            if len(found) == EVENTS:
                break
        stop.set()
        poster.join()
    assert len({row["due"] for row in found}) == EVENTS
    assert all(0 <= row["latency"] < 60 for row in found)


def test_events_that_are_missing_make_no_figure() -> None:
    due = [float(number) / 10 for number in range(100)]
    rows = pa.table({"due": due, "latency": [0.002] * 99 + [0.5]})
    assert latency_ms(rows, rate=10, warm_up=1, seconds=8) == {"p50": 2.0, "p99": 2.0}
    with pytest.raises(BenchmarkError, match="80 of 160 events"):
        latency_ms(rows, rate=20, warm_up=1, seconds=8)
