"""Savepoints and retained checkpoints as their users look at them: operators, states, timers, positions of sources.

`read(path)` opens one; the editor and the comparison build on what it gives. Opening reads the manifest alone, which is
refused unless it is as it was written; so is each file when its rows are asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, Final, TypeAlias

import pyarrow as pa

from penstock.engine.checkpointing.handles import (
    CompletedCheckpoint,
    FileHandle,
    OperatorHandle,
    SubtaskHandle,
)
from penstock.engine.elements import MIN_TIMESTAMP, SnapshotKind
from penstock.engine.errors import CheckpointError, UnknownStateError, nearest
from penstock.engine.state.keys.groups import key_group_range
from penstock.engine.state.snapshot import Redistribution
from penstock.engine.state.timers import EVENT_TIMERS, PROCESSING_TIMERS
from penstock.savepoints.far_times import printable
from penstock.savepoints.layout import StateKind
from penstock.savepoints.saved_state import Part, SavedState
from penstock.savepoints.segments import read_file
from penstock.savepoints.shown import rendered, sized
from penstock.savepoints.storage import BlobStore, normalise_url, open_blobs
from penstock.savepoints.store import files_of, find_checkpoint

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)


def facts_of(state: SavedState) -> dict[str, Any]:
    """What there is of a state, as JSON has it.

    Raises:
        CheckpointCorruptError: a file that must be read for it is not as it was written.
    """
    return {
        "name": state.name,
        "kind": state.kind.value,
        "keys": list(state.key_columns),
        "columns": {field.name: str(field.type) for field in state.schema},
        "rows": state.rows,
        "bytes": state.nbytes,
    }


FactsOf: TypeAlias = Callable[[SavedState], Mapping[str, Any]]


class SavedOperator:
    """One operator of the program, over all subtasks.

    Args:
        uid: its id, stable over program versions.
        handles: what each subtask has, in their order.
        parallelism: how many subtasks it had.
        max_parallelism: number of key groups.
        blobs: the folder of its files.
    """

    def __init__(
        self,
        uid: str,
        handles: Sequence[tuple[int, OperatorHandle]],
        parallelism: int,
        max_parallelism: int,
        blobs: BlobStore,
    ) -> None:
        self.uid = uid
        self.name = handles[0][1].name
        self.parallelism = parallelism
        self.watermark = min(handle.watermark for _, handle in handles)
        self._handles = handles
        names = dict.fromkeys(name for _, handle in handles for name in handle.tables)

        def parts(name: str) -> Iterator[Part]:
            for subtask, handle in handles:
                if name in handle.tables:
                    table = handle.tables[name]
                    is_keyed = table.redistribution is Redistribution.KEYED
                    owned = key_group_range(subtask, parallelism, max_parallelism) if is_keyed else None
                    yield Part(subtask, table, owned)

        self.all_states: tuple[SavedState, ...] = tuple(
            SavedState(uid, name, tuple(parts(name)), max_parallelism, blobs) for name in names
        )
        """Every table: the declared states, timers, and what the operator notes for itself."""
        self._where = f"{blobs.url}: operator {uid!r}"

    def __repr__(self) -> str:
        return f"SavedOperator({self.uid!r}, {self.name!r}, parallelism={self.parallelism})"

    @property
    def native(self) -> str | None:
        """The format of the backend's own files that hold keyed state beside the tables, such as `"rocksdb"`."""
        return next((handle.native.format for _, handle in self._handles if handle.native is not None), None)

    @property
    def native_files(self) -> frozenset[str]:
        """The digest of each of these files."""
        natives = [handle.native.files.values() for _, handle in self._handles if handle.native is not None]
        return frozenset(file.digest for files in natives for file in files)

    @property
    def native_nbytes(self) -> int:
        """Of these files."""
        natives = [handle.native.files.values() for _, handle in self._handles if handle.native is not None]
        return sum({file.path: file.length for files in natives for file in files}.values())

    @property
    def states(self) -> tuple[SavedState, ...]:
        """Its states, in the order in which they were declared; timers are in `timers()`."""
        return tuple(state for state in self.all_states if state.stored_name not in (EVENT_TIMERS, PROCESSING_TIMERS))

    def state(self, name: str) -> SavedState:
        """The state of a name.

        Raises:
            UnknownStateError: there is none; names those that there are.
        """
        for state in self.all_states:
            if name in (state.name, state.stored_name):
                return state
        names = [state.name for state in self.states]
        hint = (
            "" if self.native is None else f" (its keyed state is in {self.native} files; take a savepoint to read it)"
        )
        raise UnknownStateError(
            f"{self._where} has no state {name!r}{nearest(name, names)}; there are {', '.join(names) or 'none'}{hint}"
        )

    def timers(self) -> pa.Table:
        """The timers: key columns, start and end of the window where they are a window's, `time`, `kind`.

        `time` is a timestamp (ms, UTC), `kind` is `"event"` or `"processing"`. Times beyond the years 1 to 9999 are the
        last, or the first, of these, as no calendar has others.
        """
        tables = []
        for stored, kind in ((EVENT_TIMERS, "event"), (PROCESSING_TIMERS, "processing")):
            for state in self.all_states:
                if state.stored_name == stored:
                    rows = state.to_arrow()
                    tables.append(rows.append_column("kind", pa.array([kind] * rows.num_rows, pa.string())))
        if not tables:
            return _NO_TIMERS.empty_table()
        return printable(pa.concat_tables(tables, promote_options="default"))

    def to_dict(self, facts: FactsOf = facts_of) -> dict[str, Any]:
        """What there is, as JSON has it; of each state what `facts` says."""
        watermark = None if self.watermark == MIN_TIMESTAMP else self.watermark
        return {
            "uid": self.uid,
            "name": self.name,
            "parallelism": self.parallelism,
            "watermark": watermark,
            "native": None if self.native is None else {"format": self.native, "bytes": self.native_nbytes},
            "states": [facts(state) for state in self.all_states],
        }


