"""Runs the operators of a random program over its steps, and says what came between two watermarks."""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import pyarrow as pa

from penstock import DataStream
from penstock.engine.config import JobConfig
from penstock.engine.elements import Batch
from penstock.engine.exchange.partitioners import Hash, SplitterContext
from penstock.engine.rows import batch_rows
from penstock.testing.harness import Harness, Input
from tests.parity.rows import Row, Rows, schema_of
from tests.property.cuts.steps import Mark, Push, Resume, Step, Tick

Build: TypeAlias = Callable[..., DataStream]
MAX_PARALLELISM: Final = 8
_NEGATIVE_ZERO: Final = re.compile(r"=-0(?=[, ]|$)")


@dataclass(slots=True)
class Given:
    """What came between two watermarks, ticks or ends.

    Args:
        rows: rows and their event times.
        sides: rows of side outputs, by tag.
    """

    rows: list[tuple[Row, int | None]] = field(default_factory=list)
    sides: dict[str, Rows] = field(default_factory=dict)


Fewer: TypeAlias = Callable[[Sequence[Given]], Sequence[Given]]


def all_rows(given: Sequence[Given]) -> Sequence[Given]:
    """All rows count."""
    return given


@dataclass(frozen=True, slots=True)
class Operators:
    """What a random program is of.

    Args:
        text: for people.
        build: of streams, one for each input.
        inputs: how many.
        keys: by which the rows of all inputs go to subtasks; none: there is one subtask.
        everywhere: the input whose rows go to all subtasks.
        sides: the tags that it emits to.
        fewer: what counts of what comes, where larger batches give fewer rows.
        is_normal: whether its rows have the columns of the inputs, so that more can follow.
        is_in_order: whether batches do not change the order of rows between two watermarks, either.
        has_lists_in_order: whether batches do not change the order within lists.
        can_resume: whether a savepoint changes nothing: not even the order of rows by which the next operator goes.
        twin: another way to the same results, of streams in batches of one row.
        model: the same in plain Python, of steps.
    """

    text: str
    build: Build
    inputs: int = 1
    keys: tuple[str, ...] = ()
    everywhere: int | None = None
    sides: tuple[str, ...] = ()
    fewer: Fewer = all_rows
    is_normal: bool = False
    is_in_order: bool = False
    has_lists_in_order: bool = True
    can_resume: bool = True
    twin: Build | None = None
    model: Callable[[Sequence[Step]], list[Given]] | None = None


class _Subtasks:
    """All subtasks of the operators."""

    def __init__(self, operators: Operators, build: Build, kind: str, backend: str) -> None:
        self._operators, self._build = operators, build
        self._input = Input(schema_of(kind), event_time="t")
        self._config = JobConfig(max_parallelism=MAX_PARALLELISM, state_backend=backend)
        self._marks: dict[int, int] = {}
        self._now = 0
        self._harnesses = [self._harness(0, 1, [])]

    def _harness(self, subtask: int, parallelism: int, restore: Sequence[Any]) -> Harness:
        more = {"restore": restore} if restore else {}
        return Harness(
            self._build,
            *[self._input] * self._operators.inputs,
            subtask=subtask,
            parallelism=parallelism,
            start_ms=self._now,
            config=self._config,
            **more,
        )

    def take(self, step: Step) -> None:
        match step:
            case Push(to, rows):
                for harness, some in self._shares(to, rows):
                    harness.push_batch(some, to=to)
            case Mark(to, time):
                self._marks |= {one: time for one in range(self._operators.inputs) if to in (None, one)}
                for harness in self._harnesses:
                    harness.watermark(time, to=to)
            case Tick(ms):
                self._now += ms
                for harness in self._harnesses:
                    harness.advance(f"{ms}ms")
            case Resume(parallelism):
                self._resume(parallelism)

    def _shares(self, to: int, rows: Rows) -> Sequence[tuple[Harness, Any]]:
        if len(self._harnesses) == 1 or to == self._operators.everywhere:
            return [(harness, rows) for harness in self._harnesses]
        data = pa.RecordBatch.from_pylist(rows, schema=self._input.schema)
        context = SplitterContext("test", len(self._harnesses), 0, MAX_PARALLELISM)
        parts = Hash(self._operators.keys).splitter(context)(Batch(data, data.column("t")))
        return [(self._harnesses[subtask], part.data) for subtask, part in parts]

    def _resume(self, parallelism: int) -> None:
        snapshots = [harness.snapshot() for harness in self._harnesses]
        self.close()
        self._harnesses = [self._harness(subtask, parallelism, snapshots) for subtask in range(parallelism)]
        for to, time in self._marks.items():
            for harness in self._harnesses:
                harness.watermark(time, to=to)

    def finish(self) -> None:
        for harness in self._harnesses:
            harness.finish()

    def taken(self, given: Given) -> None:
        for harness in self._harnesses:
            for batch in harness.take_batches():
                times = [None] * batch.num_rows if batch.timestamps is None else batch.timestamps.to_pylist()
                given.rows += zip(batch_rows(batch.data), times, strict=True)
            for tag in self._operators.sides:
                given.sides.setdefault(tag, []).extend(harness.take_side(tag))

    def close(self) -> None:
        for harness in self._harnesses:
            harness.close()


def run(
    operators: Operators, steps: Sequence[Step], kind: str, *, build: Build | None = None, backend: str = "heap"
) -> list[Given]:
    """What comes between the watermarks and ticks of the steps, and in the end."""
    subtasks = _Subtasks(operators, build or operators.build, kind, backend)
    found = [Given()]
    try:
        for step in steps:
            if isinstance(step, Mark | Tick):
                found.append(Given())
            subtasks.take(step)
            subtasks.taken(found[-1])
        found.append(Given())
        subtasks.finish()
        subtasks.taken(found[-1])
    finally:
        subtasks.close()
    return found


def shown(
    operators: Operators, given: Sequence[Given], *, in_order: bool, loosely: bool
) -> list[tuple[list[str], ...]]:
    """What is compared: rows and their times as texts, in order or sorted, and those of side outputs.

    Args:
        operators: that have given it.
        given: what came.
        in_order: whether the order counts, too.
        loosely: without the order within lists and the sign of zeros, which go by the way in which they are computed.
    """
    text = _loose_text if loosely else row_text
    order: Callable[[list[str]], list[str]] = list if in_order else sorted
    return [
        (
            order([f"{text(row)} @ {time}" for row, time in one.rows]),
            *(order([text(row) for row in one.sides.get(tag, [])]) for tag in operators.sides),
        )
        for one in operators.fewer(given)
    ]


def row_text(row: Mapping[str, Any]) -> str:
    """A row as a text, the same for equal ones."""
    return ", ".join(f"{name}={_value(row[name])}" for name in sorted(row))


def _loose_text(row: Mapping[str, Any]) -> str:
    sorted_lists = {name: sorted(map(_value, one)) if isinstance(one, list) else one for name, one in row.items()}
    return _NEGATIVE_ZERO.sub("=0", row_text(sorted_lists))


def _value(value: Any) -> str:
    match value:
        case float():
            return "nan" if math.isnan(value) else f"{value:.9g}"
        case list() | tuple():
            return f"[{', '.join(map(_value, value))}]"
        case dt.datetime() if value.tzinfo is not None:
            return f"{value.astimezone(dt.timezone.utc):%Y-%m-%d %H:%M:%S.%f}Z"
        case dict():
            return f"{{{', '.join(f'{name}: {_value(one)}' for name, one in value.items())}}}"
        case _:
            return repr(value)
