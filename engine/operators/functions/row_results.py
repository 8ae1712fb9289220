"""What functions give back, looked at, and the rows that they emit to side outputs, until they become record batches.

The operators of process functions use it. Rows go through a `RowBuffer`, which keeps them as they were when they came.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import GeneratorType
from typing import Any, Final

import pyarrow as pa

from penstock.engine.elements import Batch
from penstock.engine.errors import ConfigurationError, RecordError, ResultError
from penstock.engine.functions import OutputTag
from penstock.engine.operators.base import OperatorContext
from penstock.engine.row_buffer import RowBuffer

USUAL: Final = frozenset({GeneratorType, list, tuple})
"""What functions give rows in; anything else is looked at by `checked_rows`."""


def checked_rows(made: Any, method: str, where: str) -> Iterable[Any]:
    """What a function returned, if it is an iterable of rows.

    Raises:
        ResultError: it is not; a single dict, for example.
    """
    if isinstance(made, (Mapping, str, bytes)) or not isinstance(made, Iterable):
        raise ResultError(
            f"{where}: {method} returned {made!r:.200} ({type(made).__name__}), not rows; yield each row (a dict), or "
            "return a list of dicts, or None for no rows"
        )
    return made


@dataclass(slots=True)
class _Buffer:
    """Rows of one side output and their timestamps, and the last tag."""

    rows: RowBuffer
    tag: OutputTag
    times: list[int] = field(default_factory=list)


class SideOutputs:
    """The rows that a function has emitted to side outputs, until `flush`.

    Args:
        context: knows who reads the side outputs; what nobody reads is dropped.
        timed: whether the rows carry event timestamps.
    """

    def __init__(self, context: OperatorContext, timed: bool) -> None:
        self._context = context
        self._timed = timed
        self._buffers: dict[str, _Buffer] = {}
        self._waiting = False
        self._limit = context.config.max_batch_rows
        self.full: Final[list[str]] = []
        """Side outputs with rows for a whole batch, so that `flush` should come soon; always the same list."""

    def add(self, tag: OutputTag, row: Mapping[str, Any], timestamp: int | None) -> None:
        """Keep a row for the side output `tag`.

        Raises:
            ConfigurationError: `tag` is no `OutputTag`.
            RecordError: the stream has timestamps, and the row has none; or the side output was declared otherwise.
        """
        if not isinstance(tag, OutputTag):
            raise ConfigurationError(
                f"{self._context.where}: ctx.output takes an OutputTag and a row, not {tag!r:.200}; make one with "
                'OutputTag("late"), and read it with get_side_output(tag)'
            )
        if tag.name not in self._context.sides:
            return
        buffer = self._buffers.get(tag.name)
        if buffer is None:
            buffer = self._buffers[tag.name] = _Buffer(self._rows(tag), tag)
        elif tag is not buffer.tag:
            self._check_same(tag, buffer.tag.schema, "emitted to before")
            buffer.tag = tag
        if self._timed:
            if timestamp is None:
                raise unknown_timestamp(self._context.where)
            buffer.times.append(timestamp)
        buffer.rows.add(row)
        self._waiting = True
        if len(buffer.rows) >= self._limit:
            self.full.append(tag.name)

    def emit(self, tag: OutputTag, data: pa.RecordBatch, timestamps: pa.Int64Array | None) -> None:
        """Emit rows to the side output `tag`, whose columns they have, at once; nothing waits in `add` for it.

        Raises:
            RecordError: the side output was declared otherwise.
        """
        if tag.name not in self._context.sides or not data.num_rows:
            return
        self._check_same(tag, self._context.side_schemas.get(tag.name), "read")
        for start in range(0, data.num_rows, self._limit):
            part = None if timestamps is None else timestamps.slice(start, self._limit)
            self._context.emit_side(tag.name, Batch(data.slice(start, self._limit), part))

    def _rows(self, tag: OutputTag) -> RowBuffer:
        """For the columns that the tag or, where it has none, the reader of the side output declares."""
        read = self._context.side_schemas.get(tag.name)
        self._check_same(tag, read, "read")
        schema = read if tag.schema is None else tag.schema
        return RowBuffer(schema, f"{self._context.where}, side output {tag.name!r}")

    def _check_same(self, tag: OutputTag, other: pa.Schema | None, how: str) -> None:
        if tag.schema is not None and other is not None and tag.schema != other:
            raise RecordError(
                f"{self._context.where}: side output {tag.name!r} is emitted to with an OutputTag of the columns "
                f"({_shown(tag.schema)}), and {how} with one of ({_shown(other)}); use one OutputTag for both"
            )

    def flush(self) -> None:
        """Emit what was added to each side output, in order."""
        if not self._waiting:
            return
        self._waiting = False
        self.full.clear()
        for tag, buffer in self._buffers.items():
            if not len(buffer.rows):
                continue
            data = buffer.rows.take()
            times, buffer.times = buffer.times, []
            whole = Batch(data, pa.array(times, pa.int64()) if self._timed else None)
            for begin in range(0, data.num_rows, self._limit):
                self._context.emit_side(tag, whole.slice(begin, self._limit))


def _shown(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name}: {field.type}" for field in schema)


def unknown_timestamp(where: str) -> RecordError:
    """The error for a row without a timestamp that goes out on a stream with event time."""
    return RecordError(
        f"{where}: the row was emitted where no event timestamp is known, on a stream that has them; emit it in "
        "process_element or on_timer, or call assign_timestamps on both streams before they are connected"
    )
