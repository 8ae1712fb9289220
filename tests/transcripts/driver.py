"""Runs transcripts: a window operator driven step by step, against what Flink's documented rules say it emits.

A transcript is text, one step a line; numbers are milliseconds of event time or of the clock:

    + a@5 1, b@7 2    rows: key, event time, value
    w 9               a watermark (`w max` is the end of time)
    p 50              the clock comes to 50
    s                 snapshot, and go on from it in a new operator
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
from penstock.engine.clock import ManualClock
from penstock.engine.config import JobConfig
from penstock.engine.elements import MAX_TIMESTAMP, Batch, Watermark
from penstock.engine.metrics import OperatorMetrics
from penstock.engine.operators.base import Operator, OperatorContext, OperatorFactory
from penstock.engine.operators.windows.session_aggregate import SessionAggregateFactory
from penstock.engine.operators.windows.window_aggregate import WindowAggregateFactory
from penstock.engine.state.snapshot import share
from tests.engine.helpers import RecordingCollector

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


def factory_of(transcript: Transcript, function: Function) -> OperatorFactory:
    """What creates the operator that the API chose for the windows."""
    env = StreamEnvironment(runtime="local")
    rows = env.from_collection([], schema=SCHEMA).assign_timestamps("at", WatermarkStrategy.for_monotonous_timestamps())
    stream = windowed(transcript, function, rows)
    role = stream._program.graph[stream._own_node("test")].role
    assert callable(role)
    return role


def is_vectorised(factory: OperatorFactory) -> bool:
    """Whether the API chose the path that works on whole batches."""
    return isinstance(factory, WindowAggregateFactory | SessionAggregateFactory)


class Driven:
    """An operator under way.

    Args:
        factory: creates it, now and at each restore.
        backend: where it keeps its state.
    """

    def __init__(self, factory: OperatorFactory, backend: str) -> None:
        self._factory = factory
        self._config = JobConfig(state_backend=backend)
        self._clock = ManualClock()
        self._late = RecordingCollector()
        self._out = RecordingCollector()
        self._operator = self._create()

    def _create(self) -> Operator:
        context = OperatorContext(
            "windows", 0, 1, self._clock, OperatorMetrics(), self._config, {LATE.name: self._late}
        )
        operator = self._factory()
        operator.open(context)
        return operator

    def add(self, rows: list[tuple[str, int, float]]) -> None:
        columns = [
            pa.array(list(values), kind) for values, kind in zip(zip(*rows, strict=True), SCHEMA.types, strict=True)
        ]
        batch = pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
        self._operator.process_batch(Batch(batch, batch.column("at")), 0, self._out)

    def advance(self, watermark: int) -> None:
        self._operator.on_watermark(Watermark(watermark), self._out)

    def come_to(self, now_ms: int) -> None:
        """Let time pass, and the operator act at each time that it asked for."""
        while (due := self._operator.next_processing_time) is not None and due <= now_ms:
            self._clock.wait_until(max(due, self._clock.now_ms()) / 1000)
            self._operator.on_processing_time(self._clock.now_ms(), self._out)
        self._clock.wait_until(now_ms / 1000)

    def restore(self) -> None:
        """Go on in a new operator, from a snapshot that was shared out to two subtasks and back."""
        snapshot = self._operator.snapshot()
        self._operator.close()
        halves = [share([snapshot], subtask, 2, self._config.max_parallelism) for subtask in range(2)]
        self._operator = self._create()
        self._operator.restore(share(halves, 0, 1, self._config.max_parallelism))

    def take(self) -> tuple[list[Fired], list[tuple[str, int, float]]]:
        """What was emitted, and what was late, since the last call."""
        fired = [as_fired(row) for row in self._out.rows]
        late = [(row["k"], row["at"], row["v"]) for row in self._late.rows]
        self._out.elements.clear()
        self._late.elements.clear()
        return fired, late

    def close(self) -> None:
        self._operator.close()


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
    factory = factory_of(transcript, function)
    driven = Driven(factory, backend)
    # Whole batches have one update for each window: the last one.
    whole = last_of_each if is_vectorised(factory) and batch_rows > 1 else list[Fired]
    for number, step in enumerate(parse(transcript.steps), start=1):
        match step.verb:
            case "+":
                rows = rows_of(step.text)
                for begin in range(0, len(rows), batch_rows):
                    driven.add(rows[begin : begin + batch_rows])
            case "w":
                driven.advance(MAX_TIMESTAMP if step.text == "max" else int(step.text))
            case "p":
                driven.come_to(int(step.text))
        if restores == "always" or step.verb == "s":
            driven.restore()
        fired, late = driven.take()
        where = f"step {number}: {step.verb} {step.text}"
        assert sorted(whole(fired), key=str) == sorted(whole(step.fired), key=str), where
        assert sorted(late) == sorted(step.late), where
    driven.close()
