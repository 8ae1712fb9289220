"""Watermarks that a generator puts between two rows stand there, however rows are cut into batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock import DataStream, WatermarkStrategy, tumbling
from penstock.engine.windows.watermarks import WatermarkGenerator
from tests.draws import drawn
from tests.engine.helpers import Row, local_environment

LATE = ps.OutputTag("late")
TYPES = {"k": "string", "at": "int64", "marked": "bool"}


class AtMarkers(WatermarkGenerator):
    def on_event(self, row: Row, timestamp: int, output: Any) -> None:
        if row["marked"]:
            output.emit_watermark(timestamp)


def _punctuated(row: Row, timestamp: int) -> int | None:
    return timestamp if row["marked"] else None


def _count(rows: DataStream) -> DataStream:
    """The path for batches."""
    return rows.key_by("k").window(tumbling("10ms")).side_output_late_data(LATE).aggregate(n=ps.count())


class _Counted(ps.ProcessWindowFunction):
    def process(self, key: Any, context: Any, rows: Any) -> Any:
        yield {"k": key, "n": len(rows)}


def _process(rows: DataStream) -> DataStream:
    """The path for rows."""
    windowed = rows.key_by("k").window(tumbling("10ms")).side_output_late_data(LATE)
    return windowed.process(_Counted, {"k": "string", "n": "int64"})


STRATEGIES = [
    WatermarkStrategy.for_generator(AtMarkers),
    WatermarkStrategy.for_punctuated(_punctuated),
]


def _run(
    rows: Sequence[Row], strategy: WatermarkStrategy, windows: Callable[[DataStream], DataStream], size: int
) -> tuple[list[str], list[str]]:
    """The results and the late rows."""
    env = local_environment(1, max_batch_rows=size)
    stream = env.from_collection(rows, schema=TYPES).rebalance().assign_timestamps("at", strategy)
    results = windows(stream)
    counted = results.select("k", "n").collect()
    late = results.get_side_output(LATE).collect()
    env.execute()
    return sorted(map(repr, counted)), sorted(map(repr, late))


ROWS = st.lists(
    st.builds(
        lambda k, at, marked: {"k": k, "at": at, "marked": marked},
        st.sampled_from("ab"),
        st.integers(0, 60),
        st.booleans(),
    ),
    min_size=1,
    max_size=30,
)


@pytest.mark.parametrize("strategy", STRATEGIES, ids=["on_event", "for_punctuated"])
@pytest.mark.parametrize("windows", [_count, _process])
@given(rows=ROWS)
@settings(max_examples=drawn(12))
def test_batches_change_neither_results_nor_late_rows(
    rows: list[Row], strategy: WatermarkStrategy, windows: Callable[[DataStream], DataStream]
) -> None:
    one_by_one = _run(rows, strategy, windows, 1)
    assert _run(rows, strategy, windows, 7) == one_by_one
    assert _run(rows, strategy, windows, 131_072) == one_by_one
