"""The elements that travel on a channel, in order.

Sources, operators and routers exchange these and nothing else. All of them are immutable, so an element may be handed
to several consumers without a copy.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.engine.errors import RecordError

MIN_TIMESTAMP: Final = -(2**63)
"""The watermark before any was seen."""
NO_TIMESTAMP: Final = -(2**62) - 1
"""That of a row that has none, as it could not be decoded: before all others, and far enough from the end of int64."""
MAX_TIMESTAMP: Final = 2**63 - 1
"""The watermark behind the last row of a bounded stream: event time is complete."""

_COMPACT: Final = 1024
"""Bytes that a view may keep, and send: to copy its rows costs more than these."""


@dataclass(frozen=True, slots=True)
class Slices:
    """Stretches of event time, `length_ms` each, of which one starts at `offset_ms`: rows of two are never merged.

    Equal stretches are equal, whichever of their starts was given.
    """

    length_ms: int
    offset_ms: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "offset_ms", self.offset_ms % self.length_ms)

    def starts(self, timestamps: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Where the slice of each timestamp starts."""
        return timestamps - (timestamps - self.offset_ms) % self.length_ms


@dataclass(frozen=True, slots=True)
class Partials:
    """Marks a batch whose rows are partial aggregates: each stands for rows of one key, and of one slice of event time.

    Args:
        counts: the column that says how many of the user's rows each stands for; null: one.
        slices: which rows may have been merged; None if event time does not matter.
    """

    counts: str
    slices: Slices | None = None

    def text(self) -> str:
        """For the metadata of rows that are stored, or leave the process.

        Example:
            >>> Partials("rows", Slices(10, 3)).text()
            '10,3,rows'
        """
        return (
            f",,{self.counts}"
            if self.slices is None
            else f"{self.slices.length_ms},{self.slices.offset_ms},{self.counts}"
        )

    @classmethod
    def of_text(cls, text: str) -> Partials:
        """What `text` was made of.

        Raises:
            ValueError: it was made of nothing.
        """
        length, offset, counts = text.split(",", 2)
        return cls(counts, Slices(int(length), int(offset)) if length else None)


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows of the user's columns, with their event timestamps and changelog row kinds beside them.

    Args:
        data: the user's columns; keys and accumulators, where `partials` is set.
        timestamps: int64 milliseconds since the epoch (UTC), one a row, no nulls; None before timestamps are assigned.
        kinds: int8 changelog row kinds, one a row; None means that every row is an insert.
        partials: set where the rows are not the user's, but partial aggregates on their way to be merged.
    """

    data: pa.RecordBatch
    timestamps: pa.Int64Array | None = None
    kinds: pa.Int8Array | None = None
    partials: Partials | None = None

    @property
    def num_rows(self) -> int:
        return int(self.data.num_rows)

    @property
    def nbytes(self) -> int:
        """Bytes of the rows themselves (a slice counts only its own rows)."""
        return sum([int(part.nbytes) for part in (self.data, self.timestamps, self.kinds) if part is not None])

    @property
    def held_bytes(self) -> int:
        """Bytes of the memory that the rows lie in: found sooner than `nbytes`, and as many where it is no slice."""
        parts = (self.data, self.timestamps, self.kinds)
        return sum([int(part.get_total_buffer_size()) for part in parts if part is not None])

    @property
    def is_compact(self) -> bool:
        """Whether it is no view of a large batch, which would be kept, and sent, with it."""
        return self.held_bytes <= _COMPACT

    def slice(self, offset: int, length: int | None = None) -> Batch:
        """A zero-copy view of `length` rows from `offset`."""
        return Batch(
            self.data.slice(offset, length),
            None if self.timestamps is None else self.timestamps.slice(offset, length),
            None if self.kinds is None else self.kinds.slice(offset, length),
            self.partials,
        )

    def take(self, indices: pa.Array) -> Batch:
        """A copy of the rows at `indices`, in that order."""
        return Batch(
            self.data.take(indices),
            None if self.timestamps is None else self.timestamps.take(indices),
            None if self.kinds is None else self.kinds.take(indices),
            self.partials,
        )

    def filter(self, mask: pa.BooleanArray) -> Batch:
        """A copy of the rows where `mask` is true (a null counts as false, as in SQL)."""
        return Batch(
            self.data.filter(mask),
            None if self.timestamps is None else self.timestamps.filter(mask),
            None if self.kinds is None else self.kinds.filter(mask),
            self.partials,
        )

    def with_data(self, data: pa.RecordBatch) -> Batch:
        """The same rows with other columns."""
        return Batch(data, self.timestamps, self.kinds, self.partials)


def concat_batches(batches: Sequence[Batch]) -> Batch:
    """One batch with the rows of all `batches`, in order; a column of nulls takes the type that others give it.

    Either all or none must carry timestamps, and all the same mark of partial aggregates, or none. Rows of batches
    without kinds are inserts, also beside others: a stream may be the union of one that changes and one that grows.

    Raises:
        RecordError: the columns differ in names, order or types.
    """
    if len(batches) == 1:
        return batches[0]
    return Batch(
        concat_record_batches([batch.data for batch in batches]),
        _concat_timestamps([batch.timestamps for batch in batches]),
        _concat_kinds(batches),
        batches[0].partials,
    )


def concat_record_batches(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """One contiguous record batch with the rows of all `batches`, in order (null columns are promoted).

    Raises:
        RecordError: the columns differ in names, order or types.
    """
    schema = batches[0].schema
    if all(batch.schema.equals(schema) for batch in batches):
        return pa.concat_batches(batches)
    for batch in batches[1:]:
        schema = join_schemas(schema, batch.schema, "rows of one stream")
    return pa.concat_batches([with_types(batch, schema) for batch in batches])


def with_types(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch with the types of `schema`, which `join_schemas` has made of its own and others."""
    columns = [_with_type(column, kind) for column, kind in zip(batch.columns, schema.types, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _with_type(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if column.type == kind:
        # No cast to its own type: Arrow 25 and 26 break lists of nulls by it.
        return column
    return pa.nulls(len(column), kind) if pa.types.is_null(column.type) else column.cast(kind)


def join_schemas(held: pa.Schema, other: pa.Schema, where: str) -> pa.Schema:
    """The columns of a stream that has had batches with both schemas; null takes the type that the other gives it.

    Args:
        held, other: the columns so far, and those of the batch that came now.
        where: who takes the rows, for messages.

    Raises:
        RecordError: they differ in names, order or types.

    Example:
        >>> join_schemas(pa.schema({"n": pa.null()}), pa.schema({"n": pa.int64()}), "operator 'map'").types
        [DataType(int64)]
    """
    if held.names != other.names:
        raise RecordError(_unlike_names(held.names, other.names, where))
    fields = []
    for kept, came in zip(held, other, strict=True):
        kind = _joined_type(kept.type, came.type)
        if kind is None:
            raise RecordError(
                f"{where}: column {kept.name!r} is {kept.type} in some batches and {came.type} in others; declare "
                f"its type where it is made, returns={{{kept.name!r}: {str(kept.type)!r}, ...}} for example, or make "
                "the streams equal with select(...) and cast(...) before they meet"
            )
        fields.append(kept.with_type(kind).with_nullable(kept.nullable or came.nullable))
    return pa.schema(fields, held.metadata)


class SchemaGuard:
    """Holds the columns of a stream where its rows meet, so that what does not fit together is an error in every order.

    All batches must have the same columns; a column of nulls may get its type later. A task's input from exchanges, the
    head of a loop and the rows for the client go through one: types that were not declared are held per subtask, and
    only there can they be compared.

    Args:
        where: who takes the rows, for messages.
    """

    def __init__(self, where: str) -> None:
        self._where = where
        self._held: pa.Schema | None = None

    def check(self, batch: Batch) -> None:
        """Compare the batch with those before it.

        Raises:
            RecordError: its columns have other names, another order or other types.
        """
        schema = batch.data.schema
        if self._held is None:
            self._held = schema
        elif not schema.equals(self._held):
            self._held = join_schemas(self._held, schema, self._where)


def _unlike_names(held: Sequence[str], other: Sequence[str], where: str) -> str:
    place = next((i for i, (one, two) in enumerate(zip(held, other, strict=False)) if one != two), None)
    if place is None:
        place = min(len(held), len(other))
    column = held[place] if place < len(held) else other[place]
    return (
        f"{where}: column {column!r} is not in the same place in every batch: some have the columns "
        f"{', '.join(held)}, others {', '.join(other)}; make the streams equal with select(...) before they meet, or "
        "declare the same columns in the same order with returns={...}"
    )


def _joined_type(one: pa.DataType, two: pa.DataType) -> pa.DataType | None:
    """The type that holds both, where they differ in nothing but nulls that have no type yet; else None."""
    if one.equals(two) or pa.types.is_null(two):
        return one
    if pa.types.is_null(one):
        return two
    for is_list, make in ((pa.types.is_list, pa.list_), (pa.types.is_large_list, pa.large_list)):
        if is_list(one) and is_list(two):
            item = _joined_type(one.value_type, two.value_type)
            return None if item is None else make(one.value_field.with_type(item))
    if pa.types.is_struct(one) and pa.types.is_struct(two):
        if [field.name for field in one] != [field.name for field in two]:
            return None
        parts = [(field, _joined_type(field.type, other.type)) for field, other in zip(one, two, strict=True)]
        return None if any(kind is None for _, kind in parts) else pa.struct([f.with_type(kind) for f, kind in parts])
    return None


def table_to_record_batch(table: pa.Table) -> pa.RecordBatch:
    """The table's rows as one contiguous record batch (zero-copy where every column has one chunk)."""
    batches = table.to_batches()
    if len(batches) == 1:
        return batches[0]
    columns = [column.chunk(0) if column.num_chunks == 1 else _combine(column) for column in table.itercolumns()]
    return pa.RecordBatch.from_arrays(columns, schema=table.schema)


def _combine(column: pa.ChunkedArray) -> pa.Array:
    combined = column.combine_chunks()
    return pa.concat_arrays(combined.chunks) if isinstance(combined, pa.ChunkedArray) else combined


def _concat_timestamps(arrays: Sequence[pa.Array | None]) -> pa.Array | None:
    present = [array for array in arrays if array is not None]
    if not present:
        return None
    if len(present) != len(arrays):
        raise pa.ArrowInvalid("some of the batches carry timestamps and others do not")
    return pa.concat_arrays(present)


def _concat_kinds(batches: Sequence[Batch]) -> pa.Array | None:
    if all(batch.kinds is None for batch in batches):
        return None
    inserts = [pa.repeat(pa.scalar(0, pa.int8()), batch.num_rows) for batch in batches]
    kinds = [own if batch.kinds is None else batch.kinds for batch, own in zip(batches, inserts, strict=True)]
    return pa.concat_arrays(kinds)


@dataclass(frozen=True, slots=True)
class Watermark:
    """Promise that no row with a timestamp at or below `timestamp` (int64 ms) follows on this channel.

    Args:
        timestamp: int64 ms.
        between_rows: whether it stands exactly here, since a generator has put it between two rows; any other one may
            be held back by rows that share its message.
    """

    timestamp: int
    between_rows: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class WatermarkStatus:
    """Says whether the channel takes part in event time: an idle one holds no watermark back."""

    idle: bool


@dataclass(frozen=True, slots=True)
class EndOfInput:
    """Nothing follows on this channel. A bounded source sends `Watermark(MAX_TIMESTAMP)` before it."""


@dataclass(frozen=True, slots=True)
class IterationBarrier:
    """Ends a superstep of a loop: every row before it belongs to superstep `superstep` or an earlier one.

    The head of a loop sends it in order with the rows, the loop's body passes it on, and each tail sends it back.

    Args:
        loop: number of the loop, so that those of another loop are not taken for its own.
        superstep: from 0. `INPUT_ENDED` never travels: with it the head's gate tells the head that its input has ended.
        rows: how many rows the tail has fed back since the barrier before; 0 on the way there.
    """

    loop: int
    superstep: int
    rows: int = 0


INPUT_ENDED: Final = -1
"""The superstep before the first: what a loop takes in from outside."""
FEEDBACK_INPUT: Final = -1
"""The input on which the head of a loop gets back what its tails feed; it has no part in event time or in the end."""


class CheckpointMode(enum.Enum):
    """How the barriers of a checkpoint meet at a task with several channels."""

    ALIGNED = "aligned"
    """Exactly once: a channel whose barrier has come waits for the others."""
    UNALIGNED = "unaligned"
    """Exactly once: the first barrier is passed on at once; the rows that it overtakes belong to the checkpoint."""
    AT_LEAST_ONCE = "at_least_once"
    """No channel waits: rows behind a barrier may be in the checkpoint, and come again after a restore."""


class SnapshotKind(enum.Enum):
    """What a barrier's snapshots are for."""

    CHECKPOINT = "checkpoint"
    """Owned by the engine; may refer to files of checkpoints before it, and commits what sinks have prepared."""
    SAVEPOINT = "savepoint"
    """Owned by the user; complete in itself, and commits nothing."""
    SUSPEND = "suspend"
    """A savepoint behind which sources give nothing more; when it is complete, sinks commit and the job ends."""

    @property
    def noun(self) -> str:
        """What messages call it: to people, one that ends the job is a savepoint as well."""
        return "checkpoint" if self is SnapshotKind.CHECKPOINT else "savepoint"


@dataclass(frozen=True, slots=True)
class Barrier:
    """Separates the rows that belong to a checkpoint, before it, from those that do not.

    Args:
        checkpoint: number of the checkpoint or savepoint; they share one ascending sequence over all attempts of a job.
        mode: how barriers are aligned; savepoints are never unaligned.
        kind: what it is for.
        base: the newest checkpoint that was complete when this one was triggered, to whose files it may refer; 0: none.
        alignment_timeout_ms: an aligned barrier becomes unaligned where its alignment takes longer; None: never.
        target: of a savepoint: URL of its folder, which a subtask may learn from nobody else before the barrier comes.
        replaced: ids of the tasks whose subtasks are replaced behind it: they stop, and who sends to them keeps rows
            back until the new ones are there or the checkpoint is given up.
        triggered_ms: civil time (int64 ms) at which it was triggered, for people; 0: it is not known.

    Source: Carbone et al., "Lightweight Asynchronous Snapshots for Distributed Dataflows", 2015.
    """

    checkpoint: int
    mode: CheckpointMode = CheckpointMode.ALIGNED
    kind: SnapshotKind = SnapshotKind.CHECKPOINT
    base: int = 0
    alignment_timeout_ms: int | None = None
    target: str | None = None
    replaced: frozenset[int] = frozenset()
    triggered_ms: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class LatencyMarker:
    """Measures how long rows are under way: a source sends one from time to time, and each operator notes its age.

    It waits where rows wait, and goes around functions; at each exchange it takes one of the channels, in turn.

    Args:
        source: name of the source's operator.
        marked_ms: civil time at which it was sent, int64 ms.

    Source: Flink's documentation, "Metrics", "End-to-End latency tracking".
    """

    source: str
    marked_ms: int


Control: TypeAlias = Watermark | WatermarkStatus | EndOfInput | IterationBarrier | Barrier | LatencyMarker
Element: TypeAlias = Batch | Control
