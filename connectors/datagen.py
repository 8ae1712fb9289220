"""A source of generated rows, for benchmarks, tests and demonstrations.

Programs build a `DataGenSource` from fields. Row i is the same whatever the parallelism, the batch size and
the rate: each value depends on the seed, the name of its column and i alone.
"""

from __future__ import annotations

import math
import numbers
import traceback
from abc import ABC, abstractmethod
from collections import abc
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from penstock.connectors.random_words import UNIT, WEYL, Rows, Words, mix, scale, stream, weighted
from penstock.engine.clock import Clock
from penstock.engine.connectors import (
    ConnectorContext,
    Position,
    Source,
    SourceReader,
    Split,
    Wait,
    row_of,
    row_position,
)
from penstock.engine.errors import ConfigurationError, PenstockError, RecordError, UserCodeError
from penstock.engine.schemas import plain_schema

_STEP_SECONDS: Final = 0.008
"""A source with a rate gives its rows in steps of about this length: a batch for every row would cost too much."""
_FEW_ROWS, _LONGEST_STEP_SECONDS = 8, 0.1
"""A step of fewer rows takes longer, up to this, until there are so many: one row costs what eight cost."""
_WHERE: Final = "datagen"
_CHUNK_ROWS: Final = 16_384
"""So many values of a field are generated at once: what they are made of stays in the processor's cache."""

Generator: TypeAlias = Callable[[Rows, Words], pa.Array]
"""Makes the values of the rows with these numbers; the second argument holds each number's Weyl step."""

_Column: TypeAlias = Callable[[Rows], pa.Array]
"""Makes the values of the rows with these numbers."""


class Field(ABC):
    """Describes how the values of a column are made. Immutable and picklable."""

    @abstractmethod
    def generator(self, seed: str) -> Generator:
        """What makes the values; `seed` is the text that all randomness of the column comes from."""


@dataclass(frozen=True, slots=True)
class Sequence(Field):
    """int64: `start + step * i` in row i."""

    start: int = 0
    step: int = 1

    def __post_init__(self) -> None:
        _check_int64("Sequence", start=self.start, step=self.step)

    def generator(self, seed: str) -> Generator:
        return lambda rows, words: pa.array(rows * self.step + self.start)


@dataclass(frozen=True, slots=True)
class RandomInt(Field):
    """int64: uniform from `low` to `high` - 1."""

    low: int
    high: int

    def __post_init__(self) -> None:
        _check_int64("RandomInt", low=self.low, high=self.high)
        if self.low >= self.high:
            raise ConfigurationError(
                f"{_WHERE}: RandomInt: low {self.low} must be below high {self.high}, which is itself never drawn"
            )

    def generator(self, seed: str) -> Generator:
        start, size, low = stream(seed), self.high - self.low, self.low

        def generate(rows: Rows, words: Words) -> pa.Array:
            drawn = scale(mix(words, start), size).view(np.int64)
            drawn += low
            return pa.array(drawn)

        return generate


@dataclass(frozen=True, slots=True)
class RandomFloat(Field):
    """float64: uniform from `low` (included) to `high` (excluded, but for rounding)."""

    low: float = 0.0
    high: float = 1.0

    def __post_init__(self) -> None:
        _check_finite("RandomFloat", low=self.low, high=self.high)
        if not self.low < self.high or not math.isfinite(self.high - self.low):
            raise ConfigurationError(
                f"{_WHERE}: RandomFloat: low {self.low} must be below high {self.high}, by a finite distance"
            )

    def generator(self, seed: str) -> Generator:
        start, factor, low = stream(seed), (self.high - self.low) * UNIT, self.low

        def generate(rows: Rows, words: Words) -> pa.Array:
            drawn = mix(words, start)
            np.right_shift(drawn, np.uint64(11), out=drawn)
            values = drawn.view(np.int64).astype(np.float64)
            values *= factor
            values += low
            return pa.array(values)

        return generate


