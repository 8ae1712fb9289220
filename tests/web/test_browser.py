"""The pages in a real browser (Debian's chromium), on a cluster that was made up; a failing one leaves a screenshot."""

from __future__ import annotations

import itertools
import threading
from dataclasses import replace
from typing import Any

import pytest

from penstock.engine.autoscaler.report import AutoscalerInfo, ScalingRecord
from penstock.engine.elements import LatencyMarker
from penstock.engine.job.status import JobStatus
from penstock.web import observed
from penstock.web.cluster import Reading
from penstock.web.security import Role
from tests.web.conftest import needs_chromium
from tests.web.fakes import ORDERS, TOKENS, FakeCluster, orders_metrics
from tests.web.serving import Server

pytestmark = needs_chromium

PAGES = (
    ("/", "orders"),
    ("/nodes", "10.0.0.1 (head)"),
    ("/jobs/orders-1/", "count -> sink"),
    ("/jobs/orders-1//2", "2 subtasks"),
    ("/jobs/orders-1/metrics", "Backpressured"),
    ("/jobs/orders-1/state", "visits"),
    ("/jobs/orders-1/rows", "What comes out of"),
    ("/jobs/orders-1/latency", "latency"),
    ("/jobs/orders-1/rescales", "under way"),
    ("/jobs/orders-1/checkpoints", "file:///s/savepoint-8"),
    ("/jobs/orders-1/exceptions", "the process died"),
    ("/jobs/orders-1/timeline", "no broker can be used"),
    ("/jobs/orders-1/logs", "no such user"),
    ("/jobs/orders-1/configuration", "state_backend"),
)
"""The pages, and what each shows when it is there; the last has the buttons of the job, too."""


PHONE = 375
"""Pixels of its width."""


def test_every_view_of_a_job_shows_what_is_known(page: Any, server: Server, cluster: FakeCluster) -> None:
    seconds = iter(range(11, 10_000))
    cluster.read = lambda: [Reading(ORDERS, orders_metrics(next(seconds)))]  # type: ignore[method-assign]
    page.goto(server.url)
    page.get_by_role("link", name="orders").click()
    page.get_by_text("'events' waits for it").wait_for()
    page.get_by_role("button", name="count -> sink, parallelism 2").wait_for()
    page.get_by_role("button", name="count -> sink, parallelism 2").press("Enter")
    page.get_by_role("img", name="Watermarks of its subtasks, behind the clock; now subtask 0:").wait_for()
    page.get_by_role("button", name="events, parallelism 1").press("Enter")
    page.get_by_text("1 subtasks").wait_for()
    page.get_by_role("button", name="Channels 0").click()
    page.get_by_text("2 channels behind subtask 0").wait_for()
    page.get_by_role("cell", name="count -> sink 1").wait_for()
    page.get_by_role("button", name="Flame graph 0").click()
    page.get_by_role("button", name="f (user/flow.py:7)").wait_for()
    page.get_by_role("button", name="Flame graph of all subtasks").click()
    page.get_by_role("heading", name="Flame graph of all subtasks").wait_for()
    page.get_by_role("button", name="f (user/flow.py:7)").wait_for()
    page.get_by_role("button", name="Stack 0").click()
    page.get_by_text("thread task-loop").wait_for()
    for tab, seen in (
        ("Charts", "Backpressured"),
        ("Checkpoints", "file:///s/savepoint-8"),
        ("Exceptions", "the process died"),
        ("Timeline", "savepoint 8"),
        ("Logs", "no such user"),
        ("Configuration", "source events"),
    ):
        page.get_by_role("link", name=tab, exact=True).click()
        page.get_by_text(seen).first.wait_for()
    page.get_by_role("link", name="Nodes").click()
    page.get_by_text("10.0.0.1 (head)").wait_for()


@pytest.mark.usefixtures("checkpointed")
def test_state_is_listed_and_asked_for(page: Any, server: Server) -> None:
    page.goto(f"{server.url}#/jobs/orders-1/state")
    page.get_by_role("button", name="Look visits").click()
    page.get_by_label("As of").select_option("checkpoint")
    page.get_by_role("cell", name="cat").wait_for()
    page.get_by_label("Key").fill("bob")
    page.get_by_role("button", name="Ask").click()
    page.locator("pre").get_by_text("2", exact=True).wait_for()


