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

from penstock.engine.compiled.emitting import EmittingTranslation, output_names
from penstock.engine.compiled.kinds import Kind, is_passed_on, kind_of
from penstock.engine.compiled.outcomes import Outcome
from penstock.engine.compiled.program import (
    STORED,
    column_arrays,
    computed_column,
    computed_types,
    input_arrays,
    output_arrays,
)

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
class Processed:
    """What a batch came to.

    Attributes:
        outputs: rows, calls of timers, and rows of side outputs, in the order of `EmittingTranslation.outputs`.
        states: the values of each state, by key of the batch.
        written: for each of them, 0, `UPDATED` or `CLEARED`.
    """

    outputs: Sequence[Output]
    states: Sequence[npt.NDArray[Any]]
    written: Sequence[npt.NDArray[np.int8]]


class EmittingProgram:
    """A translated function that emits rows, ready to run over batches of one schema."""

    def __init__(self, translation: EmittingTranslation, schema: pa.Schema) -> None:
        self.translation = translation
        self._kinds = [kind_of(schema.field(name)) for name in translation.columns]
        self._words = pa.array(translation.words, pa.large_string())
        self._room = 1

    @functools.cached_property
    def _loop(self) -> RowLoop:
        from penstock.engine.compiled.machine_code import RowLoop

        return RowLoop(self.translation.source, _NUMBERS, _arrays(self.translation, self._kinds))

    def run(
        self,
        batch: pa.RecordBatch,
        times: npt.NDArray[np.int64] | None,
        moment: Moment,
        groups: npt.NDArray[np.int64] | None = None,
        states: Sequence[npt.NDArray[Any]] = (),
        present: Sequence[npt.NDArray[np.bool_]] = (),
    ) -> Processed | None:
        """What the batch comes to, or None where the plain function must run.

        Args:
            batch: the rows.
            times: their timestamps, if they have any.
            moment: the time.
            groups: the number of each row's key, where there are states.
            states: the values of each state by key.
            present: for each of them, whether there is one.
        """
        columns = input_arrays(batch, self.translation.columns, self._kinds, self._words)
        if columns is None or (times is None and self.translation.needs_time):
            return None
        rows, outputs = len(batch), self.translation.outputs
        unused = np.zeros(rows, np.int64)
        given = [unused if groups is None else groups, unused if times is None else times]
        numbers = (moment.now_ms, moment.watermark, int(moment.is_event_time))
        room = min(self._room, max(1, _MOST // max(1, rows)))
        while rows * room <= _MOST:
            kept, kept_present = [values.copy() for values in states], [values.copy() for values in present]
            written = [np.zeros(len(values), np.int8) for values in states]
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
                made_outputs = [self._output(batch, o.kinds, out, origin[:n]) for o, out, origin, n in made]
                return Processed(made_outputs, kept, written)
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
    ) -> Output:
        columns = {
            name: batch.column(kind.column).take(pa.array(origin))
            if is_passed_on(kind)
            else computed_column(kind, computed[name][: len(origin)], self._words)
            for name, kind in kinds.items()
        }
        return Output(columns, origin)


def _arrays(translation: EmittingTranslation, kinds: Sequence[Kind]) -> dict[str, type[np.generic]]:
    """The arrays that generated code takes, in the order in which it is given them."""
    arrays: dict[str, type[np.generic]] = {"groups": np.int64, "times": np.int64, "count": np.int64, "room": np.int64}
    arrays.update(column_arrays(kinds))
    arrays.update((f"s_{name}", STORED[kind]) for name, kind in translation.states.items())
    arrays.update((f"p_{name}", np.bool_) for name in translation.states)
    arrays.update((f"w_{name}", np.int8) for name in translation.states)
    for number, output in enumerate(translation.outputs):
        types: list[type[np.generic]] = [np.int64, *computed_types(output.kinds)]
        arrays.update(zip(output_names(number, output.kinds), types, strict=True))
    return arrays
