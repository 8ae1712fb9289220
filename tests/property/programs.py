"""Random programs, with an oracle in plain Python: lists, dicts and loops, one row at a time.

A program is data, a few row-wise steps, and an end (rows, a running or final aggregate, or windows). It runs on any
environment, and `expected` says what must come out, as a sorted list of rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

import penstock as ps
from penstock import CollectResult, DataStream, StreamEnvironment, WatermarkStrategy, col

Row = dict[str, Any]
SCHEMA = {"k": "string", "j": "int64", "v": "int64", "t": "int64"}


@dataclass(frozen=True)
class Step:
    """One row-wise verb: how the stream does it, and what it does to one row."""

    name: str
    apply: Callable[[DataStream], DataStream]
    model: Callable[[Row], Iterable[Row]]


def _fill(row: Row) -> Row:
    return {**row, "v": 0 if row["v"] is None else row["v"]}


def _copies(row: Row) -> list[Row]:
    return [{**row, "j": row["j"] + copy} for copy in range(row["j"] % 3)]


def _double(batch: Any) -> dict[str, Any]:
    columns = {name: batch.column(name) for name in batch.schema.names}
    return {**columns, "j": [2 * j for j in batch.column("j").to_pylist()]}


STEPS = [
    Step("filter expression", lambda s: s.filter(col("v") > 2), lambda r: [r] if (r["v"] or 0) > 2 else []),
    Step("filter function", lambda s: s.filter(lambda r: r["j"] % 2), lambda r: [r] if r["j"] % 2 else []),
    Step("with_columns", lambda s: s.with_columns(j=col("j") * 3 + 1), lambda r: [{**r, "j": r["j"] * 3 + 1}]),
    Step("row column", lambda s: s.with_columns(j=lambda r: r["j"] - 1, returns={"j": "int64"}),
         lambda r: [{**r, "j": r["j"] - 1}]),
    Step("select", lambda s: s.select("k", "j", v=col("v").fill_null(7), t="t"),
         lambda r: [{**r, "v": 7 if r["v"] is None else r["v"]}]),
    Step("map", lambda s: s.map(_fill, returns=SCHEMA), lambda r: [_fill(r)]),
    Step("map, undeclared", lambda s: s.map(_fill), lambda r: [_fill(r)]),
    Step("flat_map", lambda s: s.flat_map(_copies, returns=SCHEMA), _copies),
    Step("map_batches", lambda s: s.map_batches(_double, returns=SCHEMA), lambda r: [{**r, "j": 2 * r["j"]}]),
    Step("union", lambda s: s.filter(col("j") > 0).union(s.filter(col("j") <= 0)), lambda r: [r]),
    Step("rebalance", lambda s: s.rebalance(), lambda r: [r]),
    Step("rescale", lambda s: s.rescale().filter(col("j") < 10**9).set_parallelism(3), lambda r: [r]),
    Step("global", lambda s: s.global_(), lambda r: [r]),
    Step("new chain", lambda s: s.filter(col("j") > -(10**9)).start_new_chain(), lambda r: [r]),
]  # fmt: skip


@dataclass(frozen=True)
class Program:
    """Rows, steps, keys and an end: None for the rows themselves, "running", "grouped", or window arguments."""

    rows: list[Row]
    steps: list[Step]
    keys: tuple[str, ...]
    end: tuple[Any, ...]

    def __repr__(self) -> str:
        return f"Program({self.rows}, {[step.name for step in self.steps]}, {self.keys}, {self.end})"

    def run(self, env: StreamEnvironment) -> list[Row]:
        """What the program gives, sorted."""
        return self.rows_of(self.build(env))

    def build(self, env: StreamEnvironment, some: slice = slice(None)) -> CollectResult:
        """Put the program into an environment, to read `some` of its rows; event time goes by the disorder of all."""
        disorder = max((_disorder(self.rows)), 0)
        strategy = WatermarkStrategy.for_bounded_out_of_orderness(f"{disorder}ms")
        stream = env.from_collection(self.rows[some], schema=SCHEMA).assign_timestamps("t", strategy)
        for step in self.steps:
            stream = step.apply(stream)
        if self.end[0] == "rows":
            return stream.collect()
        aggregates = {
            "n": ps.count(),
            "values": ps.count("v"),
            "total": ps.sum("v"),
            "least": ps.min("v"),
            "most": ps.max("j"),
            "kinds": ps.count_distinct("v"),
            "list": ps.collect_list("j"),
        }
        if self.end[0] == "grouped":
            return stream.group_by(*self.keys).aggregate(**aggregates).collect()
        keyed = stream.key_by(*self.keys)
        if self.end[0] == "running":
            return keyed.aggregate(**aggregates).collect()
        kind, *arguments = self.end
        windows = {"tumbling": ps.tumbling, "sliding": ps.sliding, "session": ps.session}[kind](*arguments)
        return keyed.window(windows).aggregate(**aggregates).collect()

    def rows_of(self, result: Iterable[Row]) -> list[Row]:
        """The rows of a job, sorted; of running aggregates the last one of each key."""
        if self.end[0] == "rows":
            return _sorted(result)
        if self.end[0] == "running":
            last = {tuple(row[key] for key in self.keys): row for row in result}
            return _sorted(map(_with_sorted_list, last.values()))
        return _sorted(map(_with_sorted_list, result))

    def expected(self) -> list[Row]:
        """What it must give, sorted."""
        rows = self.rows
        for step in self.steps:
            rows = [out for row in rows for out in step.model(row)]
        if self.end[0] == "rows":
            return _sorted(rows)
        groups: dict[tuple[Any, ...], list[Row]] = {}
        for row in rows:
            for window in self._windows(row, rows):
                groups.setdefault((*(row[key] for key in self.keys), *window), []).append(row)
        return _sorted(self._result(group, members) for group, members in groups.items())

    def _windows(self, row: Row, rows: list[Row]) -> list[tuple[int, ...]]:
        kind, *arguments = self.end
        lengths = [int(text.removesuffix("ms")) for text in arguments]
        match kind:
            case "running" | "grouped":
                return [()]
            case "tumbling":
                start = math.floor(row["t"] / lengths[0]) * lengths[0]
                return [(start, start + lengths[0])]
            case "sliding":
                size, slide = lengths
                first = math.floor(row["t"] / slide) * slide
                starts = range(first, row["t"] - size, -slide)
                return [(start, start + size) for start in starts]
            case _:
                return [_session(row, rows, self.keys, lengths[0])]

    def _result(self, group: tuple[Any, ...], members: list[Row]) -> Row:
        named = dict(zip(self.keys, group, strict=False))
        if self.end[0] not in ("running", "grouped"):
            named |= {"window_start": group[-2], "window_end": group[-1]}
        values = [row["v"] for row in members if row["v"] is not None]
        return named | {
            "n": len(members),
            "values": len(values),
            "total": sum(values) if values else None,
            "least": min(values, default=None),
            "most": max(row["j"] for row in members),
            "kinds": len(set(values)),
            "list": sorted(row["j"] for row in members),
        }


def _session(row: Row, rows: list[Row], keys: tuple[str, ...], gap: int) -> tuple[int, int]:
    """The session of `row`: grow it from the row until no row of the key touches it."""
    times = [other["t"] for other in rows if all(other[key] == row[key] for key in keys)]
    start, end = row["t"], row["t"] + gap
    while True:
        touching = [time for time in times if time <= end and time + gap >= start]
        grown = min(touching), max(touching) + gap
        if grown == (start, end):
            return grown
        start, end = grown


def _disorder(rows: list[Row]) -> int:
    largest, worst = -(10**9), 0
    for row in rows:
        worst = max(worst, largest - row["t"])
        largest = max(largest, row["t"])
    return worst


def _with_sorted_list(row: Row) -> Row:
    bounds = {name: round(row[name].timestamp() * 1000) for name in ("window_start", "window_end") if name in row}
    return {**row, **bounds, "list": sorted(row["list"])}


def _sorted(rows: Iterable[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: [(name, value is None, value) for name, value in sorted(row.items())])


_ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "k": st.sampled_from(["", "a", "b", "c", "ä"]),
            "j": st.integers(-20, 20),
            "v": st.none() | st.integers(-5, 9),
            "t": st.integers(-500, 5000),
        }
    ),
    max_size=40,
)
_ENDS = st.one_of(
    st.just(("rows",)),
    st.sampled_from([("running",), ("grouped",)]),
    st.sampled_from([("tumbling", f"{size}ms") for size in (1, 7, 100, 1000)]),
    st.sampled_from([("sliding", f"{a}ms", f"{b}ms") for a, b in ((10, 5), (1000, 300), (700, 700), (90, 200))]),
    st.sampled_from([("session", f"{gap}ms") for gap in (1, 50, 400)]),
)


def programs() -> st.SearchStrategy[Program]:
    """Programs of up to four steps over up to forty rows."""
    return st.builds(
        Program,
        _ROWS,
        st.lists(st.sampled_from(STEPS), max_size=4),
        st.sampled_from([("k",), ("j",), ("k", "j")]),
        _ENDS,
    )
