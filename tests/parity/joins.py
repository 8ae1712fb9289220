"""Joins of random programs, with nested loops as their models."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

from penstock import DataStream
from tests.parity.rows import Row, Rows, milliseconds, schema_of
from tests.parity.verbs import Verb
from tests.parity.windows import (
    MOMENTS,
    NORMAL,
    Windows,
    aggregates,
    by_key,
    normal_row,
    random_keys,
    random_windows,
    summed,
    window_rows,
)


def _pair(row: Row) -> Row:
    """A result of a join as a row of a stream; sides of outer joins may be missing."""
    times = [row["t"], row.get("t_right")]
    end = row.get("window_end")
    return {
        "k": row["k"] if row["k"] is not None else row.get("k_right"),
        "j": (row["j"] or 0) + 100 * (row.get("j_right") or 0),
        "v": row["v"],
        "f": row.get("f_right"),
        "x": row["x"] if row["x"] is not None else row.get("x_right"),
        "t": milliseconds(end) - 1 if end is not None else max(time for time in times if time is not None),
    }


def _paired(left: Row | None, right: Row | None, keys: Sequence[str], end: int | None = None) -> Row:
    """The same, of rows that are not joined yet; keys are those of either side."""
    names = ("k", "j", "v", "f", "x", "t")
    either = left or right or {}
    one = {name: left[name] if left else either[name] if name in keys else None for name in names}
    other = {f"{name}_right": right[name] if right else None for name in names if name not in keys}
    return _pair({**one, **other, "window_end": end})


def window_join(random: Random, kind: str) -> Verb:
    """Pairs within windows, inner and outer."""
    windows, keys = random_windows(random, joinable=True), random_keys(random, kind)
    how: Any = random.choice(["inner", "inner", "left", "right", "full"])

    def build(left: DataStream, right: DataStream) -> Sequence[DataStream]:
        joined = left.key_by(*keys).window_join(right.key_by(*keys), windows.make(), how=how)
        return [joined.map(_pair, returns=schema_of(kind))]

    def model(left: Rows, right: Rows) -> Sequence[Rows]:
        given = []
        for end, ones, others in _in_windows(left, right, keys, windows):
            given += [_paired(one, other, keys, end) for one in ones for other in others]
            if not others and how in ("left", "full"):
                given += [_paired(one, None, keys, end) for one in ones]
            if not ones and how in ("right", "full"):
                given += [_paired(None, other, keys, end) for other in others]
        return [given]

    return Verb(f"window_join {how} in {windows.text} by {keys}", build, model, inputs=2)


def _in_windows(left: Rows, right: Rows, keys: Sequence[str], windows: Windows) -> Iterator[tuple[int, Rows, Rows]]:
    """End of each window of each key, and the rows of both sides in it."""
    marked = [{**row, "side": side} for side, rows in enumerate((left, right)) for row in rows]
    for of_key in by_key(marked, keys).values():
        for _, end, members in windows.divide(of_key):
            yield end, [row for row in members if not row["side"]], [row for row in members if row["side"]]


def interval_join(random: Random, kind: str) -> Verb:
    """Pairs that are near in time."""
    keys = random_keys(random, kind)
    lower, upper = random.choice([(-100, 100), (0, 0), (5, 700), (-300, -1)])
    bounds = random.choice(["[]", "[)", "(]", "()"]) if lower < upper else "[]"
    first, last = lower + (bounds[0] == "("), upper - (bounds[1] == ")")

    def build(left: DataStream, right: DataStream) -> Sequence[DataStream]:
        joined = left.key_by(*keys).interval_join(right.key_by(*keys), f"{lower}ms", f"{upper}ms", bounds=bounds)
        return [joined.map(_pair, returns=schema_of(kind))]

    def model(left: Rows, right: Rows) -> Sequence[Rows]:
        others = by_key(right, keys)
        return [
            [
                _paired(one, other, keys)
                for key, ones in by_key(left, keys).items()
                for one in ones
                for other in others.get(key, [])
                if one["t"] + first <= other["t"] <= one["t"] + last
            ]
        ]

    return Verb(f"interval_join {bounds[0]}{lower}ms to {upper}ms{bounds[1]} by {keys}", build, model, inputs=2)


def temporal_join(random: Random, kind: str) -> Verb:
    """Each row with the version of its key at its time: windows of a millisecond give one at most for each time."""
    how: Any = random.choice(["inner", "left"])

    def build(left: DataStream, right: DataStream) -> Sequence[DataStream]:
        versions = right.key_by("k").window(MOMENTS.make()).aggregate(**aggregates(NORMAL, kind))
        normal = versions.map(normal_row, returns=schema_of(kind))
        joined = left.key_by("k").temporal_join(normal.key_by("k"), how=how)
        return [joined.map(_of_left, returns=schema_of(kind))]

    def model(left: Rows, right: Rows) -> Sequence[Rows]:
        versions = by_key([normal_row(row) for row in window_rows(MOMENTS, ["k"], NORMAL, right)], ["k"])
        given = []
        for row in left:
            valid = [one for one in versions.get((row["k"],), []) if one["t"] <= row["t"]]
            version = max(valid, key=lambda one: one["t"], default=None)
            if version is not None or how == "left":
                given.append({**_paired(row, version, ["k"]), "t": row["t"]})
        return [given]

    return Verb(f"temporal_join {how}", build, model, inputs=2)


def _of_left(row: Row) -> Row:
    return {**_pair(row), "t": row["t"]}


def co_group(random: Random, kind: str) -> Verb:
    """A function of the rows of both streams in each window."""
    windows, keys = random_windows(random, joinable=True), random_keys(random, kind)

    def build(left: DataStream, right: DataStream) -> Sequence[DataStream]:
        grouped = left.key_by(*keys).co_group(right.key_by(*keys), windows.make(), _both, returns=schema_of(kind))
        return [grouped]

    def model(left: Rows, right: Rows) -> Sequence[Rows]:
        return [[_group(end, *sides) for end, *sides in _in_windows(left, right, keys, windows)]]

    return Verb(f"co_group in {windows.text} by {keys}", build, model, inputs=2)


def _both(key: Any, window: Any, left: Rows, right: Rows) -> Any:
    yield _group(window.end, list(left), list(right))


def _group(end: int, left: Rows, right: Rows) -> Row:
    return {**summed(left + right), "j": len(left) - 10 * len(right), "t": end - 1}
