"""Pages of jobs of many tasks with many subtasks, in a browser: all is there, and what is in sight is drawn."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from penstock.engine.job.info import InputInfo
from penstock.engine.metric_types import PENDING_RECORDS
from penstock.web.cluster import Reading
from tests.web.conftest import Serve, needs_chromium
from tests.web.fakes import ORDERS, FakeCluster, orders_metrics, wide
from tests.web.serving import Server

pytestmark = needs_chromium

BOXES = """() => {
  const at = (one) => one.getBoundingClientRect();
  const boxes = [...document.querySelectorAll(".graph rect.box")].map(at);
  const lines = [...document.querySelectorAll(".graph path.edge")];
  const over = (one, other) =>
    one.left < other.right && other.left < one.right && one.top < other.bottom && other.top < one.bottom;
  const near = (one, other) => Math.abs(one - other) < 2;
  const meets = ({ x, y }) =>
    boxes.some((box) => (near(box.left, x) || near(box.right, x)) && box.top < y && y < box.bottom);
  const ends = (line) => [0, line.getTotalLength()].map((length) =>
    line.getPointAtLength(length).matrixTransform(line.getScreenCTM()));
  return {
    over: boxes.filter((one, place) => boxes.slice(place + 1).some((other) => over(one, other))).length,
    loose: lines.filter((line) => !ends(line).every(meets)).length,
    lines: lines.length,
  };
}"""
"""How many boxes lie over others, and how many lines do not begin and end at the sides of boxes."""


ALL_DRAWN = """() => {
  const seen = document.querySelector(".virtual").getBoundingClientRect();
  return [...document.querySelectorAll(".virtual tbody tr[aria-hidden]")].map((one) => one.getBoundingClientRect())
    .every((one) => one.bottom <= seen.top || seen.bottom <= one.top);
}"""
"""Whether what stands for rows that are not drawn is out of sight."""


def test_rows_of_many_tasks_lie_beside_each_other_and_their_lines_meet_them(
    page: Any, server: Server, cluster: FakeCluster
) -> None:
    reading = wide(40, 1)
    # Two rows that come together, a third that leaves them, and one that stands alone.
    inputs = {1: (), 16: (), 21: (15, 20), 31: (10,), 38: ()}
    tasks = tuple(
        replace(task, inputs=tuple(InputInfo(one, "hash") for one in inputs.get(task.id, (task.id - 1,))))
        for task in reading.info.tasks
    )
    cluster.readings = [replace(reading, info=replace(reading.info, tasks=tasks))]
    page.goto(f"{server.url}#/jobs/wide-1/")
    page.get_by_role("button", name="task 40, parallelism 1").wait_for()
    assert page.evaluate(BOXES) == {"over": 0, "loose": 0, "lines": 38}


def test_a_wide_graph_has_all_tasks_and_fills_those_that_are_come_to(
    page: Any, server: Server, cluster: FakeCluster
) -> None:
    cluster.readings = [wide(100, 1)]
    page.goto(f"{server.url}#/jobs/wide-1/")
    last = page.get_by_role("button", name="task 100, parallelism 1")
    last.wait_for()
    assert page.locator(".graph g.node").count() == 100
    assert page.locator(".graph g.node text").count() < 100
    last.focus()
    last.locator("text", has_text="task 100").wait_for()


def test_the_table_of_tasks_follows_the_readings(page: Any, server: Server, cluster: FakeCluster) -> None:
    cluster.readings = [Reading(ORDERS, orders_metrics(10))]
    page.goto(f"{server.url}#/jobs/orders-1/")
    tasks = page.get_by_role("table", name="Tasks", exact=True).locator("tbody tr")
    tasks.nth(1).get_by_text("1000", exact=True).first.wait_for()
    assert tasks.nth(1).get_by_role("img", name="busy").count() == 1
    cluster.readings = [Reading(ORDERS, orders_metrics(40))]
    tasks.nth(1).get_by_text("4000", exact=True).first.wait_for()
    tasks.nth(1).get_by_role("link", name="count -> sink").click()
    page.get_by_text("2 subtasks").wait_for()
    assert [one.get_attribute("class") for one in tasks.all()] == ["", "sel"]


def test_many_tasks_below_one_are_made_when_they_are_unfolded(page: Any, server: Server, cluster: FakeCluster) -> None:
    cluster.readings = [wide(21, 1)]
    page.goto(f"{server.url}#/jobs/wide-1//2")
    tasks = page.get_by_role("table", name="Tasks", exact=True)
    fold = page.locator("summary", has_text="All 21 tasks")
    fold.wait_for()
    assert page.locator(".tasks").count() == 0
    # By the keyboard alone.
    fold.focus()
    page.keyboard.press("Enter")
    tasks.get_by_role("link", name="task 21").click()
    page.get_by_role("heading", name="task 21").wait_for()
    # It stays as it is left, and marks the task that is shown.
    assert [one.get_attribute("class") for one in tasks.locator("tbody tr").all()] == [*[""] * 20, "sel"]
    fold.focus()
    page.keyboard.press(" ")
    tasks.wait_for(state="detached")


@pytest.mark.parametrize(("tasks", "place"), [(20, "/2"), (21, "")])
def test_few_tasks_and_those_below_none_are_in_sight(
    page: Any, server: Server, cluster: FakeCluster, tasks: int, place: str
) -> None:
    cluster.readings = [wide(tasks, 1)]
    page.goto(f"{server.url}#/jobs/wide-1/{place}")
    page.get_by_role("table", name="Tasks", exact=True).get_by_role("link", name=f"task {tasks}").wait_for()
    assert page.locator("summary").count() == 0


def test_rows_in_sight_are_drawn_wherever_one_scrolls(page: Any, server: Server, cluster: FakeCluster) -> None:
    cluster.readings = [wide(3, 1600)]
    page.goto(f"{server.url}#/jobs/wide-1//2")
    page.get_by_text("1600 subtasks").wait_for()
    table = page.locator(".virtual")
    for top in (0, 131, 132, 5_000, 5_131):
        table.evaluate("(one, top) => { one.scrollTop = top }", top)
        page.wait_for_function(ALL_DRAWN)


def test_a_library_that_is_gone_is_told_of(page: Any, server: Server, cluster: FakeCluster) -> None:
    reading = wide(3, 1)
    # Two that read from one are no row, and laid out by the library.
    tasks = tuple(replace(task, inputs=(InputInfo(1, "hash"),) if task.id > 1 else ()) for task in reading.info.tasks)
    cluster.readings = [replace(reading, info=replace(reading.info, tasks=tasks))]
    page.route("**/dagre.js", lambda route: route.fulfill(status=404))
    try:
        page.goto(f"{server.url}#/jobs/wide-1/")
        page.get_by_text("has been upgraded: load this page again").first.wait_for()
    finally:
        page.unroute("**/dagre.js")
    page.reload()
    page.get_by_role("button", name="task 3, parallelism 1").wait_for()


def test_what_a_page_asks_for_is_small_however_wide_the_job_is(serve: Serve, cluster: FakeCluster) -> None:
    lengths = []
    for parallelism in (2, 100):
        cluster.readings = [wide(100, parallelism)]
        lengths.append(len(serve().get("/v1/jobs/wide-1/view").content))
    assert lengths[1] < 1.1 * lengths[0]


def test_a_wide_task_shows_the_rows_in_sight_and_no_more(page: Any, server: Server, cluster: FakeCluster) -> None:
    cluster.readings = [wide(3, 1600)]
    page.goto(f"{server.url}#/jobs/wide-1//2")
    page.get_by_text("1600 subtasks").wait_for()
    rows = page.locator(".virtual tbody tr")
    assert rows.count() < 100
    # Where it is scrolled to is reckoned by their height, which no cell may change.
    shown = page.locator(".virtual tbody tr:not([aria-hidden])")
    assert shown.count() > 20
    heights = shown.evaluate_all("all => [...new Set(all.map((one) => one.offsetHeight))]")
    assert heights == [33]
    page.locator(".virtual").evaluate("one => { one.scrollTop = one.scrollHeight }")
    page.get_by_role("button", name="Stack 1599").wait_for()
    assert rows.count() < 100
    # So with the lines of the chart above it.
    page.get_by_text("all 1600 are within the grey, and 1594 have no line").wait_for()
    assert page.get_by_role("img", name="Watermarks of its subtasks").locator("path.line").count() == 6 + 3


WITHIN = """() => [...document.querySelectorAll(".graph g.node")].map((node) => {
  const box = node.querySelector("rect.box").getBoundingClientRect();
  return [...node.querySelectorAll("text")].map((text) => [text.textContent, text.getBoundingClientRect()])
    .filter(([, at]) => at.left < box.left + 5 || box.right - 5 < at.right).map(([text]) => text);
})"""
"""The texts of each box that run out of it."""


@pytest.mark.parametrize("width", [375, 1280])
def test_what_stands_in_a_box_runs_out_of_none(page: Any, server: Server, cluster: FakeCluster, width: int) -> None:
    names = ("events of the shop -> WATERMARKS BY AT", "GROUP BY WAREHOUSE, COUNTRY, CUSTOMER")
    tasks = [replace(task, name=name) for task, name in zip(ORDERS.tasks, names, strict=True)]
    read = orders_metrics(10)
    counters = read[0].operators[0][1]
    counters.watermark = 1_700_000_847_000
    counters.group.gauge(PENDING_RECORDS[0], lambda: 11_040_000_000)
    cluster.readings = [Reading(replace(ORDERS, tasks=tuple(tasks)), read)]
    before = page.viewport_size
    page.set_viewport_size({"width": width, "height": 900})
    try:
        page.goto(f"{server.url}#/jobs/orders-1/")
        page.locator(".graph text", has_text="watermark 2023-11-14 22:27:27").wait_for()
        page.locator(".graph text", has_text="behind").wait_for()
        page.locator(".graph g.node").nth(1).scroll_into_view_if_needed()
        page.locator(".graph text", has_text="GROUP BY").wait_for()
        assert page.evaluate(WITHIN) == [[], []]
        assert page.locator(".graph g.node title").all_text_contents()[-1] == names[1]
    finally:
        page.set_viewport_size(before)
