"""State of a running job as its users ask for it: single keys, scans; answered by the tasks between two of their steps.

A runtime says how subtasks are asked (`Subtasks`), and this finds those that own the keys, puts their answers together,
and asks again where the job has just failed or been rescaled. Nothing is read beside a step, so a value is one that the
operator had when it had done with a batch; different subtasks are asked at different moments.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from penstock.engine.errors import ConfigurationError, StateError, StateNotReadyError
from penstock.engine.state.keys.groups import key_groups, subtask_of
from penstock.engine.state.snapshot import Redistribution
from penstock.savepoints.far_times import printable
from penstock.savepoints.key_values import check_of_one_key, value_of_key
from penstock.savepoints.layout import Layout
from penstock.savepoints.live_rows import LiveRows, ScanFilter, values_of

_T = TypeVar("_T")
MOST_KEYS: Final = 100_000
_AGAIN_SECONDS: Final = 0.1
_NOTHING: Final[Mapping[str, Any]] = {}
_INSTEAD: Final = "scan(where={...})"


class Subtasks(Protocol):
    """The subtasks of one operator, as they run now."""

    @property
    def keys(self) -> Sequence[str]:
        """The key columns of the operator; none where its state has none."""
        ...

    @property
    def parallelism(self) -> int:
        """How many there are."""
        ...

    @property
    def max_parallelism(self) -> int:
        """The number of key groups."""
        ...

    def read(self, asked: Mapping[int, pa.RecordBatch | None], state: str, wanted: ScanFilter) -> list[LiveRows | None]:
        """What some subtasks hold of a state.

        Args:
            asked: by index, the keys that each is asked for; None: all.
            state: its name.
            wanted: which rows.

        Returns:
            for each that was asked; None where nothing has come there so far.

        Raises:
            StateNotReadyError: they do not run any more, or are just beginning.
            StateError: they have no such state.
        """
        ...


class LiveState:
    """One state of an operator of a running job.

    Args:
        place: names it in messages.
        name: of the state.
        connect: finds the subtasks.
        patience: for how long (seconds) to ask again while the job recovers, before `StateNotReadyError`.
    """

    def __init__(self, place: str, name: str, connect: Callable[[], Subtasks], patience: float) -> None:
        self._place = place
        self._name = name
        self._connect = connect
        self._patience = patience
        self._found: tuple[Subtasks, Layout | None] | None = None

    def __repr__(self) -> str:
        return f"<live {self._place}>"

    def get(self, *key: Any) -> Any:
        """What the state of one key holds: the value, the list, the map as a dict, the accumulators of an aggregate as
        a dict by their columns; None where there is nothing.

        Args:
            key: the value of each key column.

        Raises:
            StateError: there is no such state, it belongs to windows or to no key, or a value does not fit its key
                column; `scan` serves these.
            StateNotReadyError: the job does not run just now.
        """

        def ask(subtasks: Subtasks, layout: Layout) -> Any:
            check_of_one_key(layout, key, self._place, _INSTEAD)
            asked = self._owners(subtasks, layout, [key]) if layout.keys else dict.fromkeys(range(subtasks.parallelism))
            for rows in subtasks.read(asked, self._name, ScanFilter()):
                if rows is not None and rows.data.num_rows:
                    # Whether it is the state of windows is known once there are rows.
                    check_of_one_key(rows.layout, key, self._place, _INSTEAD)
                    return value_of_key(rows.layout, rows.data)
            return None

        return self._ask(ask, None)

    def scan(
        self,
        keys: Sequence[Any] | None = None,
        where: Mapping[str, Any] = _NOTHING,
        limit: int | None = None,
    ) -> pa.Table:
        """Rows of the state, as `SavedState.to_arrow` gives them: key columns, windows, `map_key`, `value`.

        Args:
            keys: only of these: values of the only key column, or tuples of several. They cost their owners little,
                whatever else there is; without them, each subtask goes through all that it has.
            where: by column, the value that it must have, or a list of such.
            limit: how many rows at most, whichever come first.

        Raises:
            ConfigurationError: `limit` is no whole number from 0 on.
            StateError: there is no such state or column, or more than a scan gives.
            StateNotReadyError: the job does not run just now.
        """
        if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 0):
            raise ConfigurationError(f"scan: limit is a whole number from 0 on, not {limit!r}")
        wanted = ScanFilter(
            {name: given if isinstance(given, list | tuple) else [given] for name, given in where.items()}, limit
        )

        def ask(subtasks: Subtasks, layout: Layout) -> pa.Table:
            asked: Mapping[int, pa.RecordBatch | None] = dict.fromkeys(range(subtasks.parallelism))
            if keys is not None:
                tuples = [tuple(key) if isinstance(key, list | tuple) else (key,) for key in keys]
                asked = self._owners(subtasks, layout, tuples)
            table = _together(subtasks.read(asked, self._name, wanted), layout)
            return table if limit is None else table.slice(0, limit)

        return self._ask(ask, pa.table({}))

    def key_columns(self) -> pa.Schema | None:
        """The key columns with their types; None where no subtask has got anything so far.

        Raises:
            StateError, StateNotReadyError: as for `get`.
        """

        def ask(subtasks: Subtasks, layout: Layout) -> pa.Schema | None:
            return pa.schema([layout.schema.field(name) for name in layout.keys])

        return self._ask(ask, None)

    def to_pandas(self) -> Any:
        """All rows as a pandas DataFrame; times beyond the years 1 to 9999 are the last, or the first, of these."""
        return printable(self.scan()).to_pandas()

    def _owners(
        self, subtasks: Subtasks, layout: Layout, keys: Sequence[Sequence[Any]]
    ) -> Mapping[int, pa.RecordBatch | None]:
        """By subtask, those of the keys that it owns."""
        if not layout.keys:
            raise StateError(f"{self._place} has no keys, or none that are known; use {_INSTEAD}")
        if len(keys) > MOST_KEYS:
            raise StateError(f"{self._place}: {len(keys):,} keys; ask for {MOST_KEYS:,} at a time at most")
        if any(len(key) != len(layout.keys) for key in keys):
            raise StateError(f"{self._place} has the keys ({', '.join(layout.keys)}); give a value of each")
        columns = [
            values_of(layout.schema, name, [key[place] for key in keys]) for place, name in enumerate(layout.keys)
        ]
        batch = pa.RecordBatch.from_arrays(columns, names=list(layout.keys))
        if subtasks.parallelism == 1:
            return {0: batch}
        groups = key_groups(columns, subtasks.max_parallelism)
        if len(keys) == 1:
            return {subtask_of(int(groups[0]), subtasks.parallelism, subtasks.max_parallelism): batch}
        owners = np.asarray(subtask_of(groups, subtasks.parallelism, subtasks.max_parallelism))
        return {owner: batch.filter(pa.array(owners == owner)) for owner in np.unique(owners).tolist()}

    def _ask(self, ask: Callable[[Subtasks, Layout], _T], nothing: _T) -> _T:
        """What `ask` gives, as soon as the job runs; `nothing` where no subtask has got anything so far."""
        deadline = time.monotonic() + self._patience
        while True:
            try:
                subtasks, layout = self._found or self._look()
                return nothing if layout is None else ask(subtasks, layout)
            except StateNotReadyError:
                self._found = None
                if time.monotonic() >= deadline:
                    raise
            time.sleep(_AGAIN_SECONDS)

    def _look(self) -> tuple[Subtasks, Layout | None]:
        """The subtasks, and the columns of the state, which each knows that has something of it."""
        subtasks = self._connect()
        none = [pa.nulls(0)] * len(subtasks.keys)
        keys = pa.RecordBatch.from_arrays(none, names=list(subtasks.keys)) if subtasks.keys else None
        for subtask in range(subtasks.parallelism):
            (rows,) = subtasks.read({subtask: keys}, self._name, ScanFilter(limit=0))
            if rows is not None:
                self._found = subtasks, rows.layout
                return self._found
        return subtasks, None


def _together(shares: Sequence[LiveRows | None], layout: Layout) -> pa.Table:
    known = [rows for rows in shares if rows is not None]
    if known and known[0].redistribution is Redistribution.BROADCAST:
        known = known[:1]
    held = [rows.data for rows in known if rows.data.num_rows]
    return pa.concat_tables(held, promote_options="default") if held else layout.schema.empty_table()