@dataclass(frozen=True, slots=True)
class Choice(Field):
    """One of `values` (of any one type), uniformly or by `weights` (of any sum)."""

    values: abc.Sequence[Any]
    weights: abc.Sequence[float] | None = None

    def __post_init__(self) -> None:
        array = self._array()
        if not len(array):
            raise ConfigurationError(f"{_WHERE}: Choice: no values to choose from")
        if self.weights is None:
            return
        weights = list(self.weights)
        _check_finite("Choice", **{f"weight {place}": weight for place, weight in enumerate(weights)})
        if len(weights) != len(array) or min(weights) < 0 or not 0 < math.fsum(weights) < math.inf:
            raise ConfigurationError(
                f"{_WHERE}: Choice: weights must be one for each of the {len(array)} values, none negative "
                f"and not all 0, not {weights}"
            )

    def generator(self, seed: str) -> Generator:
        values = self._array()
        if self.weights is None:
            start = stream(seed)
            return lambda rows, words: values.take(pa.array(scale(mix(words, start), len(values)).view(np.int64)))
        draw = weighted(seed, np.asarray(self.weights, np.float64))
        return lambda rows, words: values.take(pa.array(draw(words)))

    def _array(self) -> pa.Array:
        if isinstance(self.values, pa.Array):
            return self.values
        try:
            return pa.array(list(self.values))
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise ConfigurationError(
                f"{_WHERE}: Choice: the values are not of one type ({error}); give a pyarrow array"
            ) from error


@dataclass(frozen=True, slots=True)
class Zipf(Field):
    """int64 keys 0 to `n` - 1 of which key k is drawn in proportion to `1 / (k + 1) ** exponent`: skew.

    Drawn by the inverse of the cumulative distribution, a table of `n` float64.
    """

    n: int
    exponent: float = 1.0

    def __post_init__(self) -> None:
        _check_int64("Zipf", n=self.n)
        _check_finite("Zipf", exponent=self.exponent)
        if not 1 <= self.n <= 100_000_000 or self.exponent < 0:
            raise ConfigurationError(
                f"{_WHERE}: Zipf: n must be from 1 to 100,000,000 and exponent not negative, "
                f"not {self.n} and {self.exponent}"
            )

    def generator(self, seed: str) -> Generator:
        draw = weighted(seed, np.arange(1, self.n + 1, dtype=np.float64) ** -self.exponent)
        return lambda rows, words: pa.array(draw(words))


@dataclass(frozen=True, slots=True)
class EventTime(Field):
    """timestamp[ms, UTC]: row i at `start_ms + i * 1000 / rows_per_second`, some rows earlier than that.

    Args:
        start_ms: the time of row 0, milliseconds since the epoch.
        rows_per_second: rows in a second of event time (the source's `rate` is about the clock instead).
        delayed: the share of rows, 0 to 1, that are moved back: they come late, out of order.
        max_delay_ms: how far at most; the delay is uniform from 0 to this.
    """

    start_ms: int = 0
    rows_per_second: float = 1000
    delayed: float = 0.0
    max_delay_ms: int = 0

    def __post_init__(self) -> None:
        _check_int64("EventTime", start_ms=self.start_ms, max_delay_ms=self.max_delay_ms)
        _check_finite("EventTime", rows_per_second=self.rows_per_second, delayed=self.delayed)
        if self.rows_per_second <= 0 or not 0 <= self.delayed <= 1 or self.max_delay_ms < 0:
            raise ConfigurationError(
                f"{_WHERE}: EventTime: rows_per_second must be over 0, delayed from 0 to 1 and max_delay_ms "
                f"not negative, not {self.rows_per_second}, {self.delayed} and {self.max_delay_ms}"
            )

    def generator(self, seed: str) -> Generator:
        which, delay = stream(f"{seed}/delayed"), stream(f"{seed}/delay")
        moved = self.delayed > 0 and self.max_delay_ms > 0

        def generate(rows: Rows, words: Words) -> pa.Array:
            times = self._base(rows)
            if moved:
                delays = scale(mix(words, delay), self.max_delay_ms + 1).view(np.int64)
                delays *= (mix(words, which) >> np.uint64(11)).view(np.int64) * UNIT < self.delayed
                times -= delays
            return pa.array(times).view(pa.timestamp("ms", tz="UTC"))

        return generate

    def _base(self, rows: Rows) -> Rows:
        rate = self.rows_per_second
        if rate == int(rate):
            times = rows * 1000
            times //= int(rate)
        else:
            times = np.floor(rows * (1000.0 / rate)).astype(np.int64)
        times += self.start_ms
        return times


@dataclass(frozen=True, slots=True)
class DataGenSplit:
    """The rows `index`, `index + count`, `index + 2 * count`, ..."""

    index: int
    count: int

    @property
    def split_id(self) -> str:
        return f"{self.index}/{self.count}"


