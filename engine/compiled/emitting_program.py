"""Runs a translated function that emits rows over the rows of batches, and over the values of their keys' states.

The operators of compiled functions call it. As in `program`, there is no result where plain Python must run, and
nothing has changed then.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.engine.compiled.emitting import CLEARED, EmittingTranslation, output_names
from penstock.engine.compiled.inputs import STORED, Inputs, numbers_of
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
        updates: for each state.
    """

    outputs: Sequence[Output]
    updates: Sequence[Update]


class EmittingProgram:
    """A translated function that emits rows, ready to run over batches of one schema."""

    def __init__(self, translation: EmittingTranslation, schema: pa.Schema) -> None:
        self.translation = translation
        self._inputs = Inputs.of(translation.columns, translation.coded, translation.tested, schema)
        self._words = pa.array(translation.words, pa.large_string())
        self._room = 1

    @functools.cached_property
    def _loop(self) -> RowLoop:
        from penstock.engine.compiled.machine_code import RowLoop

        return RowLoop(self.translation.source, _NUMBERS, _arrays(self.translation, self._inputs))

    def run(
        self,
        batch: pa.RecordBatch,
        times: npt.NDArray[np.int64] | None,
        moment: Moment,
        groups: npt.NDArray[np.int64] | None = None,
        states: Sequence[pa.Array] = (),
    ) -> Processed | None:
        """What the batch comes to, or None where the plain function must run.

        Args:
            batch: the rows.
            times: their timestamps, if they have any.
            moment: the time.
            groups: the number of each row's key, where there are states.
            states: the values of each state by key, null where there is none.
        """
        kinds = list(self.translation.states.values())
        texts = Texts.of(
            self._words,
            [
                *(batch.column(name) for name in self._inputs.coded),
                *(values for values, kind in zip(states, kinds, strict=True) if kind == TEXT),
            ],
        )
        columns = self._inputs.arrays(batch, texts)
        if columns is None or (times is None and self.translation.needs_time):
            return None
        rows, outputs = len(batch), self.translation.outputs
        unused = np.zeros(rows, np.int64)
        given = [unused if groups is None else groups, unused if times is None else times]
        numbers = (moment.now_ms, moment.watermark, int(moment.is_event_time))
        numbered = iter(texts.numbers[len(self._inputs.coded) :])
        held = [next(numbered) if k == TEXT else numbers_of(values) for values, k in zip(states, kinds, strict=True)]
        present = [values.is_valid().to_numpy(zero_copy_only=False) for values in states]
        room = min(self._room, max(1, _MOST // max(1, rows)))
        while rows * room <= _MOST:
            kept, kept_present = [values.copy() for values in held], [values.copy() for values in present]
            written = [np.zeros(len(values), np.int8) for values in held]
            count = np.zeros(len(outputs), np.int64)
            rooms = np.array([rows * output.places * room for output in outputs], np.int64)
            origins = [np.empty(size, np.int64) for size in rooms]
            arrays = [output_arrays(output.kinds, size) for output, size in zip(outputs, rooms, strict=True)]
            filled = [a for origin, out in zip(origins, arrays, strict=True) for a in (origin, *out.values())]
            outcome = self._loop(
                rows, numbers, [*given, count, rooms, *columns, *kept, *kept_present, *written, *filled]
            )
            if outcome == Outcome.DONE:
                self._room = room
                made = zip(outputs, arrays, origins, count, strict=True)
                made_outputs = [self._output(batch, o.kinds, out, origin[:n], texts) for o, out, origin, n in made]
                changes = zip(kinds, kept, written, strict=True)
                updates = [_update(kind, values, touched, texts) for kind, values, touched in changes]
                return Processed(made_outputs, updates)
            if outcome == Outcome.NO_RESULT:
                return None
            # Loops emit more than places; the next batch begins with the room that this one needed.
            room *= 4
        return None

    def _output(
        self,
        batch: pa.RecordBatch,
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
    arrays: dict[str, type[np.generic]] = {"groups": np.int64, "times": np.int64, "count": np.int64, "room": np.int64}
    arrays.update(inputs.types)
    arrays.update((f"s_{name}", STORED.get(kind, np.int64)) for name, kind in translation.states.items())
    arrays.update((f"p_{name}", np.bool_) for name in translation.states)
    arrays.update((f"w_{name}", np.int8) for name in translation.states)
    for number, output in enumerate(translation.outputs):
        types: list[type[np.generic]] = [np.int64, *computed_types(output.kinds)]
        arrays.update(zip(output_names(number, output.kinds), types, strict=True))
    return arrays
