"""What does it cost a job to be watched? All of it on, against all of it off, in turns.

On: latency markers each second, the console's server, Prometheus that scrapes each 5 s, and a page that is open, which
listens to events and reads its job behind each. With a flame graph: one is taken again and again, too. The CPU-seconds
of the server are in the figures, and those of who asks. Run by `perf/run.py watched`, on Ray.
"""

from __future__ import annotations

import json
import tempfile
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

from penstock import DataStream, StreamEnvironment, tumbling
from penstock.actors.cluster import connect
from penstock.web.serve import ServerOptions, start_server, stop_server
from perf import keyed, window
from perf.harness import BenchmarkError, ComparedResult, Options, Reading, Result, Workload, measure_once

_NAME: Final = "watched"
_OFF: Final = "all of it off"
_SCRAPE_SECONDS: Final = 5.0
_FLAME: Final = "tasks/2/0/flame?seconds=3"
_PATIENCE_SECONDS: Final = 30.0


def run(options: Options, wanted: str = "") -> Iterator[Result]:
    """Measure the variants whose name contains `wanted`, each against the same job that nobody watches."""
    if options.runtime != "ray":
        raise BenchmarkError("watched: the console watches jobs on Ray; leave out --runtime local")
    workloads = {
        "keyed": keyed.workload(options, "uniform", 1_000, "coalesced"),
        "window": window.workload(options, "tumbling 10s", tumbling("10s")),
    }
    for name, workload in workloads.items():
        for variant, flame in ((name, False), (f"{name} with a flame graph", True)):
            if wanted in variant:
                pairs = [_pair(workload, options, flame) for _ in range(options.repetitions)]
                yield ComparedResult.of_pairs(_NAME, variant, _OFF, pairs)


def _pair(workload: Workload, options: Options, flame: bool) -> tuple[Reading, Reading]:
    """Watched, and not; a flame graph is compared with all the rest of it on."""
    with _watching(flame, options):
        watched = measure_once(_NAME, _marked(workload), options)
    if not flame:
        return watched, measure_once(_NAME, workload, options)
    with _watching(False, options):
        return watched, measure_once(_NAME, _marked(workload), options)


def _marked(workload: Workload) -> Workload:
    """The same with latency markers."""

    def stream(env: StreamEnvironment) -> DataStream:
        env.configure({"metrics.latency.interval": "1s"})
        return workload.stream(env)

    return replace(workload, stream=stream)


@contextmanager
def _watching(flame: bool, options: Options) -> Iterator[None]:
    """The server, and those who ask it, until the measurement is over."""
    # The server needs a cluster; the job then runs on the same.
    connect(None, options.parallelism)
    over = threading.Event()
    with tempfile.TemporaryDirectory() as folder:
        server = start_server(ServerOptions(port=0, folder=folder))
        who = [_scrape, _look, *([_take_flames] if flame else [])]
        threads = [threading.Thread(target=one, args=(server.url, over), daemon=True) for one in who]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            over.set()
            stop_server()
            for thread in threads:
                thread.join(_PATIENCE_SECONDS)


def _scrape(url: str, over: threading.Event) -> None:
    """As Prometheus does."""
    while not over.wait(_SCRAPE_SECONDS):
        _answer(f"{url}metrics")


def _look(url: str, over: threading.Event) -> None:
    """As a page does that shows the graph of the job."""
    while not over.is_set():
        try:
            with urllib.request.urlopen(f"{url}v1/events", timeout=_PATIENCE_SECONDS) as events:
                for line in events:
                    if over.is_set():
                        return
                    if line.startswith(b"data:"):
                        for job in json.loads(line[5:])["jobs"]:
                            _answer(f"{url}v1/jobs/{job['id']}/view")
        except OSError:
            over.wait(1.0)


def _take_flames(url: str, over: threading.Event) -> None:
    """As a page does that shows the flame graph of a subtask, one after another."""
    while not over.is_set():
        found = _answer(f"{url}v1/overview-of-jobs")
        running = [job["id"] for job in json.loads(found)["jobs"] if job["status"] == "running"] if found else []
        if not running or _answer(f"{url}v1/jobs/{running[0]}/{_FLAME}") is None:
            over.wait(1.0)


def _answer(url: str) -> bytes | None:
    """What the server says; None where it does not."""
    try:
        with urllib.request.urlopen(url, timeout=_PATIENCE_SECONDS) as answer:
            content: bytes = answer.read()
            return content
    except OSError:
        return None
