"""`python -m tests.web.page_load`: how soon pages of a very wide job are there, and how smooth they stay.

A made-up job of 100 tasks, each with 1,600 subtasks, all of whose figures change at each reading of the server. Prints
for each page the milliseconds from the navigation until all of it is drawn, in a profile of its own (nothing is
cached) and again in the same (scripts are), and then, while readings come and the page is scrolled, the time between
two frames: the 99th percentile and the longest.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import shutil
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from penstock.web.cluster import Reading
from penstock.web.collector import EVERY_SECONDS
from tests.web.fakes import FakeCluster, metrics, wide
from tests.web.serving import Server

TASKS: Final = 100
SUBTASKS: Final = 1600
PAGES: Final = {
    "": {"table tbody tr": 1},
    "jobs/wide-1/": {".graph g.node": TASKS, "table tbody tr": TASKS},
    "jobs/wide-1//2": {".graph g.node": TASKS, "summary": 1, ".long tbody tr:not([aria-hidden])": 20, ".plot .line": 6},
    "jobs/wide-1/metrics": {".plot .line": 4 * 8},
}
"""What each page has when all is drawn that a reader sees: selectors, and how many there are at least of each.

Below a task's page the other tasks are folded, and made when a reader unfolds them; of its subtasks those in sight are
drawn, and of the chart of their watermarks the lines.
"""

_SEEN: Final = """
window.drawn = new Promise((done) => {
  const wanted = Object.entries(%s), isThere = ([one, least]) => document.querySelectorAll(one).length >= least;
  const look = () => wanted.every(isThere) ? done(performance.now()) : requestAnimationFrame(look);
  requestAnimationFrame(look);
})
"""
_FRAMES: Final = """
(seconds) => new Promise((done) => {
  const at = [], began = performance.now();
  const next = (now) => {
    at.push(now);
    document.querySelectorAll(".graph, .virtual").forEach((one) => { one.scrollLeft += 9; one.scrollTop += 9; });
    window.scrollTo(0, (window.scrollY + 9) % Math.max(1, document.body.scrollHeight - innerHeight));
    now - began > 1000 * seconds ? done(at.slice(1).map((one, place) => one - at[place])) : requestAnimationFrame(next);
  };
  requestAnimationFrame(next);
})
"""


class Wide(FakeCluster):
    """A cluster whose one job is very wide, and has done more at each reading."""

    def __init__(self, readings: int) -> None:
        super().__init__()
        first = wide(TASKS, SUBTASKS)
        made = [replace(first, metrics=_done(seconds)) for seconds in range(readings)]
        self._left = itertools.chain(made, itertools.repeat(made[-1]))

    def read(self) -> Sequence[Reading]:
        return [next(self._left)]


def _done(seconds: int) -> list[Any]:
    return [
        metrics(task, one, [f"o{task}"], 10 * seconds * (1 + one % 7), 0.5 * seconds, 0.0, 0.5 * seconds)
        for task in range(1, TASKS + 1)
        for one in range(SUBTASKS)
    ]


def measured(url: str, times: int, seconds: float) -> Iterator[str]:
    """A line for each page."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as running:
        browser = running.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for view, seen in PAGES.items():
            new, again = list[float](), list[float]()
            for _ in range(times):
                context = browser.new_context(viewport={"width": 1280, "height": 900})
                new.append(_drawn(context, f"{url}#/{view}", seen))
                again.append(_drawn(context, f"{url}#/{view}", seen))
                frames = sorted(context.pages[-1].evaluate(_FRAMES, seconds)) if len(new) == times else [0.0]
                context.close()
            shown = f"{len(frames)} frames, p99 {frames[len(frames) * 99 // 100]:.0f} ms, longest {frames[-1]:.0f}"
            yield f"{view or 'jobs':20} new {_spread(new)}; again {_spread(again)}; {shown}"
        browser.close()


def _drawn(context: Any, address: str, seen: Mapping[str, int]) -> float:
    """Milliseconds until a new page of this profile shows what it should."""
    page = context.new_page()
    page.add_init_script(_SEEN % json.dumps(seen))
    page.goto(address, wait_until="commit")
    return float(page.evaluate("window.drawn"))


def _spread(figures: Sequence[float]) -> str:
    return f"{statistics.median(figures):.0f} ms ({min(figures):.0f} to {max(figures):.0f})"


def main() -> int:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=7, help="each page is opened so often; 7")
    parser.add_argument("--seconds", type=float, default=10.0, help="of scrolling; 10")
    options = parser.parse_args()
    cluster = Wide(40)
    gc.freeze()
    server = Server(cluster, every=EVERY_SECONDS)
    try:
        time.sleep(3 * EVERY_SECONDS)
        for line in measured(server.url, options.times, options.seconds):
            print(line, flush=True)  # noqa: T201
    finally:
        server.stop()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
