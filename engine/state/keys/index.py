"""Numbers keys densely: a slot for each distinct key, found for whole batches at once.

The running aggregate and the columnar backend keep their values by slot. Two keys share a slot exactly if they are
equal (null equals null), whatever their hashes are; the slot of a removed key is given to a later one, so memory is
bounded by the keys that were held at one time.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from penstock.engine.state.keys.codec import (
    Packed,
    comparable,
    comparable_type,
    from_words,
    grown,
    is_word,
    pack,
    read_only,
    unpack,
    words_of,
)
from penstock.engine.state.keys.direct_slots import DirectSlots
from penstock.engine.state.keys.groups import hash_columns
from penstock.engine.state.keys.hash_tables import MOST_WORDS, WordRowTable, new_rows, with_room
from penstock.engine.state.keys.loading import BesideLoader

Slots = npt.NDArray[np.int64]

_FEW: Final = 4096
"""Up to so many keys or rows a dict is fast enough, and saves a small job the time in which numba is imported.

While batches are small it always is: a job at a low rate would stand still for that time.
"""
_TRICKLE: Final = 64
"""Batches of at most so many rows are those of a job at a low rate."""
_EARNED: Final = 65_536
"""A dict that was asked for so many rows, in larger batches, has taken about as long as the import: that begins."""
_MANY: Final = 1_000_000
"""From here on a dict takes too much memory, whatever the batches are."""
_MIN_DEAD_BYTES: Final = 1 << 20
_KERNELS: Final = "penstock.engine.state.keys.index_kernel"
_FIRST_ROW: Final = np.zeros(1, np.int64)
_HASH_SEED: Final = 42
_ALL_ONES: Final = 2**64 - 1
_SIMPLE: Final = frozenset(
    {pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64(), pa.bool_()}
    | {pa.string(), pa.large_string(), pa.binary(), pa.large_binary()}
)
"""Types of which a row's value is that of `to_pylist`, and that of its key in a dict."""


@dataclass(slots=True)
class Search:
    """What an index knows of the keys of some rows, so that those without a slot can be added without a second look.

    It holds until a key is added.

    Args:
        slots: of each row's key, or -1 where it has none.
        columns: the keys, in the types that are held.
        nulls: the rows in which every column is null.
        table: where they were looked for.
        encoded: the keys as that takes them.
    """

    slots: Slots
    columns: list[pa.Array]
    nulls: npt.NDArray[np.bool_]
    table: _Table
    encoded: Any


