"""Relations as frames of Spark.

A frame has the columns `c0`, `c1`, ... whatever the user calls them, and `t`, the event timestamp (int64 ms), where
its rows have one. What is an error to the engine's operators is one here, too, of no text worth reading: the job then
runs again by those operators, which say what is wrong with which row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, expr

from penstock.actors.spark.native.aggregates import NativeAggregate, native_aggregate
from penstock.actors.spark.native.ranges import route_by_range
from penstock.actors.spark.native.relations import (
    Computed,
    Filtered,
    Joined,
    ParquetRead,
    Relation,
    Sorted,
    Timed,
    Totals,
    Windowed,
    read_one_by_one,
    spark_type,
)
from penstock.engine.aggregation import GroupedAggregation
from penstock.engine.windows.assigners import AlignedWindows

_TIME: Final = "t"
_LARGEST_TIME: Final = 2**62
_ERROR: Final = "raise_error('the engine would refuse this row')"


def compiled(spark: SparkSession, relation: Relation) -> DataFrame:
    """The frame of a relation."""
    match relation:
        case ParquetRead():
            return _read(spark, relation)
        case Timed():
            return _timed(compiled(spark, relation.of), relation)
        case Filtered():
            return compiled(spark, relation.of).where(relation.condition)
        case Computed():
            times = [_TIME] if relation.timed else []
            return compiled(spark, relation.of).selectExpr(*_renamed(relation.columns), *times)
        case Totals():
            return _totals(compiled(spark, relation.of), relation)
        case Windowed():
            return _windowed(compiled(spark, relation.of), relation)
        case Joined():
            return _joined(compiled(spark, relation.left), compiled(spark, relation.right), relation)
        case Sorted():
            return _sorted(compiled(spark, relation.of), relation)


def columns_of(schema: pa.Schema) -> list[str]:
    """What the columns of a relation are called in its frame."""
    return [f"c{number}" for number in range(len(schema))]


def _read(spark: SparkSession, read: ParquetRead) -> DataFrame:
    fields = [f"{_quoted(field.name)} {_stored_type(field.type)}" for field in read.schema]
    files = spark.read.schema(", ".join(fields)).parquet(*(f"file:{path}" for path in read.paths))
    return files.selectExpr(*(f"{_read_as(field)} c{number}" for number, field in enumerate(read.schema)))


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def _stored_type(kind: pa.DataType) -> str:
    if pa.types.is_timestamp(kind):
        return "timestamp" if kind.tz is not None else "timestamp_ntz"
    return str(spark_type(kind))


def _read_as(field: pa.Field) -> str:
    name = _quoted(field.name)
    if not pa.types.is_timestamp(field.type):
        return name
    moment = name if field.type.tz is not None else f"cast({name} as timestamp)"
    return f"unix_micros({moment})" if field.type.unit == "us" else f"unix_millis({moment})"


def _timed(rows: DataFrame, timed: Timed) -> DataFrame:
    number = timed.schema.get_field_index(timed.column)
    time, kind = f"c{number}", timed.schema.field(number).type
    if pa.types.is_date(kind):
        time = f"unix_date({time}) * 86400000L"
    elif pa.types.is_timestamp(kind):
        time = {"s": f"{time} * 1000L", "ms": time, "us": _floored(time, 1_000), "ns": _floored(time, 1_000_000)}[
            kind.unit
        ]
    else:
        time = f"cast({time} as bigint)"
    checked = f"if(abs({time}) <= {_LARGEST_TIME}L, {time}, {_ERROR})"
    return rows.selectExpr(*columns_of(timed.schema), f"{checked} {_TIME}")


def _floored(number: str, unit: int) -> str:
    """Whole units, towards the past."""
    return f"({number} - pmod({number}, {unit}L)) div {unit}L"


def _totals(rows: DataFrame, totals: Totals) -> DataFrame:
    keys, aggregates = _keys(totals.of.schema, totals.aggregation), _aggregates(totals.of.schema, totals.aggregation)
    latest = [f"max({_TIME}) {_TIME}"] if totals.timed else []
    results = [f"{one.of_rows} r{number}" for number, one in enumerate(aggregates)]
    made = rows.groupBy(*map(expr, keys)).agg(*map(expr, [*results, *latest]))
    columns = [*(f"k{number}" for number in range(len(keys))), *(f"r{number}" for number in range(len(results)))]
    return made.selectExpr(*_renamed(columns), *([_TIME] if totals.timed else []))


def _windowed(rows: DataFrame, windowed: Windowed) -> DataFrame:
    windows, aggregation = windowed.windows, windowed.aggregation
    keys, aggregates = _keys(windowed.of.schema, aggregation), _aggregates(windowed.of.schema, aggregation)
    if windows.size_ms == windows.slide_ms:
        start = f"{_start(_TIME, windows.slide_ms, windows.offset_ms)} start"
        results = [f"{one.of_rows} r{number}" for number, one in enumerate(aggregates)]
        made = rows.groupBy(*map(expr, [*keys, start])).agg(*map(expr, results))
    else:
        made = _of_slices(rows, windows, keys, aggregates)
    end = f"start + {windows.size_ms}L"
    of_keys = [f"k{number}" for number in range(len(keys))]
    of_results = [f"r{number}" for number in range(len(aggregates))]
    return made.selectExpr(*_renamed([*of_keys, "start", end, *of_results]), f"{end} - 1L {_TIME}")


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
    slice_start = f"{_start(_TIME, windows.slice_ms, windows.offset_ms)} slice"
    slices = rows.groupBy(*map(expr, [*keys, slice_start])).agg(*map(expr, parts))
    of_keys = [f"k{number}" for number in range(len(keys))]
    last = _start("slice", windows.slide_ms, windows.offset_ms)
    back = -(-windows.size_ms // windows.slide_ms) - 1
    starts = f"transform(sequence(0L, {back}L), back -> {last} - back * {windows.slide_ms}L)"
    covering = f"filter({starts}, start -> slice - start < {windows.size_ms}L)"
    flat = [name for mine in names for name in mine]
    spread = slices.selectExpr(*of_keys, f"explode({covering}) start", *flat)
    results = [
        f"{one.of_parts(mine)} r{number}" for number, (one, mine) in enumerate(zip(aggregates, names, strict=True))
    ]
    return spread.groupBy(*of_keys, "start").agg(*map(expr, results))


def _joined(left: DataFrame, right: DataFrame, joined: Joined) -> DataFrame:
    join = joined.join
    windows = join.windows
    assert isinstance(windows, AlignedWindows), "no others are native"
    sides = []
    for name, rows, relation, keys in (
        ("l", left, joined.left, join.columns.left.keys),
        ("r", right, joined.right, join.columns.right.keys),
    ):
        columns = [f"c{number} {name}{number}" for number in range(len(relation.schema))]
        places = [relation.schema.get_field_index(key) for key in keys]
        of_keys = [f"{_key(f'c{place}')} {name}k{number}" for number, place in enumerate(places)]
        start = f"{_start(_TIME, windows.slide_ms, windows.offset_ms)} {name}start"
        sides.append(rows.selectExpr(*columns, *of_keys, start))
    equal = [f"lk{number} = rk{number}" for number in range(len(join.columns.left.keys))]
    pairs = sides[0].join(sides[1], expr(" and ".join([*equal, "lstart = rstart"])))
    end = f"lstart + {windows.size_ms}L"
    of_left = [f"l{number}" for number in range(len(joined.left.schema))]
    values = [n for n, field in enumerate(joined.right.schema) if field.name not in join.columns.right.keys]
    of_right = [f"r{number}" for number in values]
    return pairs.selectExpr(*_renamed([*of_left, "lstart", end, *of_right]), f"{end} - 1L {_TIME}")


def _sorted(rows: DataFrame, wanted: Sorted) -> DataFrame:
    names = [f"c{wanted.schema.get_field_index(key.column)}" for key in wanted.keys]
    order = [
        col(name).desc() if key.descending else col(name).asc() for key, name in zip(wanted.keys, names, strict=True)
    ]
    columns = rows.select(*columns_of(wanted.schema))
    files, route = read_one_by_one(wanted.of), None
    if files is not None:
        kinds = [wanted.schema.field(key.column).type for key in wanted.keys]
        of_keys = list(zip(names, kinds, strict=True))
        route = route_by_range(columns, files, of_keys, wanted.keys, wanted.partitions)
    if route is None:
        # As orderBy, but for the number of partitions, which others have a wish for, too.
        parts = columns.repartitionByRange(wanted.partitions, *order)
    else:
        parts = columns.repartition(wanted.partitions, route)
    return parts.sortWithinPartitions(*order)


def _keys(schema: pa.Schema, aggregation: GroupedAggregation) -> list[str]:
    places = [schema.get_field_index(key) for key in aggregation.keys]
    return [f"{_key(f'c{place}')} k{number}" for number, place in enumerate(places)]


def _key(column: str) -> str:
    return f"if(isnotnull({column}), {column}, {_ERROR})"


def _aggregates(schema: pa.Schema, aggregation: GroupedAggregation) -> list[NativeAggregate]:
    made = []
    for aggregate in aggregation.aggregates.values():
        column = "" if aggregate.column is None else f"c{schema.get_field_index(aggregate.column)}"
        native = native_aggregate(aggregate, column, schema, aggregation)
        assert native is not None, "the plan has asked before"
        made.append(native)
    return made


def _start(time: str, step: int, offset: int) -> str:
    """The last multiple of `step`, moved by `offset`, that is not after `time`."""
    moved = f"{time} - {offset}L" if offset else time
    return f"{time} - pmod({moved}, {step}L)"


def _renamed(columns: Sequence[str]) -> list[str]:
    return [f"{column} c{number}" for number, column in enumerate(columns)]
