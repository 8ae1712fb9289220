"""Runs a translated keyed function over the rows of batches and the values of their keys' states.

The operator of compiled process functions calls it. As in `program`, there is no result where plain Python must run,
and nothing has changed then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.engine.compiled.keyed_translation import KeyedTranslation
from penstock.engine.compiled.kinds import Kind, is_passed_on, kind_of
from penstock.engine.compiled.program import column_parameters, computed_column, input_arrays, load_loop, output_arrays


@dataclass(frozen=True, slots=True)
class Processed:
    """What a batch came to.

    Attributes:
        results: the columns of the rows by name.
        origin: for each of them, the row that it comes from, ascending.
        states: the values of each state, by key of the batch.
        written: whether each was updated, likewise.
    """

    results: Mapping[str, pa.Array]
    origin: npt.NDArray[np.int64]
    states: Sequence[npt.NDArray[Any]]
    written: Sequence[npt.NDArray[np.bool_]]


class KeyedProgram:
    """A translated keyed function, ready to run over batches of one schema."""

    def __init__(self, translation: KeyedTranslation, schema: pa.Schema) -> None:
        self._translation = translation
        self._kinds = [kind_of(schema.field(name)) for name in translation.columns]
        self._words = pa.array(translation.words, pa.large_string())
        self._loop = load_loop(_source(translation, self._kinds))

    def run(
        self, batch: pa.RecordBatch, groups: npt.NDArray[np.int64], states: Sequence[npt.NDArray[Any]]
    ) -> Processed | None:
        """What the batch comes to, or None where the plain function must run.

        Args:
            batch: the rows.
            groups: the number of each row's key.
            states: the values of each state by key; they are written to.
        """
        columns = input_arrays(batch, self._translation.columns, self._kinds, self._words)
        if columns is None:
            return None
        rows = len(batch) * self._translation.results_of_a_row
        out = output_arrays(self._translation.results, rows)
        origin = np.empty(rows, np.int64)
        written = [np.zeros(len(values), np.bool_) for values in states]
        try:
            count = self._loop(len(batch), groups, *columns, *states, *written, origin, *out.values())
        except (ArithmeticError, ValueError):
            return None
        origin = origin[:count]
        results = {
            name: batch.column(kind.column).take(pa.array(origin))
            if is_passed_on(kind)
            else computed_column(kind, out[name][:count], self._words)
            for name, kind in self._translation.results.items()
        }
        return Processed(results, origin, states, written)


def _source(translation: KeyedTranslation, kinds: Sequence[Kind]) -> str:
    used, values = column_parameters(kinds)
    states = [f"{letter}_{name}" for letter in "sw" for name in translation.states]
    outputs = [f"out_{place}" for place, kind in enumerate(translation.results.values()) if not is_passed_on(kind)]
    return "\n".join(
        [
            "@numba.njit(cache=True)",
            translation.source,
            "@numba.njit(cache=True, nogil=True)",
            f"def loop(n, groups, {', '.join([*used, *states, 'origin', *outputs])}):",
            "    at = 0",
            "    for i in range(n):",
            f"        at = process_row({', '.join(['i', 'at', 'groups[i]', *values, *states, 'origin', *outputs])})",
            "    return at",
            "",
        ]
    )
