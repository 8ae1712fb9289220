"""Joins as frames of Spark: by equal keys and windows."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql.functions import expr

from penstock.actors.spark.native.relations import Joined, Relation
from penstock.actors.spark.native.sql import TIME, key, last_start, renamed
from penstock.engine.operators.join_columns import JoinSide
from penstock.engine.windows.assigners import AlignedWindows


def window_join(left: DataFrame, right: DataFrame, joined: Joined) -> DataFrame:
    """Pairs of rows in the same tumbling window, and those without a partner that an outer join keeps."""
    join = joined.join
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
    of_left = _values_of_left(joined, "lk{0}" if has_left else "coalesce(lk{0}, rk{0})")
    return pairs.selectExpr(*renamed([*of_left, begin, end, *_values_of_right(joined)]), f"{end} - 1L {TIME}")


def _side(name: str, rows: DataFrame, relation: Relation, side: JoinSide) -> DataFrame:
    """The rows of one side: keys `{name}k0`, ..., the other columns by their places, `{name}1`, ..., and the time."""
    places = [relation.schema.get_field_index(one) for one in side.keys]
    keys = [f"{key(f'c{place}')} {name}k{number}" for number, place in enumerate(places)]
    others = [f"c{number} {name}{number}" for number in range(len(relation.schema)) if number not in places]
    return rows.selectExpr(*keys, *others, TIME)


def _equal_keys(joined: Joined) -> str:
    return " and ".join(f"lk{number} = rk{number}" for number in range(len(joined.join.columns.left.keys)))


def _values_of_left(joined: Joined, of_key: str) -> list[str]:
    """The columns of the left side; `of_key` makes the key that is number {0}."""
    keys = joined.join.columns.left.keys
    return [
        of_key.format(keys.index(field.name)) if field.name in keys else f"l{number}"
        for number, field in enumerate(joined.left.schema)
    ]


def _values_of_right(joined: Joined) -> list[str]:
    keys = joined.join.columns.right.keys
    return [f"r{number}" for number, field in enumerate(joined.right.schema) if field.name not in keys]
