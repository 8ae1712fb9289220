"""The Delta sink: appends rows to a table of Delta Lake, one version for what a subtask commits.

Programs build a `DeltaSink`; needs the extra `delta`. The log's entry holds the writer and its checkpoint as Delta's
own application transaction, so that a commit that is done again is done once.

Source: https://github.com/delta-io/delta/blob/master/PROTOCOL.md#transaction-identifiers
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, Final, cast

import pyarrow as pa
import pyarrow.compute as pc
import tenacity

from penstock.connectors.files.bucket_folder import UploadStream
from penstock.connectors.files.bucket_reader import find_object
from penstock.connectors.files.folders import sync_directory
from penstock.connectors.files.object_store import dataset_of, is_url, locate, normalise_url, reason, remove_object
from penstock.connectors.lakes.data_files import DataFileWriter, check_columns, files_of, newest_by_writer
from penstock.connectors.lakes.snapshots import LakeSnapshot
from penstock.connectors.records.batches import load_library
from penstock.engine.connectors import Committable, ConnectorContext, Dataset, TransactionalSink, TransactionalWriter
from penstock.engine.errors import CheckpointCorruptError, ConfigurationError, RecordError

if TYPE_CHECKING:  # this name exists for type checkers only
    from deltalake import DeltaTable

_ATTEMPTS: Final = 20
_LARGEST_BYTES: Final = 512 * 1024 * 1024
_FILE_SIZE: Final = "delta.targetFileSize"
_SIZE: Final = re.compile(r"(\d+) ?([kmgtp]?)(?:i?b)?")
_UNITS: Final = ("", "k", "m", "g", "t", "p")
_LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DeltaSink(TransactionalSink):
    """Appends rows to a Delta table that exists.

    Guarantee: exactly once with checkpoints, read committed. Each subtask writes data files (Parquet), which nobody
    sees, and commits those of a checkpoint in one version when it is complete, together with an application transaction
    `penstock-<writer>` whose version is the checkpoint's number: a commit that finds it is done, and Delta refuses a
    rival's. If `delta.setTransactionRetentionDuration` is set, it must be longer than the age of the savepoints that
    you may start from. Without checkpoints, each subtask commits when its input ends. Each subtask makes a version of
    its own: give the sink a parallelism of 1 where one version for each checkpoint is wanted.

    Columns are matched by name; those that rows do not have are null. An empty text in a partition column is null, as
    Delta has it, and a `RecordError` where the column takes no nulls. Files of attempts that failed stay in the table's
    folder until VACUUM removes them: let it leave files that are younger than your savepoints.

    Args:
        table: a path that every node sees, or a URL (`s3://bucket/table`, `gs://...`, `az://...`).
            Credentials, region and end point come from the environment (`AWS_...`, `GOOGLE_...`, `AZURE_...`) on every
            node; a plain `http://` end point also needs `AWS_ALLOW_HTTP=true`.

    Raises:
        ConfigurationError: where the job is planned: deltalake is not installed, there is no such table, or it has
            columns or rules that only its own engine can write (column mapping, constraints, generated columns).

    Example:
        >>> DeltaSink("s3://lake/visits")
    """

    table: str | os.PathLike[str]

    def __post_init__(self) -> None:
        text = os.fspath(self.table)
        path = normalise_url(text, "Delta sink") if is_url(text) else os.path.abspath(os.path.expanduser(text))
        object.__setattr__(self, "table", path)

    @property
    def datasets(self) -> Sequence[Dataset]:
        return (dataset_of(os.fspath(self.table)),)

    def check(self, schema: pa.Schema | None) -> None:
        table = self._load()
        _check_rules(table, self._name)
        if schema is not None:
            check_columns(schema, _columns(table), self._name)

    def open(self, context: ConnectorContext) -> TransactionalWriter:
        return DataFileWriter(_DeltaFiles(self._load(), os.fspath(self.table)), self._name, context)

    def commit(self, committables: Sequence[Committable], context: ConnectorContext) -> None:
        """Add the files to the table, unless they are in it.

        Raises:
            CheckpointCorruptError: a file is gone; names it.
            deltalake.exceptions.CommitFailedError: others kept changing the table.
        """
        load_library("deltalake", "delta", "the Delta sink")
        from deltalake.exceptions import CommitFailedError

        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(CommitFailedError),
            stop=tenacity.stop_after_attempt(_ATTEMPTS),
            wait=tenacity.wait_random_exponential(0.05, 2.0),
            reraise=True,
        )
        where = f"operator {context.operator!r}, subtask {context.subtask}: {self._name}"
        for attempt in retrying:
            with attempt:
                self._commit(committables, where)

    def _commit(self, committables: Sequence[Committable], where: str) -> None:
        from deltalake.transaction import AddAction, CommitProperties, Transaction

        table = self._load()
        versions = {writer: table.transaction_version(_app(writer)) for writer in newest_by_writer(committables)}
        due = [one for one in committables if one.checkpoint > _or_none(versions[one.writer])]
        if not due:
            return
        files = files_of(due)
        self._check_files(files, where)
        columns = table.metadata().partition_columns
        actions = [
            AddAction(
                path=row["path"],
                size=row["size"],
                partition_values=dict(zip(columns, json.loads(row["partition"]), strict=True)),
                modification_time=0,
                data_change=True,
                stats=json.dumps({"numRecords": row["rows"]}),
            )
            for row in files
        ]
        newest = newest_by_writer(due)
        properties = CommitProperties(
            custom_metadata={"penstock.checkpoint": str(max(newest.values()))},
            app_transactions=[Transaction(_app(writer), checkpoint) for writer, checkpoint in newest.items()],
        )
        table.create_write_transaction(
            list(actions), "append", table.schema(), partition_by=columns, commit_properties=properties
        )

    def _check_files(self, files: Sequence[Mapping[str, Any]], where: str) -> None:
        """A version that refers to files which are not there would break the table for everybody."""
        for row in files:
            if _length(f"{os.fspath(self.table)}/{row['path']}") != row["size"]:
                raise CheckpointCorruptError(
                    f"{where}: data file {row['path']} is gone or has changed; its checkpoint says that it has "
                    f"{row['size']} bytes. Put it back, or start from a savepoint taken after it was removed"
                )

    def describe(self) -> str:
        return f"delta({os.path.basename(os.fspath(self.table).rstrip('/'))})"

    @property
    def _name(self) -> str:
        return f"Delta sink {os.fspath(self.table)!r}"

    def _load(self) -> DeltaTable:
        return _opened(os.fspath(self.table), self._name)


def delta_snapshot(path: str) -> LakeSnapshot:
    """What a Delta table holds now.

    Args:
        path: of the table, or its URL.

    Raises:
        ConfigurationError: there is none, or its files alone do not say what it holds.
    """
    where = f"Delta table {path!r}"
    table = _opened(normalise_url(path, where) if is_url(path) else os.path.abspath(os.path.expanduser(path)), where)
    metadata = table.metadata()
    if metadata.configuration.get("delta.columnMapping.mode", "none") != "none":
        raise ConfigurationError(f"{where} has column mapping, which only Delta's own engine can read")
    if "deletionVectors" in (table.protocol().reader_features or ()):
        raise ConfigurationError(
            f"{where} may have deletion vectors, so that its files have rows which are gone; turn off "
            "delta.enableDeletionVectors, run REORG TABLE ... APPLY (PURGE), and drop the feature"
        )
    by = tuple(metadata.partition_columns)
    held = pa.schema([field for field in _columns(table) if field.name not in by])
    return LakeSnapshot(where, tuple(sorted(table.file_uris())), held, by)


def _opened(path: str, where: str) -> DeltaTable:
    load_library("deltalake", "delta", "Delta tables")
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError, TableNotFoundError

    try:
        if is_url(path):
            locate(path)  # which does not wait for minutes where nobody answers
        return DeltaTable(path)
    except TableNotFoundError:
        raise ConfigurationError(f"{where}: there is no such table; create it before the job") from None
    except (DeltaError, OSError, ValueError) as error:
        raise ConfigurationError(
            f"{where} cannot be opened: {reason(error)}; check the path, and the credentials, region and end "
            "point in the environment"
        ) from None


def _app(writer: str) -> str:
    return f"penstock-{writer}"


def _or_none(version: int | None) -> int:
    return -1 if version is None else version


def _columns(table: DeltaTable) -> pa.Schema:
    return pa.schema(table.schema().to_arrow())


def _check_rules(table: DeltaTable, where: str) -> None:
    configuration = table.metadata().configuration
    mapping = configuration.get("delta.columnMapping.mode", "none")
    rules = [key for key in configuration if key.startswith("delta.constraints.")]
    fields = json.loads(table.schema().to_json())["fields"]
    rules += [
        field["name"]
        for field in fields
        if {"delta.invariants", "delta.generationExpression"} & set(field.get("metadata", {}))
    ]
    if mapping != "none" or rules:
        reason = f"column mapping {mapping!r}" if mapping != "none" else f"rules for its rows ({', '.join(rules)})"
        raise ConfigurationError(f"{where}: the table has {reason}, which only Delta's own engine can write; remove it")


def _largest_bytes(configuration: Mapping[str, str], path: str) -> int:
    """How large a file may become by the table's `delta.targetFileSize`, which is `100mb` or `104857600`."""
    said = configuration.get(_FILE_SIZE)
    if said is None:
        return _LARGEST_BYTES
    match = _SIZE.fullmatch(said.strip().lower())
    size = 0 if match is None else int(match[1]) * 1024 ** _UNITS.index(match[2])
    if not size:
        _LOG.warning("Delta sink %r: %s=%r is no size such as '100mb'; files are of 512 MiB", path, _FILE_SIZE, said)
    return size or _LARGEST_BYTES


