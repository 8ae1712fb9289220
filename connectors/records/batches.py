"""What the record formats share: batches with bad records among good ones, and rows made ready to be written.

The formats call it. The good records of a batch become the same rows whatever stands beside them.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.connectors.records.format import BadRecord, Decoded
from penstock.engine.errors import ConfigurationError, RecordError

PARSE_ERRORS: Final = (pa.ArrowException, ValueError, TypeError, OverflowError)
"""What Arrow and our own checks raise on values that are no records."""

_TEXTS: Final = (pa.string(), pa.large_string())
_BYTES: Final = (*_TEXTS, pa.binary(), pa.large_binary())

Row: TypeAlias = "dict[str, Any]"


def as_texts(values: pa.LargeBinaryArray) -> pa.LargeStringArray:
    """The values as texts; nothing is copied.

    Raises:
        pa.ArrowInvalid: one of them is no UTF-8.
    """
    _, offsets, data = values.buffers()
    if data is not None and len(values):
        first, last = np.frombuffer(offsets, np.int64)[[values.offset, values.offset + len(values)]]
        # Bytes without a sign are ASCII, and to see that takes half of what Arrow's own look takes.
        if first < last and np.frombuffer(data, np.int8)[first:last].min() >= 0:
            return values.view(pa.large_string())
    return values.cast(pa.large_string())


def decode_whole(
    values: pa.LargeBinaryArray,
    schema: pa.Schema,
    parse: Callable[[pa.LargeBinaryArray], pa.RecordBatch],
    surely_bad: Callable[[bytes], str | None],
    reason: Callable[[bytes, Exception], str],
) -> Decoded:
    """Parses all values at once; only where that fails are they looked at one by one.

    What `surely_bad` lets through is parsed in halves, down to the single bad record: with k such among n, that takes
    about 2k log2(n) more calls of `parse`.

    Args:
        values: one record each.
        schema: the columns.
        parse: gives one row for each value, or raises one of `PARSE_ERRORS` if any of them is bad.
        surely_bad: a quick look at one value: why `parse` is sure to refuse it, or None.
        reason: what is wrong with a bad value, from what `parse` raised on it alone.
    """
    if not len(values):
        return Decoded(_joined([], schema))
    try:
        return Decoded(parse(values))
    except PARSE_ERRORS:
        pass
    reasons = [None if value is None else surely_bad(value) for value in values.to_pylist()]
    bad = [BadRecord(place, text) for place, text in enumerate(reasons) if text is not None]
    places = [place for place, text in enumerate(reasons) if text is None]
    rest = values.take(pa.array(places, pa.int64()))
    good: list[pa.RecordBatch] = []

    def visit(start: int, count: int) -> None:
        part = rest.slice(start, count)
        try:
            good.append(parse(part))
        except PARSE_ERRORS as error:
            if count == 1:
                bad.append(BadRecord(places[start], reason(part[0].as_py() or b"", error)))
                return
            visit(start, count // 2)
            visit(start + count // 2, count - count // 2)

    if places:
        visit(0, len(places))
    return Decoded(_joined(good, schema), _in_order(bad))


def decode_each(values: pa.LargeBinaryArray, schema: pa.Schema, decode_one: Callable[[bytes], Row]) -> Decoded:
    """Decodes record by record, for formats whose library gives Python objects; a null value is a row of nulls.

    Args:
        values: one record each.
        schema: the columns.
        decode_one: the row of one record; whatever it raises is the reason why that record is bad.
    """
    rows: list[Row] = []
    places: list[int] = []
    bad: list[BadRecord] = []
    for index, value in enumerate(values.to_pylist()):
        try:
            row: Row = {} if value is None else decode_one(value)
        except Exception as error:  # codecs raise all kinds of errors on bytes that they cannot read
            bad.append(BadRecord(index, error_text(error)))
        else:
            rows.append(row)
            places.append(index)
    try:
        return Decoded(_arrow_rows(rows, schema), tuple(bad))
    except PARSE_ERRORS:
        good: list[pa.RecordBatch] = []
        for place, row in zip(places, rows, strict=True):
            try:
                good.append(_arrow_rows([row], schema))
            except PARSE_ERRORS as error:
                bad.append(BadRecord(place, error_text(error)))
        return Decoded(_joined(good, schema), _in_order(bad))


def _arrow_rows(rows: Sequence[Row], schema: pa.Schema) -> pa.RecordBatch:
    batch = pa.RecordBatch.from_pylist(rows, schema)
    batch.validate(full=True)  # a time of day beyond 24 hours would fail whoever reads the column
    return batch


def _in_order(bad: Iterable[BadRecord]) -> tuple[BadRecord, ...]:
    return tuple(sorted(bad, key=lambda record: record.index))


def _joined(batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    return pa.concat_batches(batches) if batches else pa.RecordBatch.from_pylist([], schema)


def held_decimals(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The rows, of which no decimal has more digits than its type: Arrow's parsers take `12345` for decimal128(5, 2).

    Raises:
        pyarrow.ArrowInvalid: one has.
    """
    for column in rows.columns:
        if _has_decimals(column.type):
            column.validate(full=True)
    return rows


