"""What a connector implements: sources made of splits, sinks made of writers, tables to look rows up in.

The engine calls these; connectors depend on this module and `elements`, `errors`, `clock` alone. Objects of `Source`,
`Split` and `Sink` describe the work and travel to the cluster, so they must be picklable and hold no open file or
connection; readers and writers live in one subtask and may hold both.

`docs/connectors.md` writes a source and a sink step by step, and `penstock.testing.connector_suite` tests what is said
here.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

import pyarrow as pa

from penstock.engine.changelog import APPEND_ONLY, ChangelogMode
from penstock.engine.clock import Clock
from penstock.engine.elements import Batch
from penstock.engine.errors import RestoreError
from penstock.engine.metric_types import MetricGroup


@dataclass(frozen=True, slots=True)
class ConnectorContext:
    """What the engine tells a reader or writer about the subtask that it lives in.

    Args:
        operator: the operator's name, for messages.
        subtask: index of the subtask, from 0.
        parallelism: how many subtasks the operator has.
        clock: the only source of time.
        identity: of the operator in its job, the same in all attempts and at every parallelism; no other operator of
            any job has it. Empty where nobody knows it.
        metrics: where a reader or writer counts what it wants shown, such as the gauge `pending_records`.
    """

    operator: str
    subtask: int
    parallelism: int
    clock: Clock
    identity: str = ""
    metrics: MetricGroup = field(default_factory=MetricGroup, compare=False)


@dataclass(frozen=True, slots=True)
class Dataset:
    """What a source reads or a sink writes, as systems that follow data from job to job name it.

    Args:
        namespace: where it is: `kafka://host:9092`, `s3://bucket`, `file`.
        name: what it is there: a topic, a path, a table. Neither holds a secret.

    Source: OpenLineage's documentation, "Naming conventions".
    """

    namespace: str
    name: str


class Split(Protocol):
    """A part of a source's data that one reader reads: a file, a range of row numbers, a partition."""

    @property
    def split_id(self) -> str:
        """Unique within the source, and the same each time the program is built."""
        ...


class SplitOrder(enum.Enum):
    """How a subtask reads several splits."""

    SEQUENTIAL = "sequential"
    """One after another, each to its end: files."""
    INTERLEAVED = "interleaved"
    """A batch from each in turn: partitions of a log."""


@dataclass(frozen=True, slots=True)
class Wait:
    """A reader's answer when it has nothing now: ask again at `until` (seconds, `Clock.monotonic`)."""

    until: float


Position: TypeAlias = "Mapping[str, JsonValue]"
"""Where a reader is in its split: whatever it takes to resume, as JSON has it. It is kept in checkpoints as text."""
JsonValue: TypeAlias = "bool | int | float | str | Sequence[JsonValue] | Mapping[str, JsonValue] | None"


class SourceReader(ABC):
    """Reads one split. Lives in one subtask and is called by one thread."""

    @abstractmethod
    def next_batch(self, max_rows: int) -> pa.RecordBatch | Wait | None:
        """At most `max_rows` rows with the source's schema, `Wait` for nothing yet, None at the end of the split.

        Raises:
            RecordError: bad input; names file and row (or topic, partition and offset).
        """

    def position(self) -> Position:
        """Where the rows begin that `next_batch` gives next: what `Source.open_at` needs to resume from there.

        It counts what `next_batch` has returned, not what was fetched. Needed where the job takes checkpoints. Called
        between two batches, and must cost nothing.

        Example:
            >>> reader.position()  # doctest: +SKIP
            {'row': 7}
        """
        raise NotImplementedError(f"{type(self).__name__} has no position(): its source cannot be checkpointed")

    def close(self) -> None:  # noqa: B027 - most readers that hold nothing need not say so
        """Release files and connections; also after an error. Doing it twice does no harm."""


class SplitDiscovery(ABC):
    """Looks for splits that come while the job runs. Lives in one subtask of a source without end."""

    @abstractmethod
    def poll(self) -> Sequence[Split]:
        """Splits that there are, those that were known already among them, as often as they like; must not wait.

        Asked about once a second: what takes time belongs into a thread of its own. A split that is new is read from
        its first row, by one subtask.
        """

    def close(self) -> None:  # noqa: B027 - one that holds nothing need not say so
        """Release resources; also after an error. Doing it twice does no harm."""


@dataclass(frozen=True, slots=True)
class ParquetFiles:
    """Parquet files that hold a source's rows, and none more: each has all columns of the source, with its types.

    Args:
        paths: absolute, on a file system that every node sees.
    """

    paths: tuple[str, ...]