def _length(path: str) -> int | None:
    if is_url(path):
        found = find_object(path)
        return None if found is None else found[2]
    return os.path.getsize(path) if os.path.exists(path) else None


class _DeltaFiles:
    """The table's files, as `data_files.LakeTable` has it. All are at the top: the log says which partition each is."""

    def __init__(self, table: DeltaTable, path: str) -> None:
        self._path = path
        self.columns = _columns(table)
        self._partitioned = table.metadata().partition_columns
        self.stored = pa.schema([field for field in self.columns if field.name not in self._partitioned])
        self.largest_bytes = _largest_bytes(table.metadata().configuration, path)

    def partitions(self, rows: pa.RecordBatch) -> Sequence[pa.Array]:
        return [self._texts(name, rows.column(name)) for name in self._partitioned]

    def _texts(self, name: str, column: pa.Array) -> pa.Array:
        zoned = pa.types.is_timestamp(column.type) and column.type.tz is not None
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.timestamp("us"))
        texts = column.cast(pa.string())
        if zoned:
            # Without a zone it would be a time of whatever zone the reader is in.
            texts = pc.binary_join_element_wise(pc.replace_substring(texts, " ", "T"), "Z", "")
        if not self.columns.field(name).nullable and pc.any(pc.equal(texts, "")).as_py():
            raise RecordError(
                f"Delta sink {self._path!r}: partition column {name!r} is an empty text in a row, which is null for "
                "Delta, and the table takes no null there; give such rows another value, or alter the table"
            )
        return texts

    def create(self, name: str) -> tuple[str, BinaryIO]:
        path = f"{self._path}/{name}"
        return name, cast(BinaryIO, _Upload(path) if is_url(path) else _SyncedFile(path))

    def delete(self, path: str) -> None:
        whole = f"{self._path}/{path}"
        if is_url(whole):
            remove_object(whole)
        else:
            os.unlink(whole)


class _SyncedFile:
    """A file of this machine, which survives the loss of power once it is closed."""

    def __init__(self, path: str) -> None:
        self._file = open(path, "xb")  # noqa: SIM115 - open until close

    def write(self, data: bytes) -> int:
        return self._file.write(data)

    def close(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        sync_directory(os.path.dirname(self._file.name))


class _Upload:
    """An object of a bucket, which appears when it is closed."""

    def __init__(self, url: str) -> None:
        self._stream = UploadStream(url)

    def write(self, data: bytes) -> int:
        return self._stream.write(data)

    def close(self) -> None:
        self._stream.upload()
