"""The Iceberg sink: appends rows to a table of Apache Iceberg, one snapshot for what a subtask commits.

Programs build an `IcebergSink`; needs the extra `iceberg`. A snapshot names the checkpoint and the writer of its rows
in its summary, in the same atomic change of the table, so that a commit that is done again is done once.
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, BinaryIO, Final, cast
from urllib.parse import unquote, urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import tenacity

from penstock.connectors.files.object_store import reason
from penstock.connectors.http.client import ask, shown_url
from penstock.connectors.lakes.data_files import DataFileWriter, check_columns, files_of, newest_by_writer
from penstock.connectors.lakes.snapshots import LakeSnapshot
from penstock.connectors.records.batches import load_library
from penstock.engine.connectors import Committable, ConnectorContext, Dataset, TransactionalSink, TransactionalWriter
from penstock.engine.errors import CheckpointCorruptError, ConfigurationError

if TYPE_CHECKING:  # these names exist for type checkers only
    from pyiceberg.partitioning import PartitionField
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table

_MARKER: Final = "penstock.checkpoint."
"""Begins the keys of snapshot summaries that say up to which checkpoint a writer's rows are in the table."""
_ANSWER_SECONDS: Final = 8.0
_ATTEMPTS: Final = 20
_SHORTEST_SECRET: Final = 6
_TIME_TRANSFORMS: Final = ("year", "month", "day", "hour")
_HOUR_US: Final = 3_600_000_000


@dataclass(frozen=True, slots=True)
class IcebergSink(TransactionalSink):
    """Appends rows to an Iceberg table that exists.

    Guarantee: exactly once with checkpoints, read committed. Each subtask writes data files (Parquet), which nobody
    sees, and commits those of a checkpoint in one snapshot when it is complete. The snapshot's summary holds
    `penstock.checkpoint.<writer>`, which is looked for among the ancestors of the current snapshot before a commit; the
    catalog refuses a commit when the table has changed since that look, and the sink looks again. So do not expire
    snapshots that are younger than the oldest savepoint that you may start from, and do not roll the table back while
    the job runs. Without checkpoints, each subtask commits when its input ends. Each subtask makes a snapshot of its
    own: give the sink a parallelism of 1 where one snapshot for each checkpoint is wanted.

    Columns are matched by name; those that rows do not have are null. Files of attempts that failed stay in the table's
    folder until its orphan files are removed: let that leave files that are younger than your savepoints.

    Args:
        table: its identifier, such as "sales.visits".
        catalog: the name of the catalog in pyiceberg's configuration (`.pyiceberg.yaml`, `PYICEBERG_CATALOG__...`).
        properties: of the catalog, over the configured ones; keep secrets in the configuration, since properties are
            sent with the job. On every node.

    Raises:
        ConfigurationError: where the job is planned: pyiceberg is not installed, there is no such catalog or table, or
            it is partitioned by a transform other than identity, truncate, year, month, day and hour. At once: the
            catalog is no name.

    Example:
        >>> IcebergSink("sales.visits", "prod")
    """

    table: str
    catalog: str = "default"
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.catalog, str):
            raise ConfigurationError(
                f"Iceberg sink {self.table!r}: catalog is the name of a catalog, such as 'prod', and no "
                f"{type(self.catalog).__name__}; what configures it goes into properties="
            )

    @property
    def datasets(self) -> Sequence[Dataset]:
        return (Dataset(f"iceberg://{self.catalog}", self.table),)

    def check(self, schema: pa.Schema | None) -> None:
        with self._loaded() as table:
            _check_transforms(table)
            if schema is not None:
                check_columns(schema, table.schema().as_arrow(), self._name)

    def open(self, context: ConnectorContext) -> TransactionalWriter:
        with self._loaded() as table:
            return DataFileWriter(_IcebergFiles(table), self._name, context)

    def commit(self, committables: Sequence[Committable], context: ConnectorContext) -> None:
        """Add the files to the table, unless they are in it.

        Raises:
            CheckpointCorruptError: a file is gone; names it.
            pyiceberg.exceptions.CommitFailedException: others kept changing the table.
        """
        load_library("pyiceberg", "iceberg", "the Iceberg sink")
        from pyiceberg.exceptions import CommitFailedException

        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(CommitFailedException),
            stop=tenacity.stop_after_attempt(_ATTEMPTS),
            wait=tenacity.wait_random_exponential(0.05, 2.0),
            reraise=True,
        )
        where = f"operator {context.operator!r}, subtask {context.subtask}: {self._name}"
        with self._loaded() as table:
            for attempt in retrying:
                with attempt:
                    _commit(table.refresh(), committables, where)

    def describe(self) -> str:
        return f"iceberg({self.table})"

    @property
    def _name(self) -> str:
        return f"Iceberg sink {self.table!r}"

    def _loaded(self) -> contextlib.AbstractContextManager[Table]:
        return _opened(self._name, self.table, self.catalog, self.properties)


