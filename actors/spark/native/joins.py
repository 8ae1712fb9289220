"""Joins as frames of Spark: both look for equal keys in equal stretches of time."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql.functions import expr

from penstock.actors.spark.native.relations import Joined, Relation
from penstock.actors.spark.native.sql import TIME, key, last_start, renamed
from penstock.engine.operators.joins.interval_join import IntervalJoinFactory
from penstock.engine.operators.joins.join_columns import JoinSide
from penstock.engine.operators.joins.window_join import WindowJoinFactory
from penstock.engine.windows.assigners import AlignedWindows

_INTERVALS: Final = 4
"""Stretches of an interval join are so many times as long as its interval: a quarter of the left rows are in two."""
_LONGEST_INTERVAL: Final = 2**58
"""Of longer ones, stretches are not longer than the interval itself."""


def window_join(left: DataFrame, right: DataFrame, joined: Joined) -> DataFrame:
    """Pairs of rows in the same tumbling window, and those without a partner that an outer join keeps."""
    join = joined.join
    assert isinstance(join, WindowJoinFactory)
    windows = join.windows
    assert isinstance(windows, AlignedWindows), "no others are native"
    start = last_start(TIME, windows.slide_ms, windows.offset_ms)
    sides = (
        _side("l", left, joined.left, join.columns.left).selectExpr("*", f"{start} lstart").drop(TIME),
        _side("r", right, joined.right, join.columns.right).selectExpr("*", f"{start} rstart").drop(TIME),
    )
    pairs = sides[0].join(sides[1], expr(f"{_equal_keys(joined)} and lstart = rstart"), join.how)
    has_left = join.how in ("inner", "left")
    begin = "lstart" if has_left else "coalesce(lstart, rstart)"
    end = f"{begin} + {windows.size_ms}L"
    of_left = [f"l{number}" for number in range(len(joined.left.schema))]
    if not has_left:
        for number, name in enumerate(join.columns.left.keys):
            place = joined.left.schema.get_field_index(name)
            of_left[place] = f"coalesce(l{place}, rk{number})"
    return pairs.selectExpr(*renamed([*of_left, begin, end, *_values_of_right(joined)]), f"{end} - 1L {TIME}")


def interval_join(left: DataFrame, right: DataFrame, joined: Joined) -> DataFrame:
    """Pairs of rows whose times are near each other.

    Time is cut into stretches. A right row is in one of them, and a left row in those that its interval touches, two at
    the most: so rows are compared with those of the same key and stretch, and not with all of the key.
    """
    join = joined.join
    assert isinstance(join, IntervalJoinFactory)
    length = join.upper_ms - join.lower_ms + 1
    if length <= _LONGEST_INTERVAL:
        length *= _INTERVALS
    low, high = f"{TIME} + {join.lower_ms}L", f"{TIME} + {join.upper_ms}L"
    touched = f"array_distinct(array({last_start(low, length, 0)}, {last_start(high, length, 0)}))"
    sides = (
        _side("l", left, joined.left, join.columns.left)
        .selectExpr("*", f"explode({touched}) lstretch", f"{low} low", f"{high} high")
        .withColumnRenamed(TIME, "ltime"),
        _side("r", right, joined.right, join.columns.right)
        .selectExpr("*", f"{last_start(TIME, length, 0)} rstretch")
        .withColumnRenamed(TIME, "rtime"),
    )
    near = f"{_equal_keys(joined)} and lstretch = rstretch and rtime between low and high"
    pairs = sides[0].join(sides[1], expr(near))
    of_left = [f"l{number}" for number in range(len(joined.left.schema))]
    return pairs.selectExpr(*renamed([*of_left, *_values_of_right(joined)]), f"greatest(ltime, rtime) {TIME}")


def _side(name: str, rows: DataFrame, relation: Relation, side: JoinSide) -> DataFrame:
    """The rows of one side: columns `{name}0`, `{name}1`, ..., its keys `{name}k0`, ..., and the time."""
    columns = [f"c{number} {name}{number}" for number in range(len(relation.schema))]
    places = [relation.schema.get_field_index(one) for one in side.keys]
    keys = [f"{key(f'c{place}')} {name}k{number}" for number, place in enumerate(places)]
    return rows.selectExpr(*columns, *keys, TIME)


def _equal_keys(joined: Joined) -> str:
    return " and ".join(f"lk{number} = rk{number}" for number in range(len(joined.join.columns.left.keys)))


def _values_of_right(joined: Joined) -> list[str]:
    keys = joined.join.columns.right.keys
    return [f"r{number}" for number, field in enumerate(joined.right.schema) if field.name not in keys]