@pytest.mark.usefixtures("checkpointed")
def test_an_answer_that_comes_late_is_not_taken_for_that_of_the_question_behind_it(
    page: Any, server: Server, cluster: FakeCluster
) -> None:
    release, live = threading.Event(), cluster.live_state

    def late(*arguments: Any) -> Any:
        release.wait(60)
        return live(*arguments)

    cluster.live_state = late  # type: ignore[method-assign]
    page.goto(f"{server.url}#/jobs/orders-1/state")
    page.get_by_role("button", name="Look visits").click()
    page.get_by_label("As of").select_option("checkpoint")
    page.get_by_role("cell", name="cat").wait_for()
    with page.expect_response(lambda answer: "isolation=live" in answer.url):
        release.set()
    # What has come is drawn behind the next frame.
    page.evaluate(
        "() => new Promise((done) => requestAnimationFrame(() => setTimeout(() => requestAnimationFrame(done))))"
    )
    assert page.get_by_role("cell", name="cat").is_visible()
    assert not page.get_by_text("there is no state").is_visible()


def test_latency_rescales_and_parts_of_checkpoints_are_shown(page: Any, server: Server, cluster: FakeCluster) -> None:
    read = orders_metrics(10)
    read[2].operators[1][1].note_latency(LatencyMarker("events", 1_000), 1_030)
    cluster.readings = [Reading(ORDERS, read)]
    page.goto(f"{server.url}#/jobs/orders-1/latency")
    page.get_by_role("row", name="sink events").get_by_text("30 ms").first.wait_for()
    page.get_by_role("link", name="Rescales", exact=True).click()
    page.get_by_role("cell", name="completed").or_(page.get_by_role("cell", name="under way")).first.wait_for()
    page.get_by_role("link", name="Checkpoints", exact=True).click()
    page.locator("label", has_text="Checkpoint").locator("select").select_option("7")
    page.locator("label", has_text="Task").locator("select").select_option("2")
    page.get_by_text("1 of 2 subtasks acknowledged").wait_for()
    page.get_by_role("cell", name="120 ms").wait_for()


def test_the_timeline_has_what_the_autoscaler_did_and_why(page: Any, server: Server, cluster: FakeCluster) -> None:
    reason = "count: 0.92 busy at 410 k/s, target 2 -> 3"
    refused = ScalingRecord(7_000, "refused", (("totals", 3),), (reason,), "there is room for 2 slots")
    scaling = AutoscalerInfo("watching: 35 of 60 s", True, history=(refused,))
    cluster.readings = [Reading(replace(ORDERS, autoscaler=scaling), orders_metrics(10))]
    page.goto(f"{server.url}#/jobs/orders-1/timeline")
    page.get_by_text("Autoscaler (dry run): watching: 35 of 60 s").wait_for()
    entry = page.get_by_role("listitem").filter(has_text="autoscaler: refused")
    entry.get_by_text(f"{reason}; there is room for 2 slots").wait_for()


def test_the_last_rows_of_a_stream_are_looked_at(page: Any, server: Server, cluster: FakeCluster) -> None:
    page.goto(f"{server.url}#/jobs/orders-1/rows")
    page.get_by_label("What comes out of").select_option("count")
    page.get_by_label("Side output").fill("late")
    assert not cluster.asked, "nobody has asked for rows"
    page.get_by_role("button", name="Look").click()
    page.get_by_text("The last 2 of 12 rows that came").wait_for()
    page.get_by_role("cell", name="7").wait_for()
    assert cluster.asked == [("tail", "orders-1", "totals", "late", 50, 5.0)]


