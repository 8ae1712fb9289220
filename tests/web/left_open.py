"""`python -m tests.web.left_open --minutes 60`: pages that nobody touches, at ten times the speed, and what they hold.

A night is some ten hours, so an hour of this is one. The server reads its made-up cluster ten times as often as it
would, and so every page is told and drawn ten times as often. Prints the heap of each page behind a collection of
garbage, its nodes and its listeners, and the memory of the processes that draw them; exits with 1 where a heap has
grown by more than `MOST_GROWTH`, or the memory of all of them.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from penstock.web.cluster import Reading
from penstock.web.collector import EVERY_SECONDS
from tests.web.pictures import made_up
from tests.web.serving import Server

SPEED: Final = 10.0
MOST_GROWTH: Final = 1.2
"""Times as much as once all charts are full."""
PAGES: Final = (
    "",
    "nodes",
    "jobs/{job}/",
    "jobs/{job}//2",
    "jobs/{job}/metrics",
    "jobs/{job}/checkpoints",
    "jobs/{job}/latency",
    "jobs/{job}/timeline",
    "jobs/{job}/logs",
)
_COUNTED: Final = {"JSHeapUsedSize": "heap", "Nodes": "nodes", "JSEventListeners": "listeners"}


@dataclass(frozen=True, slots=True)
class Held:
    """What a page holds behind a collection of garbage: bytes of JavaScript's heap, nodes, listeners."""

    heap: int
    nodes: int
    listeners: int


@dataclass(frozen=True, slots=True)
class Look:
    """What there is after some seconds.

    Args:
        at: seconds since the pages were opened.
        readings: how often the server has read its cluster by then, and told the pages.
        held: by each page.
        resident: bytes of memory that the processes that draw them have to themselves.
    """

    at: float
    readings: int
    held: Mapping[str, Held]
    resident: int


class Pages:
    """Pages that are open in a browser of their own, each on another view.

    Nobody is connected to the browser but while it is looked at: it would keep what each page has been answered, up to
    100 MB a page, for whoever debugs it.

    Args:
        folder: for the browser's files.
        url: of the server.
        job: whose views they show.
    """

    def __init__(self, folder: Path, url: str, job: str) -> None:
        self._views = {f"{url}#/{view.format(job=job)}": view or "jobs" for view in PAGES}
        command = [str(shutil.which("chromium")), "--headless=new", "--no-sandbox", "--remote-debugging-port=0"]
        silent = subprocess.DEVNULL
        self._process = subprocess.Popen([*command, f"--user-data-dir={folder}"], stdout=silent, stderr=silent)
        port = folder / "DevToolsActivePort"
        while not port.exists() or not port.read_text().strip():
            time.sleep(0.1)
        self._address = f"http://127.0.0.1:{port.read_text().split()[0]}/json"
        for address in self._views:
            # A profile each, as one has six connections to a server, and all of these pages are seen.
            (made,) = _ask(self._browser, ("Target.createBrowserContext", {"disposeOnDetach": False}))
            _ask(self._browser, ("Target.createTarget", {"url": address, "newWindow": True, **made}))

    @property
    def _browser(self) -> str:
        return str(_answer(f"{self._address}/version")["webSocketDebuggerUrl"])

    def look(self) -> tuple[Mapping[str, Held], int]:
        """What each view holds, and the bytes of memory that the processes that draw them have to themselves."""
        pages = {one["url"]: one["webSocketDebuggerUrl"] for one in _answer(f"{self._address}/list")}
        held = {view: _held(pages[address]) for address, view in self._views.items()}
        (told,) = _ask(self._browser, ("SystemInfo.getProcessInfo", {}))
        renderers = [int(one["id"]) for one in told["processInfo"] if one["type"] == "renderer"]
        return held, sum(map(_own_bytes, renderers))

    def close(self) -> None:
        """End the browser."""
        self._process.terminate()
        self._process.wait()


def _answer(address: str) -> Any:
    with urllib.request.urlopen(address) as answer:
        return json.load(answer)


def _ask(place: str, *questions: tuple[str, Mapping[str, Any]]) -> list[Any]:
    """What a page, or the browser, answers to commands of Chrome's DevTools protocol, one behind the other."""
    from websockets.sync.client import connect

    answers = []
    with connect(place, max_size=None) as socket:
        for number, (method, parameters) in enumerate(questions):
            socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
            while (told := json.loads(socket.recv())).get("id") != number:
                pass
            answers.append(told["result"])
    return answers


def _own_bytes(pid: int) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(1024 * int(line.split()[1]) for line in lines if line.startswith("Private_"))


def _held(page: str) -> Held:
    collect: tuple[str, Mapping[str, Any]] = ("HeapProfiler.collectGarbage", {})
    # Twice: what a finalizer of the first has let go is collected by the second.
    *_, told = _ask(page, ("Performance.enable", {}), collect, collect, ("Performance.getMetrics", {}))
    found = {one["name"]: int(one["value"]) for one in told["metrics"]}
    return Held(**{name: found[metric] for metric, name in _COUNTED.items()})


def watched(seconds: Sequence[float], every: float) -> Iterator[Look]:
    """What the pages hold after each of so many seconds.

    Args:
        seconds: ascending, since they were opened.
        every: seconds between readings of the server.
    """
    with tempfile.TemporaryDirectory() as folder:
        cluster = made_up(Path(folder))
        (reading,), read, readings = cluster.read(), cluster.read, list[float]()

        def noted() -> Sequence[Reading]:
            readings.append(time.monotonic())
            return read()

        cluster.read = noted  # type: ignore[method-assign]
        server = Server(cluster, every=every)
        pages, began = Pages(Path(folder) / "browser", server.url, reading.info.id), time.monotonic()
        try:
            for at in seconds:
                time.sleep(max(0.0, began + at - time.monotonic()))
                yield Look(at, len(readings), *pages.look())
        finally:
            pages.close()
            server.stop()


def main() -> int:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0, help="at ten times the speed; 60")
    minutes = parser.parse_args().minutes
    # Charts hold ten minutes, which are one here.
    looks = [90.0 + number * (60 * minutes - 90.0) / 10 for number in range(11)]
    first = last = None
    for last in watched(looks, EVERY_SECONDS / SPEED):
        first = first or last
        print(f"{last.at:6.0f} s  {last.readings} readings; all renderers: {last.resident / 1e6:.1f} MB")  # noqa: T201
        for view, held in last.held.items():
            figures = f"{held.heap / 1e6:6.2f} MB {held.nodes:7,} nodes {held.listeners:5} listeners"
            print(f"{last.at:6.0f} s  {view:22} {figures}", flush=True)  # noqa: T201
    return int(first is None or last is None or _has_grown(first, last))


def _has_grown(first: Look, last: Look) -> bool:
    heaps = [(first.held[view].heap, last.held[view].heap) for view in first.held]
    return any(now > MOST_GROWTH * before for before, now in [*heaps, (first.resident, last.resident)])


if __name__ == "__main__":
    raise SystemExit(main())
