"""The contents of windows as state: all rows of a window, or one accumulator, or all rows for an evictor.

The window operator moves the backend to a key and (state) window, and then adds to, reads or clears what is there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from penstock.engine.elements import Batch
from penstock.engine.errors import RecordError
from penstock.engine.functions import Row
from penstock.engine.operators.base import SchemaOrUnknown
from penstock.engine.operators.windows.window_folds import CONTENTS, Fold, row_struct
from penstock.engine.state.backend import KeyedStateBackend
from penstock.engine.state.descriptors import ListStateDescriptor
from penstock.engine.windows.evictors import Evictor, EvictorContext, TimestampedRow
from penstock.engine.windows.row_serializer import RowSerializer
from penstock.engine.windows.windows import TimeWindow

Entry = dict[str, Any]
"""A row that is kept for an evictor: `row`, `timestamp`, and `item` where there is a fold over something else."""


class WindowContents(ABC):
    """What is kept of the rows of a window."""

    @abstractmethod
    def items(self, batch: Batch, rows: Sequence[Row], times: Sequence[int | None]) -> Sequence[Any]:
        """What is added for each row."""

    @abstractmethod
    def add(self, item: Any) -> None:
        """Add to the current window."""

    @abstractmethod
    def get(self) -> Any:
        """The current window's contents, or None where it has none."""

    @abstractmethod
    def take(self) -> Any:
        """As `get`, for `put`; the current window has none any more."""

    @abstractmethod
    def put(self, contents: Any) -> None:
        """Add what `take` gave to the current window."""

    @abstractmethod
    def clear(self) -> None:
        """Forget the current window's contents."""


class RowContents(WindowContents):
    """All rows, in order of arrival."""

    def __init__(self, backend: KeyedStateBackend, schema: SchemaOrUnknown) -> None:
        self._kind = row_struct(schema)
        self._state = backend.list_state(_list_of(self._kind))

    def items(self, batch: Batch, rows: Sequence[Row], times: Sequence[int | None]) -> Sequence[Row]:
        return rows

    def add(self, item: Row) -> None:
        self._state.add(item)

    def get(self) -> list[Row] | None:
        # The function may change its rows, and the window may fire again.
        return [row.copy() for row in self.rows()] or None

    def rows(self) -> list[Row]:
        """Those of the current window, which nobody may change."""
        return self._state.get()

    def are_kept(self, schema: pa.Schema) -> bool:
        """Whether rows that are made of a batch of the schema are what is kept of them."""
        return self._kind is not None and row_struct(schema) == self._kind

    def add_kept(self, rows: list[Row]) -> None:
        """Add such rows to the current window; they are not the caller's any more."""
        self._state.add_rows(rows)

    def take(self) -> list[Row]:
        rows = self._state.get()
        self._state.clear()
        return rows

    def put(self, contents: list[Row]) -> None:
        self._state.add_all(contents)

    def clear(self) -> None:
        self._state.clear()


class FoldContents(WindowContents):
    """One accumulator."""

    def __init__(self, backend: KeyedStateBackend, fold: Fold) -> None:
        self._state = backend.value_state(fold.descriptor())
        self._fold = fold

    def items(self, batch: Batch, rows: Sequence[Row], times: Sequence[int | None]) -> Sequence[Any]:
        return self._fold.items(batch, rows)

    def add(self, item: Any) -> None:
        held = self._state.value()
        self._state.update(self._fold.first(item) if held is None else self._fold.add(held, item))

    def get(self) -> Any:
        return self._state.value()

    def replace(self, accumulator: Any) -> None:
        """Hold this one in the current window."""
        self._state.update(accumulator)

    def take(self) -> Any:
        held = self._state.value()
        self._state.clear()
        return held

    def put(self, contents: Any) -> None:
        if contents is not None:
            held = self._state.value()
            self._state.update(contents if held is None else self._fold.merge(held, contents))

    def clear(self) -> None:
        self._state.clear()


