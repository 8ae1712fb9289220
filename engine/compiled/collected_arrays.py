"""The list and map states of a batch's keys as the arrays that compiled code reads and writes.

The program of a keyed function makes one of each state and batch. It begins empty; what compiled code misses is loaded
from the state behind each run, until it misses nothing. What was changed is written to the state when all is done.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.engine.compiled.collected import CAPACITY, MASK, MapKinds
from penstock.engine.compiled.inputs import STORED
from penstock.engine.compiled.kinds import BOOL, TEXT, Kind
from penstock.engine.state.backend import ListState, MapState

if TYPE_CHECKING:
    from penstock.engine.compiled.machine_code import RowLoop

Arrays = Mapping[str, npt.NDArray[Any]]
GoTo = Callable[[int], None]
"""Makes the key of a group the current one."""
Codes = Callable[[Sequence[Any], Kind], npt.NDArray[Any]]
"""Python values of a kind as compiled code has them."""
Values = Callable[[npt.NDArray[Any], Kind], "list[Any]"]
"""What compiled code has as Python values."""
_ROOM: Final = 16
"""A list begins with so many places, and twice as many whenever it moves."""
_INT: Final = np.int64
_LIST: Final = {"lb": _INT, "ll": _INT, "lc": _INT, "lk": np.bool_, "lm": np.bool_, "lw": np.bool_}
_WALKED: Final = {"mb": _INT, "ml": _INT, "md": np.bool_, "mm": np.bool_}
_ENTRY: Final = {"mg": _INT, "mk": _INT, "mw": _INT, "ms": _INT, "me": _INT, "mp": np.bool_, "mq": np.bool_}


def list_types(name: str, kind: Kind) -> dict[str, type[np.generic]]:
    """The type of the elements of a list state's arrays: by group, the values, and the room that is taken and there."""
    of_groups = {f"{array}_{name}": stored for array, stored in _LIST.items()}
    return {**of_groups, f"lv_{name}": STORED.get(kind, _INT), f"lt_{name}": _INT, f"lr_{name}": _INT}


def map_types(name: str, kinds: MapKinds, is_walked: bool) -> dict[str, type[np.generic]]:
    """The type of the elements of a map state's arrays: the table, the entries, counts, limits, how often cleared.

    Where all entries are gone over, they are a chain by group: first, last, whether all are there, or were missed.
    """
    entries = {f"{array}_{name}": stored for array, stored in _ENTRY.items()}
    beside = {f"{array}_{name}": _INT for array in ("mt", "mn", "mr", "mc")}
    chain = {f"{array}_{name}": stored for array, stored in {**_WALKED, "mx": _INT, "my": _INT}.items()}
    return {**entries, f"mv_{name}": STORED.get(kinds.value, _INT), **beside, **(chain if is_walked else {})}


class ListArrays:
    """One list state.

    Args:
        name: the attribute that holds it.
        kind: of its values.
        state: holds them, at the key of a group behind `go_to`.
        go_to: goes there.
        groups: the number of keys.
    """

    def __init__(self, name: str, kind: Kind, state: ListState, go_to: GoTo, groups: int) -> None:
        self.kind = kind
        self._name = name
        self._state = state
        self._go_to = go_to
        self._groups = groups
        self._loaded: dict[int, list[Any]] = {}

    @property
    def texts(self) -> list[Any]:
        """The texts that were loaded."""
        return [value for values in self._loaded.values() for value in values] if self.kind == TEXT else []

    def arrays(self, rows: int, codes: Codes) -> Arrays:
        """The arrays for a run with room for so many more values."""
        held = codes([value for values in self._loaded.values() for value in values], self.kind)
        made: dict[str, npt.NDArray[Any]] = {array: np.zeros(self._groups, stored) for array, stored in _LIST.items()}
        groups = np.fromiter(self._loaded, np.int64, len(self._loaded))
        lengths = np.fromiter(map(len, self._loaded.values()), np.int64, len(self._loaded))
        made["lb"][groups] = np.cumsum(lengths) - lengths
        made["ll"][groups] = made["lc"][groups] = lengths
        made["lk"][groups] = True
        size = 3 * len(held) + 4 * rows + _ROOM * self._groups
        values = np.empty(size, held.dtype)
        values[: len(held)] = held
        beside = {"lv": values, "lt": np.array([len(held)]), "lr": np.array([size])}
        self._made = {f"{array}_{self._name}": of_it for array, of_it in {**made, **beside}.items()}
        return self._made

    def load_missed(self, values: Values) -> None:
        """Load the lists that the last run read and did not know."""
        missed = self._made[f"lm_{self._name}"] & ~self._made[f"lk_{self._name}"]
        for group in np.flatnonzero(missed).tolist():
            self._go_to(group)
            self._loaded[group] = self._state.get()

    def changes(self, values: Values) -> Iterator[Callable[[], None]]:
        """What writes each list that the last run changed."""
        made = self._made
        begins, lengths, replaced = (made[f"{array}_{self._name}"] for array in ("lb", "ll", "lw"))
        known = np.zeros(self._groups, np.int64)
        for group, held in self._loaded.items():
            known[group] = len(held)
        first = np.where(replaced, 0, known)
        groups = np.flatnonzero(replaced | (lengths > first))
        counts = lengths[groups] - first[groups]
        ends = np.cumsum(counts)
        places = np.repeat(begins[groups] + first[groups] - ends + counts, counts) + np.arange(counts.sum())
        flat = values(made[f"lv_{self._name}"][places], self.kind)
        changed = zip(groups.tolist(), replaced[groups].tolist(), ends.tolist(), counts.tolist(), strict=True)
        for group, is_replaced, end, count in changed:
            write = self._state.update if is_replaced else self._state.add_all
            yield functools.partial(self._write, group, write, flat[end - count : end])

    def _write(self, group: int, write: Callable[[list[Any]], None], values: list[Any]) -> None:
        self._go_to(group)
        write(values)