_NO_TIMERS: Final = pa.schema([("time", pa.timestamp("ms", "UTC")), ("kind", pa.string())])


class Savepoint:
    """A savepoint or retained checkpoint. `read` makes it.

    Args:
        path: URL of its folder.
        checkpoint: what its manifest says.
        blobs: the folder that the paths of its files are relative to.

    Example:
        `print(read("file:///savepoints/savepoint-1").describe())`
    """

    def __init__(self, path: str, checkpoint: CompletedCheckpoint, blobs: BlobStore) -> None:
        self.path = path
        self.checkpoint = checkpoint
        self.blobs = blobs
        self.operators = tuple(_operators(checkpoint, blobs))
        """Every operator of the program, those without state too, in the order of the program."""

    def __repr__(self) -> str:
        return f"Savepoint({self.path!r})"

    @property
    def max_parallelism(self) -> int:
        """Number of key groups."""
        return self.checkpoint.max_parallelism

    @property
    def completed_at(self) -> datetime:
        """When it was complete (UTC)."""
        return _EPOCH + timedelta(milliseconds=self.checkpoint.completed_ms)

    def operator(self, uid: str) -> SavedOperator:
        """The operator of a uid.

        Raises:
            CheckpointError: there is none; names those that there are.
        """
        for operator in self.operators:
            if operator.uid == uid:
                return operator
        uids = [operator.uid for operator in self.operators]
        shown = ", ".join(f"{operator.uid!r} ({operator.name})" for operator in self.operators)
        raise CheckpointError(f"{self.path} has no operator {uid!r}{nearest(uid, uids)}; it has {shown or 'none'}")

    def source_positions(self, uid: str) -> pa.Table:
        """How far each split of a source is: `split_id`, `position` (JSON, as its reader gave it), `finished`,
        `watermark`.

        Splits that had not been begun are not in it; `position` is null behind the end of a split, `watermark`
        (ms) where it had no event time; checkpoints of older versions lack it.

        Raises:
            CheckpointError: no such operator, or it is no source.
        """
        for state in self.operator(uid).all_states:
            if state.kind is StateKind.SPLITS:
                return state.to_arrow()
        sources = [one.uid for one in self.operators if any(state.kind is StateKind.SPLITS for state in one.all_states)]
        raise CheckpointError(f"{self.path}: operator {uid!r} is no source; there are {', '.join(sources) or 'none'}")

    def verify(self) -> int:
        """Read every file and compare its length and hash; returns how many there are.

        Raises:
            CheckpointCorruptError: one is not as it was written (names it).
        """
        for file in self.files:
            read_file(self.blobs, file)
        return len(self.files)

    @property
    def files(self) -> Sequence[FileHandle]:
        """All files that hold its state, each once."""
        return tuple({file.path: file for file in self.checkpoint.files()}.values())

    def describe(self) -> str:
        """Job, operators and states as text for people."""
        return rendered(self.__rich__())

    def __rich__(self) -> Any:
        return self.shown(facts_of)

    def shown(self, facts: FactsOf) -> Any:
        """Job, operators and states for a terminal; of each state what `facts` says."""
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        taken = self.checkpoint
        ended = ", which ended behind it" if taken.kind is SnapshotKind.SUSPEND else ""
        head = (
            f"{taken.kind.noun} {taken.checkpoint} of job {taken.job_name} ({taken.job_id}){ended}, "
            f"{self.completed_at:%Y-%m-%d %H:%M:%S} UTC, max parallelism {taken.max_parallelism}\n{self.path}"
        )
        table = Table("operator", "uid", "parallelism", "state", "kind", "keys", "rows", "bytes", box=None)
        for operator in self.operators:
            own = [operator.name, operator.uid, str(operator.parallelism)]
            lines = []
            for said in map(facts, operator.all_states):
                rows = "?" if said["rows"] is None else f"{said['rows']:,}"
                lines.append([said["name"], said["kind"], ", ".join(said["keys"]), rows, sized(said["bytes"])])
            if operator.native is not None:
                lines.append(["(keyed state)", operator.native, "", "", sized(operator.native_nbytes)])
            for number, line in enumerate(lines or [["-", "", "", "", ""]]):
                table.add_row(*map(Text, own if number == 0 else [""] * 3), *map(Text, line))
        return Group(Text(head), table)

    def to_dict(self, facts: FactsOf = facts_of) -> dict[str, Any]:
        """What there is, as JSON has it; of each state what `facts` says."""
        taken = self.checkpoint
        return {
            "path": self.path,
            "kind": taken.kind.value,
            "checkpoint": taken.checkpoint,
            "job_id": taken.job_id,
            "job_name": taken.job_name,
            "completed_at": self.completed_at.isoformat(),
            "max_parallelism": taken.max_parallelism,
            "bytes": sum({file.path: file.length for file in taken.files()}.values()),
            "in_flight_files": sum(len(subtask.in_flight) for subtask in taken.subtasks),
            "operators": [operator.to_dict(facts) for operator in self.operators],
        }


