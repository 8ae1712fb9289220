"""Accumulators by slot: folded row by row into arrays or combined by Arrow, they hold and give the same."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.engine.aggregates import functions as agg
from penstock.engine.aggregates.grouped import GroupedAggregation
from penstock.engine.cells.slot_accumulators import (
    CombinedAccumulators,
    DenseAccumulators,
    Rows,
    accumulators_by_slot,
)
from penstock.engine.errors import RecordError
from tests.draws import drawn

AGGREGATION = GroupedAggregation(
    ["key"],
    {
        "n": agg.count(),
        "some": agg.count("v"),
        "sum": agg.sum("v"),
        "low": agg.min("v"),
        "high": agg.max("v"),
        "mean": agg.mean("v"),
        "latest": agg.max("day"),
    },
)
VALUES = st.integers(-(2**31), 2**31) | st.none()
BATCHES = st.lists(st.lists(st.tuples(st.integers(0, 5), VALUES), min_size=1, max_size=12), min_size=1, max_size=5)


def lifted(rows: list[tuple[int, int | None]]) -> pa.Table:
    """Accumulators of rows of slot and value."""
    values = [value for _, value in rows]
    days = pa.array([None if value is None else value % 1000 for value in values], pa.int32()).cast(pa.date32())
    data = {"key": pa.array([slot for slot, _ in rows]), "v": pa.array(values, pa.int64()), "day": days}
    return AGGREGATION.lift(pa.record_batch(data), None)


def keys_of(slots: np.ndarray) -> pa.Table:
    return pa.table({"key": slots})


def renumbered(batches: list[list[tuple[int, int | None]]]) -> list[list[tuple[int, int | None]]]:
    """Slots from 0 on, as they first come."""
    seen: dict[int, int] = {}
    return [[(seen.setdefault(slot, len(seen)), value) for slot, value in batch] for batch in batches]


@given(BATCHES)
@settings(max_examples=drawn(20))
def test_folded_and_combined_accumulators_are_the_same(batches: list[list[tuple[int, int | None]]]) -> None:
    dense, combined = DenseAccumulators(AGGREGATION, keys_of), CombinedAccumulators(AGGREGATION)
    end = 0
    for batch in renumbered(batches):
        slots, table = np.array([slot for slot, _ in batch]), lifted(batch)
        end = max(end, int(slots.max()) + 1)
        rows = Rows(slots, end)
        names = table.drop_columns("key").column_names
        for accumulators in (dense, combined):
            accumulators.merge(rows, table)
        assert dense.held(rows.touched).select(names).equals(combined.held(rows.touched).select(names))
    some = np.arange(0, end, 2)
    captures: list[Callable[[DenseAccumulators | CombinedAccumulators], Callable[[], pa.Table]]] = [
        lambda accumulators: accumulators.captured(some),
        lambda accumulators: accumulators.captured_first(end),
    ]
    for capture in captures:
        made, other = capture(dense), capture(combined)
        # What was captured stays as it was.
        again = Rows(np.arange(end), end)
        for accumulators in (dense, combined):
            accumulators.merge(again, lifted([(slot, 7) for slot in range(end)]))
        assert made().select(names).equals(other().select(names))


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(-50, 50)), min_size=1), st.booleans())
def test_rows_know_their_slots_in_order_and_the_largest_value_of_each(
    rows: list[tuple[int, int]], ascending: bool
) -> None:
    values = sorted(value for _, value in rows) if ascending else [value for _, value in rows]
    largest: dict[int, int] = {}
    for (slot, _), value in zip(rows, values, strict=True):
        largest[slot] = max(value, largest.get(slot, value))
    found = Rows(np.array([slot for slot, _ in rows]), 10)
    assert found.touched.tolist() == list(largest)
    assert found.largest(np.array(values)).tolist() == list(largest.values())


@given(st.integers(1, 20_000), st.booleans(), st.integers(0, 99))
@settings(max_examples=drawn(20))
def test_many_rows_know_each_slot_once_and_the_largest_value_of_each(end: int, ascending: bool, seed: int) -> None:
    random = np.random.default_rng(seed)
    slots = random.integers(0, end, 2000) if seed % 2 else random.permutation(max(end, 2000))[:2000]
    values = np.arange(2000) if ascending else random.integers(-50, 50, 2000)
    largest: dict[int, int] = {}
    for slot, value in zip(slots.tolist(), values.tolist(), strict=True):
        largest[slot] = max(value, largest.get(slot, value))
    found = Rows(slots, max(end, 2000))
    assert sorted(found.touched.tolist()) == sorted(largest)
    assert dict(zip(found.touched.tolist(), found.largest(values).tolist(), strict=True)) == largest


@pytest.mark.parametrize(
    ("aggregates", "column", "is_dense"),
    [
        ({"n": agg.count(), "s": agg.sum("v")}, pa.array([1.5]), True),
        ({"low": agg.min("v")}, pa.array(["a"]), False),
        ({"first": agg.first("v")}, pa.array([1]), False),
        ({"s": agg.sum("v")}, pa.nulls(1), False),
    ],
)
def test_numbers_lie_in_arrays_and_everything_else_in_rows(
    aggregates: dict[str, agg.Aggregate], column: pa.Array, is_dense: bool
) -> None:
    aggregation = GroupedAggregation(["key"], aggregates)
    table = aggregation.lift(pa.record_batch({"key": [0], "v": column}), pa.array([0]))
    assert isinstance(accumulators_by_slot(aggregation, table.schema, keys_of), DenseAccumulators) is is_dense


def test_a_sum_that_does_not_fit_names_its_key() -> None:
    dense = DenseAccumulators(AGGREGATION, keys_of)
    dense.merge(Rows(np.array([0, 1]), 2), lifted([(0, 2**62), (1, 1)]))
    with pytest.raises(RecordError, match="key"):
        dense.merge(Rows(np.array([1, 0]), 2), lifted([(1, 1), (0, 2**62)]))
