"""Accumulators by cell: equal to grouped aggregation of the rows that a cell has seen since it was created."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.engine.aggregates import functions as agg
from penstock.engine.aggregates.functions import Aggregate
from penstock.engine.aggregates.grouped import GroupedAggregation
from penstock.engine.cells import segment_cells
from penstock.engine.cells.accumulator_cells import AccumulatorCells
from penstock.engine.errors import RecordError
from penstock.engine.row_numbers import Groups
from tests.draws import drawn
from tests.engine.aggregates.test_functions import EVERY, ROWS, Row, batch_of, concat, times_of

FOLDED = {name: each for name, each in EVERY.items() if each.function in ("count", "sum", "min", "max", "mean")}
NUMERIC = {name: each for name, each in FOLDED.items() if each.column != "string"}


class Cells:
    """Accumulators, driven with rows instead of tables; ten cells have one key."""

    def __init__(self, aggregates: dict[str, Aggregate]) -> None:
        self.aggregation = GroupedAggregation([], aggregates)
        self.cells = AccumulatorCells(self.aggregation)
        self.seen: dict[int, pa.Table] = {}

    def fold(self, cells: Sequence[int], batch: pa.RecordBatch, times: pa.Array | None = None) -> None:
        """Fold row i into `cells[i]`, and remember it."""
        ids = np.array(cells, np.int64)
        fresh = np.array(list(dict.fromkeys(cell for cell in cells if cell not in self.seen)), np.int64)
        lifted = self.aggregation.lift(batch, times)
        self.cells.create(fresh)
        self.cells.fold(ids, lifted, keys_of)
        for cell in dict.fromkeys(cells):
            rows = lifted.filter(pa.array(ids == cell))
            self.seen[cell] = concat([self.seen[cell], rows]) if cell in self.seen else rows

    def release(self, cell: int) -> None:
        del self.seen[cell]
        self.cells.release(np.array([cell]))

    def results(self, cells: Sequence[int]) -> list[dict[str, Any]]:
        return rounded(self.aggregation.lower(self.cells.read(np.array(cells, np.int64))))

    def combined(self, cells: Sequence[int], groups: Sequence[int]) -> list[dict[str, Any]]:
        ids = np.array(groups, np.int64)
        table = self.cells.combined(np.array(cells, np.int64), Groups(ids, int(ids.max()) + 1), keys_of)
        return rounded(self.aggregation.lower(table))

    def wanted(self, cells: Sequence[int]) -> dict[str, Any]:
        """The result for all rows of some cells."""
        rows = concat([self.seen[cell] for cell in cells])
        return rounded(self.aggregation.lower(self.aggregation.combine(rows)))[0]


def keys_of(cells: Any) -> pa.Table:
    return pa.table({"key": cells // 10})


def rounded(table: pa.Table) -> list[dict[str, Any]]:
    return [
        {name: float(f"{value:.9g}") if isinstance(value, float) else value for name, value in row.items()}
        for row in table.to_pylist()
    ]


STEPS = st.lists(st.tuples(ROWS.filter(len), st.lists(st.integers(0, 5), min_size=25, max_size=25)), max_size=5)


def _follow(cells: Cells, steps: list[tuple[list[Row], list[int]]], undecided: bool) -> None:
    for number, (rows, places) in enumerate(steps):
        cells.fold(places[: len(rows)], batch_of(rows, undecided), times_of(rows))
        held = sorted(cells.seen)
        assert cells.results(held) == [cells.wanted([cell]) for cell in held]
        pairs = [0 if cell < 3 else 1 for cell in held] if held[0] < 3 else [0 for _ in held]
        groups = [[cell for cell, group in zip(held, pairs, strict=True) if group == g] for g in sorted(set(pairs))]
        assert cells.combined(held, pairs) == [cells.wanted(group) for group in groups]
        if number % 2:
            cells.release(held[0])


@given(STEPS, st.booleans(), st.sampled_from([EVERY, FOLDED, NUMERIC]))
@settings(max_examples=drawn(15))
def test_cells_hold_what_they_have_seen_since_they_were_created(
    steps: list[tuple[list[Row], list[int]]], undecided: bool, aggregates: dict[str, Aggregate]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segment_cells, "_MIN_RELEASED", 1)
        _follow(Cells(aggregates), steps, undecided)


KINDS = [
    pa.int8(),
    pa.uint64(),
    pa.float32(),
    pa.date32(),
    pa.date64(),
    pa.time32("s"),
    pa.time64("ns"),
    pa.timestamp("ns"),
    pa.timestamp("s", "Europe/Berlin"),
    pa.decimal128(9, 2),
    pa.binary(),
    pa.bool_(),
    pa.string(),
]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_extremes_keep_every_type(kind: pa.DataType) -> None:
    values = {pa.decimal128(9, 2): [Decimal("1.50"), Decimal("-2.25")], pa.binary(): [b"b", b"a"], pa.string(): "ba"}
    given = pa.array(values[kind]).cast(kind) if kind in values else pa.array([1, 0]).cast(pa.int32()).cast(pa.int64())
    column = given if kind in values else _as(given, kind)
    cells = Cells({"low": agg.min("x"), "high": agg.max("x")})
    cells.fold([0, 0, 1], pa.record_batch({"x": pa.concat_arrays([column, pa.nulls(1, kind)])}))
    table = cells.aggregation.lower(cells.cells.read(np.array([0, 1])))
    assert table.schema.types == [kind, kind]
    assert table.column("low").to_pylist() == [column[1].as_py(), None]
    assert table.column("high").to_pylist() == [column[0].as_py(), None]


def _as(numbers: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_date32(kind) or pa.types.is_time32(kind):
        return numbers.cast(pa.int32()).cast(kind)
    return (numbers if not pa.types.is_date64(kind) else pa.array([86_400_000, 0])).cast(kind)


def test_extremes_pass_over_nan_and_know_the_infinite() -> None:
    cells = Cells({"low": agg.min("x"), "high": agg.max("x")})
    cells.fold([0, 0, 1, 2], pa.record_batch({"x": [float("nan"), float("inf"), float("nan"), -float("inf")]}))
    infinite = float("inf")
    assert [row["low"] for row in cells.results([0, 1, 2])] == [infinite, None, -infinite]
    assert [row["high"] for row in cells.results([0, 1, 2])] == [infinite, None, -infinite]


LARGE = 2**62


def test_a_sum_that_does_not_fit_is_refused_and_names_the_key() -> None:
    cells = Cells({"s": agg.sum("x")})
    cells.fold([40, 50], pa.record_batch({"x": [LARGE, LARGE]}))
    with pytest.raises(RecordError, match=r"sum of column 'x' for key=5 does not fit int64; cast the column"):
        cells.fold([40, 50], pa.record_batch({"x": [-LARGE, LARGE]}))


def test_a_sum_may_be_as_large_as_its_type_allows() -> None:
    cells = Cells({"s": agg.sum("x")})
    cells.fold([0, 1], pa.record_batch({"x": [LARGE, -LARGE]}))
    cells.fold([0, 1], pa.record_batch({"x": [LARGE - 1, -LARGE]}))
    assert cells.results([0, 1]) == [{"s": 2**63 - 1}, {"s": -(2**63)}]


def test_unsigned_sums_may_be_larger() -> None:
    cells = Cells({"s": agg.sum("x")})
    cells.fold([0, 0, 0], pa.record_batch({"x": pa.array([LARGE, LARGE, LARGE], pa.uint64())}))
    assert cells.results([0]) == [{"s": 3 * LARGE}]
    with pytest.raises(RecordError, match="does not fit uint64"):
        cells.fold([0], pa.record_batch({"x": pa.array([LARGE], pa.uint64())}))


def test_a_combined_sum_that_does_not_fit_is_refused() -> None:
    cells = Cells({"s": agg.sum("x")})
    cells.fold([0, 1, 2], pa.record_batch({"x": [LARGE, LARGE, -LARGE]}))
    with pytest.raises(RecordError, match="does not fit int64"):
        cells.combined([0, 1], [0, 0])
    assert cells.combined([0, 2], [0, 0]) == [{"s": 0}]


def test_sums_that_were_released_do_not_count() -> None:
    cells = Cells({"s": agg.sum("x")})
    for _ in range(5):
        cells.fold([0], pa.record_batch({"x": [LARGE]}))
        cells.release(0)
    cells.fold([0], pa.record_batch({"x": [1]}))
    assert cells.results([0]) == [{"s": 1}]


def test_rows_of_released_cells_are_dropped_in_time() -> None:
    cells = Cells({"all": agg.collect_list("x")})
    for number in range(60):
        cells.fold(range(80), pa.record_batch({"x": [number] * 80}))
        for cell in range(80):
            cells.release(cell)
    inner: Any = cells.cells
    assert inner._segments._rows.rows <= 4096
