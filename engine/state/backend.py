"""What a keyed state backend is, and the states that it gives to functions and operators.

`create_backend` (in `backends.py`) makes the one that the job's settings ask for. All calls come from one thread. A
backend knows the *current key*, and within it the *namespace* (the window that the state belongs to, or None); every
state reads and writes there and nowhere else.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa

from penstock.engine.clock import Clock
from penstock.engine.state.capture import CaptureRequest, OperatorCapture, TableCapture
from penstock.engine.state.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from penstock.engine.state.snapshot import StateTable

Key: TypeAlias = Any
"""The key as users see it: the value of the only key column, or a tuple of several; () where there is no key column."""
Namespace: TypeAlias = "tuple[int, int] | None"
"""Start and end (int64) of the window that the state belongs to; None for state of the key itself."""


class ValueState(ABC):
    """One value for the current key.

    Example:
        `count.update(count.value() + 1)`
    """

    @abstractmethod
    def value(self) -> Any:
        """The value, or the descriptor's default where none was set.

        It is a copy, so to change a list or dict in place changes no state: call `update` with it. Only behind a
        serializer it is, with the `heap` backend, the object that was kept.

        Raises:
            StateError: there is no current key (in `open`, for example).
        """

    @abstractmethod
    def update(self, value: Any) -> None:
        """Set the value; None clears it.

        What is kept is a copy in the form of the declared type, as a restore would give it back: a dict has all fields
        of its struct, a tuple is a list, a float32 is rounded. A value behind a serializer has no such form: the `heap`
        backend keeps the object itself, so do not change it afterwards (`rocksdb` keeps its bytes).

        Raises:
            StateError: there is no current key.
            RecordError: the value does not fit the declared type (an int beyond 64 bits, or a text that is no Unicode,
                may be found by the snapshot only).
        """

    @abstractmethod
    def clear(self) -> None:
        """Forget the value."""

    @abstractmethod
    def values(self) -> pa.Array:
        """In `process_batch`: the values of `batch.keys`, in their order (null, or the default, where none was set)."""

    @abstractmethod
    def update_values(self, values: Any) -> None:
        """In `process_batch`: set the values of `batch.keys`, in their order (an Arrow or NumPy array; null clears)."""


class ListState(ABC):
    """A list of values for the current key."""

    @abstractmethod
    def get(self) -> list[Any]:
        """The values, in order; a list of the caller's own."""

    @abstractmethod
    def add(self, value: Any) -> None:
        """Append a value, which must not be None."""

    @abstractmethod
    def add_all(self, values: Iterable[Any]) -> None:
        """Append values."""

    def add_rows(self, rows: Sequence[Any]) -> None:
        """Append rows that `batch_rows` made of columns of this very type, and that nobody else has."""
        self.add_all(rows)

    @abstractmethod
    def update(self, values: Iterable[Any]) -> None:
        """Hold exactly these values."""

    @abstractmethod
    def clear(self) -> None:
        """Forget all values."""


class MapState(ABC):
    """A map for the current key; entries keep the order in which their keys first came on `heap` (after a restore, may
    be, in which they were last changed), and that of the serialised keys on `rocksdb`."""

    @abstractmethod
    def get(self, key: Any, default: Any = None) -> Any:
        """The value of `key`; a key that does not fit the declared type has none."""

    @abstractmethod
    def put(self, key: Any, value: Any) -> None:
        """Set the value of `key`; neither may be None."""

    @abstractmethod
    def put_all(self, entries: Mapping[Any, Any]) -> None:
        """Set several."""

    @abstractmethod
    def remove(self, key: Any) -> None:
        """Forget `key`, if it is there."""

    @abstractmethod
    def contains(self, key: Any) -> bool:
        """Whether there is a value."""

    @abstractmethod
    def items(self) -> list[tuple[Any, Any]]:
        """All entries."""

    def keys(self) -> list[Any]:
        """All keys."""
        return [key for key, _ in self.items()]

    def values(self) -> list[Any]:
        """All values."""
        return [value for _, value in self.items()]

    def is_empty(self) -> bool:
        """Whether there is no entry."""
        return not self.items()

    @abstractmethod
    def clear(self) -> None:
        """Forget all entries."""


class ReducingState(ABC):
    """One value for the current key, the reduction of all that was added."""

    @abstractmethod
    def get(self) -> Any:
        """The value, or None before the first `add`."""

    @abstractmethod
    def add(self, value: Any) -> None:
        """Reduce one more value into it."""

    @abstractmethod
    def clear(self) -> None:
        """Forget the value."""


