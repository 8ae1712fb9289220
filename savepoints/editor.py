"""Makes savepoints from tables, and changed copies of savepoints and retained checkpoints.

Users call `bootstrap`, `modify` and `write`. What is read is never changed; what is written is a new folder, complete
in itself, whose manifest comes last: a run that is broken off leaves no savepoint. All is checked before.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import pyarrow as pa

from penstock.engine.checkpointing.handles import (
    CompletedCheckpoint,
    OperatorHandle,
    SubtaskHandle,
    TableHandle,
)
from penstock.engine.clock import SystemClock
from penstock.engine.config import LARGEST_MAX_PARALLELISM
from penstock.engine.elements import CheckpointMode, SnapshotKind
from penstock.engine.errors import CheckpointError, ConfigurationError, StateError, nearest
from penstock.engine.state.descriptors import KeyedDescriptor, ListStateDescriptor, MapStateDescriptor
from penstock.engine.state.keys.groups import key_group_range
from penstock.engine.state.snapshot import Redistribution, StateTable, keyed_table, rows_of_groups
from penstock.engine.state.state_tables import TOUCHED
from penstock.engine.state.timers import EVENT_TIMERS, PROCESSING_TIMERS
from penstock.savepoints.layout import StateKind, layout_of, plain_table, shown_name
from penstock.savepoints.manifest import encode_manifest
from penstock.savepoints.paths import MANIFEST
from penstock.savepoints.reader import SavedOperator, Savepoint, read
from penstock.savepoints.saved_state import SavedState
from penstock.savepoints.savepoint_files import SavepointFiles, new_folder, savepoint_url
from penstock.savepoints.state_rows import (
    broadcast_table,
    check_unique,
    keyed_state_table,
    list_table,
    timers_table,
)

_WITH_NULLS: Final = (StateKind.AGGREGATE, StateKind.SPLITS)
_FIXED: Final = (StateKind.ROWS, StateKind.COMMITTABLES, StateKind.INTERNAL)


def bootstrap(path: str | Path, *, max_parallelism: int = 128, job_name: str = "bootstrap") -> SavepointEditor:
    """A new savepoint, to which states are added, and which `write()` writes.

    Args:
        path: of its folder, which must not be there yet: a plain path or a URL (`file://`, `s3://`, `gs://`, `az://`).
        max_parallelism: number of key groups; that of the job that will start from it.
        job_name: for people.

    Raises:
        ConfigurationError: a path or number that cannot be used.

    Example:
        >>> import pyarrow as pa
        >>> from penstock.engine.state.descriptors import ValueStateDescriptor
        >>> total = ValueStateDescriptor("total", "int64")
        >>> table = pa.table({"user": ["ann", "bob"], "value": [3, 4]})
        >>> editor = bootstrap("memory://docs/first").keyed_state("totals", keys=["user"], state=total, data=table)
        >>> made = editor.write()
        >>> made.operator("totals").state("total").get("bob")
        4
    """
    if type(max_parallelism) is not int or not 1 <= max_parallelism <= LARGEST_MAX_PARALLELISM:
        raise ConfigurationError(
            f"bootstrap: max_parallelism must be a whole number from 1 to {LARGEST_MAX_PARALLELISM}, not "
            f"{max_parallelism!r}"
        )
    now = SystemClock().now_ms()
    taken = CompletedCheckpoint(
        job_id=f"bootstrap-{secrets.token_hex(8)}",
        job_name=job_name,
        checkpoint=1,
        attempt=0,
        kind=SnapshotKind.SAVEPOINT,
        mode=CheckpointMode.ALIGNED,
        max_parallelism=max_parallelism,
        triggered_ms=now,
        completed_ms=now,
        subtasks=(),
    )
    return SavepointEditor(str(path), taken, None)


def modify(path: str | Path | Savepoint, new_path: str | Path) -> SavepointEditor:
    """A changed copy of a savepoint or retained checkpoint, which `write()` writes to `new_path`.

    Args:
        path: of what is copied; it stays as it is.
        new_path: of the new savepoint's folder, which must not be there yet.

    Raises:
        CheckpointError: there is no savepoint at `path`.

    Example:
        `modify(old, new).remove_state("totals", "cache").rename_operator("totals", "sums").write()`
    """
    source = path if isinstance(path, Savepoint) else read(path)
    return SavepointEditor(str(new_path), source.checkpoint, source)


def write(savepoint: str | Path | Savepoint, path: str | Path) -> Savepoint:
    """A copy of a savepoint or retained checkpoint as a savepoint that is complete in itself.

    So a checkpoint outlives its job, and a savepoint moves to another storage: the new folder needs no other.

    Args:
        savepoint: what is copied.
        path: of the new folder, which must not be there yet.

    Raises:
        CheckpointError: there is no such savepoint, or something is at `path` already.
    """
    return modify(savepoint, path).write()


@dataclass(slots=True)
class _Edited:
    """What is to become of one operator.

    Args:
        uid, name: in the new savepoint.
        source: as it was, or None for a new one.
        kept: the states of the source that stay as they are, by their stored names.
        tables: new and changed states, by their stored names.
    """

    uid: str
    name: str
    source: SavedOperator | None = None
    kept: dict[str, SavedState] = field(default_factory=dict)
    tables: dict[str, StateTable] = field(default_factory=dict)


class SavepointEditor:
    """A savepoint that is being made; `bootstrap` and `modify` begin it. Each method returns the editor itself.

    Args:
        target: where it will be.
        taken: what its manifest will say, but for the operators.
        source: what it is a copy of, or None.
    """

    def __init__(self, target: str, taken: CompletedCheckpoint, source: Savepoint | None) -> None:
        self._target = savepoint_url(target)
        self._taken = taken
        self._source = source
        self._operators = {
            operator.uid: _Edited(
                operator.uid, operator.name, operator, {state.stored_name: state for state in operator.all_states}
            )
            for operator in (() if source is None else source.operators)
        }

    def __repr__(self) -> str:
        return f"SavepointEditor({self._target!r}, operators: {', '.join(self._operators) or 'none'})"

    def keyed_state(
        self,
        uid: str,
        *,
        keys: Sequence[str],
        state: KeyedDescriptor,
        data: object,
        value: str = "value",
        map_key: str = "map_key",
    ) -> SavepointEditor:
        """Add a keyed state to an operator, or put it in the place of the one of this name.

        Args:
            uid: of the operator, which is added if it is not there.
            keys: the key columns, in the order of the program's `key_by`, of the types that they have there.
            state: the descriptor that the program declares. Of reducing and aggregating state, values are the reduced
                values and the accumulators; behind a serializer, values are its bytes.
            data: an Arrow table, a DataFrame, a list of dicts or a dict of columns: the key columns and the state's
                own. Value state has a row a key, list state a row a key with a list, map state a row an entry. State of
                windows has `window_start` and `window_end` too (timestamps, or ms since the epoch).
            value: the column of the values.
            map_key: the column of the keys of maps.

        Raises:
            StateError: the data does not fit the descriptor: columns missing or unknown, values of another type, nulls,
                two rows of one key.
        """
        place = self._place(uid, getattr(state, "name", repr(state)))
        if not isinstance(state, KeyedDescriptor):
            raise StateError(f"{place}: give the state's descriptor, such as ValueStateDescriptor('total', 'int64')")
        table = keyed_state_table(
            place, _names(keys, place), state, data, (value, map_key), self._taken.max_parallelism
        )
        return self._put(uid, state.name, table)

    def event_timers(self, uid: str, *, keys: Sequence[str], data: object) -> SavepointEditor:
        """Set the timers by event time of an operator, in place of those that it has.

        Args:
            uid, keys: as for `keyed_state`.
            data: the key columns and `time` (timestamp, or ms since the epoch); of several at one time the first row
                comes first.
        """
        return self._timers(uid, EVENT_TIMERS, keys, data)

    def processing_timers(self, uid: str, *, keys: Sequence[str], data: object) -> SavepointEditor:
        """Set the timers by processing time; as `event_timers`."""
        return self._timers(uid, PROCESSING_TIMERS, keys, data)

    def _timers(self, uid: str, name: str, keys: Sequence[str], data: object) -> SavepointEditor:
        place = self._place(uid, "timers")
        return self._put(uid, name, timers_table(place, _names(keys, place), data, self._taken.max_parallelism))

    def operator_list_state(self, uid: str, *, state: ListStateDescriptor, values: object) -> SavepointEditor:
        """Add a list that belongs to no key, or replace it: its values are dealt out evenly among the subtasks."""
        return self._list(uid, state, values, Redistribution.SPLIT)

    def union_list_state(self, uid: str, *, state: ListStateDescriptor, values: object) -> SavepointEditor:
        """Add a list that belongs to no key, or replace it: every subtask gets all of its values."""
        return self._list(uid, state, values, Redistribution.UNION)

    def _list(self, uid: str, state: ListStateDescriptor, values: object, kind: Redistribution) -> SavepointEditor:
        place = self._place(uid, getattr(state, "name", repr(state)))
        return self._put(uid, state.name, list_table(place, state, values, kind))

    def broadcast_state(self, uid: str, *, state: MapStateDescriptor, entries: object) -> SavepointEditor:
        """Add a broadcast map, or replace it.

        Args:
            uid: of the operator.
            state: the descriptor that the program declares.
            entries: a dict, or a table with the columns `map_key` and `value`.
        """
        place = self._place(uid, getattr(state, "name", repr(state)))
        return self._put(uid, state.name, broadcast_table(place, state, entries))

    def replace_state(self, uid: str, name: str, data: object) -> SavepointEditor:
        """Put other rows in the place of those of a state, which keeps its kind and types.

        Args:
            uid, name: of a state that is there.
            data: rows with the columns that `SavedState.to_arrow` gives, in any form that `keyed_state` takes.

        Raises:
            CheckpointError: no such operator.
            StateError: no such state, rows that an operator keeps, or data that does not fit.
        """
        return self.change_state(uid, name, lambda _: data)

    def change_state(self, uid: str, name: str, function: Callable[[pa.Table], object]) -> SavepointEditor:
        """Change the rows of a state by a function.

        Args:
            uid, name: of a state that is there.
            function: takes what `SavedState.to_arrow` gives, and returns what shall be there instead.

        Raises:
            CheckpointError: no such operator.
            StateError: no such state, rows that an operator keeps, or a result that does not fit.

        Example:
            `editor.change_state("totals", "total", lambda rows: rows.filter(pc.field("value") > 0))`
        """
        edited, stored = self._find(uid, name)
        place = self._place(uid, name)
        if stored in edited.kept:
            state = edited.kept[stored]
            rows, redistribution = state.raw(), state.redistribution
        else:
            rows, redistribution = edited.tables[stored].data, edited.tables[stored].redistribution
        layout = layout_of(stored, redistribution, rows)
        if layout.kind in _FIXED:
            raise StateError(f"{place} holds {layout.kind.value} of the engine's own; it can be kept or removed only")
        given = plain_table(
            function(layout.show(rows)), place, dict(zip(layout.schema.names, layout.schema.types, strict=True))
        )
        changed = layout.store(given, place)
        needed = layout.keys if layout.kind in _WITH_NULLS else [name for name, _ in layout.columns]
        if any(changed.column(name).null_count for name in needed if name != TOUCHED):
            raise StateError(f"{place}: there are nulls among the keys or values; leave these rows out")
        stored_identity = [one for one, shown in layout.columns if shown in layout.identity]
        if stored_identity:
            check_unique(place, changed, stored_identity)
        if redistribution is Redistribution.KEYED:
            return self._put(uid, stored, keyed_table(changed, layout.keys, self._taken.max_parallelism))
        return self._put(uid, stored, StateTable(redistribution, changed))

    def remove_state(self, uid: str, name: str) -> SavepointEditor:
        """Leave a state out; the operator starts with none.

        Raises:
            CheckpointError: no such operator.
            StateError: no such state.
        """
        edited, stored = self._find(uid, name)
        edited.kept.pop(stored, None)
        edited.tables.pop(stored, None)
        return self

    def remove_operator(self, uid: str) -> SavepointEditor:
        """Leave an operator out with all its state.

        Raises:
            CheckpointError: no such operator, or the checkpoint is unaligned and holds rows on their way.
        """
        self._operator(uid)
        self._check_settled(f"remove_operator({uid!r})")
        del self._operators[uid]
        return self

    def rename_operator(self, uid: str, new_uid: str) -> SavepointEditor:
        """Give an operator another uid, so that its state goes to the operator that has this uid in the program.

        Raises:
            CheckpointError: no such operator, the new uid is taken, or the checkpoint is unaligned and holds rows on
                their way.
        """
        edited = self._operator(uid)
        self._check_settled(f"rename_operator({uid!r})")
        if new_uid in self._operators:
            raise CheckpointError(
                f"{self._target}: there is an operator {new_uid!r} already; rename or remove that first"
            )
        self._place(new_uid, "")
        edited.uid = new_uid
        self._operators = {one.uid: one for one in self._operators.values()}
        splits = {new_uid if name == uid else name: count for name, count in self._taken.split_parallelism.items()}
        self._taken = replace(self._taken, split_parallelism=splits)
        return self

    def _check_settled(self, what: str) -> None:
        if any(subtask.in_flight for subtask in self._taken.subtasks):
            raise CheckpointError(
                f"{self._target}: {what}: the checkpoint is unaligned, and rows are on their way to its operators; "
                "take a savepoint, which has none, and change that"
            )

    def _place(self, uid: str, name: str) -> str:
        if not isinstance(uid, str) or not uid.strip():
            raise StateError(f"{self._target}: an operator's uid is a text that is not empty, not {uid!r}")
        return f"{self._target}: operator {uid!r}, state {name!r}"

    def _operator(self, uid: str) -> _Edited:
        if uid not in self._operators:
            known = ", ".join(map(repr, self._operators)) or "none"
            raise CheckpointError(
                f"{self._target}: there is no operator {uid!r}{nearest(uid, self._operators)}; there are {known}"
            )
        return self._operators[uid]

    def _find(self, uid: str, name: str) -> tuple[_Edited, str]:
        """The operator, and the stored name of the state."""
        edited = self._operator(uid)
        by_name = {state.name: stored for stored, state in edited.kept.items()}
        by_name.update({stored: stored for stored in (*edited.kept, *edited.tables)})
        if name not in by_name:
            raise StateError(
                f"{self._target}: operator {uid!r} has no state {name!r}{nearest(name, by_name)}; there are "
                f"{', '.join(by_name) or 'none'}"
            )
        return edited, by_name[name]

    def _put(self, uid: str, stored: str, table: StateTable) -> SavepointEditor:
        edited = self._operators.setdefault(uid, _Edited(uid, uid))
        native = None if edited.source is None else edited.source.native
        if native is not None and table.redistribution is Redistribution.KEYED:
            raise StateError(
                f"{self._place(uid, shown_name(stored))}: the operator's keyed state is in {native} files, which "
                "cannot be changed; resume the job from this checkpoint, take a savepoint, and change that"
            )
        edited.kept.pop(stored, None)
        edited.tables[stored] = table
        return self

    def write(self) -> Savepoint:
        """Write the savepoint and open it.

        Raises:
            StateError: the states of an operator have different keys.
            CheckpointError: something is at the target already, or it cannot be written.
            CheckpointCorruptError: a file of what is copied is not as it was written (names it).
        """
        for edited in self._operators.values():
            self._check_keys(edited)
        blobs = new_folder(self._target)
        writer = SavepointFiles(blobs, self._taken)
        try:
            subtasks = (*self._copied(writer), *self._new(writer))
            taken = replace(
                self._taken,
                kind=SnapshotKind.SAVEPOINT,
                completed_ms=SystemClock().now_ms(),
                subtasks=subtasks,
            )
            blobs.create(MANIFEST, encode_manifest(taken))
        except BaseException:
            writer.remove_written()
            raise
        return read(self._target)

    def _check_keys(self, edited: _Edited) -> None:
        """All keyed states of an operator have the same keys."""
        keys: dict[str, str] = {}
        for name, table in edited.tables.items():
            if table.redistribution is Redistribution.KEYED:
                layout = layout_of(name, table.redistribution, table.data)
                keys[name] = ", ".join(f"{key}: {layout.stored.field(key).type}" for key in layout.keys)
        for name, state in edited.kept.items() if keys else ():
            if state.redistribution is Redistribution.KEYED and state.key_columns:
                keys[name] = ", ".join(f"{key}: {state.schema.field(key).type}" for key in state.key_columns)
        different = dict.fromkeys(keys.values())
        if len(different) > 1:
            shown = "; ".join(f"{name} by ({own})" for name, own in keys.items())
            raise StateError(
                f"{self._target}: operator {edited.uid!r} has states of different keys: {shown}; give all of them the "
                "same key columns, in the same order and of the same types"
            )

    def _copied(self, writer: SavepointFiles) -> Iterator[SubtaskHandle]:
        """The subtasks of the source, with what is left and changed of their operators."""
        source = self._source
        if source is None:
            return
        by_old = {edited.source.uid: edited for edited in self._operators.values() if edited.source is not None}
        done: set[str] = set()
        for subtask in source.checkpoint.subtasks:
            operators = []
            for handle in subtask.operators:
                edited = by_old.get(handle.uid)
                if edited is None:
                    continue
                tables = dict(_kept_tables(writer, edited, subtask, handle))
                for name, table in edited.tables.items():
                    share = _share(table, subtask, self._taken.max_parallelism, handle.uid not in done)
                    if share is not None:
                        tables[name] = writer.table(subtask, StateTable(table.redistribution, share))
                done.add(handle.uid)
                native = handle.native
                if native is not None:
                    files = {name: writer.copy(source.blobs, subtask, file) for name, file in native.files.items()}
                    native = replace(native, files=files)
                operators.append(replace(handle, uid=edited.uid, tables=tables, native=native))
            in_flight = [
                replace(rows, file=writer.copy(source.blobs, subtask, rows.file)) for rows in subtask.in_flight
            ]
            yield replace(subtask, operators=tuple(operators), in_flight=tuple(in_flight))

    def _new(self, writer: SavepointFiles) -> Iterator[SubtaskHandle]:
        """A task of one subtask for each operator that was not there."""
        first = max((subtask.task for subtask in self._taken.subtasks), default=-1) + 1
        added = [edited for edited in self._operators.values() if edited.source is None]
        for task, edited in enumerate(added, first):
            subtask = SubtaskHandle(task, 0, 1, ())
            tables = {name: writer.table(subtask, table) for name, table in edited.tables.items()}
            yield replace(subtask, operators=(OperatorHandle(edited.uid, edited.name, tables),))


def _kept_tables(
    writer: SavepointFiles, edited: _Edited, subtask: SubtaskHandle, handle: OperatorHandle
) -> Iterator[tuple[str, TableHandle]]:
    for name, table in handle.tables.items():
        if name in edited.kept:
            rows = edited.kept[name].of_subtask(subtask.subtask)
            yield name, writer.table(subtask, StateTable(table.redistribution, rows))


def _share(table: StateTable, subtask: SubtaskHandle, max_parallelism: int, is_first: bool) -> pa.Table | None:
    """What one of the old subtasks gets of a new table: its key groups, or (the first one) what has no keys."""
    if table.redistribution is Redistribution.KEYED:
        return rows_of_groups(table.data, key_group_range(subtask.subtask, subtask.parallelism, max_parallelism))
    return table.data if is_first else None


def _names(keys: Sequence[str], place: str) -> list[str]:
    names = [keys] if isinstance(keys, str) else list(keys)
    if not names or any(not isinstance(name, str) for name in names) or len(set(names)) < len(names):
        raise StateError(f"{place}: keys are the names of one or more columns, each once, not {keys!r}")
    return names