BUTTONS: tuple[tuple[str, str, str | None, tuple[Any, ...], str], ...] = (
    ("Checkpoint", "Take a checkpoint", None, ("checkpoint", "orders-1"), "chk-00000010"),
    ("Savepoint", "Take a savepoint", "s3://b/s", ("savepoint", "orders-1", "s3://b/s"), "savepoint-10"),
    ("Rescale", "Rescale", "4", ("rescale", "orders-1", 4), "It stood still for 0.5 s."),
    ("Stop", "Stop the job", "", ("stop", "orders-1", None), "savepoint-11"),
    ("Drain", "Drain the job", "", ("drain", "orders-1", None), "savepoint-12"),
    ("Cancel", "Cancel the job", None, ("cancel", "orders-1"), "begun"),
)
"""Each with what confirms it, what is filled in, what the cluster is asked and what is told of the answer."""


def test_a_button_asks_does_and_tells(page: Any, server: Server, cluster: FakeCluster) -> None:
    page.goto(f"{server.url}#/jobs/orders-1/")
    for button, confirm, field, asked, told in BUTTONS:
        cluster.asked.clear()
        page.get_by_role("group", name="Actions").get_by_role("button", name=button, exact=True).click()
        dialog = page.get_by_role("dialog")
        if field:
            dialog.locator("input").first.fill(field)
        assert not cluster.asked, f"{button} has not been confirmed"
        dialog.get_by_role("button", name=confirm, exact=True).click()
        page.locator(".toast").get_by_text(told).wait_for()
        while not cluster.asked:  # To cancel is answered as soon as it is begun.
            page.wait_for_timeout(1)
        assert cluster.asked == [asked]


@pytest.mark.usefixtures("checkpointed")
def test_axe_finds_no_serious_violation_on_any_page(page: Any, serving: Any) -> None:
    axe = pytest.importorskip("axe_playwright_python.base").AXE_SCRIPT
    server, found = serving(Role.OPERATOR, every=1.0), []

    def look(where: str) -> None:
        # A scheme changes colours only.
        for scheme, rules in (("light", {}), ("dark", {"runOnly": ["color-contrast", "link-in-text-block"]})):
            page.emulate_media(color_scheme=scheme)
            results = page.evaluate("(options) => axe.run(options)", {"resultTypes": ["violations"], **rules})
            found.extend(serious(results["violations"], f"{where}, {scheme}"))

    page.goto(server.url)
    # All pages are views of one document.
    page.evaluate(axe)
    for path, seen in PAGES:
        page.goto(f"{server.url}#{path}")
        page.get_by_text(seen).first.wait_for()
        look(path)
    page.get_by_role("button", name="Savepoint", exact=True).click()
    page.get_by_role("dialog").wait_for()
    look("dialog")
    assert not found, "\n".join(found)


@pytest.mark.usefixtures("checkpointed")
def test_every_page_fits_the_width_of_a_phone(page: Any, server: Server) -> None:
    usual, wide_ones = page.viewport_size, []
    page.set_viewport_size({"width": PHONE, "height": 700})
    try:
        for path, seen in PAGES:
            page.goto(f"{server.url}#{path}")
            page.get_by_text(seen).first.wait_for()
            if (needed := page.evaluate("document.documentElement.scrollWidth")) > PHONE:
                wide_ones.append((path, needed))
    finally:
        page.set_viewport_size(usual)
    assert not wide_ones


def serious(violations: Any, path: str) -> list[str]:
    """What axe-core calls serious or critical, with where it is."""
    return [
        f"{path}: {one['id']}: {node['html'][:150]} ({node.get('failureSummary', '')[:200]})"
        for one in violations
        if one["impact"] in ("serious", "critical")
        for node in one["nodes"]
    ]


def test_a_question_that_is_not_confirmed_changes_nothing(page: Any, server: Server, cluster: FakeCluster) -> None:
    page.goto(f"{server.url}#/jobs/orders-1/")
    page.get_by_role("button", name="Cancel", exact=True).click()
    page.get_by_role("dialog").wait_for()
    page.keyboard.press("Escape")
    page.get_by_role("dialog").wait_for(state="detached")
    assert not cluster.asked


