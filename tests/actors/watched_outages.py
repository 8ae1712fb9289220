"""The case of `lost_node.py` in which a browser looks at a job whose console, manager and node are killed.

The page is never loaded again: it must say what is away, and show the job as it is when that is back.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ray.cluster_utils import Cluster

from penstock.actors.client import RayJob
from penstock.engine.job.info import JobInfo
from penstock.engine.job.status import JobStatus
from penstock.web.serve import ServerOptions, start_server, stop_server
from tests.actors.keyed_job import kill, until, until_checkpoint

CHROMIUM = shutil.which("chromium")
NOTE = """() => {
  window.noted = [];
  const look = () => [...document.querySelectorAll(".outage, .head .state, header [role=status]")]
    .map((one) => one.textContent).join(" | ");
  const note = () => { const now = look(); if (now !== noted[noted.length - 1]) noted.push(now); };
  note();
  setInterval(note, 20);
}"""
"""Has the page keep all that it says of outages, of the job's status and of its connection, as it changes."""
WELL = "live | running"


class Watcher:
    """A page that shows a job while something of it is killed.

    Args:
        page: of playwright.
        job: which the page shows.
    """

    def __init__(self, page: Any, job: RayJob) -> None:
        self._page = page
        self._job = job

    def sees(self, what: str, act: Callable[[], object], is_over: Callable[[JobInfo], bool]) -> Sequence[str]:
        """Do something to the job; return when that is over and the page shows the job as it should be.

        Args:
            what: is done, for the report.
            act: does it.
            is_over: whether the job is over it.

        Returns:
            what the page has said in between.
        """
        self._page.evaluate("noted.length = 0")
        began = time.monotonic()
        act()
        until(self._job, lambda info: info.status is JobStatus.RUNNING and is_over(info))
        over = time.monotonic()
        until(self._job, lambda info: any(said not in ("", WELL) for said in self._said()))
        until(self._job, lambda info: self._said()[-1] == WELL)
        # For people: nothing is asserted of time on machines that are shared.
        print(  # noqa: T201
            f"{what}: the job was over it after {over - began:.1f} s, and the page said so after "
            f"{time.monotonic() - began:.1f} s: {self._said()}",
            flush=True,
        )
        return self._said()

    def _said(self) -> list[str]:
        said: list[str] = self._page.evaluate("noted")
        return said or [""]


def watch_outages(cluster: Cluster, folder: Path, job: RayJob, lost: Any, spare: Callable[[], object]) -> None:
    """Kill the console, the job's manager and one of its nodes, one after another, before the eyes of a page.

    Args:
        cluster: of the job.
        folder: for the console.
        job: runs, and takes checkpoints.
        lost: the node with its subtasks.
        spare: adds another node.
    """
    from playwright.sync_api import sync_playwright

    server = start_server(ServerOptions(port=0, folder=str(folder / "console")))
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
            page = browser.new_page()
            page.goto(f"{server.url}#/jobs/{job.info().id}/")
            page.locator(".head .state", has_text="running").wait_for(timeout=60_000)
            page.evaluate(NOTE)
            watcher, before = Watcher(page, job), until_checkpoint(job)
            said = watcher.sees("console killed", lambda: kill(server.pid), lambda info: True)
            assert any("The server cannot be reached" in one for one in said), said
            assert (job.info().restarts, job.info().attempt) == (before.restarts, before.attempt)
            watcher.sees(
                "job manager killed",
                lambda: kill(before.manager_pid),
                lambda info: info.manager_pid != before.manager_pid,
            )
            attempt = until_checkpoint(job).attempt
            spare()
            watcher.sees(
                "node killed",
                lambda: cluster.remove_node(lost, allow_graceful=False),
                lambda info: info.attempt > attempt,
            )
            browser.close()
    finally:
        stop_server()