def read(path: str | Path, *, storage: Sequence[str] = ()) -> Savepoint:
    """Open a savepoint or a retained checkpoint.

    Args:
        path: of its folder (`.../savepoint-...`, `.../chk-00000042`), or of a job's folder, which means its newest
            checkpoint: a plain path, or a URL as `file://`, `s3://`.
        storage: URLs of the folders that single operators have their state in, where they have one of their own.

    Raises:
        RestoreError: there is none, or a later version of Penstock has written it.
        CheckpointCorruptError: its manifest is not as it was written, or a file is missing or cut off (names it).

    Example:
        `read("s3://bucket/savepoints/savepoint-4f2a").operator("totals").state("total").to_pandas()`
    """
    found = find_checkpoint(str(path), storage=storage)
    return Savepoint(normalise_url(str(path)), found.checkpoint, files_of(found, open_blobs, storage))


def _operators(checkpoint: CompletedCheckpoint, blobs: BlobStore) -> Iterator[SavedOperator]:
    handles: dict[str, list[tuple[SubtaskHandle, OperatorHandle]]] = {}
    for subtask in sorted(checkpoint.subtasks, key=lambda subtask: (subtask.task, subtask.subtask)):
        for operator in subtask.operators:
            handles.setdefault(operator.uid, []).append((subtask, operator))
    for uid, held in handles.items():
        own = [(subtask.subtask, operator) for subtask, operator in held]
        yield SavedOperator(uid, own, held[0][0].parallelism, checkpoint.max_parallelism, blobs)
