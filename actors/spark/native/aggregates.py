"""The built-in aggregates as expressions of Spark's SQL.

Each is computed in two steps, as in `engine/aggregates/functions.py`: parts are lifted from rows and merged, and the
result is made of the merged parts. So windows that share slices can be put together from these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import pyarrow as pa

from penstock.actors.spark.native.relations import spark_type
from penstock.actors.spark.native.sql import key
from penstock.engine.aggregates.functions import Aggregate
from penstock.engine.aggregates.grouped import GroupedAggregation

_DEVIATIONS: Final[Mapping[int, str]] = MappingProxyType({0: "stddev_pop", 1: "stddev_samp"})


@dataclass(frozen=True, slots=True)
class Part:
    """What is computed of the rows of a group.

    Args:
        of_rows: an aggregate of Spark's.
        merge: the aggregate that makes one of the parts of several groups; None where none can.
    """

    of_rows: str
    merge: str | None = None


@dataclass(frozen=True, slots=True)
class NativeAggregate:
    """One aggregate: its parts, and its result, with `{0}`, `{1}` for the parts."""

    parts: Sequence[Part]
    result: str = "{0}"

    @property
    def of_rows(self) -> str:
        """The result from the rows of a group."""
        return self.result.format(*(part.of_rows for part in self.parts))

    def of_parts(self, names: Sequence[str]) -> str:
        """The result from columns that hold the parts of several groups."""
        return self.result.format(*(f"{part.merge}({name})" for part, name in zip(self.parts, names, strict=True)))


def are_native(aggregation: GroupedAggregation, schema: pa.Schema, in_slices: bool) -> bool:
    """Whether Spark gives the same results for rows of `schema`.

    Args:
        in_slices: whether parts of several slices are to be merged.
    """
    for aggregate in aggregation.aggregates.values():
        if aggregate.column is not None:
            if aggregate.column not in schema.names:
                return False
            if spark_type(schema.field(aggregate.column).type) is None:
                return False
        made = native_aggregate(aggregate, "x", schema, aggregation)
        if made is None or (in_slices and any(part.merge is None for part in made.parts)):
            return False
    return True


def grouping(schema: pa.Schema, aggregation: GroupedAggregation) -> tuple[list[str], list[NativeAggregate]]:
    """The keys as expressions `... k0`, `... k1`, ... of a frame with the columns of `schema`, and the aggregates."""
    places = [schema.get_field_index(name) for name in aggregation.keys]
    keys = [f"{key(f'c{place}')} k{number}" for number, place in enumerate(places)]
    made = []
    for aggregate in aggregation.aggregates.values():
        column = "" if aggregate.column is None else f"c{schema.get_field_index(aggregate.column)}"
        native = native_aggregate(aggregate, column, schema, aggregation)
        assert native is not None, "the plan has asked before"
        made.append(native)
    return keys, made


def native_aggregate(
    aggregate: Aggregate, column: str, schema: pa.Schema, aggregation: GroupedAggregation
) -> NativeAggregate | None:
    """The aggregate as Spark computes it; None where that is something else.

    Args:
        column: what Spark calls its column.
        schema: the columns of the rows.
        aggregation: all that is computed of a group: a mean uses the sum beside it.
    """
    if aggregate.column is None:
        return NativeAggregate([Part("count(1)", "sum")])
    is_float = pa.types.is_floating(schema.field(aggregate.column).type)
    match aggregate.function:
        case "count":
            return NativeAggregate([Part(f"count({column})", "sum")])
        case "sum":
            return NativeAggregate([Part(f"sum({column})", "sum")])
        case "min" | "max" as extreme:
            # Spark's NaN is larger than all others; ours is passed over.
            values = f"if(isnan({column}), null, {column})" if is_float else column
            return NativeAggregate([Part(f"{extreme}({values})", extreme)])
        case "mean":
            others = aggregation.aggregates.values()
            is_summed = any((one.function, one.column) == ("sum", aggregate.column) for one in others)
            values = column if is_float or is_summed else f"cast({column} as double)"
            # Null where there is no value; a division by zero would be an error.
            result = "cast({0} as double) / nullif(cast({1} as double), 0)"
            return NativeAggregate([Part(f"sum({values})", "sum"), Part(f"count({column})", "sum")], result)
        case "count_distinct":
            return NativeAggregate([Part(f"count(distinct {column})")])
        case "stddev" if (function := _DEVIATIONS.get(getattr(aggregate, "ddof", -1))) is not None:
            return NativeAggregate([Part(f"{function}(cast({column} as double))")])
        case _:
            return None
