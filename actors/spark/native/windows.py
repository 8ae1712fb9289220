"""Aligned windows as frames of Spark: bounds are computed from the time of a row."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql.functions import expr

from penstock.actors.spark.native.aggregates import NativeAggregate, grouping
from penstock.actors.spark.native.relations import Windowed
from penstock.actors.spark.native.sql import TIME, last_start, renamed
from penstock.engine.windows.assigners import AlignedWindows


def windowed(rows: DataFrame, relation: Windowed) -> DataFrame:
    """The aggregates of the windows of `rows`."""
    windows = relation.windows
    keys, aggregates = grouping(relation.of.schema, relation.aggregation)
    make = _tumbling if windows.size_ms == windows.slide_ms else _of_slices
    made, end = make(rows, windows, keys, aggregates), f"start + {windows.size_ms}L"
    columns = [*_key_names(keys), "start", end, *(f"r{number}" for number in range(len(aggregates)))]
    return made.selectExpr(*renamed(columns), f"{end} - 1L {TIME}")


def _key_names(keys: Sequence[str]) -> list[str]:
    return [f"k{number}" for number in range(len(keys))]


def _results(aggregates: Sequence[NativeAggregate]) -> list[str]:
    return [f"{one.of_rows} r{number}" for number, one in enumerate(aggregates)]


def _tumbling(
    rows: DataFrame, windows: AlignedWindows, keys: Sequence[str], aggregates: Sequence[NativeAggregate]
) -> DataFrame:
    start = f"{last_start(TIME, windows.slide_ms, windows.offset_ms)} start"
    return rows.groupBy(*map(expr, [*keys, start])).agg(*map(expr, _results(aggregates)))


def _of_slices(
    rows: DataFrame, windows: AlignedWindows, keys: Sequence[str], aggregates: Sequence[NativeAggregate]
) -> DataFrame:
    """Aggregates of windows that overlap, or leave gaps: each row goes into one slice, and slices into windows."""
    names = [[f"p{number}_{part}" for part in range(len(one.parts))] for number, one in enumerate(aggregates)]
    parts = [
        f"{part.of_rows} {name}"
        for one, mine in zip(aggregates, names, strict=True)
        for part, name in zip(one.parts, mine, strict=True)
    ]
    slice_start = f"{last_start(TIME, windows.slice_ms, windows.offset_ms)} slice"
    slices = rows.groupBy(*map(expr, [*keys, slice_start])).agg(*map(expr, parts))
    of_keys = _key_names(keys)
    flat = [name for mine in names for name in mine]
    last = last_start("slice", windows.slide_ms, windows.offset_ms)
    back = -(-windows.size_ms // windows.slide_ms) - 1
    starts = f"transform(sequence(0L, {back}L), back -> {last} - back * {windows.slide_ms}L)"
    covering = f"filter({starts}, start -> slice - start < {windows.size_ms}L)"
    spread = slices.selectExpr(*of_keys, f"explode({covering}) start", *flat)
    results = [
        f"{one.of_parts(mine)} r{number}" for number, (one, mine) in enumerate(zip(aggregates, names, strict=True))
    ]
    return spread.groupBy(*of_keys, "start").agg(*map(expr, results))