class KeyIndex:
    """A dense slot for each key.

    Args:
        hash_rows: a 64-bit hash of each row of key columns. Those of different keys may be equal.

    Attributes:
        direct: what `slots_of_rows` knows of its slots.

    Example:
        >>> index = KeyIndex()
        >>> index.lookup([pa.array(["b", "a", "b"])]).tolist()
        [0, 1, 0]
    """

    def __init__(self, hash_rows: Callable[[Sequence[pa.Array]], Slots] = hash_columns) -> None:
        self._hash_rows = hash_rows
        self._types: list[pa.DataType] = []
        self._table: _Table = _DictTable()
        self._pool = _SlotPool()
        self._null_slot = -1
        self._is_simple = False
        self._asked = 0
        self.direct = DirectSlots()

    def __len__(self) -> int:
        return self._pool.used

    @property
    def end(self) -> int:
        """All slots that were ever given are below this."""
        return self._pool.end

    def find(self, columns: Sequence[pa.Array]) -> Slots:
        """The slot of each row's key, or -1 where it has none.

        Args:
            columns: the key columns, arrays of one length, of the same types in every call (null stands for any).
        """
        return self.search(columns).slots

    def search(self, columns: Sequence[pa.Array]) -> Search:
        """As `find`, to be followed by `enter`."""
        self._ask(len(columns[0]))
        return self._search(self._plain(columns))

    def find_one(self, key: Sequence[Any], columns: Callable[[], Sequence[pa.Array]]) -> int:
        """The slot of one key, or -1: as `find`, but without arrays where the key's types allow it.

        Args:
            key: its values, one a column.
            columns: makes arrays of one row of it.
        """
        encoded = self._table.encode_one(key, self._types) if self._is_simple else None
        if encoded is None:
            return int(self.find(columns())[0])
        slots = np.empty(1, np.int64)
        self._table.find(encoded, _FIRST_ROW, slots)
        return int(slots[0])

    def lookup(self, columns: Sequence[pa.Array]) -> Slots:
        """The slot of each row's key; one not seen before gets a slot."""
        search = self._search(self._plain(columns))
        slots: Slots = search.slots
        if slots.min(initial=0) < 0:
            self._give(search, slots < 0, slots)
        return slots

    def place(self, columns: Sequence[pa.Array]) -> tuple[Slots, npt.NDArray[np.bool_]]:
        """As `lookup`, in one step where most keys are new; and whether each row's key had no slot before."""
        self._ask(len(columns[0]))
        plain = self._plain(columns)
        if isinstance(self._table, _DictTable) and self._outgrows_dict(len(plain[0]), len(plain[0])):
            self._compile()
        if not len(plain[0]) or _all_null(plain).any():
            search = self._search(plain)
            return self.enter(search, np.ones(len(search.slots), np.bool_)), search.slots < 0
        slots = np.empty(len(plain[0]), np.int64)
        used = self._table.add(self._table.encode(plain), np.arange(len(slots)), self._pool.peek(len(slots)), slots)
        is_new = ~self._pool.are_taken(slots)
        self._pool.take(used)
        return slots, is_new

    def enter(self, search: Search, rows: npt.NDArray[np.bool_]) -> Slots:
        """The slots of some of the rows that were searched for; those that had none get one."""
        slots: Slots = search.slots.copy()
        self._give(search, rows & (slots < 0), slots)
        chosen: Slots = slots[rows]
        return chosen

    def _give(self, search: Search, wanted: npt.NDArray[np.bool_], slots: Slots) -> None:
        """Give slots to the keys of the rows that are wanted, which have none."""
        nulls = search.nulls
        if (nulls & wanted).any():
            self._null_slot = int(self._pool.peek(1)[0])
            self._pool.take(1)
            slots[nulls] = self._null_slot
            wanted &= ~nulls
        missing = np.flatnonzero(wanted)
        if len(missing) == 0:
            return
        self._ask(len(slots))
        if isinstance(self._table, _DictTable) and self._outgrows_dict(len(slots), len(missing)):
            self._compile()
        encoded = search.encoded if search.table is self._table else self._table.encode(search.columns)
        self._pool.take(self._table.add(encoded, missing, self._pool.peek(len(missing)), slots))

    def _ask(self, rows: int) -> None:
        self._asked += rows if rows > _TRICKLE else 0

    def _outgrows_dict(self, rows: int, new_keys: int) -> bool:
        keys = len(self) + new_keys
        return (keys > _FEW and rows > _FEW) or keys > _MANY

    def remove(self, slots: Slots) -> None:
        """Forget the keys of `slots`, which are theirs no longer.

        Args:
            slots: of keys that are held, each once.
        """
        if self.direct.is_used:
            self.direct.forget()
        if self._null_slot >= 0 and (slots == self._null_slot).any():
            self._pool.give_back(np.array([self._null_slot]))
            slots, self._null_slot = slots[slots != self._null_slot], -1
        if len(slots):
            self._table.remove(slots)
            self._pool.give_back(slots)

    def slots(self) -> Slots:
        """The slots of all keys, ascending."""
        return self._pool.taken()

    def keys(self, slots: Slots, places: Sequence[int] | None = None) -> list[pa.Array]:
        """The keys of `slots`, which are held: an array for each key column, dictionaries as their values.

        Args:
            slots: of the keys.
            places: those of the columns that are wanted; None: all.
        """
        return self.take(slots, places)()

    def take(self, slots: Slots, places: Sequence[int] | None = None) -> Callable[[], list[pa.Array]]:
        """As `keys`, but by reference: what is called, in any thread, makes the arrays of the keys as they are now."""
        types = self._types.copy()
        places = range(len(types)) if places is None else places
        if self._null_slot < 0 or not (nulls := slots == self._null_slot).any():
            return self._table.take(slots, types, places)
        taken = self._table.take(slots[~nulls], types, places)

        def keys() -> list[pa.Array]:
            rows = pa.array(np.cumsum(~nulls) - 1, mask=nulls)
            return [array.take(rows) if len(array) else pa.nulls(len(slots), array.type) for array in taken()]

        return keys

    def take_first(self, count: int) -> Callable[[], list[pa.Array]]:
        """As `take` of the slots 0 to `count` - 1, all of them held, without a copy where keys are words."""
        if self._null_slot < 0 and isinstance(self._table, _WordTable):
            return self._table.take_first(count, self._types[0])
        return self.take(np.arange(count))

    def holds(self, slots: Slots) -> npt.NDArray[np.bool_]:
        """Whether each of `slots`, which were given once, is that of a key."""
        return self._pool.are_taken(slots)

    def _search(self, columns: list[pa.Array]) -> Search:
        nulls = _all_null(columns)
        slots = np.full(len(nulls), self._null_slot, np.int64)
        rows = np.flatnonzero(~nulls) if nulls.any() else np.arange(len(nulls))
        if len(rows) == 0:
            return Search(slots, columns, nulls, self._table, None)
        encoded = self._table.encode(columns)
        self._table.find(encoded, rows, slots)
        return Search(slots, columns, nulls, self._table, encoded)

    def _plain(self, columns: Sequence[pa.Array]) -> list[pa.Array]:
        """The columns in the types that are held, which become known with the first value."""
        plain = [column.dictionary_decode() if pa.types.is_dictionary(column.type) else column for column in columns]
        self._types = self._types or [pa.null()] * len(plain)
        for index, column in enumerate(plain):
            if pa.types.is_null(self._types[index]):
                self._learn(index, column.type)
            elif column.type != self._types[index]:
                plain[index] = column.cast(self._types[index])
        if isinstance(self._table, _DictTable):
            self._compile_in_time(len(plain[0]))
        return plain

    def expect(self, rows: int) -> None:
        """The next lookup is for so many rows, of which it has only the keys that others do not know."""
        if self._types and isinstance(self._table, _DictTable):
            self._compile_in_time(rows)
            self._ask(rows)

    def _compile_in_time(self, rows: int) -> None:
        if rows > _TRICKLE:
            if are_loaded() or rows > _FEW < len(self):
                self._compile()
            elif self._asked >= _EARNED:
                load_beside()

    def _learn(self, index: int, kind: pa.DataType) -> None:
        self._types[index] = kind
        self._is_simple = all(kind in _SIMPLE for kind in self._types)

    def _compile(self) -> None:
        slots = self._pool.taken()
        slots = slots[slots != self._null_slot]
        columns = self._table.take(slots, self._types, range(len(self._types)))()
        self._table = self._compiled()
        self._table.add(self._table.encode(columns), np.arange(len(slots)), slots, slots.copy())

    def _compiled(self) -> _Table:
        if len(self._types) > MOST_WORDS or not all(map(is_word, self._types)):
            return _ByteTable(self._hash_rows)
        return _WordTable() if len(self._types) == 1 else WordRowTable(len(self._types))


