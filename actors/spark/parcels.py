"""How rows travel through Spark: as parcels, each an Arrow batch as bytes with its way and its turn.

Spark moves, sorts and spills the parcels and never looks inside: so every type of Arrow arrives as it was sent, and so
do columns that nobody knew before the job ran. `stage.py` makes and reads them, `translate.py` shuffles them.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

import pyarrow as pa

from penstock.engine.elements import MIN_TIMESTAMP, Batch, Partials

_TIME: Final = "__time"
_KINDS: Final = "__kinds"
_BESIDE: Final = b"penstock.beside"
"""Of the metadata of a packed batch: which columns were not the user's, as those may have any names."""
_PARTIALS: Final = b"penstock.partials"
"""Of the metadata of a packed batch of partial aggregates: their mark."""
FIRST_TURN: Final = MIN_TIMESTAMP
"""The turn of rows without timestamps."""


class Phase(enum.IntEnum):
    """What a subtask reads one after the other, whatever the times of the rows."""

    CALL = 0
    """The parcel without rows that tells which subtask it is."""
    BROADCAST = 1
    """Rows that go to all subtasks: what they say is known before the first of the others."""
    ROWS = 2
    """All others."""
    WATERMARK = 3
    """Parcels without rows, whose turn is the event time that the sender had come to, where it has not ended."""


CALL: Final = -1
"""The edge of the parcel without rows that comes first in each partition: its sender is the subtask to be run there."""
EDGE: Final = "edge"
ROUTE: Final = "route"
ORDER: Final = ("phase", "turn", "edge", "sender", "sequence")
"""The columns that put the parcels of a partition in order, the same one in every attempt."""
SPARK_SCHEMA: Final = "edge int, route int, phase int, turn bigint, sender int, sequence bigint, rows binary"
ARROW_SCHEMA: Final = pa.schema(
    [
        ("edge", pa.int32()),
        ("route", pa.int32()),
        ("phase", pa.int32()),
        ("turn", pa.int64()),
        ("sender", pa.int32()),
        ("sequence", pa.int64()),
        ("rows", pa.binary()),
    ]
)


@dataclass(frozen=True, slots=True)
class Parcel:
    """Rows on their way.

    Args:
        edge: number of the exchange that they take (see `edges.py`).
        route: what Spark hashes to the partition of the receiving subtask.
        phase: when they are to be read.
        turn: and when within that: the time of the first one (int64 ms), or `FIRST_TURN`.
        sender: the sending subtask.
        sequence: number of the parcel among those of its sender, edge and route.
        rows: the batch, as `pack` makes it.
    """

    edge: int
    route: int
    phase: Phase
    turn: int
    sender: int
    sequence: int
    rows: bytes


NO_ROWS: Final = Batch(pa.RecordBatch.from_arrays([], names=[]))
"""Of parcels whose place says all."""


def pack(batch: Batch) -> bytes:
    """The batch as bytes, with timestamps and row kinds as columns behind the others."""
    columns, fields = list(batch.data.columns), list(batch.data.schema)
    beside = [(name, array) for name, array in ((_TIME, batch.timestamps), (_KINDS, batch.kinds)) if array is not None]
    for name, array in beside:
        columns.append(array)
        fields.append(pa.field(name, array.type))
    metadata = {**(batch.data.schema.metadata or {}), _BESIDE: ",".join(name for name, _ in beside)}
    if batch.partials is not None:
        metadata[_PARTIALS] = batch.partials.text()
    data = pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields, metadata))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, data.schema) as writer:
        writer.write_batch(data)
    packed: bytes = sink.getvalue().to_pybytes()
    return packed


def unpack(rows: bytes | pa.Buffer) -> Batch:
    """The batch that `pack` was given."""
    with pa.ipc.open_stream(rows) as reader:
        data = reader.read_next_batch()
    metadata = dict(data.schema.metadata)
    names = [name for name in metadata.pop(_BESIDE).decode().split(",") if name]
    marked = metadata.pop(_PARTIALS, None)
    own = data.num_columns - len(names)
    beside = {name: data.column(own + number) for number, name in enumerate(names)}
    user = data.select(list(range(own))).replace_schema_metadata(metadata or None)
    partials = None if marked is None else Partials.of_text(marked.decode())
    return Batch(user, beside.get(_TIME), beside.get(_KINDS), partials)


def to_arrow(parcels: Iterable[Parcel]) -> Iterator[pa.RecordBatch]:
    """The parcels as Spark takes them, each by itself: it may be large."""
    for parcel in parcels:
        values: list[Any] = [
            parcel.edge,
            parcel.route,
            parcel.phase,
            parcel.turn,
            parcel.sender,
            parcel.sequence,
            parcel.rows,
        ]
        columns = [pa.array([value], kind) for value, kind in zip(values, ARROW_SCHEMA.types, strict=True)]
        yield pa.RecordBatch.from_arrays(columns, schema=ARROW_SCHEMA)


@dataclass(frozen=True, slots=True)
class Arrival:
    """A parcel at its receiver, opened.

    Args:
        edge, phase, turn, sender, sequence: as in `Parcel`.
        batch: its rows.
    """

    edge: int
    phase: int
    turn: int
    sender: int
    sequence: int
    batch: Batch

    @property
    def rank(self) -> tuple[int, int, int]:
        """Of two rows with the same timestamp, that of the lower rank goes first."""
        return self.edge, self.sender, self.sequence


def called(batches: Iterator[pa.RecordBatch]) -> tuple[int, Iterator[Arrival]]:
    """The subtask that a partition is for, and the parcels for it.

    A partition's own number does not tell: in a union of several frames Spark counts on.
    """
    first = next(batches)
    assert first.column("edge")[0].as_py() == CALL, "each partition begins with the call of its subtask"
    subtask: int = first.column("sender")[0].as_py()
    return subtask, _opened(chain([first.slice(1)], batches))


def _opened(batches: Iterable[pa.RecordBatch]) -> Iterator[Arrival]:
    for batch in batches:
        places = (batch.column(name).to_pylist() for name in ("edge", "phase", "turn", "sender", "sequence"))
        for edge, phase, turn, sender, sequence, rows in zip(*places, batch.column("rows"), strict=True):
            yield Arrival(edge, phase, turn, sender, sequence, unpack(rows.as_buffer()))