def iceberg_snapshot(table: str, catalog: str, properties: Mapping[str, str]) -> LakeSnapshot:
    """What an Iceberg table holds now.

    Args:
        table, catalog, properties: as for `IcebergSink`.

    Raises:
        ConfigurationError: there is none, or its files alone do not say what it holds.
    """
    where = f"Iceberg table {table!r}"
    with _opened(where, table, catalog, properties) as opened:
        _check_names(opened, where)
        tasks = list(opened.scan().plan_files())
        for task in tasks:
            if task.delete_files or task.file.file_format.name != "PARQUET":
                problem = (
                    "rows that are deleted by files of their own" if task.delete_files else "files that are no Parquet"
                )
                raise ConfigurationError(f"{where} has {problem}; rewrite its data files (rewrite_data_files in Spark)")
        files = sorted(task.file.file_path.removeprefix("file://") for task in tasks)
        return LakeSnapshot(where, tuple(files), opened.schema().as_arrow())


def _check_names(table: Table, where: str) -> None:
    """Files are read by names, and Iceberg knows columns by numbers: a name must always have meant one column."""
    now = _numbers(table.schema())
    for schema in table.schemas().values():
        for name, number in _numbers(schema).items():
            if now.get(name, number) != number:
                raise ConfigurationError(
                    f"{where}: {name!r} was another column before, and files may have that one; give the new one a "
                    "name of its own, or write the table anew"
                )


def _numbers(schema: Schema) -> dict[str, int]:
    return {name: schema.find_field(name).field_id for name in schema.column_names}


@contextlib.contextmanager
def _opened(where: str, table: str, catalog: str, properties: Mapping[str, str]) -> Iterator[Table]:
    load_library("pyiceberg", "iceberg", "Iceberg tables")
    from pyiceberg.catalog import load_catalog
    from pyiceberg.exceptions import NoSuchTableError
    from pyiceberg.utils.config import Config

    used: dict[str, object] = dict(properties)
    try:
        used = {**(Config().get_catalog_config(catalog) or {}), **properties}
        _await_answer(str(used.get("uri") or ""))
        opened = load_catalog(catalog, **dict(properties))
    except Exception as error:  # each kind of catalog raises its own
        raise ConfigurationError(
            f"{where}: catalog {catalog!r} cannot be opened: {_hide(used, reason(error))}; check pyiceberg's "
            "configuration and the properties"
        ) from None
    try:
        yield opened.load_table(table)
    except NoSuchTableError:
        raise ConfigurationError(f"{where}: catalog {catalog!r} has no such table; create it before the job") from None
    finally:
        opened.close()


def _hide(properties: Mapping[str, object], text: str) -> str:
    """The text without the values of a catalog's properties, and without user and password of its URI."""
    uri = str(properties.get("uri") or "")
    hidden = [str(value) for name, value in properties.items() if name not in ("uri", "type")]
    hidden += str(properties.get("credential") or "").split(":")
    hidden = [value for value in hidden if len(value) >= _SHORTEST_SECRET]
    try:
        shown, password = shown_url(uri), urlsplit(uri).password or ""
    except ValueError:
        shown, password = "***", ""
    if uri:
        text = text.replace(uri, shown)
    for value in sorted({*hidden, password, unquote(password)} - {""}, key=len, reverse=True):
        text = text.replace(value, "***")
    return text


def _check_transforms(table: Table) -> None:
    for part in table.spec().fields:
        if not part.transform.preserves_order:
            raise ConfigurationError(
                f"Iceberg sink: the table is partitioned by {part.transform} of field {part.name!r}, which cannot be "
                "written; use identity, truncate, year, month, day or hour"
            )


