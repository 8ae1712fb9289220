"""Window functions that several tests of the general window operator use."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from penstock import ProcessWindowFunction
from tests.engine.window_driver import WindowDriver

SUM = {"k": "string", "start": "int64", "n": "int64"}


class Sum(ProcessWindowFunction):
    """Sums the values of a window."""

    def process(self, key: Any, context: Any, elements: Any) -> Iterator[dict[str, Any]]:
        yield {"k": key, "start": context.window.start, "n": sum(row["v"] for row in elements)}


def summed(driver: WindowDriver) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in driver.take()]


def add(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    return {**one, "v": one["v"] + other["v"]}
