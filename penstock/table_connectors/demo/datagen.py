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
import pyarrow.compute as pc

from penstock.connectors.datagen import DataGenSource, EventTime, Field, Generator, RandomFloat, RandomInt, Sequence
from penstock.connectors.random_words import UNIT, Rows, Words, mix, scale, stream
from penstock.engine.errors import nearest
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
_FRACTIONS: Final = (*t.APPROXIMATE, Kind.DECIMAL)
_KINDS: Final = ("random", "sequence")
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
class _OrNull(Field):
    """The values of another field, but null for a share of the rows."""

    field: Field
    rate: float

    def generator(self, seed: str) -> Generator:
        made, start, rate = self.field.generator(seed), stream(f"{seed}/null"), self.rate

        def generate(rows: Rows, words: Words) -> pa.Array:
            values = made(rows, words)
            gone = (mix(words, start) >> np.uint64(11)).view(np.int64) * UNIT < rate
            return pc.if_else(pa.array(gone), pa.scalar(None, values.type), values)

        return generate


@dataclass(frozen=True, slots=True)
class _RandomText(Field):
    """string: hexadecimal digits, as many as `length`, or, where it varies, from one to as many."""

    length: int
    varies: bool

    def generator(self, seed: str) -> Generator:
        width = -(-self.length // (2 * _WORD_BYTES))
        starts, length = [stream(f"{seed}/{place}") for place in range(width)], self.length
        of_lengths = stream(f"{seed}/length") if self.varies else None

        def generate(rows: Rows, words: Words) -> pa.Array:
            drawn = np.stack([mix(words, start) for start in starts], axis=1).tobytes().hex()
            begins = range(0, len(drawn), 2 * _WORD_BYTES * width)
            if of_lengths is None:
                return pa.array([drawn[at : at + length] for at in begins], pa.string())
            lengths = (scale(mix(words, of_lengths), length) + np.uint64(1)).tolist()
            return pa.array([drawn[at : at + own] for at, own in zip(begins, lengths, strict=True)], pa.string())

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
            "fields.*": "fields.COLUMN.kind (sequence, random), .start, .end, .min, .max, .null-rate; of texts .length "
            "and .var-len, of times .max-past",
        }

    def source_mode(self, table: CatalogTable) -> ChangelogMode:
        return INSERT_ONLY

    def bounded(self, table: CatalogTable) -> bool:
        return self._rows(table) is not None

    def scan(self, table: CatalogTable, columns: Columns) -> ScannedTable:
        _check_fields(table, columns)
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
        if _is_sequence(table, column):
            if kind not in t.NUMERIC or f"{prefix}.end" not in table.options:
                raise options.invalid(prefix, f"a sequence needs '{prefix}.start' and '.end', and a column of numbers")
            return Sequence(options.number(f"{prefix}.start", 0))
        made = _random(options, prefix, column, rate)
        share = options.decimal(f"{prefix}.null-rate", 0)
        if not 0 <= share <= 1:
            raise options.invalid(f"{prefix}.null-rate", f"'{prefix}.null-rate' is a share from 0 to 1, not {share:g}")
        return _OrNull(made, share) if share else made


def _random(options: TableOptions, prefix: str, column: Column, rate: int) -> Field:
    kind = column.type.kind
    if kind in _RANGES or kind in _FRACTIONS:
        least, most = f"{prefix}.min", f"{prefix}.max"
        bounds: tuple[float, float]
        if kind in _RANGES:
            low, high = _RANGES[kind]
            bounds = options.number(least, low), options.number(most, high)
        else:
            bounds = options.decimal(least, 0), options.decimal(most, 1)
        if bounds[0] > bounds[1]:
            raise options.invalid(least, f"{least!r} is more than {most!r}")
        return RandomInt(int(bounds[0]), int(bounds[1]) + 1) if kind in _RANGES else RandomFloat(*bounds)
    if kind is Kind.BOOLEAN:
        return RandomInt(0, 2)
    if kind in t.CHARACTERS:
        return _RandomText(max(options.number(f"{prefix}.length", 100), 1), options.flag(f"{prefix}.var-len"))
    if kind in t.TIMESTAMPS:
        past_ms = options.duration_ms(f"{prefix}.max-past", 0)
        return EventTime(int(time.time() * 1000), rate, delayed=1.0 if past_ms else 0.0, max_delay_ms=past_ms)
    raise options.invalid(column.name, f"datagen makes no values of type {column.type}; compute the column")


def _is_sequence(table: CatalogTable, column: Column) -> bool:
    return TableOptions(table).choice(f"fields.{column.name}.kind", _KINDS, "random") == "sequence"


def _check_fields(table: CatalogTable, columns: Columns) -> None:
    """Refuse options of fields that there are not.

    Raises:
        SqlValidationError: a column, or an option of its type, that there is not.
    """
    known = [f"fields.{column.name}.{own}" for column in columns for own in _options_of(table, column)]
    for option in table.options:
        if option.startswith("fields.") and option not in known:
            raise TableOptions(table).invalid(
                option, f"there is no option {option!r}{nearest(option, known)}; there are {', '.join(known)}"
            )


def _options_of(table: CatalogTable, column: Column) -> tuple[str, ...]:
    if _is_sequence(table, column):
        return ("kind", "start", "end")
    kind = column.type.kind
    if kind in t.NUMERIC:
        return ("kind", "min", "max", "null-rate")
    if kind in t.CHARACTERS:
        return ("kind", "length", "var-len", "null-rate")
    return ("kind", "max-past", "null-rate") if kind in t.TIMESTAMPS else ("kind", "null-rate")
