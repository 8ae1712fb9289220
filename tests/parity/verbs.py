"""Verbs of random programs: each is how the stream does it, and what it does to lists of rows in plain Python."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final

import pyarrow as pa

import penstock as ps
from penstock import DataStream, WatermarkStrategy, col
from tests.parity.rows import Row, Rows, schema_of


@dataclass(frozen=True)
class Verb:
    """A step from some streams to some others.

    Args:
        text: for people.
        build: from the streams that it reads to those that it gives.
        model: the same for lists of rows.
        inputs: how many streams it reads.
        takes_env: whether `build` takes the environment before them.
    """

    text: str
    build: Callable[..., Sequence[DataStream]]
    model: Callable[..., Sequence[Rows]]
    inputs: int = 1
    takes_env: bool = False


def by_row(text: str, build: Callable[[DataStream], DataStream], model: Callable[[Row], Iterable[Row]]) -> Verb:
    """A verb that makes rows of each row."""
    return Verb(text, lambda stream: [build(stream)], lambda rows: [[out for row in rows for out in model(row)]])


class Split(ps.ProcessFunction):
    """Passes rows on that are small, and gives the others aside; each with its timestamp as the function sees it."""

    def __init__(self, tag: ps.OutputTag) -> None:
        self.tag = tag

    def process_element(self, row: Row, ctx: Any) -> Any:
        timed = {**row, "t": ctx.timestamp}
        if row["j"] < 3:
            yield timed
        else:
            ctx.output(self.tag, timed)


def split(random: Random, kind: str) -> Verb:
    """A side output."""
    tag = ps.OutputTag("large", schema_of(kind))

    def build(stream: DataStream) -> Sequence[DataStream]:
        small = stream.process(Split(tag), returns=schema_of(kind))
        return [small, small.get_side_output(tag)]

    return Verb(
        "process, side output",
        build,
        lambda rows: [[row for row in rows if row["j"] < 3], [row for row in rows if row["j"] >= 3]],
    )


def union(random: Random, kind: str) -> Verb:
    """Two streams as one."""
    return Verb("union", lambda one, other: [one.union(other)], lambda one, other: [one + other], inputs=2)


class Both(ps.CoProcessFunction):
    """Rows of two streams, those of the second marked."""

    def process_element1(self, row: Row, ctx: Any) -> Any:
        yield {**row, "t": ctx.timestamp}

    def process_element2(self, row: Row, ctx: Any) -> Any:
        yield _marked(row)


def _marked(row: Row) -> Row:
    return {**row, "j": row["j"] + 1}


def connected(random: Random, kind: str) -> Verb:
    """Two streams, without keys, for functions of the rows of each."""
    schema, verb = schema_of(kind), random.choice(["map", "flat_map", "process"])

    def build(one: DataStream, other: DataStream) -> Sequence[DataStream]:
        both = one.connect(other)
        if verb == "map":
            return [both.map(_swapped, _marked, returns=schema)]
        if verb == "flat_map":
            return [both.flat_map(_copies, lambda row: [_marked(row)], returns=schema)]
        return [both.process(Both(), returns=schema)]

    firsts: dict[str, Callable[[Row], Rows]] = {"map": lambda row: [_swapped(row)], "flat_map": _copies}
    first = firsts.get(verb, lambda row: [row])
    return Verb(
        f"connect, {verb}",
        build,
        lambda one, other: [[out for row in one for out in first(row)] + [_marked(row) for row in other]],
        inputs=2,
    )


RULES: Final = ps.MapStateDescriptor("rules", "int64", key_type="string")


class Ruled(ps.BroadcastProcessFunction):
    """Rows of both streams, in one subtask; those of the broadcast one are also kept, and marked."""

    def process_element(self, row: Row, ctx: Any) -> Any:
        yield {**row, "t": ctx.timestamp}

    def process_broadcast_element(self, row: Row, ctx: Any) -> Any:
        ctx.get_broadcast_state(RULES).put(row["k"], row["j"])
        yield _marked(row)


def ruled(random: Random, kind: str) -> Verb:
    """A function of a stream without keys and a broadcast one."""

    def build(stream: DataStream, rules: DataStream) -> Sequence[DataStream]:
        both = stream.connect(rules.broadcast(RULES))
        return [both.process(Ruled(), returns=schema_of(kind)).set_parallelism(1)]

    return Verb(
        "broadcast without keys",
        build,
        lambda rows, rules: [rows + [_marked(rule) for rule in rules]],
        inputs=2,
    )


def _double(batch: Any) -> dict[str, Any]:
    columns = {name: batch.column(name) for name in batch.schema.names}
    return {**columns, "j": [2 * j for j in batch.column("j").to_pylist()]}


def _copies(row: Row) -> list[Row]:
    return [{**row, "j": row["j"] + copy} for copy in range(abs(row["j"]) % 3)]


def _plus(one: Any, other: Any) -> Any:
    return None if one is None or other is None else one + other


def _if(condition: bool | None, row: Row) -> list[Row]:
    return [row] if condition else []


def _over(value: float | None, least: float) -> bool | None:
    return None if value is None else value > least


def _not(value: bool | None) -> bool | None:
    return None if value is None else not value


def _or(one: bool | None, other: bool | None) -> bool | None:
    return True if one or other else None if one is None or other is None else False


_NAMES: Final = ps.ArrowTable(pa.table({"key": ["a", "b", ""], "bonus": [10, None, -1]}), keys="key")
_BONUS: Final = {"a": 10, "b": None, "": -1}
_DICT: Final = ps.DictTable({key: {"bonus": bonus} for key, bonus in _BONUS.items()}, keys="key")


def row_wise(random: Random, kind: str) -> Verb:
    """One of the verbs that take rows one by one."""
    schema = schema_of(kind)
    c = random.randint(-2, 6)
    verbs = [
        by_row(f"filter v > {c}", lambda s: s.filter(col("v") > c), lambda r: _if(_over(r["v"], c), r)),
        by_row(f"filter f > {c}.5", lambda s: s.filter(col("f") > c + 0.5), lambda r: _if(_over(r["f"], c + 0.5), r)),
        by_row(f"filter not f > {c}.0", lambda s: s.filter(~(col("f") > float(c))),
               lambda r: _if(_not(_over(r["f"], c)), r)),
        by_row(f"filter v > {c} or k == 'a' or f is null",
               lambda s: s.filter((col("v") > c) | (col("k") == "a") | col("f").is_null()),
               lambda r: _if(_or(_or(_over(r["v"], c), r["k"] == "a"), r["f"] is None), r)),
        by_row("filter k != 'ä'", lambda s: s.filter(col("k") != "ä"), lambda r: _if(r["k"] != "ä", r)),
        by_row("filter j even", lambda s: s.filter(col("j") % 2 == 0), lambda r: _if(r["j"] % 2 == 0, r)),
        by_row(f"filter function j < {c}", lambda s: s.filter(lambda r: r["j"] < c), lambda r: _if(r["j"] < c, r)),
        by_row("with_columns j, v, f",
               lambda s: s.with_columns(j=col("j") * 2 - 1, v=col("v") + col("j"), f=1.5 - col("f")),
               lambda r: [{**r, "j": r["j"] * 2 - 1, "v": _plus(r["v"], r["j"]),
                           "f": None if r["f"] is None else 1.5 - r["f"]}]),
        by_row("with_columns by function", lambda s: s.with_columns(j=lambda r: r["j"] % 5, returns={"j": "int64"}),
               lambda r: [{**r, "j": r["j"] % 5}]),
        by_row(f"select, v or {c}", lambda s: s.select("k", "j", v=col("v").fill_null(c), f="f", x="x", t="t"),
               lambda r: [{**r, "v": c if r["v"] is None else r["v"]}]),
        by_row("k when", lambda s: s.with_columns(k=ps.when(col("j") > 2).then(ps.lit("big")).otherwise(col("k"))),
               lambda r: [{**r, "k": "big" if r["j"] > 2 else r["k"]}]),
        by_row("map", lambda s: s.map(_swapped, returns=schema), lambda r: [_swapped(r)]),
        by_row("flat_map", lambda s: s.flat_map(_copies, returns=schema), _copies),
        by_row("map_batches", lambda s: s.map_batches(_double, returns=schema), lambda r: [{**r, "j": 2 * r["j"]}]),
        by_row("map_async", lambda s: s.map_async(_later, returns=schema), lambda r: [_swapped(r)]),
        by_row("map_async unordered", lambda s: s.map_async(Later(), returns=schema, order="unordered", capacity=2),
               lambda r: [_swapped(r), _marked(r)]),
        by_row("lookup_join inner", lambda s: s.lookup_join(_DICT, on={"k": "key"}, how="inner").select(
                   "k", "j", v="bonus", f="f", x="x", t="t"),
               lambda r: [{**r, "v": _BONUS[r["k"]]}] if r["k"] in _BONUS else []),
        by_row("lookup_join",
               lambda s: s.lookup_join(_NAMES, on={"k": "key"}, how="left").select(
                   "k", "j", v=ps.coalesce(col("bonus"), col("v")), f="f", x="x", t="t"),
               lambda r: [{**r, "v": r["v"] if _BONUS.get(r["k"]) is None else _BONUS[r["k"]]}]),
        by_row("assign_timestamps",
               lambda s: s.assign_timestamps("t", WatermarkStrategy.for_bounded_out_of_orderness("1d")), lambda r: [r]),
        by_row("rebalance", lambda s: s.rebalance(), lambda r: [r]),
        by_row("rescale to 3", lambda s: s.rescale().filter(col("j") < 10**9).set_parallelism(3), lambda r: [r]),
        by_row("global", lambda s: s.global_(), lambda r: [r]),
        by_row("broadcast to 2", lambda s: s.broadcast().filter(col("j") < 10**9).set_parallelism(2),
               lambda r: [r, r]),
        by_row("forward in 2",
               lambda s: s.filter(col("j") < 10**9).set_parallelism(2).forward().map(dict, schema).set_parallelism(2),
               lambda r: [r]),
        by_row("no chaining", lambda s: s.filter(col("j") < 10**9).disable_chaining(), lambda r: [r]),
        by_row("new chain", lambda s: s.filter(col("j") < 10**9).start_new_chain(), lambda r: [r]),
    ]  # fmt: skip
    return random.choice(verbs)


def _swapped(row: Row) -> Row:
    value = row["f"]
    is_whole = value is not None and math.isfinite(value)
    return {**row, "v": int(value * 2) if is_whole else None, "f": None if row["v"] is None else row["v"] * 0.5}


async def _later(row: Row) -> Row:
    return _swapped(row)


class Later(ps.AsyncFunction):
    """Two rows for each."""

    async def process(self, row: Row) -> list[Row]:
        return [_swapped(row), _marked(row)]