class Source(ABC):
    """Describes where rows come from. Must be picklable."""

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """The columns of every batch that a reader gives."""

    @property
    def bounded(self) -> bool:
        """Whether each split ends by itself."""
        return True

    @property
    def max_parallelism(self) -> int | None:
        """The most subtasks that can share the work, or None for no limit; 1 keeps the order of a collection."""
        return None

    @property
    def error_column(self) -> str | None:
        """The column that says why a row could not be decoded, null for good rows; None: all rows are good.

        A bad row has no event time: its timestamp is `NO_TIMESTAMP`, which comes before all others, and watermarks do
        not heed it.
        """
        return None

    @property
    def split_order(self) -> SplitOrder:
        """How a subtask reads several splits; by default a bounded source's one after another."""
        return SplitOrder.SEQUENTIAL if self.bounded else SplitOrder.INTERLEAVED

    @abstractmethod
    def splits(self, parallelism: int) -> Sequence[Split]:
        """The source's splits for that many subtasks; split i goes to subtask i modulo `parallelism`.

        Called where the job is planned, which keeps them through restarts and rescales. The rows of all splits together
        must not depend on `parallelism`.
        """

    @abstractmethod
    def open(self, split: Split, context: ConnectorContext) -> SourceReader:
        """A reader at the start of `split`. Called in the subtask."""

    def open_at(self, split: Split, position: Position, context: ConnectorContext) -> SourceReader:
        """A reader that resumes at `position`, which an earlier one gave: the same rows follow as did then.

        Needed where the job takes checkpoints. The earlier reader may have been another version of the program's.
        """
        raise NotImplementedError(f"{type(self).__name__} has no open_at(): it cannot be checkpointed")

    def discover(self, context: ConnectorContext) -> SplitDiscovery | None:
        """What looks for more splits than were planned; None if there are none. Called in each subtask.

        Only for sources without end. A job that resumes from a checkpoint also takes what its plan finds and the
        checkpoint does not know for such a split.
        """
        return None

    def split(self, split_id: str) -> Split | None:
        """The split with this id, which was discovered before the checkpoint that the job resumes from.

        Needed where `discover` gives anything. None if this source does not read it, as its program has changed since:
        then it is left out, with a warning.

        Raises:
            RestoreError: no source of this kind has such splits.
        """
        raise NotImplementedError(f"{type(self).__name__} has no split(): it cannot discover any")

    def as_parquet(self) -> ParquetFiles | None:
        """The files that another engine may read instead, in batch mode; None where there are no such files.

        Called where the job is planned.
        """
        return None

    def with_dictionaries(self) -> Source:
        """This source, which gives texts as dictionaries where it has them so; `schema` says which.

        Called where the reader of the rows takes both.
        """
        return self

    @property
    def datasets(self) -> Sequence[Dataset]:
        """What it reads, for lineage; by default nothing that has a name elsewhere."""
        return ()

    @property
    def rewindable(self) -> bool:
        """Whether it can resume where it was: readers have `position()`, and the source has `open_at()`."""
        return type(self).open_at is not Source.open_at

    @property
    def rewind_remedy(self) -> str:
        """What to do where a job with checkpoints needs a source that is `rewindable`, and this one is not."""
        return "give it open_at(), and its readers position()"

    @abstractmethod
    def describe(self) -> str:
        """A short text for `explain()`, such as `files(flights.csv)`."""


class LookupTable(ABC):
    """A table that `lookup_join` asks for the rows of certain keys. Must be picklable before `open`.

    Each subtask works on a shallow copy of its own: `open` may keep a client in an attribute, but must not change what
    the copies share.

    Example:
        >>> class Users(LookupTable):
        ...     schema = pa.schema([("id", pa.int64()), ("name", pa.string())])
        ...     keys = ("id",)
        ...     def open(self, context):
        ...         self.client = connect()
        ...     def lookup(self, keys):
        ...         return pa.Table.from_pylist(self.client.users(keys["id"].to_pylist()), self.schema)
    """

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """The columns of the table's rows, the keys among them."""

    @property
    @abstractmethod
    def keys(self) -> Sequence[str]:
        """The names of the columns that it is looked up by."""

    def open(self, context: ConnectorContext) -> None:  # noqa: B027 - tables in memory have nothing to open
        """Get ready; open clients. Called once in each subtask, before the first lookup."""

    @abstractmethod
    def lookup(self, keys: pa.RecordBatch) -> pa.RecordBatch | pa.Table:
        """All rows with one of `keys`, which has the key columns alone: distinct keys, without nulls.

        There may be several rows with one key, or none; in any order, and those of one key together in theirs.
        """

    def close(self) -> None:  # noqa: B027 - as for open
        """Release resources; also after an error. Doing it twice does no harm."""


class SinkWriter(ABC):
    """Writes the rows of one subtask. Called by one thread."""

    @abstractmethod
    def write(self, batch: Batch) -> None:
        """Take the batch. May block: that is how a slow sink slows the job down."""

    def finish(self) -> None:  # noqa: B027 - a writer with nothing to publish need not say so
        """The input ended: make everything written so far visible. Not called after an error."""

    def close(self) -> None:  # noqa: B027 - a writer that holds nothing need not say so
        """Release resources; drop what was not finished. Also after an error, and doing it twice does no harm."""


