"""How the rows of an exchange are spread over the downstream subtasks.

A partitioner is a value of the job graph. `targets` says which downstream subtasks one upstream subtask is connected
to (read by the planner); `splitter` gives the function that divides each batch among those channels (run by the
router).

Source: Flink's documentation, "Physical Partitioning".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.engine.elements import Batch
from penstock.engine.errors import RecordError
from penstock.engine.few_rows import FewRowsWriter
from penstock.engine.rows import shown_row
from penstock.engine.state.keys.groups import check_key_column, key_groups, subtask_of
from penstock.engine.state.keys.identity import coded_columns

Splitter: TypeAlias = Callable[[Batch], Iterable[tuple[int, Batch]]]
"""Divides a batch: pairs of channel index (from 0) and the rows for it, none of them empty."""
_Int32s: TypeAlias = npt.NDArray[np.int32]

_FEW_CHANNELS: Final = 8
"""So many times it takes less to look for the rows of one channel (0.4 ns a row) than to sort them all (4 to 11 ns)."""
_FEW_ROWS: Final = 64
"""Fewer travel as bytes, or may be compact: to find that out takes as long as a copy."""
_FIRST: Final = (0,)


@dataclass(frozen=True, slots=True)
class SplitterContext:
    """What a splitter may know: names for messages, its place, and the number of channels.

    Args:
        where: the operator behind the exchange, for messages.
        channels: how many channels this upstream subtask has.
        subtask: index of the upstream subtask.
        max_parallelism: number of key groups.
    """

    where: str
    channels: int
    subtask: int
    max_parallelism: int


class Partitioner(Protocol):
    """One way to spread rows."""

    def targets(self, subtask: int, upstream: int, downstream: int) -> range:
        """Indexes of the downstream subtasks that upstream subtask `subtask` of `upstream` sends to."""
        ...

    def splitter(self, context: SplitterContext) -> Splitter:
        """The function that divides batches; it may hold state, such as whose turn it is."""
        ...

    def describe(self) -> str:
        """A short text for `explain()`."""
        ...


def is_overtakable(partitioner: Partitioner) -> bool:
    """Whether unaligned barriers may overtake the rows of such an exchange.

    The rows of a checkpoint are sent anew after a restore. That is possible where they may go to any subtask, or to one
    that their content tells; not where subtasks are connected one to one, or all get the same rows.

    Source: Flink's documentation, "Checkpointing under backpressure", "Certain data distribution patterns".
    """
    return not isinstance(partitioner, Forward | Rescale | Broadcast)


def _to_the_only_channel(batch: Batch) -> Iterable[tuple[int, Batch]]:
    return ((0, batch),)


@dataclass(frozen=True, slots=True)
class Forward:
    """Subtask i sends to subtask i: both sides have the same parallelism. The only partitioner that chains."""

    def targets(self, subtask: int, upstream: int, downstream: int) -> range:
        return range(subtask, subtask + 1)

    def splitter(self, context: SplitterContext) -> Splitter:
        return _to_the_only_channel

    def describe(self) -> str:
        return "forward"


@dataclass(frozen=True, slots=True)
class Global:
    """Every row goes to subtask 0."""

    def targets(self, subtask: int, upstream: int, downstream: int) -> range:
        return range(1)

    def splitter(self, context: SplitterContext) -> Splitter:
        return _to_the_only_channel

    def describe(self) -> str:
        return "global"


@dataclass(frozen=True, slots=True)
class Broadcast:
    """Every row goes to every subtask."""

    def targets(self, subtask: int, upstream: int, downstream: int) -> range:
        return range(downstream)

    def splitter(self, context: SplitterContext) -> Splitter:
        channels = range(context.channels)
        return lambda batch: ((channel, batch) for channel in channels)

    def describe(self) -> str:
        return "broadcast"


@dataclass(frozen=True, slots=True)
class Rebalance:
    """Rows are dealt out evenly, in runs: each batch is cut into one run a channel, starting with the next in turn."""

    def targets(self, subtask: int, upstream: int, downstream: int) -> range:
        return range(downstream)

    def splitter(self, context: SplitterContext) -> Splitter:
        return _round_robin(context.channels, first=context.subtask % context.channels)

    def describe(self) -> str:
        return "rebalance"


@dataclass(frozen=True, slots=True)
class Rescale:
    """Like rebalance, but within groups of neighbours, so that fewer channels are needed."""

    def targets(self, subtask: int, upstream: int, downstream: int) -> range:
        if upstream >= downstream:
            target = subtask * downstream // upstream
            return range(target, target + 1)
        first, behind = _share(subtask, upstream, downstream), _share(subtask + 1, upstream, downstream)
        return range(first, behind)

    def splitter(self, context: SplitterContext) -> Splitter:
        return _round_robin(context.channels, first=0)

    def describe(self) -> str:
        return "rescale"


def _share(subtask: int, upstream: int, downstream: int) -> int:
    return -(-subtask * downstream // upstream)


def _round_robin(channels: int, first: int) -> Splitter:
    if channels == 1:
        return _to_the_only_channel
    turn = first

    def split(batch: Batch) -> Iterable[tuple[int, Batch]]:
        nonlocal turn
        share, rest = divmod(batch.num_rows, channels)
        parts, begin = [], 0
        for run in range(channels if share else rest):
            rows = share + (run < rest)
            parts.append(((turn + run) % channels, batch.slice(begin, rows)))
            begin += rows
        # The next batch resumes where the rows left over ended.
        turn = (turn + rest) % channels
        return parts

    return split


@dataclass(frozen=True, slots=True)
class Hash:
    """Rows with equal keys go to the same subtask: the one that owns the key's key group.

    Args:
        keys: names of the key columns.
    """

    keys: tuple[str, ...]

    def targets(self, subtask: int, upstream: int, downstream: int) -> range:
        return range(downstream)

    def splitter(self, context: SplitterContext) -> Splitter:
        key_columns, write = KeyColumns(self.keys, context.where), FewRowsWriter()
        channels, most = context.channels, context.max_parallelism
        if channels == 1:

            def check_only(batch: Batch) -> Iterable[tuple[int, Batch]]:
                key_columns(batch)
                return ((0, batch),)

            return check_only

        def split(batch: Batch) -> Iterable[tuple[int, Batch]]:
            return _parts(batch, subtask_of(key_groups(key_columns(batch), most), channels, most), channels, write)

        return split

    def describe(self) -> str:
        return f"hash({', '.join(self.keys)})"


@dataclass(frozen=True, slots=True)
class HashChanges:
    """As `Hash`, for changelogs: keys may be null (that is a key like others) and of any type, as in SQL.

    Args:
        keys: names of the key columns.
    """

    keys: tuple[str, ...]

    def targets(self, subtask: int, upstream: int, downstream: int) -> range:
        return range(downstream)

    def splitter(self, context: SplitterContext) -> Splitter:
        if context.channels == 1:
            return _to_the_only_channel
        write = FewRowsWriter()

        def split(batch: Batch) -> Iterable[tuple[int, Batch]]:
            keys = coded_columns([batch.data.column(name) for name in self.keys])
            groups = key_groups(keys, context.max_parallelism)
            targets = subtask_of(groups, context.channels, context.max_parallelism)
            return _parts(batch, targets, context.channels, write)

        return split

    def describe(self) -> str:
        return f"hash({', '.join(self.keys)})"


def _parts(batch: Batch, targets: _Int32s, channels: int, write: FewRowsWriter) -> Iterator[tuple[int, Batch]]:
    """The channels that get rows, with these: copies, as slices would drag the whole batch through the wire."""
    if targets.size == 1:
        yield int(targets[0]), write(batch, _FIRST) or (batch if batch.is_compact else batch.take(_places(_FIRST)))
    elif 0 < targets.size < _FEW_ROWS:
        yield from _few_parts(write, batch, targets.tolist())
    else:
        for channel, rows in enumerate(_rows_by_channel(targets.astype(np.int16), channels)):
            if len(rows):
                yield channel, batch.take(pa.array(rows))


def _few_parts(write: FewRowsWriter, batch: Batch, targets: Sequence[int]) -> Iterator[tuple[int, Batch]]:
    """The same of few rows: bytes that are cut, or so little that a slice may drag all of it along, if they can be."""
    order, used, start = sorted(range(len(targets)), key=targets.__getitem__), sorted(set(targets)), 0
    ordered: Batch | None = write(batch, order)
    if ordered is None and batch.is_compact:
        ordered = batch if len(used) == 1 else batch.take(_places(order))
    if ordered is not None and len(used) == 1:
        yield used[0], ordered
        return
    for channel in used:
        count = targets.count(channel)
        yield channel, batch.take(_places(order[start:][:count])) if ordered is None else ordered.slice(start, count)
        start += count


def _places(rows: Sequence[int]) -> pa.Int64Array:
    # Not of Python values, for which Arrow would load pandas.
    return pa.array(np.array(rows, np.int64))


def _rows_by_channel(targets: npt.NDArray[np.int16], channels: int) -> list[npt.NDArray[np.int64]]:
    """The rows of each channel, in their order."""
    if channels <= _FEW_CHANNELS:
        return [np.flatnonzero(targets == channel) for channel in range(channels)]
    order = np.argsort(targets, kind="stable")
    return np.split(order, np.cumsum(np.bincount(targets, minlength=channels))[:-1])


class KeyColumns:
    """Gives the key columns of batches that are to be spread by them; a schema is checked where it is another one.

    Args:
        keys: their names.
        where: the operator behind the exchange, for messages.
    """

    def __init__(self, keys: Sequence[str], where: str) -> None:
        self._keys = keys
        self._where = where
        self._checked: pa.Schema | None = None

    def __call__(self, batch: Batch) -> list[pa.Array]:
        """The key columns of `batch`.

        Raises:
            RecordError, MissingColumnError, ColumnTypeError: a key is null, not there, or of a type that makes no key.
        """
        schema = batch.data.schema
        if self._checked is None or not schema.equals(self._checked):
            for name in self._keys:
                check_key_column(schema, name, f"{self._where}: key_by")
            self._checked = schema
        return [_key_column(batch.data, name, self._where) for name in self._keys]


def _key_column(data: pa.RecordBatch, name: str, where: str) -> pa.Array:
    column = data.column(name)
    if column.null_count:
        row = int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
        raise RecordError(
            f"{where}: key column {name!r} is null in row {shown_row(data, row)}; "
            f"filter such rows out, or fill_null, before they are divided by key"
        )
    return column