class EvictableContents(WindowContents):
    """All rows with their timestamps, in order of arrival, and what a fold takes of each.

    Args:
        backend: holds the state.
        schema: the columns of the rows, if they are known.
        fold: what is computed when the window fires, or None for the rows themselves.
        evictor: asked then.
        where: operator and subtask, for messages.
    """

    def __init__(
        self, backend: KeyedStateBackend, schema: SchemaOrUnknown, fold: Fold | None, evictor: Evictor, where: str
    ) -> None:
        self._fold = fold
        self._evictor = evictor
        self._where = where
        self._with_items = fold is not None and not fold.reads_rows
        self._state = backend.list_state(_list_of(self._entry_type(schema)))

    def _entry_type(self, schema: SchemaOrUnknown) -> pa.DataType | None:
        row = row_struct(schema)
        item = self._fold.item_type if self._fold is not None and self._with_items else pa.null()
        if row is None or item is None:
            return None
        items = [("item", item)] if self._with_items else []
        return pa.struct([("row", row), ("timestamp", pa.int64()), *items])

    def items(self, batch: Batch, rows: Sequence[Row], times: Sequence[int | None]) -> Sequence[Entry]:
        entries = [{"row": row, "timestamp": time} for row, time in zip(rows, times, strict=True)]
        if self._fold is None or not self._with_items:
            return entries
        folded = self._fold.items(batch, rows)
        return [{**entry, "item": item} for entry, item in zip(entries, folded, strict=True)]

    def add(self, item: Entry) -> None:
        self._state.add(item)

    def get(self) -> list[Entry] | None:
        return self._state.get() or None

    def take(self) -> list[Entry]:
        entries = self._state.get()
        self._state.clear()
        return entries

    def put(self, contents: list[Entry]) -> None:
        self._state.add_all(contents)

    def clear(self) -> None:
        self._state.clear()

    def replace(self, entries: list[Entry]) -> None:
        """Hold these in the current window, and no others."""
        self._state.update(entries)

    def evict_before(self, eviction: Eviction, window: TimeWindow, context: EvictorContext) -> Any:
        """Evict ahead of the function; what is left, as the function takes it, or None where a fold has no rows."""
        kept = self._evictor.evict_before(list(eviction.elements), window, context)
        eviction.keep(kept, "evict_before", self._evictor, self._where)
        if self._fold is None:
            return [element.row for element in eviction.elements]
        accumulator = None
        for entry in eviction.entries:
            item = entry["item"] if self._with_items else entry["row"]
            accumulator = self._fold.first(item) if accumulator is None else self._fold.add(accumulator, item)
        return accumulator

    def evict_after(self, eviction: Eviction, window: TimeWindow, context: EvictorContext) -> None:
        """Evict behind the function."""
        kept = self._evictor.evict_after(list(eviction.elements), window, context)
        eviction.keep(kept, "evict_after", self._evictor, self._where)


class Eviction:
    """The rows of one window while it fires.

    Args:
        entries: the window's contents.
    """

    def __init__(self, entries: list[Entry]) -> None:
        self.entries = entries
        self.elements = [TimestampedRow(entry["row"].copy(), entry["timestamp"]) for entry in entries]

    def keep(self, kept: Iterable[TimestampedRow], method: str, evictor: Evictor, where: str) -> None:
        """Go on with what an evictor gave back.

        Raises:
            RecordError: it gave back something else than a part of its elements, each once.
        """
        places = {id(element): index for index, element in enumerate(self.elements)}
        try:
            indices = [places.pop(id(element)) for element in kept]
        except (TypeError, KeyError) as error:
            raise RecordError(
                f"{where}: {type(evictor).__name__}.{method} returned {kept!r:.200}; return a list of those of the "
                "given elements that stay, each once"
            ) from error
        self.elements = [self.elements[index] for index in indices]
        self.entries = [self.entries[index] for index in indices]


def _list_of(kind: pa.DataType | None) -> ListStateDescriptor:
    if kind is None:
        return ListStateDescriptor(CONTENTS, serializer=RowSerializer())
    return ListStateDescriptor(CONTENTS, kind)