class AggregatingState(ABC):
    """One accumulator for the current key."""

    @abstractmethod
    def get(self) -> Any:
        """The result of the accumulator, or None before the first `add`."""

    @abstractmethod
    def add(self, value: Any) -> None:
        """Add a value to the accumulator."""

    @abstractmethod
    def clear(self) -> None:
        """Forget the accumulator."""


@dataclass(frozen=True, slots=True)
class BackendContext:
    """What a backend knows about its operator.

    Args:
        where: operator and subtask, for messages.
        keys: names of the key columns.
        max_parallelism: number of key groups.
        clock: for time to live.
        directory: where to make folders for files; None means the system's temporary folder.
    """

    where: str
    keys: tuple[str, ...]
    max_parallelism: int
    clock: Clock
    directory: str | None = None


class KeyedStateBackend(ABC):
    """The keyed state of one operator in one subtask.

    States are declared before the first element. The types of the key columns become known with the first batch, or
    with the snapshot that is restored.
    """

    @abstractmethod
    def value_state(self, descriptor: ValueStateDescriptor) -> ValueState:
        """Declare a state.

        Raises:
            StateError: its name was declared otherwise before.
        """

    @abstractmethod
    def list_state(self, descriptor: ListStateDescriptor) -> ListState:
        """Declare a state."""

    @abstractmethod
    def map_state(self, descriptor: MapStateDescriptor) -> MapState:
        """Declare a state."""

    @abstractmethod
    def reducing_state(self, descriptor: ReducingStateDescriptor) -> ReducingState:
        """Declare a state."""

    @abstractmethod
    def aggregating_state(self, descriptor: AggregatingStateDescriptor) -> AggregatingState:
        """Declare a state."""

    @abstractmethod
    def bind_keys(self, schema: pa.Schema) -> None:
        """The key columns' fields, as in the operator's input; the same in every call."""

    @abstractmethod
    def set_current_key(self, key: Key, namespace: Namespace = None) -> None:
        """Make states read and write at `key` and `namespace`."""

    @abstractmethod
    def set_current_keys(self, keys: pa.RecordBatch) -> None:
        """Make the batch-wise methods of value states read and write at these distinct keys, one a row."""

    @abstractmethod
    def clear_current_key(self) -> None:
        """From now on there is no current key, and using a state is a `StateError`."""

    def key_counts(self) -> Mapping[str, Callable[[], int]]:
        """What counts the keys (and namespaces) at which a state holds something, by the states declared so far.

        It knows them at once, and may be called from another thread; none where counting would be a scan. What has
        outlived its time may count until it is freed.
        """
        return {}

    @abstractmethod
    def entries(self, name: str) -> Iterator[tuple[Key, Namespace]]:
        """All keys and namespaces at which the state `name` holds something, in no particular order."""

    @abstractmethod
    def capture(self, request: CaptureRequest) -> OperatorCapture:
        """All states at a barrier, by reference (its watermark means nothing), each a keyed table by its name.

        Its columns are KEY_GROUP, the keys, `__start` and `__end` (the namespace, null where there is none), then
        `value`, or `map_key` and `value` (one row an entry), or `value` as a list; and `__touched` (int64 ms; in list
        state a list of them, one a value) where the state has a time to live.

        What has outlived its time is left out, and later changes do not show. A column `value` or `map_key` gets two
        underscores in front where a key column has that name (`StateTables.column_name`).

        Args:
            request: for what, and whether what has changed since the capture before is enough. What `restore` has
                brought has not changed.
        """

    @abstractmethod
    def read_keys(self, name: str, keys: pa.RecordBatch) -> TableCapture | None:
        """What a state holds of these keys now, outside all namespaces, as `capture` gives it; changes nothing.

        Args:
            name: of the state.
            keys: the key columns, in their types.

        Returns:
            None where no such state is declared, or no key has come so far.
        """

    @abstractmethod
    def restore(self, tables: Mapping[str, StateTable]) -> None:
        """Hold what the tables hold. Called on an empty backend, once its states are declared.

        A table of a state that is not declared is kept aside: the state gets it when it is declared, and until then it
        goes unchanged into each capture, so that no state is lost because a program does not use it for a while.

        Raises:
            StateError: a state was declared with another type than that in the snapshot.
        """

    @abstractmethod
    def close(self) -> None:
        """Release memory, files and folders."""


def key_tuple(key: Key, keys: Sequence[str]) -> tuple[Any, ...]:
    """The key as a tuple of one value for each key column."""
    if len(keys) == 1:
        return (key,)
    return tuple(key) if keys else ()
