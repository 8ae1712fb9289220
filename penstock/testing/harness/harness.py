"""The harness: what a test of a function or an operator pushes, moves and reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import pyarrow as pa

from penstock.connectors.collection import CollectionSource
from penstock.engine.api.program import Program
from penstock.engine.api.streams import DataStream
from penstock.engine.clock import ManualClock
from penstock.engine.config import JobConfig
from penstock.engine.durations import Duration, parse_duration
from penstock.engine.elements import (
    MAX_TIMESTAMP,
    Batch,
    Control,
    EndOfInput,
    Watermark,
    WatermarkStatus,
    table_to_record_batch,
)
from penstock.engine.errors import ConfigurationError, GraphError, RecordError, StateError, nearest
from penstock.engine.functions import OutputTag
from penstock.engine.graph.logical import live_part
from penstock.engine.operators.timestamp_assigners import event_times
from penstock.engine.rows import RowConverter, batch_rows
from penstock.engine.schemas import SchemaLike, parse_schema
from penstock.engine.state.snapshot import OperatorSnapshot
from penstock.testing.harness.states import (
    HarnessSnapshot,
    Timer,
    captured,
    check_restored,
    shared,
    state_of,
    timers_of,
)
from penstock.testing.harness.wiring import Kept, Place, Wiring

_NO_STATE = HarnessSnapshot({})


@dataclass(frozen=True, slots=True)
class Input:
    """A stream that a test pushes rows into.

    Args:
        columns: names and types, as `returns=` takes them.
        event_time: the column (int64 ms or a timestamp) with each row's event time; None: the rows have none.
    """

    columns: SchemaLike
    event_time: str | None = None
    schema: pa.Schema = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        schema = parse_schema(self.columns, "Input")
        if self.event_time is not None and self.event_time not in schema.names:
            raise ConfigurationError(f"Input: event_time names no column of ({', '.join(schema.names)})")
        object.__setattr__(self, "schema", schema)


class Harness:
    """Runs the operators of a program in one subtask, by hand.

    Args:
        build: writes the program: takes a stream for each input, and returns the stream whose rows are the output.
        inputs: what is pushed into; columns alone stand for an `Input` without event time.
        restore: the snapshot to resume from; those of all old subtasks, in their order, where the parallelism changes.
        subtask, parallelism, max_parallelism: which subtask this is: rows of keys of another are refused.
        start_ms: the clock, int64 ms since the epoch.
        config: the other settings of the job.

    Raises:
        GraphError: the program cannot be built.
        RestoreError: a snapshot holds state of an operator that the program does not have.
        UserCodeError: a function's `open` raised.

    Example:
        >>> import penstock as ps
        >>> clicks = Input({"user": "string", "at": "int64"}, event_time="at")
        >>> def per_minute(stream):
        ...     return stream.key_by("user").window(ps.tumbling("1min")).aggregate(n=ps.count())
        >>> with Harness(per_minute, clicks) as harness:
        ...     harness.push({"user": "ann", "at": 5}, {"user": "ann", "at": 20_000})
        ...     harness.watermark(60_000)
        ...     print(*(row["n"] for row in harness.take()))
        2
    """

    def __init__(
        self,
        build: Callable[..., DataStream],
        *inputs: Input | SchemaLike,
        restore: HarnessSnapshot | Sequence[HarnessSnapshot] = _NO_STATE,
        subtask: int = 0,
        parallelism: int = 1,
        max_parallelism: int = 128,
        start_ms: int = 0,
        config: JobConfig | None = None,
    ) -> None:
        self._inputs = [one if isinstance(one, Input) else Input(one) for one in inputs]
        if not self._inputs:
            raise ConfigurationError("Harness: give the columns of at least one input")
        self._clock = ManualClock(start_ms)
        self._captures = 0
        self._finished = False
        settings = config or JobConfig(max_parallelism=max_parallelism)
        place = Place(subtask, parallelism, self._clock, settings)
        self._wiring = Wiring(live_part(_program(build, self._inputs).graph.build()), place)
        if len(self._wiring.inputs) != len(self._inputs):
            raise GraphError("Harness: the program does not use all of its inputs; leave those out that it does not")
        snapshots = [restore] if isinstance(restore, HarnessSnapshot) else list(restore)
        check_restored(snapshots, list(self._wiring.links))

        def share(name: str) -> OperatorSnapshot | None:
            return shared(snapshots, name, subtask, parallelism, settings.max_parallelism)

        self._wiring.open(share)

    def __enter__(self) -> Harness:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # What comes in

    def push(self, *rows: Mapping[str, Any], to: int = 0) -> None:
        """Push rows, one after another: each is a batch of its own.

        Args:
            rows: dicts; a column that a row lacks is an error, a null is None.
            to: number of the input, from 0.

        Raises:
            RecordError: a row does not have the columns of the input.
            UserCodeError: the function raised.
        """
        for row in rows:
            self._send(self._converted([row], to), to)

    def push_batch(self, rows: pa.RecordBatch | pa.Table | Sequence[Mapping[str, Any]], to: int = 0) -> None:
        """Push rows as one batch; arguments and errors as for `push`."""
        schema = self._input(to).schema
        if isinstance(rows, pa.Table):
            rows = table_to_record_batch(rows.combine_chunks())
        if not isinstance(rows, pa.RecordBatch):
            rows = self._converted(rows, to)
        _check_columns(rows.schema.names, schema.names, to)
        self._send(rows.select(schema.names).cast(schema), to)

    def _converted(self, rows: Sequence[Mapping[str, Any]], to: int) -> pa.RecordBatch:
        schema = self._input(to).schema
        for row in rows:
            if isinstance(row, Mapping):
                _check_columns(list(row), schema.names, to)
        return RowConverter(schema, f"input {to}").convert(rows)

    def _send(self, data: pa.RecordBatch, to: int) -> None:
        name = self._input(to).event_time
        times = None if name is None else _milliseconds(data, name)
        if self._finished:
            raise StateError("Harness: the inputs have ended by finish(); push the rows before")
        self._wiring.inputs[to].collect(Batch(data, times))
        self._act()

    def watermark(self, timestamp: int, to: int | None = None) -> None:
        """Move event time to `timestamp` (int64 ms): on one input, or on all."""
        self._tell(Watermark(timestamp), to)

    def idle(self, is_idle: bool, to: int) -> None:
        """Say whether an input takes part in event time."""
        self._tell(WatermarkStatus(is_idle), to)

    def finish(self) -> None:
        """End all inputs, as bounded ones end: event time is complete, then the operators finish."""
        self._finished = True
        self._tell(Watermark(MAX_TIMESTAMP), None)
        self._tell(EndOfInput(), None)

    def _tell(self, element: Control, to: int | None) -> None:
        for number, collector in enumerate(self._wiring.inputs):
            if to in (None, number):
                collector.broadcast(element)
        self._act()

    @property
    def now_ms(self) -> int:
        """The clock, int64 ms since the epoch."""
        return self._clock.now_ms()

    def advance(self, time: Duration) -> None:
        """Move the clock, and let everything happen on the way whose time comes, in order: `"10s"`, a `timedelta`."""
        end = self.now_ms + parse_duration(time, "advance")
        while (first := min(self._wiring.processing_times(), default=end + 1)) <= end:
            self._clock.advance(max(0, first - self.now_ms) / 1000)
            self._act()
        self._clock.advance((end - self.now_ms) / 1000)

    def _act(self) -> None:
        self._wiring.on_processing_time(self.now_ms)

    # What came of it

    def take(self) -> list[dict[str, Any]]:
        """The rows that came out since the last call."""
        return _taken(self._wiring.output)

    def take_batches(self) -> list[Batch]:
        """The same as batches, with event times and changelog kinds; takes them, as `take` does."""
        batches, self._wiring.output.batches = self._wiring.output.batches, []
        return batches

    def take_side(self, tag: OutputTag | str) -> list[dict[str, Any]]:
        """The rows that came to a side output since the last call, whether the program reads it or not."""
        return _taken(self._wiring.sides[tag.name if isinstance(tag, OutputTag) else tag])

    def timers(self) -> list[Timer]:
        """The timers that are registered, by time."""
        return timers_of(self.snapshot().operators)

    def state(self, name: str, operator: str | None = None) -> Any:
        """What a state holds, as a checkpoint would hold it.

        Args:
            name: of the descriptor.
            operator: uid of the operator, where several have a state of that name.

        Returns:
            keyed values and lists by key, maps as a dict a key (keys of several columns are tuples); a list or a dict
            of the subtask; rows for anything else, such as windows.

        Raises:
            StateError: no such state holds anything.
        """
        operators = self.snapshot().operators
        if operator is not None:
            operators = {uid: snapshot for uid, snapshot in operators.items() if uid == operator}
        return state_of(operators, name)

    def snapshot(self) -> HarnessSnapshot:
        """The state of all operators, as of a savepoint taken now; they continue unchanged."""
        self._captures += 1
        links = self._wiring.links.items()
        return HarnessSnapshot({name: captured(link.operator, self._captures) for name, link in links})

    def close(self) -> None:
        """Close the operators. A `with` block does it."""
        self._wiring.close()

    def _input(self, number: int) -> Input:
        if not 0 <= number < len(self._inputs):
            raise ConfigurationError(f"Harness: there is no input {number}; there are {len(self._inputs)}, from 0")
        return self._inputs[number]


def _check_columns(given: Sequence[str], columns: Sequence[str], to: int) -> None:
    """A row that a test pushes has the columns of its input, all of them and no other.

    Raises:
        RecordError: it has not.
    """
    there = f"input {to} has the columns {', '.join(columns)}"
    for name in given:
        if name not in columns:
            raise RecordError(f"Harness: a row has {name!r}{nearest(name, columns)}; {there}")
    for name in columns:
        if name not in given:
            raise RecordError(f"Harness: a row lacks {name!r}; {there}; a null is None")


def _program(build: Callable[..., DataStream], inputs: Sequence[Input]) -> Program:
    program = Program(_refuse)
    streams = []
    for number, one in enumerate(inputs):
        source = CollectionSource.of([], one.schema)
        timed = one.event_time is not None
        node = program.graph.add(f"input {number}", source, schema=one.schema, timed=timed)
        streams.append(DataStream.of_node(program, node))
    built = build(*streams)
    if not isinstance(built, DataStream):
        raise GraphError(f"Harness: the function returns the stream whose rows are the output, not {built!r:.100}")
    built.collect()
    return program


def _refuse(program: Program) -> NoReturn:
    raise GraphError("Harness: the program of a harness is not submitted; read its rows with take()")


def _milliseconds(data: pa.RecordBatch, name: str) -> pa.Int64Array:
    column = data.column(name)
    if column.null_count:
        raise ConfigurationError(f"Harness: a row has no event time: column {name!r} is null")
    return event_times(column)


def _taken(kept: Kept) -> list[dict[str, Any]]:
    batches, kept.batches = kept.batches, []
    return [row for batch in batches for row in batch_rows(batch.data)]
