"""Relations as frames of Spark.

A frame has the columns `c0`, `c1`, ... whatever the user calls them, and `t`, the event timestamp (int64 ms), where
its rows have one. What is an error to the engine's operators is one here, too, of no text worth reading: the job then
runs again by those operators, which say what is wrong with which row.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, expr

from penstock.actors.spark.native.aggregates import grouping
from penstock.actors.spark.native.joins import window_join
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
from penstock.actors.spark.native.sql import ERROR, TIME, columns_of, renamed
from penstock.actors.spark.native.windows import windowed

_LARGEST_TIME: Final = 2**62


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
            times = [TIME] if relation.timed else []
            return compiled(spark, relation.of).selectExpr(*renamed(relation.columns), *times)
        case Totals():
            return _totals(compiled(spark, relation.of), relation)
        case Windowed():
            return windowed(compiled(spark, relation.of), relation)
        case Joined():
            return window_join(compiled(spark, relation.left), compiled(spark, relation.right), relation)
        case Sorted():
            return _sorted(compiled(spark, relation.of), relation)


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
    checked = f"if(abs({time}) <= {_LARGEST_TIME}L, {time}, {ERROR})"
    return rows.selectExpr(*columns_of(timed.schema), f"{checked} {TIME}")


def _floored(number: str, unit: int) -> str:
    """Whole units, towards the past."""
    return f"({number} - pmod({number}, {unit}L)) div {unit}L"


def _totals(rows: DataFrame, totals: Totals) -> DataFrame:
    keys, aggregates = grouping(totals.of.schema, totals.aggregation)
    latest = [f"max({TIME}) {TIME}"] if totals.timed else []
    results = [f"{one.of_rows} r{number}" for number, one in enumerate(aggregates)]
    made = rows.groupBy(*map(expr, keys)).agg(*map(expr, [*results, *latest]))
    columns = [*(f"k{number}" for number in range(len(keys))), *(f"r{number}" for number in range(len(results)))]
    return made.selectExpr(*renamed(columns), *([TIME] if totals.timed else []))


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