NOTE_TIMERS = """() => {
  window.timers = [];
  const begin = window.setTimeout;
  window.setTimeout = (act, ms, ...rest) => { timers.push(ms ?? 0); return begin(act, ms, ...rest); };
}"""
"""Has the page keep how long it waits, in ms, each time that it waits for the clock."""


def test_an_outage_is_shown_and_ends_by_itself(page: Any, server: Server, cluster: FakeCluster) -> None:
    page.goto(server.url)
    page.get_by_text("live").wait_for()
    cluster.away = True
    page.get_by_text("The cluster does not answer").wait_for()
    cluster.away = False
    page.get_by_text("The cluster does not answer").wait_for(state="detached")
    page.evaluate(NOTE_TIMERS)
    server.stop()
    page.get_by_text("The server cannot be reached").wait_for()
    server.start()
    page.get_by_text("The server cannot be reached").wait_for(state="detached")
    assert 0 < max(page.evaluate("timers")) <= 1000, "it has waited for longer than a second before it tried again"


HIDE = """(is_hidden) => {
  Object.defineProperty(document, "hidden", { configurable: true, get: () => is_hidden });
  document.dispatchEvent(new Event("visibilitychange"));
}"""


def test_a_page_that_nobody_sees_leaves_its_connection_to_the_others(page: Any, server: Server) -> None:
    def is_of_events(request: Any) -> bool:
        return str(request.url).endswith("/v1/events")

    page.goto(server.url)
    page.get_by_text("live").wait_for()
    with page.expect_event("requestfailed", is_of_events):
        page.evaluate(HIDE, True)
    with page.expect_request(is_of_events):
        page.evaluate(HIDE, False)
    assert not page.get_by_text("The server cannot be reached").is_visible()


def test_a_job_manager_and_a_node_that_are_away_are_shown_until_they_are_back(
    page: Any, server: Server, cluster: FakeCluster
) -> None:
    readings, nodes = cluster.readings, cluster.nodes
    page.goto(f"{server.url}#/jobs/orders-1/")
    page.get_by_role("button", name="count -> sink, parallelism 2").wait_for()
    cluster.readings = []
    page.get_by_text("Its job manager does not answer").wait_for()
    cluster.readings = readings
    page.get_by_text("Its job manager does not answer").wait_for(state="detached")
    page.get_by_role("link", name="Nodes").click()
    cluster.nodes = lambda: [replace(node, alive=False) for node in nodes()]  # type: ignore[method-assign]
    page.get_by_role("cell", name="failed").wait_for()
    cluster.nodes = nodes  # type: ignore[method-assign]
    page.get_by_role("cell", name="running").wait_for()


def test_a_page_asks_nothing_more_while_an_answer_takes_long(page: Any, server: Server, cluster: FakeCluster) -> None:
    logs, asked, release, ticks = cluster.logs, [], threading.Event(), []

    def slowly(*arguments: Any) -> Any:
        asked.append(arguments)
        release.wait(60)
        return logs(*arguments)

    cluster.logs = slowly  # type: ignore[method-assign]

    def note(request: Any) -> None:
        if request.url.endswith("/view"):
            ticks.append(request.url)

    page.on("request", note)
    try:
        page.goto(f"{server.url}#/jobs/orders-1/logs")
        while len(ticks) < 10:
            page.wait_for_timeout(50)
        assert len(asked) == 1
    finally:
        page.remove_listener("request", note)
        release.set()
    page.get_by_text("no such user").wait_for()


def test_a_page_whose_session_is_over_asks_for_the_token(page: Any, serving: Any) -> None:
    server = serving(Role.NOBODY)
    page.goto(f"{server.url}#token={TOKENS.viewer}")
    page.get_by_text("read only").wait_for()
    page.context.clear_cookies()
    server.stop()
    server.start()
    page.get_by_label("Token").wait_for()


def test_an_address_that_makes_no_sense_shows_the_jobs(page: Any, server: Server) -> None:
    page.goto(f"{server.url}#/%")
    page.get_by_role("link", name="orders").wait_for()


