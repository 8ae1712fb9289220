"""The texts of a batch as numbers, which compiled code compares and passes on.

The programs make it of the columns and states whose texts a function keeps or compares with one another. Equal texts
have equal numbers; those that stand in the function have the numbers that are in its code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc


@dataclass(frozen=True, slots=True)
class Texts:
    """Texts by number, each once.

    Attributes:
        words: those that stand in the function, which come first.
        all: all of them.
        numbers: those of the values of each array that they were made of; 0 for null.
    """

    words: pa.Array
    all: pa.Array
    numbers: Sequence[npt.NDArray[np.int64]]

    @classmethod
    def of(cls, words: pa.Array, arrays: Sequence[pa.Array]) -> Texts:
        """The words, and the texts of the arrays.

        Example:
            >>> Texts.of(pa.array(["a"], pa.large_string()), [pa.array(["b", "a", "b"])]).numbers[0].tolist()
            [1, 0, 1]
        """
        if not arrays:
            return cls(words, words, [])
        joined = pa.concat_arrays([words, *(array.cast(pa.large_string()) for array in arrays)])
        encoded = joined.dictionary_encode()
        numbers = encoded.indices.fill_null(0).to_numpy().astype(np.int64)
        ends = np.cumsum([len(words), *(len(array) for array in arrays)])
        return cls(words, encoded.dictionary, np.split(numbers, ends)[1:-1])

    def sought(self, column: pa.Array) -> npt.NDArray[np.int64]:
        """The numbers of a column's texts that are words; -1 for all others, null among them."""
        if not len(self.words):
            return np.full(len(column), -1)
        found = pc.index_in(column.cast(pa.large_string()), self.words).fill_null(-1)
        return np.asarray(found.cast(pa.int64()))

    def at(self, numbers: pa.Array) -> pa.Array:
        """The texts with these numbers; null for null."""
        return self.all.take(numbers)
