"""Runs a translated function that emits rows over the rows of batches, and over the values of their keys' states.

The operators of compiled functions call it. As in `program`, there is no result where plain Python must run, and
nothing has changed then.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.engine.compiled.collected_arrays import (
    ListArrays,
    MapArrays,
    codes_of,
    list_types,
    map_types,
    values_of,
)
from penstock.engine.compiled.emitting import CLEARED, EmittingTranslation, output_names
from penstock.engine.compiled.inputs import STORED, Columns, Inputs, numbers_of
from penstock.engine.compiled.kinds import TEXT, Kind, is_passed_on
from penstock.engine.compiled.outcomes import Outcome
from penstock.engine.compiled.program import (
    computed_column,
    computed_types,
    output_arrays,
)
from penstock.engine.compiled.texts import Texts

if TYPE_CHECKING:
    from penstock.engine.compiled.machine_code import RowLoop

_NUMBERS: Final = ("now", "watermark", "is_event_time")
_Array = npt.NDArray[Any]
_MOST_RUNS: Final = 24
"""A batch that finds something else missing again and again is left to plain Python."""
_MOST: Final = 1 << 22
"""Outputs of a batch with more rows are left to plain Python, which cuts them into batches as they come."""


@dataclass(frozen=True, slots=True)
class Moment:
    """What a function may ask for beside rows.

    Args:
        now_ms, watermark: the time (int64 ms).
        is_event_time: whether timers of event time fire.
    """

    now_ms: int
    watermark: int
    is_event_time: bool = False


@dataclass(frozen=True, slots=True)
class Output:
    """What was emitted to one output.

    Attributes:
        columns: by name.
        origin: for each row, that which it comes from, ascending.
    """

    columns: Mapping[str, pa.Array]
    origin: npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Update:
    """What a batch does to a state.

    Attributes:
        is_touched: for each key of the batch, whether its state changes.
        values: of those keys, null where the state is cleared.
    """

    is_touched: npt.NDArray[np.bool_]
    values: pa.Array


@dataclass(frozen=True, slots=True)
class Processed:
    """What a batch came to.

    Attributes:
        outputs: rows, calls of timers, and rows of side outputs, in the order of `EmittingTranslation.outputs`.
        updates: for each value state.
        writes: what changes list and map states.
    """

    outputs: Sequence[Output]
    updates: Sequence[Update]
    writes: Sequence[Callable[[], None]]


@dataclass(frozen=True, slots=True)
class _Run:
    """What compiled code reads and writes in one run over a batch.

    Attributes:
        texts: those of the batch and of its states.
        columns: of the batch.
        held, present, written: values of each value state by key, whether there are any, and what was done to them.
        collected: the arrays of list and map states.
        missing: whether something of these was read that is not in the arrays.
        count, rooms: of the rows of each output, so many are there, and may be.
        origins, made: of each output.
    """

    texts: Texts
    columns: Sequence[_Array]
    held: Sequence[_Array]
    present: Sequence[_Array]
    written: Sequence[_Array]
    collected: Sequence[_Array]
    missing: _Array
    count: _Array
    rooms: _Array
    origins: Sequence[_Array]
    made: Sequence[Mapping[str, _Array]]

    def arrays(self, given: Sequence[_Array]) -> list[_Array]:
        """All arrays, in the order of `_arrays`."""
        filled = [a for origin, made in zip(self.origins, self.made, strict=True) for a in (origin, *made.values())]
        states = [*self.held, *self.present, *self.written]
        return [*given, self.count, self.rooms, self.missing, *self.columns, *states, *self.collected, *filled]

    def values(self, numbers: _Array, kind: Kind) -> list[Any]:
        """What compiled code has as Python values."""
        return values_of(numbers, kind, self.texts.all)


class EmittingProgram:
    """A translated function that emits rows, ready to run over batches of one schema."""

    def __init__(self, translation: EmittingTranslation, schema: pa.Schema) -> None:
        self.translation = translation
        self._inputs = Inputs.of(translation.columns, translation.coded, translation.tested, schema)
        self._words = pa.array(translation.words, pa.large_string())
        self._room = 1

    @functools.cached_property
    def _loop(self) -> RowLoop:
        from penstock.engine.compiled.machine_code import row_loop

        arrays = _arrays(self.translation, self._inputs)
        return row_loop(self.translation.source, _NUMBERS, tuple(arrays.items()))

    def run(
        self,
        batch: Columns,
        times: npt.NDArray[np.int64] | None,
        moment: Moment,
        groups: npt.NDArray[np.int64] | None = None,
        states: Sequence[pa.Array] = (),
        collected: Sequence[ListArrays | MapArrays] = (),
    ) -> Processed | None:
        """What the batch comes to, or None where the plain function must run.

        Args:
            batch: the rows.
            times: their timestamps, if they have any.
            moment: the time.
            groups: the number of each row's key, where there are states.
            states: the values of each state by key, null where there is none.
            collected: the list states, and behind them the map states.
        """
        if times is None and self.translation.needs_time:
            return None
        rows, room = len(batch), min(self._room, max(1, _MOST // max(1, len(batch))))
        unused = np.zeros(rows, np.int64)
        given = [unused if groups is None else groups, unused if times is None else times]
        for _ in range(_MOST_RUNS):
            run = self._prepared(batch, states, collected, rows * room)
            if run is None or rows * room > _MOST:
                return None
            outcome = self._loop(rows, (moment.now_ms, moment.watermark, int(moment.is_event_time)), run.arrays(given))
            if run.missing[0]:
                for state in collected:
                    state.load_missed(run.values)
            elif outcome == Outcome.NO_ROOM:
                # Loops emit more than places; the next batch begins with the room that this one needed.
                room *= 4
            elif outcome == Outcome.NO_RESULT:
                return None
            else:
                self._room = room
                return self._processed(batch, run, collected)
        return None

    def _prepared(
        self,
        batch: Columns,
        states: Sequence[pa.Array],
        collected: Sequence[ListArrays | MapArrays],
        room: int,
    ) -> _Run | None:
        """The arrays for a run with so much room; None where plain Python must run."""
        kinds, outputs = list(self.translation.states.values()), self.translation.outputs
        coded = [values for values, kind in zip(states, kinds, strict=True) if kind == TEXT]
        loaded = [text for state in collected for text in state.texts]
        arrays = [*(batch.column(name) for name in self._inputs.coded), *coded]
        # Behind the others, whose numbers so stay what they are while more is loaded.
        texts = Texts.of(self._words, [*arrays, pa.array(loaded, pa.large_string())] if loaded else arrays)
        columns = self._inputs.arrays(batch, texts)
        if columns is None:
            return None
        numbered = iter(texts.numbers[len(self._inputs.coded) :])
        held = [
            np.array(next(numbered) if kind == TEXT else numbers_of(values))
            for values, kind in zip(states, kinds, strict=True)
        ]
        numbers = dict(zip(loaded, texts.numbers[-1].tolist(), strict=True)) if loaded else {}
        rooms = np.array([output.places * room for output in outputs], np.int64)
        return _Run(
            texts,
            columns,
            held,
            [np.array(values.is_valid()) for values in states],
            [np.zeros(len(values), np.int8) for values in held],
            [a for state in collected for a in state.arrays(room, lambda v, k: codes_of(v, k, numbers)).values()],
            np.zeros(1, np.int64),
            np.zeros(len(outputs), np.int64),
            rooms,
            [np.empty(size, np.int64) for size in rooms],
            [output_arrays(output.kinds, size) for output, size in zip(outputs, rooms, strict=True)],
        )

    def _processed(self, batch: Columns, run: _Run, collected: Sequence[ListArrays | MapArrays]) -> Processed:
        made = zip(self.translation.outputs, run.made, run.origins, run.count, strict=True)
        outputs = [self._output(batch, o.kinds, out, origin[:n], run.texts) for o, out, origin, n in made]
        changes = zip(self.translation.states.values(), run.held, run.written, strict=True)
        updates = [_update(kind, values, touched, run.texts) for kind, values, touched in changes]
        return Processed(outputs, updates, [write for state in collected for write in state.changes(run.values)])

    def collected(
        self, state_of: Callable[[str], Any], go_to: Callable[[int], None], groups: int
    ) -> list[ListArrays | MapArrays]:
        """The list and map states of a batch, for `run`.

        Args:
            state_of: the state that an attribute of the function holds.
            go_to: makes the key of a group the current one.
            groups: the number of keys.
        """
        lists, maps = self.translation.lists, self.translation.maps
        return [
            *(ListArrays(name, kind, state_of(name), go_to, groups) for name, kind in lists.items()),
            *(
                MapArrays(name, kinds, state_of(name), go_to, groups, name in self.translation.walked)
                for name, kinds in maps.items()
            ),
        ]

    def _output(
        self,
        batch: Columns,
        kinds: Mapping[str, Kind],
        computed: Mapping[str, npt.NDArray[Any]],
        origin: npt.NDArray[np.int64],
        texts: Texts,
    ) -> Output:
        columns = {
            name: batch.column(kind.column).take(pa.array(origin))
            if is_passed_on(kind)
            else computed_column(kind, computed[name][: len(origin)], texts)
            for name, kind in kinds.items()
        }
        return Output(columns, origin)


def _update(kind: Kind, values: npt.NDArray[Any], written: npt.NDArray[np.int8], texts: Texts) -> Update:
    is_touched = written != 0
    changed = pa.array(values[is_touched], mask=written[is_touched] == CLEARED, from_pandas=False)
    return Update(is_touched, texts.at(changed) if kind == TEXT else changed)


def _arrays(translation: EmittingTranslation, inputs: Inputs) -> dict[str, type[np.generic]]:
    """The arrays that generated code takes, in the order in which it is given them."""
    arrays: dict[str, type[np.generic]] = dict.fromkeys(("groups", "times", "count", "room", "missing"), np.int64)
    arrays.update(inputs.types)
    arrays.update((f"s_{name}", STORED.get(kind, np.int64)) for name, kind in translation.states.items())
    arrays.update((f"p_{name}", np.bool_) for name in translation.states)
    arrays.update((f"w_{name}", np.int8) for name in translation.states)
    for name, kind in translation.lists.items():
        arrays.update(list_types(name, kind))
    for name, kinds in translation.maps.items():
        arrays.update(map_types(name, kinds, name in translation.walked))
    for number, output in enumerate(translation.outputs):
        types: list[type[np.generic]] = [np.int64, *computed_types(output.kinds)]
        arrays.update(zip(output_names(number, output.kinds), types, strict=True))
    return arrays