@pytest.mark.parametrize(
    ("view", "shown", "asked_last", "more"),
    [
        ("/2", "2 subtasks", "tasks/2/watermarks", ["tasks/2"]),
        ("metrics", "what the console has seen running", "charts?busiest=8", []),
    ],
)
def test_what_a_page_shows_is_asked_for_while_its_scripts_are_on_their_way_and_once(
    page: Any, serving: Any, view: str, shown: str, asked_last: str, more: list[str]
) -> None:
    # There is no second reading.
    server, asked = serving(Role.OPERATOR, every=3600.0), []

    def note(request: Any) -> None:
        asked.append(request.url.removeprefix(server.url))

    def held(route: Any) -> None:
        if f"v1/jobs/orders-1/{asked_last}" in asked:
            route.continue_()
        else:
            page.wait_for_event("request", lambda request: request.url.endswith(asked_last))
            route.continue_()

    page.on("request", note)
    page.route("**/console.js", held)
    try:
        page.goto(f"{server.url}#/jobs/orders-1/{view}")
        page.get_by_text("live").wait_for()
        page.get_by_text(shown).wait_for()
    finally:
        page.unroute("**/console.js")
        page.remove_listener("request", note)
    job = "v1/jobs/orders-1"
    data = ["v1/events", *(f"{job}/{one}" for one in (*more, asked_last)), f"{job}/view", "v1/session"]
    assert sorted(one for one in asked if one.startswith("v1/")) == sorted(data)


POINTS = 75
"""Charts of so many points are full soon, and drawn soon."""


@pytest.mark.parametrize(
    "view", ["metrics", *(pytest.param(view, marks=pytest.mark.long) for view in ("", "/2", "logs", "timeline"))]
)
def test_a_page_that_stays_open_does_not_grow(
    page: Any, serving: Any, cluster: FakeCluster, view: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observed, "CHART_POINTS", POINTS)
    server = serving(Role.OPERATOR, every=0.01)
    seconds = itertools.count(11)
    cluster.read = lambda: [Reading(ORDERS, orders_metrics(next(seconds)))]  # type: ignore[method-assign]
    page.goto(f"{server.url}#/jobs/orders-1/{view}")
    page.get_by_text("live").wait_for()
    session = page.context.new_cdp_session(page)

    def size() -> tuple[int, int, float]:
        """Nodes, listeners and bytes, when all that is left over has been collected."""
        session.send("HeapProfiler.collectGarbage")
        counted = session.send("Memory.getDOMCounters")
        return counted["nodes"], counted["jsEventListeners"], session.send("Runtime.getHeapUsage")["usedSize"]

    def after(readings: int) -> tuple[int, int, float]:
        until = next(seconds) + readings
        while next(seconds) < until:
            page.wait_for_timeout(50)
        return size()

    # Charts are full by then.
    before = after(POINTS)
    behind = after(POINTS)
    assert behind[0] <= before[0] + 50
    assert behind[1] <= before[1] + 5
    # Within an hour's readings it goes up and down by a half.
    assert behind[2] <= 2 * before[2]


def test_a_link_with_a_token_logs_in_and_leaves_no_trace_in_the_address(page: Any, serving: Any) -> None:
    server = serving(Role.NOBODY)
    page.goto(server.url)
    page.get_by_label("Token").fill("guessed")
    page.get_by_role("button", name="Enter").click()
    page.get_by_text("the token is wrong").wait_for()
    page.goto("about:blank")
    page.goto(f"{server.url}#token={TOKENS.viewer}")
    page.get_by_text("read only").wait_for()
    assert "token" not in page.url
    page.get_by_role("link", name="orders").click()
    assert page.get_by_role("button", name="Cancel", exact=True).is_disabled()


def test_an_ended_job_has_its_error_and_no_buttons(page: Any, server: Server, cluster: FakeCluster) -> None:
    cluster.readings = [Reading(replace(ORDERS, status=JobStatus.FAILED, error="ValueError: boom"), [])]
    page.goto(f"{server.url}#/jobs/orders-1/")
    page.get_by_text("ValueError: boom").first.wait_for()
    assert page.get_by_role("button", name="Savepoint").is_disabled()
