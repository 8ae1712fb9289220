"""What Spark can compute by itself, as values: made from the job without Spark, and compiled by `compiler.py`.

A relation has columns with Arrow types, which are those of the engine's own operators, and may have event timestamps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, TypeAlias

import pyarrow as pa

from penstock.engine.aggregates.grouped import GroupedAggregation
from penstock.engine.operators.relational import WindowPairs
from penstock.engine.ordering import SortKey
from penstock.engine.windows.assigners import AlignedWindows

SPARK_TYPES: Final[Mapping[pa.DataType, str]] = MappingProxyType(
    {
        pa.bool_(): "boolean",
        pa.int8(): "tinyint",
        pa.int16(): "smallint",
        pa.int32(): "int",
        pa.int64(): "bigint",
        pa.float32(): "float",
        pa.float64(): "double",
        pa.string(): "string",
        pa.binary(): "binary",
        pa.date32(): "date",
    }
)
"""Types whose values are the same in Spark."""


@dataclass(frozen=True, slots=True)
class ParquetRead:
    """The rows of Parquet files.

    Args:
        paths: of the files.
        schema: those of their columns that Spark can hold.
        whole: whether these are all.
    """

    paths: tuple[str, ...]
    schema: pa.Schema
    whole: bool
    timed: bool = False


@dataclass(frozen=True, slots=True)
class Timed:
    """Rows of `of` with the event timestamps that are in `column`."""

    of: Relation
    column: str
    schema: pa.Schema
    timed: bool = True


@dataclass(frozen=True, slots=True)
class Filtered:
    """The rows of `of` of which `condition` (SQL, of the columns of its frame) is true."""

    of: Relation
    condition: str
    schema: pa.Schema
    timed: bool


@dataclass(frozen=True, slots=True)
class Computed:
    """Columns made of those of `of`: SQL for each of `schema`; `whole` as in `ParquetRead`."""

    of: Relation
    columns: tuple[str, ...]
    schema: pa.Schema
    whole: bool
    timed: bool


@dataclass(frozen=True, slots=True)
class Windowed:
    """Aggregates of the windows of `of`."""

    of: Relation
    windows: AlignedWindows
    aggregation: GroupedAggregation
    schema: pa.Schema
    timed: bool = True


@dataclass(frozen=True, slots=True)
class Totals:
    """Aggregates of all rows of each key of `of`."""

    of: Relation
    aggregation: GroupedAggregation
    schema: pa.Schema
    timed: bool


@dataclass(frozen=True, slots=True)
class Joined:
    """The rows of both sides that have equal keys in the same tumbling window, in pairs; of outer joins others, too."""

    left: Relation
    right: Relation
    join: WindowPairs
    schema: pa.Schema
    timed: bool = True


@dataclass(frozen=True, slots=True)
class Sorted:
    """All rows of `of` in the order of `keys`, in as many partitions: each begins behind the end of the one before.

    The rows have no event time.
    """

    of: Relation
    keys: tuple[SortKey, ...]
    partitions: int
    schema: pa.Schema
    timed: bool = False


Relation: TypeAlias = ParquetRead | Timed | Filtered | Computed | Windowed | Totals | Joined | Sorted


def is_whole(relation: Relation) -> bool:
    """Whether it has all the columns that the engine's operators would have."""
    match relation:
        case ParquetRead() | Computed():
            return relation.whole
        case Timed() | Filtered():
            return is_whole(relation.of)
        case _:
            return True


def is_sorted(relation: Relation) -> bool:
    """Whether its rows come in an order, from partition to partition, that the program wants."""
    match relation:
        case Sorted():
            return True
        case Timed() | Filtered() | Computed():
            return is_sorted(relation.of)
        case _:
            return False


def read_one_by_one(relation: Relation) -> ParquetRead | None:
    """The files whose rows become those of the relation one by one; None where rows are brought together between."""
    match relation:
        case ParquetRead():
            return relation
        case Timed() | Filtered() | Computed():
            return read_one_by_one(relation.of)
        case _:
            return None


def spark_type(kind: pa.DataType) -> str | None:
    """The type that Spark keeps values of an Arrow type in: timestamps as whole numbers of their unit; None for none.

    Example:
        >>> spark_type(pa.timestamp("ms", "UTC")), spark_type(pa.uint64())
        ('bigint', None)
    """
    return "bigint" if pa.types.is_timestamp(kind) else SPARK_TYPES.get(kind)