class MapArrays:
    """One map state; the arguments are as for `ListArrays`. What was loaded are the first entries.

    Args:
        is_walked: whether all entries are gone over.
    """

    def __init__(
        self, name: str, kinds: MapKinds, state: MapState, go_to: GoTo, groups: int, is_walked: bool = False
    ) -> None:
        self._name = name
        self._kinds = kinds
        self._state = state
        self._go_to = go_to
        self._groups = groups
        self._is_walked = is_walked
        self._are_all_loaded = np.zeros(groups, np.bool_)
        self._loaded_groups = np.empty(0, np.int64)
        self._loaded_keys: list[Any] = []
        self._loaded: list[Any] = []

    @property
    def texts(self) -> list[Any]:
        """The texts that were loaded, and the keys of what was."""
        keys = self._loaded_keys if self._kinds.key == TEXT else []
        values = self._loaded if self._kinds.value == TEXT else []
        return [*keys, *(value for value in values if value is not None)]

    def arrays(self, rows: int, codes: Codes) -> Arrays:
        """The arrays for a run with room for so many more entries."""
        count = len(self._loaded)
        capacity = count + rows
        mask = (1 << (2 * capacity).bit_length()) - 1
        made: dict[str, npt.NDArray[Any]] = {array: np.zeros(capacity, stored) for array, stored in _ENTRY.items()}
        limits = np.zeros(3, np.int64)
        limits[CAPACITY], limits[MASK] = capacity, mask
        beside = {"mt": np.zeros(mask + 1, np.int64), "mn": np.zeros(2, np.int64), "mr": limits}
        made["mp"][:count] = [value is not None for value in self._loaded]
        made["mq"][:count] = True
        held = codes([value for value in self._loaded if value is not None], self._kinds.value)
        values = np.zeros(capacity, held.dtype)
        values[:count][made["mp"][:count]] = held
        if count:
            table = [beside["mt"], made["mg"], made["mk"], beside["mn"], limits]
            keys = codes(self._loaded_keys, self._kinds.key).astype(np.int64)
            _filling()(count, (), [*table, self._loaded_groups, keys])
        cleared = np.zeros(self._groups, np.int64)
        chain = self._chain(made["mp"][:count], capacity) if self._is_walked else {}
        all_made = {**made, "mv": values, **beside, "mc": cleared, **chain}
        self._made = {f"{array}_{self._name}": of_it for array, of_it in all_made.items()}
        return self._made

    def _chain(self, is_there: npt.NDArray[np.bool_], capacity: int) -> Arrays:
        """The entries of each group that is loaded, in their order."""
        made: dict[str, npt.NDArray[Any]] = {array: np.full(self._groups, -1) for array in ("mb", "ml")}
        made |= {"md": self._are_all_loaded.copy(), "mm": np.zeros(self._groups, np.bool_)}
        made |= {array: np.full(capacity, -1) for array in ("mx", "my")}
        entries = np.flatnonzero(is_there & self._are_all_loaded[self._loaded_groups])
        entries = entries[np.argsort(self._loaded_groups[entries], kind="stable")]
        groups = self._loaded_groups[entries]
        # Those written last, and first, of each group stay.
        made["mb"][groups[::-1]] = entries[::-1]
        made["ml"][groups] = entries
        follows = groups[1:] == groups[:-1]
        made["mx"][entries[:-1][follows]] = entries[1:][follows]
        made["my"][entries[1:][follows]] = entries[:-1][follows]
        return made

    def _entries(self, array: str) -> npt.NDArray[Any]:
        return self._made[f"{array}_{self._name}"][: self._made[f"mn_{self._name}"][0]]

    def load_missed(self, values: Values) -> None:
        """Load the entries that the last run looked up."""
        known = len(self._loaded)
        groups = self._entries("mg")[known:].copy()
        keys = values(self._entries("mk")[known:], self._kinds.key)
        found: list[Any] = [None] * len(keys)
        get = self._state.get
        for group, places in _by_group(groups):
            self._go_to(group)
            for place in places.tolist():
                found[place] = get(keys[place])
        self._loaded_groups = np.concatenate([self._loaded_groups, groups])
        self._loaded_keys += keys
        self._loaded += found
        if self._is_walked:
            self._load_all()

    def _load_all(self) -> None:
        """Load all entries of the groups that the last run went over."""
        missed = self._made[f"mm_{self._name}"] & ~self._are_all_loaded
        kept = np.flatnonzero(~missed[self._loaded_groups]).tolist()
        groups = self._loaded_groups[kept].tolist()
        keys, values = [self._loaded_keys[at] for at in kept], [self._loaded[at] for at in kept]
        for group in np.flatnonzero(missed).tolist():
            self._go_to(group)
            for key, value in self._state.items():
                groups.append(group)
                keys.append(key)
                values.append(value)
        self._loaded_groups, self._loaded_keys, self._loaded = np.array(groups, np.int64), keys, values
        self._are_all_loaded |= missed

    def changes(self, values: Values) -> Iterator[Callable[[], None]]:
        """What writes each map that the last run changed."""
        cleared = self._made[f"mc_{self._name}"]
        groups, written = self._entries("mg"), self._entries("mw")
        touched = np.flatnonzero((written != 0) & (self._entries("me") == cleared[groups]))
        touched = touched[np.argsort(self._entries("ms")[touched], kind="stable")]
        for group in np.flatnonzero(cleared).tolist():
            yield functools.partial(self._clear, group)
        keys = values(self._entries("mk")[touched], self._kinds.key)
        new = values(self._entries("mv")[touched], self._kinds.value)
        is_removed, is_there = written[touched] & 2 != 0, self._entries("mp")[touched]
        for group, places in _by_group(groups[touched]):
            removed = [keys[place] for place in places[is_removed[places]].tolist()]
            put = {keys[place]: new[place] for place in places[is_there[places]].tolist()}
            yield functools.partial(self._write, group, removed, put)

    def _clear(self, group: int) -> None:
        self._go_to(group)
        self._state.clear()

    def _write(self, group: int, removed: Sequence[Any], put: Mapping[Any, Any]) -> None:
        """What was removed meanwhile comes behind the others again, as in plain Python."""
        self._go_to(group)
        for key in removed:
            self._state.remove(key)
        self._state.put_all(put)


