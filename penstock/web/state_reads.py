"""What clients ask of the state of a job, whatever they speak: listed, single keys, rows; live or of a checkpoint.

REST and Arrow Flight both use it. Keys and values come as texts and JSON, and are given the types of their columns.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from penstock.engine.errors import CheckpointError, RecordError, StateError, UnknownStateError
from penstock.savepoints.live_rows import values_of
from penstock.savepoints.live_state import MOST_KEYS, LiveState
from penstock.savepoints.reader import Savepoint
from penstock.savepoints.saved_state import SavedState
from penstock.web.cluster import Cluster
from penstock.web.observed import JobView

_T = TypeVar("_T")
_TRIES: Final = 3
ISOLATIONS: Final = ("live", "checkpoint")
MOST_LIVE_ROWS: Final = 1_000_000
"""A live scan is put together in memory; one of a checkpoint comes in parts, and may be longer."""


@dataclass(frozen=True, slots=True)
class StateRead:
    """What is wanted of one state.

    Args:
        uid, name: which.
        isolation: one of `ISOLATIONS`.
        keys: only these, a value of each key column, as texts or as JSON has them; None: all.
        where: by column, the values that it may have.
        limit: how many rows at most; None: all, which a live state of over `MOST_LIVE_ROWS` refuses.
    """

    uid: str
    name: str
    isolation: str = "live"
    keys: tuple[tuple[Any, ...], ...] | None = None
    where: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    limit: int | None = None


class StateReads:
    """Reads the state of the jobs of a cluster; all calls block.

    Args:
        cluster: whose.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def cut(self, view: JobView) -> Savepoint:
        """The newest checkpoint of a job. Errors as for `Cluster.newest_checkpoint`."""
        return self._cluster.newest_checkpoint(view.info)

    @staticmethod
    def whole(ask: Callable[[], _T]) -> _T:
        """What `ask` gives of a checkpoint; it is asked again where the checkpoint's files have gone meanwhile."""
        for _ in range(_TRIES - 1):
            with contextlib.suppress(CheckpointError):
                return ask()
        return ask()

    def value(self, view: JobView, wanted: StateRead) -> Any:
        """What the one key in `wanted` has; None where that is nothing. Errors as for `LiveState.get`."""
        return self.whole(lambda: self._value(view, wanted))

    def _value(self, view: JobView, wanted: StateRead) -> Any:
        assert wanted.keys is not None
        (key,) = wanted.keys
        if wanted.isolation == "live":
            live = self._live(view, wanted)
            return live.get(*_typed_key(key, live.key_columns()))
        saved = self._saved(view, wanted)
        return saved.get(*_typed_key(key, _key_columns(saved)))

    def rows(self, view: JobView, wanted: StateRead) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """The rows, a few at a time, with their columns.

        Raises:
            StateError, StateNotReadyError: as for `LiveState.scan`.
            CheckpointError: as for `cut`, or a file is not there any more.
            RecordError: a key or a value does not fit its column.
        """
        if wanted.isolation == "live":
            table = self._live_rows(view, wanted)
            return table.schema, iter(table.to_batches())
        saved = self._saved(view, wanted)
        return saved.schema, _limited(_saved_batches(saved, wanted), wanted.limit)

    def columns(self, view: JobView, wanted: StateRead) -> pa.Schema:
        """The columns that `rows` would give. Errors as there."""
        if wanted.isolation == "live":
            return self._live(view, wanted).scan(limit=0).schema
        return self.whole(lambda: self._saved(view, wanted).schema)

    def _live_rows(self, view: JobView, wanted: StateRead) -> pa.Table:
        live = self._live(view, wanted)
        # One more is read than is given, to know whether there are more.
        limit = MOST_LIVE_ROWS + 1 if wanted.limit is None else min(wanted.limit, MOST_LIVE_ROWS + 1)
        keys = None
        if wanted.keys is not None:
            columns = live.key_columns()
            keys = [_typed_key(key, columns) for key in wanted.keys]
        rows = live.scan(keys, wanted.where, limit)
        if rows.num_rows > MOST_LIVE_ROWS:
            raise StateError(
                f"state {wanted.name!r} of operator {wanted.uid!r} has more than {MOST_LIVE_ROWS:,} such rows, the "
                "most that a live scan gives: ask with a lower limit, for some keys, or with isolation checkpoint"
            )
        return rows

    def _live(self, view: JobView, wanted: StateRead) -> LiveState:
        return self._cluster.live_state(view.info.id, wanted.uid, wanted.name)

    def _saved(self, view: JobView, wanted: StateRead) -> SavedState:
        cut = self.cut(view)
        try:
            operator = cut.operator(wanted.uid)
        except CheckpointError as error:
            raise UnknownStateError(str(error)) from error
        return operator.state(wanted.name)


def _key_columns(state: SavedState) -> pa.Schema:
    return pa.schema([state.schema.field(name) for name in state.key_columns])


def _typed_key(key: Sequence[Any], columns: pa.Schema | None) -> tuple[Any, ...]:
    """The parts of a key in the types of its columns; as they are where none are known, or they are not as many."""
    if columns is None or len(columns) != len(key):
        return tuple(key)
    return tuple(_typed(part, field.type) for part, field in zip(key, columns, strict=True))


def _typed(value: Any, kind: pa.DataType) -> Any:
    """A text in the type of its column, as far as texts can be; other values are checked where they are used.

    Raises:
        RecordError: it does not fit.
    """
    if not isinstance(value, str):
        return value
    try:
        return pa.array([value]).cast(kind)[0].as_py()
    except pa.ArrowException as error:
        raise RecordError(f"{value[:200]!r} does not fit {kind}: {error}") from error


def _saved_batches(saved: SavedState, wanted: StateRead) -> Iterator[pa.RecordBatch]:
    schema = saved.schema
    allowed = {name: values_of(schema, name, values) for name, values in wanted.where.items()}
    batches = saved.batches() if wanted.keys is None else _of_keys(saved, wanted.keys)
    for batch in batches:
        found = batch
        for name, values in allowed.items():
            found = found.filter(pc.is_in(found.column(name), value_set=values))
        if found.num_rows:
            yield found.cast(schema)


def _of_keys(saved: SavedState, keys: Sequence[Sequence[Any]]) -> Iterator[pa.RecordBatch]:
    columns = _key_columns(saved)
    if len(keys) > MOST_KEYS:
        raise StateError(f"{saved.place}: {len(keys):,} keys; ask for {MOST_KEYS:,} at a time at most")
    typed = [_typed_key(key, columns) for key in keys]
    if any(len(key) != len(columns) for key in typed):
        raise StateError(f"{saved.place} has the keys ({', '.join(columns.names)}); give a value of each")
    arrays = [values_of(columns, name, [key[place] for key in typed]) for place, name in enumerate(columns.names)]
    yield from saved.of_keys(pa.RecordBatch.from_arrays(arrays, names=columns.names)).to_batches()


def _limited(batches: Iterator[pa.RecordBatch], limit: int | None) -> Iterator[pa.RecordBatch]:
    left = limit
    for batch in batches:
        if left is None:
            yield batch
            continue
        yield batch.slice(0, left)
        left -= min(left, batch.num_rows)
        if left == 0:
            return