def are_loaded() -> bool:
    """Whether an index of this process, of any job, is compiled: to compile another costs next to nothing more."""
    return _KERNELS in sys.modules and not _loader.is_loading


def _use_kernels() -> None:
    for columns in ([pa.array([1])], [pa.array([1]), pa.array([1])], [pa.array(["a"])]):
        index = KeyIndex()
        index.lookup(columns)
        index._compile()
        index.remove(index.lookup(columns))


_loader: Final = BesideLoader(_use_kernels)


def load_beside() -> None:
    """Begin to load what a compiled index needs, beside the caller; `are_loaded` tells when it is there."""
    _loader.begin()


def _all_null(columns: Sequence[pa.Array]) -> npt.NDArray[np.bool_]:
    """The rows in which every column is null."""
    for column in columns:
        if column.null_count == 0:
            return np.zeros(len(columns[0]), np.bool_)
    nulls = np.ones(len(columns[0]), np.bool_)
    for column in columns:
        nulls &= column.is_null().to_numpy(zero_copy_only=False)
    return nulls


class _SlotPool:
    """Gives slots and takes them back; those given back come first."""

    def __init__(self) -> None:
        self._free: Slots = np.empty(0, np.int64)
        self._free_count = 0
        self._taken: npt.NDArray[np.bool_] = np.zeros(0, np.bool_)
        self.end = 0

    @property
    def used(self) -> int:
        return self.end - self._free_count

    def peek(self, count: int) -> Slots:
        """The next `count` slots."""
        reused = self._free[max(0, self._free_count - count) : self._free_count][::-1]
        return np.concatenate([reused, np.arange(self.end, self.end + count - len(reused))])

    def take(self, count: int) -> None:
        """The first `count` of those slots are in use now."""
        slots = self.peek(count)
        self._free_count -= min(count, self._free_count)
        self.end = max(self.end, int(slots.max(initial=-1)) + 1)
        self._taken = grown(self._taken, self.end)
        self._taken[slots] = True

    def give_back(self, slots: Slots) -> None:
        self._free = grown(self._free, self._free_count + len(slots))
        self._free[self._free_count : self._free_count + len(slots)] = slots
        self._free_count += len(slots)
        self._taken[slots] = False

    def taken(self) -> Slots:
        return np.flatnonzero(self._taken)

    def are_taken(self, slots: Slots) -> npt.NDArray[np.bool_]:
        self._taken = grown(self._taken, int(slots.max(initial=-1)) + 1)
        return self._taken[slots]


