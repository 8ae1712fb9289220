"""Runs a translated function over the columns of batches, as machine code.

The operators of compiled functions call it. Where a batch holds what compiled code does not take (a null, a number
beyond 64 bits, an error of the function), there is no result, and the operator calls the plain function with its rows.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.engine.compiled.inputs import STORED, Inputs
from penstock.engine.compiled.kinds import Kind, is_passed_on
from penstock.engine.compiled.outcomes import Outcome
from penstock.engine.compiled.texts import Texts
from penstock.engine.compiled.translation import Translation, result_arrays

if TYPE_CHECKING:
    from penstock.engine.compiled.machine_code import RowLoop


class Program:
    """A translated function, ready to run over batches of one schema.

    Args:
        translation: the function.
        schema: the columns of the input.

    Example:
        >>> from penstock.engine.compiled.translation import translate  # doctest: +SKIP
        >>> Program(translate(double, schema), schema).run(batch)  # doctest: +SKIP
    """

    def __init__(self, translation: Translation, schema: pa.Schema) -> None:
        self._translation = translation
        self._inputs = Inputs.of(translation.columns, translation.coded, translation.tested, schema)
        self._words = pa.array(translation.words, pa.large_string())

    @functools.cached_property
    def _loop(self) -> RowLoop:
        # LLVM is loaded for the first batch that is large enough.
        from penstock.engine.compiled.machine_code import row_loop

        results = self._translation.results
        made = dict(zip(result_arrays("out", results), computed_types(results), strict=True))
        arrays = {**self._inputs.types, **made}
        return row_loop(self._translation.source, (), tuple(arrays.items()))

    def run(self, batch: pa.RecordBatch) -> Mapping[str, pa.Array] | None:
        """The results by name, or None where the plain function must run."""
        texts = Texts.of(self._words, [batch.column(name) for name in self._inputs.coded])
        columns = self._inputs.arrays(batch, texts)
        if columns is None:
            return None
        out = output_arrays(self._translation.results, len(batch))
        if self._loop(len(batch), (), [*columns, *out.values()]) != Outcome.DONE:
            return None
        return {
            name: batch.column(kind.column) if is_passed_on(kind) else computed_column(kind, out[name], texts)
            for name, kind in self._translation.results.items()
        }


def output_arrays(results: Mapping[str, Kind], rows: int) -> dict[str, npt.NDArray[Any]]:
    """Room for so many rows of the results that are computed."""
    return {
        name: np.empty(rows, STORED.get(kind, np.int64)) for name, kind in results.items() if not is_passed_on(kind)
    }


def computed_column(kind: Kind, values: npt.NDArray[Any], texts: Texts) -> pa.Array:
    """The column of a result that was computed."""
    return pa.array(values) if kind in STORED else texts.at(pa.array(values))


def as_declared(columns: Mapping[str, pa.Array] | None, schema: pa.Schema) -> pa.RecordBatch | None:
    """Results as the declared columns; None if there are none, or one is too large for its column."""
    if columns is None:
        return None
    try:
        arrays = [columns[field.name].cast(field.type) for field in schema]
    except pa.ArrowInvalid:
        return None
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def computed_types(results: Mapping[str, Kind]) -> list[type[np.generic]]:
    """The type of the elements of each result that is computed."""
    return [STORED.get(kind, np.int64) for kind in results.values() if not is_passed_on(kind)]