def _by_group(groups: npt.NDArray[np.int64]) -> Iterator[tuple[int, npt.NDArray[np.int64]]]:
    """Each group that is there, with its places in order."""
    order = np.argsort(groups, kind="stable")
    numbers, first = np.unique(groups[order], return_index=True)
    yield from zip(numbers.tolist(), np.split(order, first[1:]), strict=False)


@functools.cache
def _filling() -> RowLoop:
    """Puts entries into a table that is empty, in their order."""
    from penstock.engine.compiled.machine_code import RowLoop

    arrays = dict.fromkeys(("mt", "mg", "mk", "mn", "mr", "groups", "keys"), np.int64)
    return RowLoop("entry = find(mt, mg, mk, mn, mr, groups[i], keys[i])", (), arrays)


def codes_of(values: Sequence[Any], kind: Kind, numbers: Mapping[str, int]) -> npt.NDArray[Any]:
    """Python values as compiled code has them, texts by their `numbers`."""
    if kind == TEXT:
        return np.fromiter((numbers[value] for value in values), np.int64, len(values))
    return np.array(values, STORED[kind])


def values_of(numbers: npt.NDArray[Any], kind: Kind, texts: pa.Array) -> list[Any]:
    """What compiled code has as Python values, texts by their place in `texts`."""
    if kind == TEXT:
        return list(texts.take(pa.array(numbers)).to_pylist())
    return list((numbers != 0).tolist() if kind == BOOL else numbers.tolist())