@functools.cache
def _await_answer(uri: str) -> None:
    """See that somebody is at the URI of a REST catalog, once a process: pyiceberg would wait for ever.

    Raises:
        TimeoutError: no answer within 8 s.
    """
    began = time.monotonic()
    try:
        if uri.startswith(("http://", "https://")):
            ask(uri.rstrip("/") + "/v1/config", {}, _ANSWER_SECONDS)
    except ConnectionError:
        # Other mistakes are reported by pyiceberg, which has certificates and proxies of its own.
        if time.monotonic() - began >= _ANSWER_SECONDS:
            raise TimeoutError(f"{shown_url(uri)}: no answer within {_ANSWER_SECONDS:g} s") from None


def _commit(table: Table, committables: Sequence[Committable], where: str) -> None:
    done = _committed(table, {committable.writer for committable in committables})
    due = [committable for committable in committables if committable.checkpoint > done.get(committable.writer, -1)]
    if not due:
        return
    # pyiceberg would try again by itself, behind commits that it does not look at: one may be of the same rows.
    without_retries = table.metadata.properties | {"commit.retry.num-retries": "0"}
    table.metadata = table.metadata.model_copy(update={"properties": without_retries})
    marks = {f"{_MARKER}{writer}": str(checkpoint) for writer, checkpoint in newest_by_writer(due).items()}
    try:
        with table.transaction() as transaction:
            transaction.add_files([row["path"] for row in files_of(due)], marks, check_duplicate_files=False)
    except FileNotFoundError as error:
        raise CheckpointCorruptError(
            f"{where}: a data file of the checkpoint is gone: {error}. Put it back, or start from a savepoint taken "
            "after it was removed"
        ) from error


def _committed(table: Table, writers: set[str]) -> dict[str, int]:
    """Up to which checkpoint the rows of those writers are in the table."""
    snapshots = {snapshot.snapshot_id: snapshot for snapshot in table.metadata.snapshots}
    found: dict[str, int] = {}
    at = table.metadata.current_snapshot_id
    while at is not None and at in snapshots and len(found) < len(writers):
        summary = snapshots[at].summary
        marks = {} if summary is None else summary.additional_properties
        for writer in writers - set(found):
            if (mark := marks.get(f"{_MARKER}{writer}")) is not None:
                found[writer] = int(mark)
        at = snapshots[at].parent_snapshot_id
    return found


class _IcebergFiles:
    """The table's files, as `data_files.LakeTable` has it."""

    def __init__(self, table: Table) -> None:
        from pyiceberg.table import TableProperties

        self._table = table
        self.columns = self.stored = table.schema().as_arrow()
        properties, key = table.metadata.properties, TableProperties.WRITE_TARGET_FILE_SIZE_BYTES
        self.largest_bytes = int(properties.get(key, TableProperties.WRITE_TARGET_FILE_SIZE_BYTES_DEFAULT))

    def partitions(self, rows: pa.RecordBatch) -> Sequence[pa.Array]:
        return [self._values(part, rows) for part in self._table.spec().fields]

    def _values(self, part: PartitionField, rows: pa.RecordBatch) -> pa.Array:
        source = self._table.schema().find_field(part.source_id)
        column = rows.column(source.name)
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
            if str(part.transform) in _TIME_TRANSFORMS:
                # No transform of time looks at less than an hour, so few distinct values are left.
                micros = column.fill_null(0).to_numpy(zero_copy_only=False)
                hours = pa.array(np.floor_divide(micros, _HOUR_US) * _HOUR_US)
                column = pc.if_else(column.is_null(), pa.scalar(None, pa.int64()), hours)
        elif pa.types.is_date(column.type):
            column = column.cast(pa.date32()).cast(pa.int32())
        encoded = column.dictionary_encode()
        transform = part.transform.transform(source.field_type)
        texts = [str(transform(value)) for value in encoded.dictionary.to_pylist()]
        return pa.array(texts, pa.string()).take(encoded.indices)

    def create(self, name: str) -> tuple[str, BinaryIO]:
        path = self._table.location_provider().new_data_location(name)
        return path, cast(BinaryIO, self._table.io.new_output(path).create())

    def delete(self, path: str) -> None:
        self._table.io.delete(path)