class _Table(Protocol):
    """Keys that are not null altogether, with their slots."""

    def encode(self, columns: list[pa.Array]) -> Any:
        """The keys of all rows as this table takes them."""
        ...

    def encode_one(self, key: Sequence[Any], types: list[pa.DataType]) -> Any:
        """As `encode`, for one key of `_SIMPLE` types; None where that needs arrays."""
        ...

    def find(self, encoded: Any, rows: Slots, slots: Slots) -> None:
        """Write the slots of the keys of `rows` to `slots`, or -1."""
        ...

    def add(self, encoded: Any, rows: Slots, fresh: Slots, slots: Slots) -> int:
        """As `find`, but give new keys the slots `fresh`, one behind the other; how many were used."""
        ...

    def remove(self, slots: Slots) -> None: ...

    def take(self, slots: Slots, types: list[pa.DataType], places: Sequence[int]) -> Callable[[], list[pa.Array]]:
        """What makes the key columns at `places` of `slots`, later and in any thread."""
        ...


class _DictTable:
    """A dict of Python values, for few keys."""

    def __init__(self) -> None:
        self._slots: dict[Any, int] = {}
        self._keys: dict[int, Any] = {}

    def __len__(self) -> int:
        return len(self._slots)

    def encode(self, columns: list[pa.Array]) -> list[Any]:
        values = [comparable(column).to_pylist() for column in columns]
        return values[0] if len(values) == 1 else list(zip(*values, strict=True))

    def encode_one(self, key: Sequence[Any], types: list[pa.DataType]) -> list[Any] | None:
        if all(value is None for value in key):
            return None
        return [key[0] if len(key) == 1 else tuple(key)]

    def find(self, encoded: list[Any], rows: Slots, slots: Slots) -> None:
        get = self._slots.get
        if len(rows) == len(encoded):
            slots[:] = np.fromiter(map(get, encoded, itertools.repeat(-1)), np.int64, len(encoded))
        else:
            slots[rows] = [get(encoded[row], -1) for row in rows.tolist()]

    def add(self, encoded: list[Any], rows: Slots, fresh: Slots, slots: Slots) -> int:
        unused = iter(fresh.tolist())
        used = 0
        for row in rows.tolist():
            key = encoded[row]
            slot = self._slots.get(key)
            if slot is None:
                slot = next(unused)
                self._slots[key], self._keys[slot] = slot, key
                used += 1
            slots[row] = slot
        return used

    def remove(self, slots: Slots) -> None:
        for slot in slots.tolist():
            del self._slots[self._keys.pop(slot)]

    def take(self, slots: Slots, types: list[pa.DataType], places: Sequence[int]) -> Callable[[], list[pa.Array]]:
        keys = list(map(self._keys.__getitem__, slots.tolist()))

        def arrays() -> list[pa.Array]:
            columns = [keys] if len(types) == 1 else [[key[place] for key in keys] for place in places]
            return [_array(values, types[place]) for values, place in zip(columns, places, strict=True)]

        return arrays


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    """The column of values as `comparable` ones give them."""
    held = comparable_type(kind)
    return pa.array(values, kind) if held == kind or not values else pa.array(values, held).cast(kind)


