"""Windows and aggregates of random programs, with their models."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Final, Literal

import pyarrow as pa

import penstock as ps
from penstock import DataStream, KeyedStream, WindowedStream, col
from penstock.engine.schemas import parse_schema
from tests.parity.rows import (
    KEYS,
    Row,
    Rows,
    can_be_key,
    has_extremes,
    is_nested,
    keeps_type,
    known,
    known_numbers,
    largest,
    milliseconds,
    schema_of,
)
from tests.parity.verbs import Verb

Values = Sequence[Any]


@dataclass(frozen=True)
class Windows:
    """Windows of event time: how Penstock spells them, and which bounds a row's time is in.

    Args:
        text: for people.
        make: the assigner.
        bounds: of all windows that a time is in; None for sessions.
        gap: that ends a session (ms).
        joinable: whether joins take them.
        more: how they behave beside that, which no result shows: late rows, of which there are none, are waited for;
            or there is a trigger.
    """

    text: str
    make: Callable[[], Any]
    bounds: Callable[[int], Iterator[tuple[int, int]]] | None = None
    gap: int = 0
    joinable: bool = True
    more: Literal["", "patient ", "purging "] = ""

    def divide(self, rows: Rows) -> Iterator[tuple[int, int, Rows]]:
        """Start, end and rows of each window that has some; the rows are those of one key."""
        if self.bounds is None:
            yield from self._sessions(sorted(rows, key=lambda row: row["t"]))
            return
        found: dict[tuple[int, int], Rows] = {}
        for row in rows:
            for window in self.bounds(row["t"]):
                found.setdefault(window, []).append(row)
        for (start, end), members in found.items():
            yield start, end, members

    def _sessions(self, rows: Rows) -> Iterator[tuple[int, int, Rows]]:
        members: Rows = []
        for row in rows:
            if members and row["t"] > members[-1]["t"] + self.gap:
                yield members[0]["t"], members[-1]["t"] + self.gap, members
                members = []
            members = [*members, row]
        if members:
            yield members[0]["t"], members[-1]["t"] + self.gap, members


def _sliding(size: int, slide: int, offset: int) -> Callable[[int], Iterator[tuple[int, int]]]:
    def bounds(time: int) -> Iterator[tuple[int, int]]:
        start = time - (time - offset) % slide
        while start > time - size:
            yield start, start + size
            start -= slide

    return bounds


def _cumulative(longest: int, step: int) -> Callable[[int], Iterator[tuple[int, int]]]:
    def bounds(time: int) -> Iterator[tuple[int, int]]:
        start = time - time % longest
        for end in range(start + step, start + longest + 1, step):
            if time < end:
                yield start, end

    return bounds


class Own(ps.WindowAssigner):
    """Tumbling windows as somebody else would write them."""

    def __init__(self, size: int) -> None:
        self.size = size

    def assign_windows(self, row: Row, timestamp: int | None, context: Any) -> list[ps.TimeWindow]:
        assert timestamp is not None
        return [ps.TimeWindow(timestamp - timestamp % self.size, timestamp - timestamp % self.size + self.size)]


def _windows(random: Random) -> Windows:
    match random.choice(["tumbling", "tumbling", "sliding", "session", "cumulative", "dynamic", "own"]):
        case "tumbling":
            size, offset = random.choice([(1, 0), (100, 30), (100, -7), (1000, 0)])
            return Windows(
                f"tumbling {size}ms from {offset}ms",
                lambda: ps.tumbling(f"{size}ms", offset=f"{offset}ms"),
                _sliding(size, size, offset),
            )
        case "sliding":
            size, slide = random.choice([(1000, 300), (90, 200), (700, 700), (10, 5)])
            return Windows(
                f"sliding {size}ms by {slide}ms",
                lambda: ps.sliding(f"{size}ms", f"{slide}ms"),
                _sliding(size, slide, 0),
            )
        case "session":
            gap = random.choice([1, 50, 400])
            return Windows(f"session {gap}ms", lambda: ps.session(f"{gap}ms"), gap=gap)
        case "dynamic":
            gap = random.choice([30, 250])
            return Windows(f"dynamic session {gap}ms", lambda: ps.session(lambda row: gap), gap=gap, joinable=False)
        case "own":
            size = random.choice([70, 800])
            return Windows(f"own {size}ms", lambda: Own(size), _sliding(size, size, 0), joinable=False)
        case _:
            longest, step = random.choice([(1000, 250), (300, 100)])
            return Windows(
                f"cumulative {longest}ms by {step}ms",
                lambda: ps.cumulative(f"{longest}ms", f"{step}ms"),
                _cumulative(longest, step),
                joinable=False,
            )


def random_windows(random: Random, joinable: bool = False) -> Windows:
    """Windows of event time; `joinable`: of a kind that joins take."""
    while True:
        windows = _windows(random)
        if not joinable and random.random() < 0.3:
            more: Any = random.choice(["patient ", "purging "])
            windows = replace(windows, more=more, text=more + windows.text)
        if windows.joinable or not joinable:
            return windows


MOMENTS: Final = Windows("1ms", lambda: ps.tumbling("1ms"), lambda time: iter([(time, time + 1)]))
"""Windows that make one row of those of one time."""


def random_sql_windows(random: Random) -> tuple[str, Windows]:
    """The call of a table-valued function over `this` by `ts`, and the windows that it makes."""
    size, step = random.choice([(1000, 250), (100, 20)])
    of, long, short = (
        "TABLE this, DESCRIPTOR(ts)",
        f"INTERVAL '{size / 1000}' SECOND",
        f"INTERVAL '{step / 1000}' SECOND",
    )
    windows = {
        f"TUMBLE({of}, {long})": replace(MOMENTS, bounds=_sliding(size, size, 0)),
        f"HOP({of}, {short}, {long})": replace(MOMENTS, bounds=_sliding(size, step, 0)),
        f"CUMULATE({of}, {short}, {long})": replace(MOMENTS, bounds=_cumulative(size, step)),
        f"SESSION({of}, {short})": replace(MOMENTS, bounds=None, gap=step),
    }
    return random.choice(list(windows.items()))


def random_keys(random: Random, kind: str) -> tuple[str, ...]:
    """By what to bring rows together."""
    return random.choice([keys for keys in KEYS if keys != ("x",) or can_be_key(kind)])


def by_key(rows: Rows, keys: Sequence[str]) -> dict[tuple[Any, ...], Rows]:
    """The rows of each key."""
    groups: dict[tuple[Any, ...], Rows] = {}
    for row in rows:
        groups.setdefault(tuple(row[key] for key in keys), []).append(row)
    return groups


# Aggregates


def _total(values: Values) -> Any:
    return sum(known(values)) if known(values) else None


def _mean(values: Values) -> Any:
    return sum(known(values)) / len(known(values)) if known(values) else None


def _spread(values: Values) -> Any:
    return statistics.stdev(known(values)) if len(known(values)) > 1 else None


def _sorts(values: Values) -> int:
    """How many different values there are; of floats, both zeros are one."""
    return len({repr(value + 0.0 if isinstance(value, float) else value) for value in known(values)})


AGGREGATES: Final[Mapping[str, tuple[Callable[[], Any], str, Callable[[Values], Any]]]] = {
    "n": (lambda: ps.count(), "j", len),
    "values": (lambda: ps.count("v"), "v", lambda values: len(known(values))),
    "total": (lambda: ps.sum("v"), "v", _total),
    "floats": (lambda: ps.sum("f"), "f", _total),
    "least": (lambda: ps.min("f"), "f", lambda values: min(known_numbers(values), default=None)),
    "most": (lambda: ps.max("x"), "x", largest),
    "low": (lambda: ps.min("x"), "x", lambda values: min(known_numbers(values), default=None)),
    "amount": (lambda: ps.sum("x"), "x", _total),
    "sorts": (lambda: ps.count_distinct("x"), "x", _sorts),
    "top": (lambda: ps.max("v"), "v", lambda values: max(known(values), default=None)),
    "mean": (lambda: ps.mean("v"), "v", _mean),
    "spread": (lambda: ps.stddev("v"), "v", _spread),
    "kinds": (lambda: ps.count_distinct("v"), "v", lambda values: len(set(known(values)))),
    "names": (lambda: ps.count_distinct("k"), "k", lambda values: len(set(values))),
    "list": (lambda: ps.collect_list("x"), "x", known),
    "since": (lambda: ps.first("t"), "t", min),
    "until": (lambda: ps.last("t"), "t", max),
}
"""Aggregates by the names of their results: how to make each, the column, and the model."""
NORMAL: Final = ("n", "total", "least", "most")
"""Those that columns of a stream are made of."""


def aggregates(names: Sequence[str], kind: str) -> dict[str, Any]:
    """The aggregates of these results, for a program whose `x` is of that type."""
    made = {name: AGGREGATES[name][0]() for name in names}
    return made if "most" not in made or has_extremes(kind) else {**made, "most": ps.last("x")}


def some_aggregates(random: Random, kind: str, is_timed: bool = True) -> Sequence[str]:
    """The names of some results that there can be of rows whose `x` is of that type."""
    not_of = {"amount"} if not kind.startswith("decimal") else set()
    if not has_extremes(kind):
        not_of |= {"low"} if is_timed else {"low", "most"}
    if is_nested(kind):
        not_of |= {"sorts"}
    if not is_timed:
        not_of |= {"since", "until"}
    return sorted(random.sample(sorted(AGGREGATES.keys() - not_of), random.randint(1, 8)))


def aggregated(names: Sequence[str], rows: Rows) -> Row:
    """What they give for the rows of a group."""
    return {name: AGGREGATES[name][2]([row[AGGREGATES[name][1]] for row in rows]) for name in names}


def group_rows(rows: Rows, keys: Sequence[str], names: Sequence[str], **more: Callable[[Values], Any]) -> Rows:
    """One row a key: the aggregates of these names, and others of columns by the same name."""
    return [
        {
            **dict(zip(keys, group, strict=True)),
            **aggregated(names, members),
            **{name: made([row[name] for row in members]) for name, made in more.items()},
        }
        for group, members in by_key(rows, keys).items()
    ]


def window_rows(windows: Windows, keys: Sequence[str], names: Sequence[str], rows: Rows) -> Rows:
    """What windows with aggregates give."""
    return [
        {**dict(zip(keys, group, strict=True)), "window_start": start, "window_end": end, **aggregated(names, members)}
        for group, of_key in by_key(rows, keys).items()
        for start, end, members in windows.divide(of_key)
    ]


def windowed(stream: DataStream, keys: Sequence[str], windows: Windows) -> WindowedStream:
    """The stream in windows, by key or (without keys) all in one."""
    made = stream.key_by(*keys).window(windows.make()) if keys else stream.window_all(windows.make())
    match windows.more:
        case "patient ":
            return made.allowed_lateness("1s")
        case "purging ":
            # As windows fire anyhow, but not on whole batches.
            return made.trigger(ps.PurgingTrigger(ps.EventTimeTrigger()))
        case _:
            return made


def normal_row(row: Row) -> Row:
    """A result of a window as a row of a stream."""
    return {
        "k": row.get("k", "w"),
        "j": row["n"],
        "v": row["total"],
        "f": row["least"],
        "x": row["most"],
        "t": milliseconds(row["window_end"]) - 1,
    }


def _normal(results: DataStream, keys: Sequence[str], kind: str, by_expression: bool) -> DataStream:
    if not by_expression:
        return results.map(normal_row, returns=schema_of(kind))
    return results.select(
        k=col("k") if "k" in keys else ps.lit("w"),
        j="n",
        v="total",
        f="least",
        x="most",
        t=col("window_end").dt.timestamp("ms") - 1,
    )


def window_aggregate(random: Random, kind: str) -> Verb:
    """Windows with aggregates."""
    windows, keys = random_windows(random), random.choice([(), random_keys(random, kind), random_keys(random, kind)])
    by_expression = random.random() < 0.5 and keeps_type(kind)

    def build(stream: DataStream) -> Sequence[DataStream]:
        return [
            _normal(windowed(stream, keys, windows).aggregate(**aggregates(NORMAL, kind)), keys, kind, by_expression)
        ]

    return Verb(
        f"{windows.text} by {keys}, {'select' if by_expression else 'map'}",
        build,
        lambda rows: [[normal_row(row) for row in window_rows(windows, keys, NORMAL, rows)]],
    )


def windows_of_windows(random: Random, kind: str) -> Verb:
    """Windows over the results of windows, with nothing between them."""
    first, second, keys = random_windows(random), random_windows(random), random_keys(random, kind)
    later = {"total": ps.sum, "least": ps.min, "most": ps.max if has_extremes(kind) else ps.last, "n": ps.sum}

    def build(stream: DataStream) -> Sequence[DataStream]:
        parts = windowed(stream, keys, first).aggregate(**aggregates(NORMAL, kind))
        if "dynamic" not in second.text:
            parts = parts.select(*keys, **{name: name for name in NORMAL})
        whole = windowed(parts, keys, second).aggregate(**{name: make(name) for name, make in later.items()})
        return [_normal(whole, keys, kind, by_expression=False)]

    def model(rows: Rows) -> Sequence[Rows]:
        parts = [{**row, "t": row["window_end"] - 1} for row in window_rows(first, keys, NORMAL, rows)]
        return [
            [
                normal_row(
                    {
                        **dict(zip(keys, group, strict=True)),
                        "window_end": end,
                        "n": sum(part["n"] for part in members),
                        "total": _total([part["total"] for part in members]),
                        "least": min(known_numbers([part["least"] for part in members]), default=None),
                        "most": largest([part["most"] for part in members]),
                    }
                )
                for group, of_key in by_key(parts, keys).items()
                for _, end, members in second.divide(of_key)
            ]
        ]

    return Verb(f"{first.text}, then {second.text} by {keys}", build, model)


LATE: Final = ps.OutputTag("late")
"""Nothing comes there, as no row is late."""


class Report(ps.ProcessWindowFunction):
    """One row a window, of all its rows."""

    def process(self, key: Any, context: Any, elements: list[Row]) -> Any:
        yield {**summed(elements), "t": context.window.end - 1}


def summed(rows: Rows) -> Row:
    """All columns of a group but its time."""
    return {
        "k": min(row["k"] for row in rows),
        "j": sum(row["j"] for row in rows),
        "v": _total([row["v"] for row in rows]),
        "f": min(known_numbers([row["f"] for row in rows]), default=None),
        "x": largest([row["x"] for row in rows]),
    }


def added(one: Row, other: Row) -> Row:
    """Two rows as one, whichever comes first."""
    return {**summed([one, other]), "t": max(one["t"], other["t"])}


def as_one(rows: Rows) -> Row:
    """Rows two by two as one; of a single row that row as it is."""
    first, *others = rows
    for row in others:
        first = added(first, row)
    return first


def window_function(random: Random, kind: str) -> Verb:
    """A function over all rows of each window, or a reduction."""
    windows, keys = random_windows(random), random_keys(random, kind)
    span, with_late = random.choice([None, None, 60, 300]), random.random() < 0.3

    def build(stream: DataStream) -> Sequence[DataStream]:
        made = windowed(stream, keys, windows)
        some = made if span is None else made.evictor(ps.TimeEvictor(f"{span}ms"))
        if not with_late:
            return [some.process(Report(), returns=schema_of(kind))]
        reports = some.side_output_late_data(LATE).process(Report(), returns=schema_of(kind))
        return [reports, reports.get_side_output(LATE)]

    def model(rows: Rows) -> Sequence[Rows]:
        divided = (window for of_key in by_key(rows, keys).values() for window in windows.divide(of_key))
        reports = [{**summed(_latest(members, span)), "t": end - 1} for _, end, members in divided]
        return [reports, []] if with_late else [reports]

    evicted = "" if span is None else f"the last {span}ms of "
    late = ", late rows to a side output" if with_late else ""
    return Verb(f"function over {evicted}{windows.text} by {keys}{late}", build, model)


def _latest(rows: Rows, span: int | None) -> Rows:
    """The rows of the last so many milliseconds of those."""
    latest = max(row["t"] for row in rows)
    return [row for row in rows if span is None or row["t"] > latest - span]


class Folded(ps.AggregateFunction):
    """All rows of a window, kept as its accumulator."""

    def create_accumulator(self) -> Rows:
        return []

    def add(self, value: Row, accumulator: Rows) -> Rows:
        return [*accumulator, value]

    def get_result(self, accumulator: Rows) -> Row:
        return summed(accumulator)

    def merge(self, one: Rows, other: Rows) -> Rows:
        return [*one, *other]


class Ended(ps.ProcessWindowFunction):
    """The one row that a window has been made into, at the window's end."""

    def process(self, key: Any, context: Any, elements: list[Row]) -> Any:
        (row,) = elements
        yield {**row, "t": context.window.end - 1}


