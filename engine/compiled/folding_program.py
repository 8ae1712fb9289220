"""Runs a translated function that adds rows to accumulators over the rows of batches.

The operators of `reduce` and of windows call it. As in `program`, there is no result where plain Python must run, and
nothing has changed then.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.engine.aggregates.accumulators import plain
from penstock.engine.compiled.folding import VALUE, FoldTranslation
from penstock.engine.compiled.inputs import STORED, Inputs, microseconds_of, numbers_of
from penstock.engine.compiled.kinds import TEXT, Kind, Opaque
from penstock.engine.compiled.outcomes import Outcome
from penstock.engine.compiled.texts import Texts

if TYPE_CHECKING:
    from penstock.engine.compiled.machine_code import RowLoop

_NUMBERS: Final = ("held",)
_Numbers = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Folded:
    """What a batch came to.

    Attributes:
        accumulators: of each group.
        behind_rows: makes the fields of its group's accumulator behind each row, by name.
    """

    accumulators: pa.Array
    behind_rows: Callable[[], Mapping[str, pa.Array]]


class FoldProgram:
    """A translated function that adds rows to accumulators, ready to run over batches of one schema.

    Args:
        translation: the function.
        schema: the columns of rows.
    """

    def __init__(self, translation: FoldTranslation, schema: pa.Schema) -> None:
        self._translation = translation
        self._inputs = Inputs.of(translation.columns, translation.coded, translation.tested, schema)
        self._words = pa.array(translation.words, pa.large_string())

    @functools.cached_property
    def _loop(self) -> RowLoop:
        from penstock.engine.compiled.machine_code import row_loop

        stored = [STORED.get(kind, np.int64) for kind in self._translation.kinds.values()]
        arrays: dict[str, type[np.generic]] = {"groups": np.int64, "p": np.bool_, **self._inputs.types}
        for prefix in ("s", "e"):
            arrays.update((f"{prefix}_{number}", kind) for number, kind in enumerate(stored))
        for name in self._translation.times:
            number = list(self._translation.kinds).index(name)
            arrays.update({f"at_{number}": np.int64, f"is_{number}": np.bool_})
        return row_loop(self._translation.source, _NUMBERS, tuple(arrays.items()))

    def run(self, batch: pa.RecordBatch, groups: npt.NDArray[np.int64], held: pa.Array) -> Folded | None:
        """The accumulators behind the batch, or None where the plain function must run.

        Args:
            batch: the rows.
            groups: the number of each row's group; each has a row.
            held: the accumulator of each group so far, null where there is none.
        """
        kinds = self._translation.kinds
        parts = dict(zip(kinds, [held] if VALUE in kinds else held.flatten(), strict=True))
        if any(
            part.null_count > held.null_count for name, part in parts.items() if not isinstance(kinds[name], Opaque)
        ):
            return None
        coded = [parts[name] for name, kind in kinds.items() if kind == TEXT]
        texts = Texts.of(self._words, [*(batch.column(name) for name in self._inputs.coded), *coded])
        columns = self._inputs.arrays(batch, texts)
        if columns is None:
            return None
        numbered = iter(texts.numbers[len(self._inputs.coded) :])
        states = [next(numbered) if kind == TEXT else _numbers(kind, parts[name]) for name, kind in kinds.items()]
        values = {name: _Values(kinds[name], self._pool(part, name, batch, texts)) for name, part in parts.items()}
        times: list[_Numbers] = []
        for name in self._translation.times:
            pool = values[name].pool
            if (microseconds := microseconds_of(pool)) is None:
                return None
            times += [microseconds, pool.is_valid().to_numpy(zero_copy_only=False)]
        behind = [np.empty(len(batch), state.dtype) for state in states]
        present = held.is_valid().to_numpy(zero_copy_only=False).copy()
        if self._loop(len(batch), (len(held),), [groups, present, *columns, *states, *behind, *times]) != Outcome.DONE:
            return None
        made = [values[name].at(numbers) for name, numbers in zip(kinds, states, strict=True)]
        accumulators = made[0] if VALUE in kinds else pa.StructArray.from_arrays(made, fields=list(held.type))

        def behind_rows() -> Mapping[str, pa.Array]:
            return {name: values[name].at(numbers) for name, numbers in zip(kinds, behind, strict=True)}

        return Folded(accumulators, behind_rows)

    def _pool(self, part: pa.Array, name: str, batch: pa.RecordBatch, texts: Texts) -> pa.Array:
        """What the numbers of a field are places in; of numbers, an array of its type."""
        kind = self._translation.kinds[name]
        if kind == TEXT:
            return texts.all.cast(part.type)
        if not isinstance(kind, Opaque) or name not in batch.schema.names:
            return part
        column = plain(batch.column(name))
        return pa.concat_arrays([part, column]) if column.type == part.type else part


@dataclass(frozen=True, slots=True)
class _Values:
    """The values of a field: those of a number are numbers, all others lie in a pool."""

    kind: Kind
    pool: pa.Array

    def at(self, numbers: _Numbers) -> pa.Array:
        if self.kind in STORED:
            return pa.array(numbers).cast(self.pool.type)
        return self.pool.take(pa.array(numbers))


def _numbers(kind: Kind, part: pa.Array) -> _Numbers:
    """The numbers of a field of the accumulators, in an array that may be written to."""
    if isinstance(kind, Opaque):
        return np.arange(len(part))
    return np.array(numbers_of(part), dtype=STORED[kind])
