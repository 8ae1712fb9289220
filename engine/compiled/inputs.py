"""The columns of a batch as the arrays that compiled code takes.

The programs of functions make one of their translation, and ask it for the arrays of each batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.engine.compiled.kinds import BOOL, FLOAT, INT, Kind, Opaque, Text, Time, kind_of
from penstock.engine.compiled.texts import Texts

STORED: Final[Mapping[Kind, type[np.generic]]] = {INT: np.int64, FLOAT: np.float64, BOOL: np.bool_}
"""The type of the elements of arrays, by kind; texts are numbers in the list of words."""


class Columns(Protocol):
    """What rows are given in: record batches, for example."""

    def __len__(self) -> int:
        """So many rows."""
        ...

    def column(self, name: str, /) -> pa.Array:
        """The column of this name."""
        ...


@dataclass(frozen=True, slots=True)
class Inputs:
    """The columns that a function looks at.

    Attributes:
        columns: their names, in the order of their arrays.
        kinds: of each.
        coded: those whose texts all have numbers.
        tested: those that the function tests for None.
    """

    columns: Sequence[str]
    kinds: Sequence[Kind]
    coded: Sequence[str]
    tested: frozenset[str]

    @classmethod
    def of(cls, columns: Sequence[str], coded: frozenset[str], tested: frozenset[str], schema: pa.Schema) -> Inputs:
        """Those of a translation, in batches of the schema."""
        return cls(columns, [kind_of(schema.field(name)) for name in columns], sorted(coded), tested)

    @property
    def types(self) -> dict[str, type[np.generic]]:
        """The type of the elements of each array, by its name in the code."""
        columns = {
            f"c_{number}": STORED.get(kind, np.int64)
            for number, (name, kind) in enumerate(zip(self.columns, self.kinds, strict=True))
            if self._is_read(name, kind)
        }
        tested = {f"q_{number}": np.bool_ for number, name in enumerate(self.columns) if name in self.tested}
        return {**columns, **tested}

    def _is_read(self, name: str, kind: Kind) -> bool:
        """Whether the code takes the values: those that can only be passed on are not looked at."""
        return not isinstance(kind, Opaque) or (isinstance(kind, Time) and name in self.tested)

    def arrays(self, batch: Columns, texts: Texts) -> list[npt.NDArray[Any]] | None:
        """The arrays of a batch; None where plain Python must run, as there is a null that the code does not expect.

        Args:
            texts: of the columns that are `coded`, in their order, and what else.
        """
        arrays = []
        for name, kind in zip(self.columns, self.kinds, strict=True):
            column = _with_nulls(batch.column(name))
            if not self._is_read(name, kind):
                continue
            needs_value = name not in self.tested and (name in self.coded or not isinstance(kind, Text))
            if column.null_count and needs_value:
                return None
            if name in self.coded:
                arrays.append(texts.numbers[self.coded.index(name)])
            elif isinstance(kind, Text):
                arrays.append(texts.sought(column))
            elif isinstance(kind, Time):
                if (times := microseconds_of(column)) is None:
                    return None
                arrays.append(times)
            else:
                arrays.append(np.ascontiguousarray(numbers_of(column), dtype=STORED[kind]))
        tested = [_with_nulls(batch.column(name)) for name in self.columns if name in self.tested]
        return [*arrays, *(column.is_valid().to_numpy(zero_copy_only=False) for column in tested)]


def _with_nulls(column: pa.Array) -> pa.Array:
    """The column, decoded where a value of its dictionary is null: Arrow does not count its rows as null."""
    if pa.types.is_dictionary(column.type) and column.dictionary.null_count:
        return column.dictionary_decode()
    return column


def microseconds_of(column: pa.Array) -> npt.NDArray[Any] | None:
    """Timestamps as an array; None where Python has no such time, of nanoseconds for example."""
    try:
        return numbers_of(column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64()))
    except pa.ArrowInvalid:
        return None


def numbers_of(column: pa.Array) -> npt.NDArray[Any]:
    """Numbers or bools as an array; anything in the place of null."""
    if column.null_count:
        column = column.fill_null(pa.scalar(0).cast(column.type))
    return np.asarray(column.to_numpy(zero_copy_only=False))
