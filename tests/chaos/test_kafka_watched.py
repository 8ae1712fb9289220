"""A browser looks at the job from Kafka to Kafka while processes of the job die and the broker is restarted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from penstock.environment import StreamEnvironment
from penstock.testing.chaos import (
    AfterCheckpoints,
    ChaosSchedule,
    KillServer,
    KillSubtask,
    RestartServer,
    ScheduledFault,
    SubtaskChoice,
    Trial,
    chaos_environment,
    run_server_job,
)
from penstock.testing.chaos.kafka_job import KafkaJob
from penstock.testing.services import Kafka
from penstock.web.serve import ServerOptions, start_server, stop_server
from tests.actors.watched_outages import CHROMIUM, NOTE, WELL
from tests.web.test_serve import until

FAULTS = ChaosSchedule(
    [
        ScheduledFault(AfterCheckpoints(2), KillSubtask((SubtaskChoice("count"),))),
        ScheduledFault(AfterCheckpoints(8), RestartServer("kafka")),
        ScheduledFault(AfterCheckpoints(14), KillSubtask((SubtaskChoice("events"), SubtaskChoice("count")))),
        ScheduledFault(AfterCheckpoints(20), KillServer("kafka", 3)),
    ]
)
"""Each hits a job that has got over the one before, as it takes checkpoints."""
KILLED = 2
"""How many of them the job cannot get over without a restart."""


class Watcher:
    """A browser in a thread of its own, whose page is opened once and never loaded again.

    Args:
        url: of the console.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        # The loop that playwright leaves running in its thread would be in the way of others.
        self._thread = ThreadPoolExecutor(1, "browser")
        self._open = ExitStack()

    def __enter__(self) -> Watcher:
        self._thread.submit(self._start).result()
        return self

    def __exit__(self, *raised: object) -> None:
        self._thread.submit(self._open.close).result()
        self._thread.shutdown()

    def see(self, look: Callable[[Any], list[str]]) -> list[str]:
        """What is seen on the page."""
        return self._thread.submit(lambda: look(self._page)).result()

    def _start(self) -> None:
        from playwright.sync_api import sync_playwright

        playwright = self._open.enter_context(sync_playwright())
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        self._open.callback(browser.close)
        self._page = browser.new_page()
        self._page.set_default_timeout(120_000)

    def show_job(self, page: Any) -> list[str]:
        """Go to the job that runs, and note what the page says of it from now on."""
        seen = until(self._url, "jobs/overview", lambda found: any(map(_runs, found["jobs"])))
        (job,) = (one["jid"] for one in seen["jobs"] if _runs(one))
        page.goto(f"{self._url}#/jobs/{job}/")
        page.locator(".head .state", has_text="running").wait_for()
        page.evaluate(NOTE)
        return [job]


def _runs(job: dict[str, Any]) -> bool:
    return bool(job["state"] == "RUNNING")


def come_back(page: Any) -> list[str]:
    """Wait until the page shows the job running; what it has said meanwhile."""
    page.wait_for_function("well => noted[noted.length - 1] === well", arg=WELL)
    said: list[str] = page.evaluate("noted")
    return said


def failures(page: Any) -> list[str]:
    """Those of the timeline."""
    page.get_by_role("link", name="Timeline").click()
    entries = page.locator(".timeline li")
    entries.first.wait_for()
    found = [entry for entry in entries.all_inner_texts() if "failure" in entry]
    page.get_by_role("link", name="Graph", exact=True).click()
    return found


def finished(page: Any) -> list[str]:
    """The end of the job."""
    state = page.locator(".head .state", has_text="finished")
    state.wait_for()
    found: list[str] = state.all_inner_texts()
    return found


@dataclass(frozen=True)
class WatchedJob(KafkaJob):
    """The job, looked at from when it runs until all faults are over.

    Args:
        watcher: looks.
        said: gets what the page has said of the job.
        failures: gets those of its timeline.
    """

    watcher: Watcher | None = None
    said: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def begin(self, env: StreamEnvironment, rows: int, rate: float) -> Trial:
        trial, watcher = super().begin(env, rows, rate), self.watcher
        assert watcher is not None

        @contextmanager
        def feed() -> Iterator[Callable[[], None]]:
            watcher.see(watcher.show_job)
            with trial.feed() as finish:

                def look_and_finish() -> None:
                    self.said.extend(watcher.see(come_back))
                    self.failures.extend(watcher.see(failures))
                    finish()

                yield look_and_finish

        return Trial(feed, trial.check)


@pytest.mark.ray
@pytest.mark.usefixtures("ray_cluster", "no_leak")
@pytest.mark.skipif(CHROMIUM is None, reason="no chromium here: make install-services gets it")
@pytest.mark.long("pages: tests/web/test_browser.py; the job and its faults: test_kafka.py")
def test_a_page_shows_what_a_kafka_job_goes_through_and_its_end(kafka: Kafka, tmp_path: Path) -> None:
    server = start_server(ServerOptions(port=0, folder=str(tmp_path / "console")))
    try:
        with Watcher(server.url) as watcher:
            job = WatchedJob(kafka, watcher=watcher)
            run = run_server_job(job, FAULTS, chaos_environment(str(tmp_path / "checkpoints")), "60s")
            # For people, with `-rP`: whether a recovery is seen on its way depends on how long it takes.
            print("\n".join([*map(str, run.faults), *job.said, *job.failures]))  # noqa: T201
            assert (run.problems, run.violations, run.status) == ([], [], "finished")
            assert watcher.see(finished) == ["finished"]
    finally:
        stop_server()
    assert len(run.fired) == len(FAULTS.faults)
    assert len(job.failures) == run.restarts >= KILLED