class DataGenSource(Source):
    """Rows made by `fields`, the same ones at each run.

    Args:
        fields: the columns, by name: each a `Field`, or a function from the int64 array of row numbers to an
            array-like of the same length. It is called with at most 16,384 rows at a time, and once without
            rows when the source is built, for the type.
        rows: how many; None for a stream without end.
        rate: rows per second by the clock, over all subtasks together, in steps of about 8 ms, or of up to 100 ms where
            these have fewer than eight rows in a subtask, the first row at once; None for as fast as possible.
        seed: another seed gives other values.

    Raises:
        ConfigurationError: no fields, or an argument that cannot be used.

    Example:
        >>> DataGenSource({"key": RandomInt(0, 1000), "ts": EventTime(rows_per_second=10_000)},
        rows=1_000_000)
    """

    def __init__(
        self,
        fields: Mapping[str, Field | Callable[[Rows], Any]],
        rows: int | None = None,
        rate: float | None = None,
        seed: int = 0,
    ) -> None:
        self._fields = _check_fields(fields)
        if rows is not None and (not _is_int(rows) or not 0 <= rows < 2**63):
            raise ConfigurationError(f"{_WHERE}: rows must be a whole number of 0 or more, or None, not {rows!r}")
        if rate is not None and (not _is_finite(rate) or rate <= 0):
            raise ConfigurationError(f"{_WHERE}: rate must be a number of rows per second over 0, not {rate!r}")
        if not _is_int(seed):
            raise ConfigurationError(f"{_WHERE}: seed must be a whole number, not {seed!r}")
        self._rows, self._rate, self._seed = rows, rate, seed
        self._schema = self._find_schema()

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    @property
    def bounded(self) -> bool:
        return self._rows is not None

    def splits(self, parallelism: int) -> abc.Sequence[DataGenSplit]:
        return [DataGenSplit(index, parallelism) for index in range(parallelism)]

    def open(self, split: Split, context: ConnectorContext) -> SourceReader:
        assert isinstance(split, DataGenSplit)
        generator = _BatchGenerator(self._columns(context.operator, context.subtask), self._schema)
        return _DataGenReader(split, self._rows, self._rate, generator, context.clock)

    def open_at(self, split: Split, position: Position, context: ConnectorContext) -> SourceReader:
        """Resume at a row; with a rate, that row is due now."""
        reader = self.open(split, context)
        assert isinstance(reader, _DataGenReader)
        reader.skip_to(row_of(position, f"{_WHERE}: split {split.split_id!r}"))
        return reader

    def describe(self) -> str:
        size = "unbounded" if self._rows is None else f"{self._rows} rows"
        return f"datagen({', '.join(self._fields)}; {size})"

    def _columns(self, operator: str, subtask: int) -> list[_Column]:
        return [
            _field_column(field.generator(f"{self._seed}/{name}"))
            if isinstance(field, Field)
            else _function_column(name, field, operator, subtask)
            for name, field in self._fields.items()
        ]

    def _find_schema(self) -> pa.Schema:
        types = [
            (name, _type_of(name, column)) for name, column in zip(self._fields, self._columns(_WHERE, 0), strict=True)
        ]
        return plain_schema(pa.schema(types), _WHERE)


