"""`datagen`: a table of rows that are made, with the options of Flink's.

`registry.py` lists it beside the others. The rows are the same at each run but for times, which begin when the job is
planned.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from penstock.connectors.datagen import DataGenSource, EventTime, Field, Generator, RandomFloat, RandomInt, Sequence
from penstock.connectors.random_words import Rows, Words, mix, stream
from penstock.table_connectors.options import TableOptions
from penstock.tables import types as t
from penstock.tables.catalog.catalog import CatalogTable
from penstock.tables.catalog.connectors import ScannedTable
from penstock.tables.plan.nodes import INSERT_ONLY, ChangelogMode, Column, Columns
from penstock.tables.types import Kind, arrow_type

_RANGES: Final = {
    Kind.TINYINT: (-(2**7), 2**7 - 1),
    Kind.SMALLINT: (-(2**15), 2**15 - 1),
    Kind.INT: (-(2**31), 2**31 - 1),
    Kind.BIGINT: (-(2**62), 2**62),
}
_WORD_BYTES: Final = 8


@dataclass(frozen=True, slots=True)
class _Typed(Field):
    """The values of another field as a column of a table."""

    field: Field
    kind: pa.DataType

    def generator(self, seed: str) -> Generator:
        made, kind = self.field.generator(seed), self.kind
        return lambda rows, words: made(rows, words).cast(kind, safe=False)


@dataclass(frozen=True, slots=True)
class _RandomText(Field):
    """string: hexadecimal digits."""

    length: int

    def generator(self, seed: str) -> Generator:
        width = -(-self.length // (2 * _WORD_BYTES))
        starts, length = [stream(f"{seed}/{place}") for place in range(width)], self.length

        def generate(rows: Rows, words: Words) -> pa.Array:
            drawn = np.stack([mix(words, start) for start in starts], axis=1).tobytes().hex()
            step = 2 * _WORD_BYTES * width
            return pa.array([drawn[at : at + length] for at in range(0, len(drawn), step)], pa.string())

        return generate


@dataclass(frozen=True, slots=True)
class DataGenTable:
    """`datagen`: rows of sequences and of random values."""

    name: str = "datagen"

    @property
    def options(self) -> Mapping[str, str]:
        return {
            "rows-per-second": "how many rows come in a second; 10000 without it",
            "number-of-rows": "how many rows there are; without it, and without a sequence, they do not end",
            "fields.*": "fields.COLUMN.kind (sequence, random), .start, .end, .min, .max; .length of texts",
        }

    def source_mode(self, table: CatalogTable) -> ChangelogMode:
        return INSERT_ONLY

    def bounded(self, table: CatalogTable) -> bool:
        return self._rows(table) is not None

    def scan(self, table: CatalogTable, columns: Columns) -> ScannedTable:
        rate = TableOptions(table).number("rows-per-second", 10_000)
        fields = {column.name: _Typed(self._field(table, column, rate), arrow_type(column.type)) for column in columns}
        return ScannedTable(DataGenSource(fields, self._rows(table), float(rate)))

    def _rows(self, table: CatalogTable) -> int | None:
        """How many rows there are: as many as the shortest sequence has, or as an option says."""
        options, counts = TableOptions(table), []
        for option in table.options:
            if option.startswith("fields.") and option.endswith(".end"):
                begin = options.number(f"{option.removesuffix('.end')}.start", 0)
                counts.append(options.number(option, 0) - begin + 1)
        if "number-of-rows" in table.options:
            counts.append(options.number("number-of-rows", 0))
        return max(min(counts), 0) if counts else None

    def _field(self, table: CatalogTable, column: Column, rate: int) -> Field:
        options, prefix, kind = TableOptions(table), f"fields.{column.name}", column.type.kind
        if table.options.get(f"{prefix}.kind") == "sequence":
            if kind not in t.NUMERIC or f"{prefix}.end" not in table.options:
                raise options.invalid(prefix, f"a sequence needs '{prefix}.start' and '.end', and a column of numbers")
            return Sequence(options.number(f"{prefix}.start", 0))
        if kind in _RANGES:
            low, high = _RANGES[kind]
            least, most = options.number(f"{prefix}.min", low), options.number(f"{prefix}.max", high)
            if least > most:
                raise options.invalid(f"{prefix}.min", f"'{prefix}.min' is more than '{prefix}.max'")
            return RandomInt(least, most + 1)
        if kind in t.APPROXIMATE or kind is Kind.DECIMAL:
            return RandomFloat(options.number(f"{prefix}.min", 0), options.number(f"{prefix}.max", 1))
        if kind is Kind.BOOLEAN:
            return RandomInt(0, 2)
        if kind in t.CHARACTERS:
            return _RandomText(max(options.number(f"{prefix}.length", 100), 1))
        if kind in t.TIMESTAMPS:
            return EventTime(start_ms=int(time.time() * 1000), rows_per_second=rate)
        raise options.invalid(column.name, f"datagen makes no values of type {column.type}; compute the column")
