"""Partial aggregates on an exchange: the same results, timestamps and counters as by the rows themselves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.engine.aggregates import functions as agg
from penstock.engine.aggregates.functions import Aggregate, count, mean, stddev
from penstock.engine.aggregates.grouped import GroupedAggregation
from penstock.engine.aggregates.partials import PartialLayout, partial_layout, rows_of
from penstock.engine.clock import ManualClock
from penstock.engine.elements import Batch, Slices, concat_batches
from penstock.engine.errors import PenstockError, RestoreError
from penstock.engine.exchange.outputs import BatchLimits, ChannelBuffer
from penstock.engine.exchange.partial_aggregates import PartialAggregates, PartialMerger, fits
from penstock.engine.exchange.partitioners import Global, Hash, SplitterContext
from penstock.engine.operators.keyed_aggregates import RunningAggregateSpec
from penstock.engine.operators.windows.window_aggregate import WindowAggregateSpec
from penstock.engine.task.router import Router, RouterEdge
from penstock.engine.windows.assigners import AlignedWindows, CumulativeWindows
from tests.draws import drawn
from tests.engine.helpers import RecordingChannel, RunningOperator

AGGREGATES: dict[str, Aggregate] = {
    "rows": count(),
    "held": count("n"),
    "total": agg.sum("n"),
    "low": agg.min("x"),
    "high": agg.max("x"),
    "average": mean("x"),
    "spread": stddev("n"),
    "least": agg.min("text"),
}
ROWS = st.tuples(
    # Close together, or far apart.
    st.integers(0, 5) | st.sampled_from([-(2**62), 2**62]),
    st.integers(-30, 30),
    st.none() | st.integers(-100, 100),
    st.none() | st.sampled_from([0.0, -0.5, 1.5, math.nan]),
    st.none() | st.sampled_from(["", "a", "b"]),
)
BATCHES = st.lists(st.tuples(st.lists(ROWS, min_size=1, max_size=12), st.booleans()), max_size=6)
"""Rows of each batch, and whether they are merged; if not, they travel as they are."""
Row = tuple[Any, ...]


def batch_of(rows: Sequence[Row], text_keys: bool = False) -> Batch:
    key, at, n, x, text = zip(*rows, strict=True)
    data = {
        "key": pa.array(list(map(str, key)) if text_keys else key),
        "n": pa.array(n, pa.int64()),
        "x": pa.array(x, pa.float64()),
        "text": pa.array(text, pa.string()),
    }
    return Batch(pa.record_batch(data), pa.array(at, pa.int64()))


def feed(operator: RunningOperator, batch: Batch) -> None:
    """As the chain does."""
    operator.metrics.rows_in += batch.num_rows
    operator.process(batch)


def travelling(layout: PartialLayout, batch: Batch, merged: bool) -> Batch:
    sent = PartialMerger(layout, min_rows=1)(batch) if merged else layout.lifted(batch)
    assert tuple(sent.data.schema.names) == layout.names
    assert rows_of(sent) == batch.num_rows
    return sent


def plain(operator: RunningOperator) -> list[list[list[Any]]]:
    """What was emitted: the rows of each batch with their timestamps, sorted; NaN as a text, and floats rounded."""

    def shown(value: Any) -> Any:
        if isinstance(value, float):
            return "nan" if math.isnan(value) else round(value, 6)
        return value

    def rows(batch: Batch) -> list[list[Any]]:
        times = batch.timestamps.to_pylist() if batch.timestamps else []
        values = ([shown(value) for value in row.values()] for row in batch.data.to_pylist())
        return sorted(([at, *row] for at, row in zip(times, values, strict=True)), key=repr)

    return [rows(batch) for batch in operator.out.batches]


@given(BATCHES, st.booleans(), st.sampled_from([["key"], ["key", "text"]]))
@settings(max_examples=drawn(20))
def test_running_aggregates_are_those_of_the_rows(
    batches: Sequence[tuple[list[Row], bool]], text_keys: bool, keys: list[str]
) -> None:
    used = {name: one for name, one in AGGREGATES.items() if one.column not in keys}
    aggregation = GroupedAggregation(keys, used)
    by_rows, by_partials = (RunningOperator(RunningAggregateSpec(aggregation).create()) for _ in range(2))
    for rows, merged in batches:
        # Twice, so that there is something to merge.
        batch = batch_of([(*row[:4], row[4] or "") for row in rows] * 2, text_keys)
        feed(by_rows, batch)
        feed(by_partials, travelling(PartialLayout(aggregation), batch, merged))
    assert plain(by_partials) == plain(by_rows)
    assert by_partials.metrics.rows_in == by_rows.metrics.rows_in


@given(
    st.lists(st.tuples(st.lists(ROWS, min_size=1, max_size=12), st.booleans(), st.integers(0, 15)), max_size=6),
    st.sampled_from(
        [AlignedWindows(10, 10), AlignedWindows(10, 10, 3), AlignedWindows(10, 5, -2), CumulativeWindows(12, 4)]
    ),
    st.sampled_from([0, 7]),
    st.booleans(),
)
@settings(max_examples=drawn(20))
def test_windows_are_those_of_the_rows(
    batches: Sequence[tuple[list[Row], bool, int]],
    windows: AlignedWindows | CumulativeWindows,
    lateness: int,
    keyed: bool,
) -> None:
    """Also those that fire again, and how many rows were late."""
    aggregation = GroupedAggregation(["key"] if keyed else [], AGGREGATES)
    spec = WindowAggregateSpec(windows, aggregation, lateness)
    layout = PartialLayout(aggregation, Slices(windows.slice_ms, windows.offset_ms))
    by_rows, by_partials = RunningOperator(spec.create()), RunningOperator(spec.create())
    watermark = -40
    for rows, merged, further in batches:
        batch = batch_of(rows * 2)
        feed(by_rows, batch)
        feed(by_partials, travelling(layout, batch, merged))
        watermark += further
        by_rows.advance(watermark)
        by_partials.advance(watermark)
    for operator in (by_rows, by_partials):
        operator.advance(1_000)
    assert plain(by_partials) == plain(by_rows)
    assert by_partials.metrics == by_rows.metrics


@given(st.lists(st.tuples(st.lists(ROWS, min_size=1, max_size=12), st.booleans()), min_size=1, max_size=5))
@settings(max_examples=drawn(20))
def test_merged_rows_and_others_share_a_message(batches: Sequence[tuple[list[Row], bool]]) -> None:
    aggregation = GroupedAggregation(["key"], AGGREGATES)
    given = [batch_of(rows * 2) for rows, _ in batches]
    sent = [
        travelling(PartialLayout(aggregation), one, merged) for one, (_, merged) in zip(given, batches, strict=True)
    ]
    by_rows, by_partials = (RunningOperator(RunningAggregateSpec(aggregation).create()) for _ in range(2))
    feed(by_rows, concat_batches(given))
    feed(by_partials, concat_batches(sent))
    assert plain(by_partials) == plain(by_rows)
    assert by_partials.metrics == by_rows.metrics


SUM = GroupedAggregation(["key"], {"total": agg.sum("n")})
LAYOUT = PartialLayout(SUM)


def numbered(keys: Sequence[int]) -> Batch:
    return Batch(pa.record_batch({"key": pa.array(keys), "n": pa.array(np.arange(len(keys)))}))


def test_a_batch_is_merged_where_that_leaves_half_of_its_rows_or_less() -> None:
    assert PartialMerger(LAYOUT)(numbered([1, 2] * 512)).data.to_pylist() == [
        {"key": 1, LAYOUT.mark.counts: 512, "__sum(n)": 512 * 511},
        {"key": 2, LAYOUT.mark.counts: 512, "__sum(n)": 512 * 512},
    ]
    assert PartialMerger(LAYOUT)(numbered(list(range(600)) * 2)).num_rows == 600
    assert PartialMerger(LAYOUT)(numbered([*range(601), *range(599)])).num_rows == 1200


def test_a_small_batch_is_not_merged() -> None:
    assert PartialMerger(LAYOUT)(numbered([1] * 1023)).num_rows == 1023
    assert PartialMerger(LAYOUT)(numbered([1] * 1024)).num_rows == 1


def test_what_does_not_pay_is_tried_again_after_more_and_more_batches() -> None:
    merger, few, many = PartialMerger(LAYOUT), numbered([1] * 1024), numbered(range(1024))
    merged = []
    for _ in range(2):
        assert merger(many).num_rows == 1024
        merged.append([merger(few).num_rows for _ in range(2)])
    assert merged == [[1024, 1], [1024, 1]]
    for rest in (1, 2, 4):
        assert merger(many).num_rows == 1024
        assert [merger(many).num_rows for _ in range(rest)] == [1024] * rest
    assert merger(many).num_rows == 1024
    assert [merger(few).num_rows for _ in range(9)] == [1024] * 8 + [1]


def test_changes_other_than_inserts_are_not_merged() -> None:
    batch = Batch(numbered([1] * 1024).data, kinds=pa.array([0, 1] * 512, pa.int8()))
    sent = PartialMerger(LAYOUT)(batch)
    assert sent.num_rows == 1024
    assert sent.kinds == batch.kinds


def test_order_and_lists_are_not_for_merging() -> None:
    for one in (agg.first("n"), agg.last("n"), agg.collect_list("n"), agg.count_distinct("n")):
        assert partial_layout(GroupedAggregation(["key"], {"n": count(), "one": one})) is None
    assert partial_layout(GroupedAggregation(["key"], AGGREGATES)) is not None


CONTEXT = SplitterContext("operator 'sums'", 2, 0, 128)


def test_they_go_where_their_rows_would() -> None:
    rows = numbered(list(range(100)) * 20)
    by_row = {channel: set(part.data["key"].to_pylist()) for channel, part in Hash(("key",)).splitter(CONTEXT)(rows)}
    split = PartialAggregates(Hash(("key",)), LAYOUT).splitter(CONTEXT)
    sent = dict(split(rows))
    assert {channel: set(part.data["key"].to_pylist()) for channel, part in sent.items()} == by_row
    assert sum(part.num_rows for part in sent.values()) == 100
    again = dict(split(sent[1]))
    assert again[1].data.equals(sent[1].data)
    assert list(again) == [1]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"key": [1, None], "n": [1, 2]}, "operator 'sums': key column 'key' is null in row"),
        ({"key": [1.5], "n": [1]}, "operator 'sums': key_by: .*'key'"),
        ({"key": [1], "n": ["a"]}, r"sum\(n\) cannot take a column of type string"),
    ],
)
def test_rows_that_do_not_fit_are_refused_as_ever(data: dict[str, list[Any]], message: str) -> None:
    split = PartialAggregates(Hash(("key",)), LAYOUT).splitter(CONTEXT)
    with pytest.raises(PenstockError, match=message):
        list(split(Batch(pa.record_batch(data))))


def test_rows_under_way_are_refused_where_the_program_has_changed() -> None:
    rows = numbered([1, 1, 2, 2] * 256)
    in_windows = PartialLayout(SUM, Slices(10, 3))
    merged = PartialMerger(LAYOUT)(rows)
    timed = PartialMerger(in_windows)(Batch(rows.data, pa.array(np.arange(rows.num_rows))))
    plain_hash, exchange = Hash(("key",)), PartialAggregates(Hash(("key",)), LAYOUT)
    assert (rows.partials, merged.partials) == (None, LAYOUT.mark)
    assert all((fits(rows, plain_hash), fits(rows, exchange), fits(merged, exchange)))
    assert fits(timed, PartialAggregates(plain_hash, PartialLayout(SUM, Slices(10, 13))))
    assert not fits(merged, plain_hash)
    assert not fits(merged, PartialAggregates(plain_hash, PartialLayout(GroupedAggregation(["key"], {"n": count()}))))
    assert not fits(timed, PartialAggregates(plain_hash, PartialLayout(SUM, Slices(5, 3))))

    channel = RecordingChannel()
    buffer = ChannelBuffer(channel, BatchLimits(100, 10_000, 0.0))
    split = Global().splitter(SplitterContext("next", 1, 0, 128))
    router = Router([RouterEdge(split, [buffer], ManualClock(), "a->b#0", True, lambda batch: fits(batch, Global()))])
    with pytest.raises(RestoreError, match="partial aggregates that were under way on 'a->b#0'"):
        router.resend({"a->b#0": [merged]})
