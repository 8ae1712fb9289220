"""The chart of a running job in a notebook: a line for each operator that gives rows."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from penstock.engine.metrics import JobMetrics, OperatorReport
from penstock.live_chart import RateChart

SVG = "{http://www.w3.org/2000/svg}"


def drawn(*readings: tuple[float, list[int]], names: tuple[str, ...] = ("orders", "sum", "files")) -> ET.Element | None:
    """The picture behind readings: when, and how many rows each operator had given."""
    chart = RateChart()
    for at, counts in readings:
        named = enumerate(zip(names, counts, strict=True))
        chart.add(
            JobMetrics(tuple(OperatorReport(1, n, name, 1, 0, rows, 0, 0, 0, None) for n, (name, rows) in named)), at
        )
    text = chart.svg()
    return ET.fromstring(text) if text else None


def heights(picture: ET.Element, line: int) -> list[float]:
    points = picture.findall(f"{SVG}polyline")[line].attrib["points"].split()
    return [float(point.split(",")[1]) for point in points]


def test_each_operator_that_gives_rows_has_a_line_and_a_name() -> None:
    picture = drawn((0.0, [0, 0, 0]), (1.0, [100, 50, 0]), (2.0, [200, 50, 0]))
    assert picture is not None
    texts = [text.text for text in picture.findall(f"{SVG}text")]
    assert texts == ["100/s", "rows per second, the last 1 s", "orders", "sum"]
    first, second = heights(picture, 0), heights(picture, 1)
    assert first == [6.0, 6.0], "as high as it goes"
    assert second[0] < second[1], "what gives less is lower: it grows downwards"


def test_a_restart_that_counts_anew_is_no_negative_rate() -> None:
    picture = drawn((0.0, [500]), (1.0, [600]), (2.0, [10]), (3.0, [110]), names=("orders",))
    assert picture is not None
    assert heights(picture, 0) == [6.0, 132.0, 6.0]


def test_before_there_is_a_line_there_is_no_picture_and_names_are_texts() -> None:
    assert drawn((0.0, [0]), (1.0, [5]), names=("a",)) is None
    picture = drawn((0.0, [0]), (1.0, [5]), (2.0, [9]), names=("<script>alert(1)</script>",))
    assert picture is not None
    assert [text.text for text in picture.findall(f"{SVG}text")][-1] == "<script>alert(1)</script>"