class _BatchGenerator:
    """Makes the columns of rows."""

    def __init__(self, columns: abc.Sequence[_Column], schema: pa.Schema) -> None:
        self._columns = columns
        self._schema = schema

    def batch(self, first: int, step: int, count: int) -> pa.RecordBatch:
        """The rows `first`, `first + step`, ...: `count` of them, at least one."""
        rows = _row_numbers(first, step, count)
        arrays = [_fit(column(rows), field) for column, field in zip(self._columns, self._schema, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


class _DataGenReader(SourceReader):
    """Gives the rows of a split; with a rate, row i is due `i / rate` seconds after the first call."""

    def __init__(
        self,
        split: DataGenSplit,
        rows: int | None,
        rate: float | None,
        generator: _BatchGenerator,
        clock: Clock,
    ) -> None:
        self._next, self._step = split.index, split.count
        self._rows, self._rate = rows, rate
        self._generator = generator
        self._clock = clock
        self._started: float | None = None
        self._has_given = False

    def skip_to(self, row: int) -> None:
        """Resume at `row`, one of the split's."""
        self._next = row
        if self._rate is not None:
            self._started = self._clock.monotonic() - row / self._rate

    def position(self) -> Position:
        return row_position(self._next)

    def next_batch(self, max_rows: int) -> pa.RecordBatch | Wait | None:
        count = max_rows
        if self._rows is not None:
            count = min(count, -((self._next - self._rows) // self._step))
            if count <= 0:
                return None
        if self._rate is not None:
            due = self._due(self._rate, count)
            if isinstance(due, Wait):
                return due
            count = min(count, due)
        batch = self._generator.batch(self._next, self._step, count)
        self._next += count * self._step
        self._has_given = True
        return batch

    def _due(self, rate: float, wanted: int) -> int | Wait:
        """How many rows are due, or when enough of them are for a step of the clock (at the most `wanted`)."""
        now = self._clock.monotonic()
        few = min(_FEW_ROWS, math.floor(rate * _LONGEST_STEP_SECONDS / self._step)) if self._has_given else 1
        together = min(wanted, max(1, few, math.floor(rate * _STEP_SECONDS / self._step)))
        if self._started is None:
            self._started = now
        # The very expression that is waited for decides, so that rounding never asks for a wait of no time.
        deadline = self._started + (self._next + (together - 1) * self._step) / rate
        if deadline > now:
            return Wait(deadline)
        return max(1, (math.floor((now - self._started) * rate) - self._next) // self._step + 1)


def _field_column(generator: Generator) -> _Column:
    def generate(rows: Rows) -> pa.Array:
        parts = [rows[first : first + _CHUNK_ROWS] for first in range(0, len(rows) or 1, _CHUNK_ROWS)]
        arrays = [generator(part, part.view(np.uint64) * WEYL) for part in parts]
        return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)

    return generate


def _function_column(name: str, function: Callable[[Rows], Any], operator: str, subtask: int) -> _Column:
    def generate(rows: Rows) -> pa.Array:
        try:
            values = _to_array(function(rows))
        except PenstockError:
            raise
        except Exception as error:
            text = "".join(traceback.format_exception(error))
            given = f"column {name!r}, row numbers {rows!r}"
            shown = f"{type(error).__name__}: {error}"
            raise UserCodeError(operator, subtask, given, shown, text) from error
        if len(values) != len(rows):
            raise RecordError(
                f"operator {operator!r}, subtask {subtask}: the function of column {name!r} gave "
                f"{len(values)} values for {len(rows)} rows; it must give one for each row number"
            )
        return values

    return generate


def _to_array(values: Any) -> pa.Array:
    if isinstance(values, pa.ChunkedArray):
        return pa.concat_arrays(values.chunks) if values.num_chunks else pa.array([], values.type)
    return values if isinstance(values, pa.Array) else pa.array(values)


def _type_of(name: str, column: _Column) -> pa.DataType:
    """The type of a column: that of no rows, or of row 0 where a function cannot do without any."""
    try:
        found = column(_row_numbers(0, 1, 0)).type
        if not pa.types.is_null(found):
            return found
    except (RecordError, UserCodeError):
        pass
    try:
        return column(_row_numbers(0, 1, 1)).type
    except (RecordError, UserCodeError) as error:
        raise ConfigurationError(
            f"{_WHERE}: the function of column {name!r} cannot be called to find its type: {error}"
        ) from error


def _fit(array: pa.Array, field: pa.Field) -> pa.Array:
    if array.type.equals(field.type):
        return array
    try:
        return array.cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise RecordError(
            f"{_WHERE}: the function of column {field.name!r} gave {array.type}, but {field.type} when it "
            f"was first called ({error}); let it give one type"
        ) from error


def _row_numbers(first: int, step: int, count: int) -> Rows:
    rows = np.arange(first, first + count * step, step, dtype=np.int64)
    rows.setflags(write=False)  # all columns share it, functions of the user among them
    return rows


def _check_fields(
    fields: Mapping[str, Field | Callable[[Rows], Any]],
) -> dict[str, Field | Callable[[Rows], Any]]:
    if not isinstance(fields, Mapping) or not fields:
        raise ConfigurationError(
            f"{_WHERE}: fields must be a mapping of at least one column name to a field, not {fields!r}"
        )
    for name, field in fields.items():
        if not isinstance(name, str):
            raise ConfigurationError(f"{_WHERE}: column names must be text, not {name!r}")
        if isinstance(field, type) or not (isinstance(field, Field) or callable(field)):
            raise ConfigurationError(
                f"{_WHERE}: column {name!r}: {field!r} is no field; give Sequence(), RandomInt(0, 10), ... "
                "or a function of the row numbers"
            )
    return dict(fields)


def _check_int64(where: str, **values: Any) -> None:
    for name, value in values.items():
        if not _is_int(value) or not -(2**63) <= value < 2**63:
            raise ConfigurationError(f"{_WHERE}: {where}: {name} must be a 64-bit whole number, not {value!r}")


def _check_finite(where: str, **values: Any) -> None:
    for name, value in values.items():
        if not _is_finite(value):
            raise ConfigurationError(f"{_WHERE}: {where}: {name} must be a finite number, not {value!r}")


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_finite(value: object) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool) and math.isfinite(value)