@lru_cache(256)
def _has_decimals(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return _has_decimals(kind.value_type)
    return pa.types.is_decimal(kind) or any(_has_decimals(kind.field(n).type) for n in range(kind.num_fields))


def join_values(values: pa.Array, separator: str) -> pa.Buffer:
    """The bytes of all `values` (large strings without nulls), `separator` between them."""
    whole = pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values)
    return pc.binary_join(whole, pa.scalar(separator, values.type))[0].as_buffer()


def utf8_reason(value: bytes) -> str | None:
    """Where `value` is no UTF-8, or None."""
    try:
        value.decode("utf-8")
    except UnicodeDecodeError as error:
        return f"no valid UTF-8 ({error.reason} at byte {error.start + 1})"
    return None


def error_text(error: Exception) -> str:
    """The error's own words, or its kind where it has none."""
    return str(error).strip() or type(error).__name__


def fit_rows(rows: pa.RecordBatch, schema: pa.Schema, form: str) -> pa.RecordBatch:
    """The rows with the columns of `schema`, in its order and types.

    Args:
        rows: any order of columns; a type may differ where each value has the same meaning in the format's type.
        schema: the format's columns.
        form: the format, for messages.

    Raises:
        RecordError: a column is missing or unknown, a text would have to be read as something else, or a value does not
            fit; names column and row.
    """
    for name in schema.names:
        if name not in rows.schema.names:
            raise RecordError(f"{form}: the rows have no column {name!r}; add it with with_columns(...)")
    for name in rows.schema.names:
        if name not in schema.names:
            raise RecordError(f"{form}: column {name!r} is not in the format's schema; add it there or drop the column")
    columns = [_fit_column(rows.column(field.name), field, form) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _fit_column(column: pa.Array, field: pa.Field, form: str) -> pa.Array:
    if column.type == field.type:
        return column
    if pa.types.is_null(column.type):
        return pa.nulls(len(column), field.type)
    if column.type in _TEXTS and field.type not in _BYTES:
        # Whether a text can be read as a number shows with each value, and would end the job amid its rows.
        raise RecordError(
            f"{form}: column {field.name!r} is {column.type}, and the format's type is {field.type}: cast it in the "
            "program, or declare it as text in the format"
        )
    try:
        return column.cast(field.type)
    except pa.ArrowException as error:
        for row in range(len(column)):
            try:
                column.slice(row, 1).cast(field.type)
            except pa.ArrowException as cell:
                raise RecordError(
                    f"{form}: column {field.name!r}, row {row}: {cell}; the format's type is {field.type}"
                ) from cell
        raise RecordError(f"{form}: column {field.name!r}: {error}; the format's type is {field.type}") from error


def encode_failure(
    rows: pa.RecordBatch, encode: Callable[[pa.RecordBatch], object], form: str, error: Exception
) -> RecordError:
    """The error for the first value that cannot be written, found by writing each alone.

    Args:
        rows: what could not be written.
        encode: writes rows that have some of the columns.
        form: the format, for messages.
        error: what was raised on all rows.
    """
    for row in range(rows.num_rows):
        for name in rows.schema.names:
            try:
                encode(rows.slice(row, 1).select([name]))
            except Exception as cell:  # as the codec that failed on all rows may raise anything
                return RecordError(f"{form}: column {name!r}, row {row}: {error_text(cell)}; correct or drop the row")
    return RecordError(f"{form}: {error_text(error)}")


def as_values(encoded: Iterable[bytes]) -> pa.LargeBinaryArray:
    """The encoded records as one array."""
    return pa.array(encoded, pa.large_binary())


def load_library(module: str, extra: str, form: str) -> Any:
    """Imports a library that only one format needs.

    Raises:
        ConfigurationError: it is not installed; says how to install it.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ConfigurationError(
            f"{form} needs {module.split('.')[0]}, which is not installed ({error}): "
            f"pip install 'penstock[{extra}]', on every node"
        ) from error
