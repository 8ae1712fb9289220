"""What does it cost a job to be watched? All of it on, against all of it off, in turns.

Pairs of rates lie apart by more than that on most machines. So the same is asked of the CPU, which every process uses
because somebody watches: that of a job at rest, whose rows take next to none of it, in turns as well. It does not
depend on how many rows there are: markers, scrapes and pages come by the clock.

On: latency markers each second, the console's server, Prometheus that scrapes each 5 s, and a page that is open, which
listens to events and reads its job behind each. With a flame graph: one is taken again and again, too. The CPU-seconds
of the server are in the figures, and those of who asks. Run by `perf/run.py watched`, on Ray.
"""

from __future__ import annotations

import json
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Final

from penstock import DataGenSource, DataStream, StreamEnvironment, tumbling
from penstock import Sequence as RowNumbers
from penstock import sum as sum_of
from penstock.actors.cluster import connect
from penstock.web.serve import ServerOptions, start_server, stop_server
from perf import keyed, window
from perf.generators import Pool, uniform_keys, values
from perf.harness import (
    BenchmarkError,
    ComparedResult,
    CountingSink,
    Options,
    Reading,
    Result,
    Workload,
    go_on_until,
    measure_once,
    spread,
    wait_for_whole,
)
from perf.keyed_state import DetailedResult, summary
from perf.processes import ProcessTree

_NAME: Final = "watched"
_OFF: Final = "all of it off"
_MARKERS: Final = {"metrics.latency.interval": "1s"}
_SCRAPE_SECONDS: Final = 5.0
_FLAME: Final = "tasks/2/0/flame?seconds=3"
_PATIENCE_SECONDS: Final = 30.0
_REST_ROWS: Final = 20
"""A second, of a job at rest: enough to have every task at work."""
_SETTLED_SECONDS: Final = 5.0
_LEAST_SECONDS: Final = 15.0
"""An answer more or less within these is half a percent of what is measured."""
_OF: Final = {
    "ray::ConsoleActor": "console",
    "ray::JobManager": "job manager",
    "ray::SubtaskActor": "subtasks",
    "gcs_server": "GCS",
    "raylet": "raylet",
}
"""Whose processes are called how; all others are Ray's helpers, and this one, in which those who ask are, too."""
_ASKERS: Final = "who asks, and Ray's helpers"


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
    for variant, flame in (("at rest", False), ("at rest with a flame graph", True)):
        if wanted in variant:
            yield _at_rest(variant, [_pair_at_rest(options, flame) for _ in range(options.repetitions)])


def _pair_at_rest(options: Options, flame: bool) -> tuple[Mapping[str, float], Mapping[str, float]]:
    """The CPU of a job at rest that is watched, and of one that is not, in ms a second, by whose it is."""
    with _watching(flame, options):
        watched = _cpu_at_rest(options, is_watched=True)
    with _watching(False, options) if flame else nullcontext():
        return watched, _cpu_at_rest(options, is_watched=flame)


def _cpu_at_rest(options: Options, is_watched: bool) -> Mapping[str, float]:
    env = options.environment()
    fields = {"key": Pool(partial(uniform_keys, 1_000)), "ts": RowNumbers(), "v": Pool(values)}
    rows = env.from_source(DataGenSource(fields, rate=_REST_ROWS))
    if is_watched:
        env.configure(_MARKERS)
    rows.key_by("key").aggregate(total=sum_of("v")).name("sums").sink_to(CountingSink()).name("count")
    tree, job = ProcessTree(), env.submit(f"{_NAME} at rest")
    try:
        wait_for_whole(job, "sums", 1)
        go_on_until(job, time.monotonic() + _SETTLED_SECONDS)
        before, began = tree.cpu_by_command(), time.monotonic()
        go_on_until(job, began + max(options.seconds, _LEAST_SECONDS))
        used, seconds = tree.cpu_by_command(), time.monotonic() - began
    finally:
        job.cancel()
    return _by_owner({command: 1000 * (used[command] - before.get(command, 0.0)) / seconds for command in used})


def _by_owner(used: Mapping[str, float]) -> Mapping[str, float]:
    """What processes use, by command, added up by whose they are."""
    owned = dict.fromkeys([*_OF.values(), _ASKERS], 0.0)
    for command, one in used.items():
        owned[next((name for mark, name in _OF.items() if mark in command), _ASKERS)] += one
    return owned


def _at_rest(variant: str, pairs: Sequence[tuple[Mapping[str, float], Mapping[str, float]]]) -> DetailedResult:
    """What watching has added, by whose CPU it is; the spread is that of the sum."""
    figures: dict[str, object] = {}
    for name in pairs[0][0]:
        figures[f"CPU ms/s, {name}"] = summary([watched[name] - alone[name] for watched, alone in pairs])
    added = [sum(watched.values()) - sum(alone.values()) for watched, alone in pairs]
    job = [one - watched[_ASKERS] + alone[_ASKERS] for one, (watched, alone) in zip(added, pairs, strict=True)]
    figures["CPU ms/s, all"] = summary(added)
    figures["CPU ms/s, all but who asks and Ray's helpers"] = summary(job)
    return DetailedResult(_NAME, variant, Reading(), spread(added), [Reading()], figures)


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
        env.configure(_MARKERS)
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
