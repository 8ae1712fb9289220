"""Random joins of two streams, in which rows come late, too; and patterns, in which they do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any, Final

import penstock as ps
from penstock import DataStream, Pattern, col
from tests.parity.rows import Row, Rows
from tests.parity.windows import random_keys, random_windows
from tests.property.cuts.models import interval_model, window_join_model
from tests.property.cuts.runs import Operators

ONE_LATE: Final = ps.OutputTag("one late")
OTHER_LATE: Final = ps.OutputTag("other late")
SLOW: Final = ps.OutputTag("slow")
LATE: Final = ps.OutputTag("late")
TOLD: Final = {"k": "string", "what": "string"}


def window_join(random: Random, kind: str) -> Operators:
    """Pairs within windows."""
    windows, keys = replace(random_windows(random, joinable=True), more=""), random_keys(random, kind)
    how: Any = random.choice(("inner", "left", "right", "full"))

    def build(one: DataStream, other: DataStream) -> DataStream:
        return one.key_by(*keys).window_join(other.key_by(*keys), windows.make(), how=how)

    return Operators(
        f"window_join {how} in {windows.text} by {keys}",
        build,
        2,
        keys,
        model=window_join_model(keys, windows.bounds, windows.gap, how),
    )


def _grouped(key: Any, window: Any, left: Rows, right: Rows) -> Any:
    yield {"k": repr(key), "what": f"{window.start} {window.end}: {_items(left)} {_items(right)}"}


def _items(rows: Rows) -> list[str]:
    return [f"{row['v']} at {row['t']}" for row in rows]


def co_group(random: Random, kind: str) -> Operators:
    """A function of the rows of both streams in each window."""
    windows, keys = replace(random_windows(random, joinable=True), more=""), random_keys(random, kind)

    def build(one: DataStream, other: DataStream) -> DataStream:
        return one.key_by(*keys).co_group(other.key_by(*keys), windows.make(), _grouped, returns=TOLD)

    return Operators(f"co_group in {windows.text} by {keys}", build, 2, keys)


def interval_join(random: Random, kind: str) -> Operators:
    """Pairs that are near in time."""
    keys = random_keys(random, kind)
    lower, upper = random.choice(((-100, 100), (0, 0), (5, 700), (-300, -1)))
    bounds: Any = random.choice(("[]", "[)", "(]", "()")) if lower < upper else "[]"
    first, last = lower + (bounds[0] == "("), upper - (bounds[1] == ")")

    def build(one: DataStream, other: DataStream) -> DataStream:
        return one.key_by(*keys).interval_join(
            other.key_by(*keys),
            f"{lower}ms",
            f"{upper}ms",
            bounds=bounds,
            left_late=ONE_LATE,
            right_late=OTHER_LATE,
        )

    return Operators(
        f"interval_join {bounds[0]}{lower}ms, {upper}ms{bounds[1]} by {keys}",
        build,
        2,
        keys,
        sides=(ONE_LATE.name, OTHER_LATE.name),
        model=interval_model(keys, first, last),
    )


def temporal_join(random: Random, kind: str) -> Operators:
    """Rows with the version of their time."""
    keys, how = random_keys(random, kind), random.choice(("inner", "left"))

    def build(one: DataStream, other: DataStream) -> DataStream:
        return one.key_by(*keys).temporal_join(other.key_by(*keys), how=how)  # type: ignore[arg-type]

    return Operators(f"temporal_join {how} by {keys}", build, 2, keys)


def lookup_join(random: Random, kind: str) -> Operators:
    """Rows with those of a table outside."""
    how: Any = random.choice(("inner", "left"))
    table = ps.DictTable({"": {"name": "nobody", "n": None}, "ä": {"name": "", "n": 2**62}}, keys="k")
    cache = random.choice((None, ps.LookupCache(max_rows=1), ps.LookupCache(max_rows=10, ttl="20ms")))

    def build(stream: DataStream) -> DataStream:
        return stream.lookup_join(table, on="k", how=how, cache=cache)

    return Operators(f"lookup_join {how} {cache}", build, is_in_order=True)


# Patterns


def _text(match: Any) -> str:
    return "; ".join(f"{name}: {_items(rows)}" for name, rows in match.items())


def _told(match: Any) -> Row:
    first = next(iter(match.values()))[0]
    return {"k": first["k"], "what": _text(match)}


def _timed_out(match: Any, time: int) -> Row:
    first = next(iter(match.values()))[0]
    return {"k": first["k"], "what": f"{_text(match)} until {time}"}


def _pattern(random: Random) -> tuple[str, Pattern]:
    texts = ["a"]
    pattern = Pattern.begin("a").where(col("v") < random.choice((2, 5)))
    if random.random() < 0.4:
        pattern, texts = random.choice(
            (
                (pattern.one_or_more(), ["a+"]),
                (pattern.times(2), ["a{2}"]),
                (pattern.one_or_more().greedy(), ["a+ greedy"]),
            )
        )
    for name in ("b", "c")[: random.choice((1, 1, 2))]:
        verb = random.choice(("next", "followed_by", "followed_by_any"))
        pattern = getattr(pattern, verb)(name).where(col("v") > random.choice((-1, 1)))
        texts.append(f"{verb} {name}")
        if random.random() < 0.25 and "greedy" not in texts[0]:
            pattern, more = random.choice(((pattern.optional(), "?"), (pattern.one_or_more(), "+")))
            texts.append(more)
    within = random.choice((None, "50ms", "300ms"))
    if within is not None:
        pattern = pattern.within(within)
        texts.append(f"within {within}")
    return " ".join(texts), pattern


def matched(random: Random, kind: str) -> Operators:
    """A pattern in the rows of each key."""
    keys, (text, pattern) = random_keys(random, kind), _pattern(random)
    is_timed_out, is_by_clock = random.random() < 0.5 and "within" in text, random.random() < 0.15

    def build(stream: DataStream) -> DataStream:
        found = stream.key_by(*keys).match(pattern, time="processing" if is_by_clock else "event")
        found = found if is_by_clock else found.side_output_late_data(LATE)
        more: Any = {"timed_out": SLOW, "on_timeout": _timed_out} if is_timed_out else {}
        return found.select(_told, returns=TOLD, **more)

    sides: Sequence[str] = [*([] if is_by_clock else [LATE.name]), *([SLOW.name] if is_timed_out else [])]
    clock = ", by the clock" if is_by_clock else ""
    return Operators(f"match {text} by {keys}{clock}", build, 1, keys, sides=tuple(sides))