class _WordTable:
    """One column whose values are words of 64 bits: equal codes are equal keys."""

    def __init__(self) -> None:
        self._rows = new_rows(0)
        self._count = 0
        self._words = np.zeros(0, np.uint64)
        self._is_lent = False

    def encode(self, columns: list[pa.Array]) -> tuple[Any, Any]:
        words = words_of(columns[0])
        return words, self._codes(words)

    def encode_one(self, key: Sequence[Any], types: list[pa.DataType]) -> tuple[Any, Any] | None:
        if type(key[0]) is not int:
            return None
        words = np.array([key[0] & _ALL_ONES], np.uint64)
        return words, self._codes(words)

    def _codes(self, words: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
        from penstock.engine.state.keys.index_kernel import word_codes

        codes = np.empty(len(words), np.uint64)
        word_codes(read_only(words), codes)
        return codes

    def find(self, encoded: tuple[Any, Any], rows: Slots, slots: Slots) -> None:
        from penstock.engine.state.keys.index_kernel import find_words

        find_words(self._rows, encoded[1], rows, np.empty(0, np.int64), slots)

    def add(self, encoded: tuple[Any, Any], rows: Slots, fresh: Slots, slots: Slots) -> int:
        from penstock.engine.state.keys.index_kernel import find_words

        self._rows = with_room(self._rows, self._count + len(rows))
        used = find_words(self._rows, encoded[1], rows, fresh, slots)
        self._count += used
        if used:
            self._words = grown(self._words, int(fresh[:used].max()) + 1)
            self._words[slots[rows]] = encoded[0][rows]
        return used

    def remove(self, slots: Slots) -> None:
        from penstock.engine.state.keys.index_kernel import remove_slots

        remove_slots(self._rows, self._codes(self._words[slots]), slots)
        self._count -= len(slots)
        if self._is_lent:
            # Other keys come into these slots, and what was taken stays as it was.
            self._words, self._is_lent = self._words.copy(), False

    def take(self, slots: Slots, types: list[pa.DataType], places: Sequence[int]) -> Callable[[], list[pa.Array]]:
        words = self._words[slots]
        return lambda: [from_words(words, None, types[place]) for place in places]

    def take_first(self, count: int, kind: pa.DataType) -> Callable[[], list[pa.Array]]:
        words, self._is_lent = self._words[:count], True
        return lambda: [from_words(words, None, kind)]


class _ByteTable:
    """Any columns, as byte strings that lie in one arena; found by their hash, and compared."""

    def __init__(self, hash_rows: Callable[[Sequence[pa.Array]], Slots]) -> None:
        self._hash_rows = hash_rows
        self._rows = new_rows(0)
        self._count = 0
        self._codes = np.zeros(0, np.uint64)
        self._starts = np.zeros(0, np.int64)
        self._lengths = np.zeros(0, np.int64)
        self._arena = np.zeros(0, np.uint8)
        self._end = 0
        self._dead = 0

    def encode(self, columns: list[pa.Array]) -> tuple[Packed, Any]:
        return pack(columns), self._hash_rows(columns).view(np.uint64)

    def encode_one(self, key: Sequence[Any], types: list[pa.DataType]) -> tuple[Packed, Any] | None:
        if len(key) > 1 or key[0] is None:
            return None
        data = key[0].encode() if isinstance(key[0], str) else key[0]
        packed = Packed(np.frombuffer(data, np.uint8), np.array([0, len(data)]))
        if self._hash_rows is hash_columns:
            # What it says of one text, without an array.
            return packed, np.array([xxhash.xxh64_intdigest(data, _HASH_SEED)], np.uint64)
        return packed, self._hash_rows([pa.array(key, types[0])]).view(np.uint64)

    def find(self, encoded: tuple[Packed, Any], rows: Slots, slots: Slots) -> None:
        self._probe(encoded, rows, np.empty(0, np.int64), slots)

    def add(self, encoded: tuple[Packed, Any], rows: Slots, fresh: Slots, slots: Slots) -> int:
        packed, codes = encoded
        self._rows = with_room(self._rows, self._count + len(rows))
        more = int((packed.offsets[rows + 1] - packed.offsets[rows]).sum())
        self._arena = grown(self._arena, self._end + more)
        end = int(fresh.max(initial=-1)) + 1
        self._starts, self._lengths = grown(self._starts, end), grown(self._lengths, end)
        self._codes = grown(self._codes, end)
        used = self._probe(encoded, rows, fresh, slots)
        self._codes[slots[rows]] = codes[rows]
        self._count += used
        return used

    def _probe(self, encoded: tuple[Packed, Any], rows: Slots, fresh: Slots, slots: Slots) -> int:
        from penstock.engine.state.keys.index_kernel import find_bytes

        packed, codes = encoded
        arena = self._arena, self._end, self._starts, self._lengths
        data, offsets = read_only(packed.data), read_only(packed.offsets)
        used, self._end = find_bytes(self._rows, codes, rows, fresh, slots, data, offsets, *arena)
        return used

    def remove(self, slots: Slots) -> None:
        from penstock.engine.state.keys.index_kernel import remove_slots

        remove_slots(self._rows, self._codes[slots], slots)
        self._count -= len(slots)
        self._dead += int(self._lengths[slots].sum())
        self._lengths[slots] = 0
        if self._dead > max(self._end // 2, _MIN_DEAD_BYTES):
            self._compact()

    def _compact(self) -> None:
        from penstock.engine.state.keys.index_kernel import copy_ranges

        starts = np.cumsum(self._lengths) - self._lengths
        arena = np.zeros(self._end - self._dead, np.uint8)
        copy_ranges(read_only(self._arena), self._starts, self._lengths, arena, starts)
        self._arena, self._starts, self._end, self._dead = arena, starts, len(arena), 0

    def take(self, slots: Slots, types: list[pa.DataType], places: Sequence[int]) -> Callable[[], list[pa.Array]]:
        # What lies in the arena never changes: it grows at its end, or gives way to another.
        arena, starts, lengths = self._arena, self._starts[slots], self._lengths[slots]
        return lambda: unpack(arena, starts, lengths, types, places)