class Named(ps.ProcessWindowFunction):
    """The results of named aggregates, at the window's end."""

    def process(self, key: Any, context: Any, elements: list[Row]) -> Any:
        (row,) = elements
        yield {**normal_row({**row, "window_end": context.window.end}), "k": "w"}


def _named(rows: Rows) -> Row:
    return {**normal_row({**aggregated(NORMAL, rows), "window_end": 0}), "k": "w"}


def window_fold(random: Random, kind: str) -> Verb:
    """Windows whose rows are made one as they come, in one of the ways that there are, and then a function."""
    windows, keys = random_windows(random), random_keys(random, kind)
    verb, schema = random.choice(["aggregate", "reduce", "named"]), schema_of(kind)

    def build(stream: DataStream) -> Sequence[DataStream]:
        made = windowed(stream, keys, windows)
        if verb == "reduce":
            return [made.reduce(added, process=Ended(), returns=schema)]
        if verb == "named":
            return [made.aggregate(**aggregates(NORMAL, kind), process=Named(), returns=schema)]
        kept = pa.list_(pa.struct(list(parse_schema(schema, "accumulator"))))
        return [made.aggregate(Folded(), accumulator=kept, process=Ended(), returns=schema)]

    def model(rows: Rows) -> Sequence[Rows]:
        divided = (window for of_key in by_key(rows, keys).values() for window in windows.divide(of_key))
        made = {"aggregate": summed, "reduce": as_one, "named": _named}[verb]
        return [[{**made(members), "t": end - 1} for _, end, members in divided]]

    return Verb(f"own {verb} over {windows.text} by {keys}", build, model)


def global_stream(keyed: KeyedStream, names: Sequence[str], kind: str) -> DataStream:
    """Aggregates over all rows of each key, when there are no more."""
    return keyed.window(ps.global_windows()).trigger(ps.EndOfTimeTrigger()).aggregate(**aggregates(names, kind))
