"""Runs transcripts: a window operator driven step by step, against what Flink's documented rules say it emits.

A transcript is text, one step a line; numbers are milliseconds of event time or of the clock:

    + a@5 1, b@7 2    rows: key, event time, value
    w 9               a watermark (`w max` is the end of time)
    p 50              the clock comes to 50
    s                 snapshot, and resume from it in a new operator
    = a 0-10 3        emitted by the step above: key, window, sum of the values (`*` where the window is the global one)
    ~ a@5 1           given to the late output by the step above

A step with no `=` below it emits nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import pyarrow as pa

import penstock as ps
from penstock import DataStream, OutputTag, ProcessWindowFunction, StreamEnvironment, WatermarkStrategy, WindowedStream
from penstock.engine.elements import MAX_TIMESTAMP
from penstock.engine.operators.spec import OperatorSpec
from penstock.engine.operators.windows.session_aggregate import SessionAggregateSpec
from penstock.engine.operators.windows.window_aggregate import WindowAggregateSpec
from tests.engine.window_driver import OperatorDriver, spec_behind

LATE = OutputTag("late")
Function = Literal["aggregate", "process", "reduce"]
Fired = tuple[str, int | None, int | None, float]
"""Key, window start and end (None in the global window), sum."""
_ROW = re.compile(r"(\w+)@(-?\d+) (-?[\d.]+)")
_FIRED = re.compile(r"(\w+) (?:(-?\d+)-(-?\d+)|\*) (-?[\d.]+)")


@dataclass(frozen=True)
class Transcript:
    """One story.

    Args:
        name: what it shows.
        windows: divides the keyed stream into windows; says trigger, evictor and lateness.
        steps: the text.
    """

    name: str
    windows: Callable[[Any], WindowedStream]
    steps: str
    keyed: bool = field(default=True)

    def __repr__(self) -> str:
        return self.name


@dataclass
class Step:
    """One line, with what must come of it."""

    verb: str
    text: str
    fired: list[Fired] = field(default_factory=list)
    late: list[tuple[str, int, float]] = field(default_factory=list)


def parse(text: str) -> list[Step]:
    """The steps of a transcript."""
    steps: list[Step] = []
    for line in text.strip().splitlines():
        verb, _, rest = line.split("#")[0].strip().partition(" ")
        match verb:
            case "=":
                steps[-1].fired.extend(_fired(rest))
            case "~":
                steps[-1].late.extend(rows_of(rest))
            case "+" | "w" | "p" | "s":
                steps.append(Step(verb, rest.strip()))
            case "":
                continue
            case _:
                raise AssertionError(f"no step begins with {verb!r}: {line}")
    return steps


def rows_of(text: str) -> list[tuple[str, int, float]]:
    found = [_ROW.fullmatch(part.strip()) for part in text.split(",")]
    assert all(found), text
    return [(row[1], int(row[2]), float(row[3])) for row in found if row]


def _fired(text: str) -> list[Fired]:
    found = [_FIRED.fullmatch(part.strip()) for part in text.split(",")]
    assert all(found), text
    return [
        (one[1], None if one[2] is None else int(one[2]), None if one[3] is None else int(one[3]), float(one[4]))
        for one in found
        if one
    ]


class _Sum(ProcessWindowFunction):
    """Sums all elements of a window."""

    def process(self, key: Any, context: Any, elements: Any) -> Iterator[dict[str, Any]]:
        yield {"k": key or "all", **_bounds(context.window), "v": float(sum(row["v"] for row in elements))}


class _Name(ProcessWindowFunction):
    """Adds key and window to the reduced row."""

    def process(self, key: Any, context: Any, elements: Any) -> Iterator[dict[str, Any]]:
        (row,) = elements
        yield {"k": key or "all", **_bounds(context.window), "v": row["v"]}


def _bounds(window: Any) -> dict[str, Any]:
    is_global = window.end == MAX_TIMESTAMP
    return {"start": None if is_global else window.start, "end": None if is_global else window.end}


def _add(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    return {**one, "v": one["v"] + other["v"]}


_RETURNS = {"k": "string", "start": "int64", "end": "int64", "v": "float64"}
SCHEMA = pa.schema({"k": "string", "at": "int64", "v": "float64"})


def windowed(transcript: Transcript, function: Function, stream: DataStream) -> DataStream:
    """The transcript's windows over a timed stream of rows (k, at, v), with a sum computed in one of three ways."""
    windows = transcript.windows(stream.key_by("k") if transcript.keyed else stream)
    if "~" in transcript.steps:
        windows = windows.side_output_late_data(LATE)
    match function:
        case "aggregate":
            return windows.aggregate(v=ps.sum("v"))
        case "process":
            return windows.process(_Sum, returns=_RETURNS)
        case "reduce":
            return windows.reduce(_add, process=_Name, returns=_RETURNS)


def spec_of(transcript: Transcript, function: Function) -> OperatorSpec:
    """What creates the operator that the API chose for the windows."""
    env = StreamEnvironment(runtime="local")
    rows = env.from_collection([], schema=SCHEMA).assign_timestamps("at", WatermarkStrategy.for_monotonous_timestamps())
    return spec_behind(windowed(transcript, function, rows))


def is_vectorised(spec: OperatorSpec) -> bool:
    """Whether the API chose the path that works on whole batches."""
    return isinstance(spec, WindowAggregateSpec | SessionAggregateSpec)


def as_fired(row: dict[str, Any]) -> Fired:
    if "window_start" in row:
        start, end = (round(row[name].timestamp() * 1000) for name in ("window_start", "window_end"))
    else:
        start, end = row.get("start"), row.get("end")
    return row.get("k", "all"), start, end, row["v"]


def last_of_each(fired: list[Fired]) -> list[Fired]:
    """The last result of each key and window."""
    return list({(key, start, end): (key, start, end, value) for key, start, end, value in fired}.values())


def run(transcript: Transcript, function: Function, backend: str, batch_rows: int, restores: str) -> None:
    """Run a transcript, and compare after each step.

    Args:
        function: how the sum is computed.
        backend: where the state lives.
        batch_rows: 1 hands over row by row, more a line's rows at once.
        restores: "marked" restores where the transcript says so, "always" after every step.
    """
    spec = spec_of(transcript, function)
    driver = OperatorDriver(spec, backend=backend, sides=[LATE.name])
    # Whole batches have one update for each window: the last one.
    whole = last_of_each if is_vectorised(spec) and batch_rows > 1 else list[Fired]
    for number, step in enumerate(parse(transcript.steps), start=1):
        match step.verb:
            case "+":
                rows = rows_of(step.text)
                for begin in range(0, len(rows), batch_rows):
                    driver.add(*rows[begin : begin + batch_rows], schema=SCHEMA)
            case "w":
                driver.advance(MAX_TIMESTAMP if step.text == "max" else int(step.text))
            case "p":
                driver.come_to(int(step.text))
        if restores == "always" or step.verb == "s":
            driver.restore()
        fired = [as_fired(row) for row in driver.take()]
        late = [(row["k"], row["at"], row["v"]) for row in driver.take_side(LATE.name)]
        where = f"step {number}: {step.verb} {step.text}"
        assert sorted(whole(fired), key=str) == sorted(whole(step.fired), key=str), where
        assert sorted(late) == sorted(step.late), where
    driver.operator.close()
