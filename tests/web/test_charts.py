"""Charts in a browser: lines where their values are, and what somebody points at."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.web.conftest import needs_chromium
from tests.web.serving import Server

pytestmark = needs_chromium

FIRST, LAST = 1_700_000_000_000, 1_700_000_060_000
"""Times of the first and the last point: 22:13:20 and 22:14:20."""
ROWS = {"1": [0, 50, 100, 200], "2": [None, 100, None, None]}


@pytest.fixture
def charts(page: Any, server: Server) -> Any:
    """A page with charts of made-up points; that of the rows that come in."""
    times = [FIRST, FIRST + 20_000, FIRST + 40_000, LAST]
    empty = {"at_ms": times, "rows_out": [0] * 4, "busy": [0] * 4, "blocked": [0] * 4, "watermark": [None] * 4}
    answer = json.dumps({task: {**empty, "rows_in": rows} for task, rows in ROWS.items()})
    page.route("**/charts?*", lambda route: route.fulfill(body=answer, content_type="application/json"))
    page.goto(f"{server.url}#/jobs/orders-1/metrics")
    yield page.locator("figure", has_text="Rows in")
    page.unroute("**/charts?*")


def drawn(charts: Any) -> list[str]:
    """The lines, as paths in a field of 1000 to 100; the first begins at the left, at the bottom."""
    return [str(one.get_attribute("d")) for one in charts.locator("path.line").all()]


def test_lines_go_through_their_values_and_end_where_none_is_known(charts: Any) -> None:
    charts.get_by_role("img", name="Rows in; now events: 200/s; count -> sink: –").wait_for()
    # A value that stands alone is a dot.
    assert drawn(charts) == ["M0,100.0h0L333,75.0L667,50.0L1000,0.0", "M333,50.0h0"]
    assert charts.locator(".value").all_text_contents() == ["0/s", "50/s", "100/s", "150/s", "200/s"]
    assert charts.locator(".time").all_text_contents() == ["22:13:30", "22:13:45", "22:14:00", "22:14:15"]


def test_what_stands_at_an_axis_is_what_is_there(page: Any, charts: Any) -> None:
    charts.locator(".value").first.wait_for()
    labels = page.locator("figure", has_text="Backpressured").locator(".value").all_text_contents()
    assert labels == ["0 %", "1 %"]


def test_below_a_chart_stands_what_it_shows_where_somebody_points(charts: Any) -> None:
    below = charts.locator("figcaption")
    assert re.search("22:14:20 UTC.*200/s", below.inner_text(), re.DOTALL)
    place = charts.locator(".plot")
    width = place.bounding_box()["width"]
    place.hover(position={"x": 0.35 * width, "y": 50})
    below.get_by_text("22:13:40 UTC").wait_for()
    assert [one.inner_text() for one in below.locator("strong").all()] == ["50/s", "100/s"]
    below.hover()
    below.get_by_text("22:14:20 UTC").wait_for()


def test_a_line_is_left_out_and_the_others_have_its_room(charts: Any) -> None:
    button = charts.get_by_role("button", name="events")
    button.press("Enter")
    charts.locator("button[aria-pressed=false]").wait_for()
    assert drawn(charts) == ["M333,0.0h0"]
    button.press("Enter")
    charts.locator("button[aria-pressed=false]").wait_for(state="detached")
    assert len(drawn(charts)) == 2