class Sink(ABC):
    """Describes where rows go. Must be picklable.

    Its docstring says which guarantee it gives. A plain sink writes as rows arrive, and each subtask publishes when its
    own input ends: nothing of a failed job's subtasks that had not finished. `TransactionalSink` gives exactly once.
    """

    @property
    def changelog_modes(self) -> AbstractSet[ChangelogMode]:
        """The changelogs that it can write; by default none but rows that are only added.

        A sink that writes by key, and reads `Batch.kinds` to update and delete, gives `ANY_MODE`.
        """
        return APPEND_ONLY

    @property
    def datasets(self) -> Sequence[Dataset]:
        """What it writes, for lineage; by default nothing that has a name elsewhere."""
        return ()

    def check(self, schema: pa.Schema | None) -> None:  # noqa: B027 - most sinks take any schema
        """Check the sink where the job is planned, also for `explain()`; changes nothing.

        Args:
            schema: the columns of the rows, or None where they are not known.

        Raises:
            ConfigurationError: the target cannot be used as it is.
            ColumnTypeError: the sink cannot store a column's type.
        """

    def prepare(self) -> None:  # noqa: B027 - most sinks need no preparation
        """Make the target ready, such as by creating or emptying it.

        Called where the job begins, in the process that manages it, when the job holds its name, its storage and its
        slots: nothing else may touch the target. All sinks of the job passed `check` before, and no writer is open yet.
        Called again where that process dies before the job has a checkpoint, as the job then begins anew.

        Raises:
            ConfigurationError: the target cannot be made ready.
        """

    def resumed(self) -> Sink:
        """What takes the sink's place where the job resumes from a savepoint: a sink that accepts what is there.

        Sinks whose `check` refuses, or whose `prepare` removes, what was written before the savepoint give one that
        does not.
        """
        return self

    @abstractmethod
    def open(self, context: ConnectorContext) -> SinkWriter:
        """A writer for one subtask. Called in the subtask."""

    @abstractmethod
    def describe(self) -> str:
        """A short text for `explain()`, such as `files(out, parquet)`."""


@dataclass(frozen=True, slots=True)
class Committable:
    """What a transactional writer has prepared for one checkpoint, and the checkpoint keeps.

    Args:
        writer: names the writer for ever, so that another subtask can commit it after a rescale. No writer of another
            subtask or job has the name: draw it when the writer opens. The next attempt of the same subtask may have
            it again, for the numbers of a job's checkpoints ascend over all attempts.
        checkpoint: the checkpoint that it belongs to.
        data: all that it takes to commit: names of files, ids of transactions, or the rows themselves. Every
            committable of a sink has the same columns, and one row at least.

    Example:
        >>> Committable(secrets.token_hex(8), 7, pa.table({"file": ["part-1"]}))  # doctest: +SKIP
    """

    writer: str
    checkpoint: int
    data: pa.Table


class TransactionalWriter(SinkWriter):
    """Writes rows that nobody sees before they are committed. `finish` is not called: the last checkpoint commits."""

    @abstractmethod
    def prepare(self, checkpoint: int) -> Sequence[Committable]:
        """Make all rows since the call before ready to be committed; nothing of them may be lost from now on.

        Called at the barrier, between two batches, so it must not wait for long. Nothing where there are no rows.
        What one writer gives for one checkpoint is one committable after a restore, with all rows of `data` in order.
        """


class TransactionalSink(Sink):
    """A sink whose rows become visible when the checkpoint that they belong to is complete: exactly once.

    Without checkpoints, each writer's rows are prepared and committed when its input ends.
    """

    @abstractmethod
    def open(self, context: ConnectorContext) -> TransactionalWriter:
        """A writer for one subtask. Called in the subtask; a writer before it may have left rows uncommitted."""

    @abstractmethod
    def commit(self, committables: Sequence[Committable], context: ConnectorContext) -> None:
        """Make the rows visible. Retried until it succeeds, also after a restore: what was committed stays so, once.

        Called in any subtask, at any parallelism, when the writers may be gone; with committables of several
        checkpoints, some of which may have been committed.

        Raises:
            Exception: it could not be done now.
        """

    def discard(self, context: ConnectorContext) -> None:
        """Remove what writers of the job have prepared and nobody is going to commit, as far as it can be found.

        Called in the process that runs the job, when that is over and nothing of it is kept to be resumed from: a batch
        job whatever has become of it, a streaming one that has finished or was cancelled. Also called in the first
        subtask of a run that took the place of another, with the identity that the operator had in that. All that was
        committed is. Processes that are lost may still be writing. By default nothing is removed.

        Raises:
            Exception: it could not be done; what is left does no harm but takes room.
        """


def row_position(row: int) -> Position:
    """The position in front of row number `row` of a split, from 0: of readers that count rows.

    `row_of` reads it back.
    """
    return {"row": row}


def row_of(position: Position, where: str) -> int:
    """The number of the row that a reader is to resume at.

    Args:
        position: from `row_position`.
        where: which source and split, for messages.

    Raises:
        RestoreError: the position is another source's.

    Example:
        >>> row_of({"row": 7}, "collection")
        7
    """
    row = position.get("row")
    if not isinstance(row, int) or isinstance(row, bool) or row < 0:
        raise RestoreError(
            f"{where}: a position must have a row number, not {dict(position)!r}; the checkpoint was taken with "
            "another source under this uid: give the new source a uid of its own"
        )
    return row
