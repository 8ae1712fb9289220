"""`python -m tests.web.left_open --minutes 60`: pages that nobody touches, at ten times the speed, and what they hold.

A night is some ten hours, so an hour of this is one. The server reads its made-up cluster ten times as often as it
would, and so every page is told and drawn ten times as often. Prints the heap of each page behind a collection of
garbage, its nodes and its listeners; exits with 1 where one has grown by more than `MOST_GROWTH`.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from penstock.web.collector import EVERY_SECONDS
from tests.web.pictures import made_up
from tests.web.serving import Server

SPEED: Final = 10.0
MOST_GROWTH: Final = 1.2
"""Times as much as once all charts are full."""
PAGES: Final = ("", "jobs/{job}/", "jobs/{job}//2", "jobs/{job}/metrics", "jobs/{job}/latency", "jobs/{job}/logs")
_COUNTED: Final = {"JSHeapUsedSize": "heap", "Nodes": "nodes", "JSEventListeners": "listeners"}


@dataclass(frozen=True, slots=True)
class Held:
    """What a page holds behind a collection of garbage: bytes of JavaScript's heap, nodes, listeners."""

    heap: int
    nodes: int
    listeners: int


class Pages:
    """Pages that are open in one browser, each on another view.

    Args:
        browser: of playwright.
        url: of the server.
        job: whose views they show.
    """

    def __init__(self, browser: Any, url: str, job: str) -> None:
        self._sessions: dict[str, Any] = {}
        for view in PAGES:
            page = browser.new_page()
            page.goto(f"{url}#/{view.format(job=job)}")
            page.get_by_text("live").wait_for()
            session = page.context.new_cdp_session(page)
            session.send("Performance.enable")
            self._sessions[view or "jobs"] = session

    def held(self) -> Mapping[str, Held]:
        """By view."""
        return {view: _held(session) for view, session in self._sessions.items()}


def _held(session: Any) -> Held:
    # Twice: what a finalizer of the first has let go is collected by the second.
    for _ in range(2):
        session.send("HeapProfiler.collectGarbage")
    found = {one["name"]: int(one["value"]) for one in session.send("Performance.getMetrics")["metrics"]}
    return Held(**{name: found[metric] for metric, name in _COUNTED.items()})


def watched(seconds: Sequence[float], every: float) -> Iterator[tuple[float, Mapping[str, Held]]]:
    """What the pages hold after each of so many seconds.

    Args:
        seconds: ascending, since they were opened.
        every: seconds between readings of the server.
    """
    from playwright import sync_api

    with tempfile.TemporaryDirectory() as folder, sync_api.sync_playwright() as running:
        cluster = made_up(Path(folder))
        (reading,) = cluster.read()
        server = Server(cluster, every=every)
        browser = running.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        try:
            pages, began = Pages(browser, server.url, reading.info.id), time.monotonic()
            for at in seconds:
                time.sleep(max(0.0, began + at - time.monotonic()))
                yield at, pages.held()
        finally:
            browser.close()
            server.stop()


def main() -> int:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0, help="at ten times the speed; 60")
    minutes = parser.parse_args().minutes
    # Charts hold ten minutes, which are one here.
    looks = [90.0 + number * (60 * minutes - 90.0) / 10 for number in range(11)]
    first: Mapping[str, Held] = {}
    found: Mapping[str, Held] = {}
    for at, found in watched(looks, EVERY_SECONDS / SPEED):
        first = first or found
        for view, held in found.items():
            figures = f"{held.heap / 1e6:6.2f} MB {held.nodes:7,} nodes {held.listeners:5} listeners"
            print(f"{at:6.0f} s  {view:22} {figures}")  # noqa: T201
    return int(any(found[view].heap > MOST_GROWTH * first[view].heap for view in first))


if __name__ == "__main__":
    raise SystemExit(main())
