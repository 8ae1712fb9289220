"""Arrow rows as a Spark DataFrame: of saved state, whose files the executors read, and of a table that is here.

Spark has fewer types than Arrow: what it lacks becomes the nearest type that holds all values, or is refused by the
name of its column.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from penstock.engine.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

ReadPart: TypeAlias = Callable[[int], Iterable[pa.RecordBatch]]
"""Gives the rows of one part; picklable, called in the executors."""
_PART_BYTES: Final = 16 * 2**20
"""How much of a table is packed together."""
_WIDER: Final = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.date64(): pa.date32(),
    pa.large_string(): pa.string(),
    pa.string_view(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
}
_SAME: Final = (
    kinds.is_null,
    kinds.is_boolean,
    kinds.is_signed_integer,
    kinds.is_floating,
    kinds.is_string,
    kinds.is_binary,
    kinds.is_date32,
    kinds.is_decimal128,
)


def spark_schema(schema: pa.Schema, where: str) -> pa.Schema:
    """The columns with types that Spark has.

    Args:
        schema: the rows' own.
        where: whose they are, for messages.

    Raises:
        ConfigurationError: names a column of a type that Spark has nothing for.

    Example:
        >>> spark_schema(pa.schema({"n": pa.uint32(), "at": pa.timestamp("ms", "UTC")}), "state 'total'").types
        [DataType(int64), TimestampType(timestamp[us, tz=UTC])]
    """
    fields = []
    for field in schema:
        kind = _spark_type(field.type)
        if kind is None:
            raise ConfigurationError(
                f"{where}: column {field.name!r} is {field.type}, for which Spark has no type; read it as Arrow, and "
                "cast the column, to a string or a number for example"
            )
        fields.append(pa.field(field.name, kind, field.nullable))
    return pa.schema(fields)


def _spark_type(kind: pa.DataType) -> pa.DataType | None:
    if kind in _WIDER:
        return _WIDER[kind]
    if any(is_same(kind) for is_same in _SAME):
        return kind
    if kinds.is_timestamp(kind):
        return pa.timestamp("us", kind.tz and "UTC")
    if kinds.is_duration(kind):
        return pa.duration("us")
    if kinds.is_fixed_size_binary(kind):
        return pa.binary()
    if kinds.is_dictionary(kind):
        return _spark_type(kind.value_type)
    if kinds.is_list(kind) or kinds.is_large_list(kind) or kinds.is_fixed_size_list(kind):
        item = _spark_type(kind.value_type)
        return None if item is None else pa.list_(item)
    if kinds.is_struct(kind):
        parts = [(field.name, _spark_type(field.type)) for field in kind]
        return None if any(part is None for _, part in parts) else pa.struct(parts)
    if kinds.is_map(kind):
        key, item = _spark_type(kind.key_type), _spark_type(kind.item_type)
        return None if key is None or item is None else pa.map_(key, item)
    return None


def frame_of_parts(session: SparkSession, schema: pa.Schema, parts: int, read: ReadPart, where: str) -> DataFrame:
    """A DataFrame with a partition for each part, read whenever Spark needs it.

    Args:
        session: its executors import Penstock; those of `StreamEnvironment.spark_session` do.
        schema: of all batches that `read` gives.
        parts: how many there are, one at least.
        read: makes the rows of a part.
        where: whose rows they are, for messages.

    Raises:
        ConfigurationError: `session` is none, or Spark has no type for a column.
    """
    rows = _Rows.of(schema, where)
    _check_session(session, where)
    return session.range(0, parts, 1, parts).mapInArrow(_Parts(read, rows.arrow), rows.spark)


def frame_of_table(session: SparkSession, table: pa.Table, where: str) -> DataFrame:
    """A DataFrame with the rows of a table, which travel with its plan; arguments and errors as `frame_of_parts`."""
    rows = _Rows.of(table.schema, where)
    _check_session(session, where)
    step = max(1, table.num_rows * _PART_BYTES // max(table.nbytes, 1))
    packed = [(_packed(table.slice(begin, step)),) for begin in range(0, table.num_rows, step)]
    return session.createDataFrame(packed, "rows binary").mapInArrow(_Packed(rows.arrow), rows.spark)


@dataclass(frozen=True)
class _Rows:
    """The columns as Arrow has them for Spark, and as Spark calls them."""

    arrow: pa.Schema
    spark: StructType

    @classmethod
    def of(cls, schema: pa.Schema, where: str) -> _Rows:
        try:
            from pyspark.sql.pandas.types import from_arrow_type
            from pyspark.sql.types import StructField, StructType
        except ImportError as error:
            raise ConfigurationError(f"{where}: to_spark needs pyspark: pip install 'penstock[spark]'") from error
        arrow = spark_schema(schema, where)
        fields = [
            StructField(field.name, from_arrow_type(field.type, prefer_timestamp_ntz=True), field.nullable)
            for field in arrow
        ]
        return cls(arrow, StructType(fields))


def _check_session(session: object, where: str) -> None:
    from pyspark.sql import SparkSession

    if not isinstance(session, SparkSession):
        raise ConfigurationError(
            f"{where}: to_spark takes a SparkSession, such as env.spark_session() gives, not {session!r}"
        )


@dataclass(frozen=True)
class _Parts:
    """What an executor does: the rows of the parts whose numbers it is given, as Spark takes them."""

    read: ReadPart
    schema: pa.Schema

    def __call__(self, numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                for rows in self.read(number):
                    yield cast_batch(rows, self.schema)


@dataclass(frozen=True)
class _Packed:
    """What an executor does: opens the packed rows that it is given."""

    schema: pa.Schema

    def __call__(self, packed: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in packed:
            for rows in batch.column(0):
                with pa.ipc.open_stream(rows.as_buffer()) as reader:
                    for opened in reader:
                        yield cast_batch(opened, self.schema)


def _packed(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    packed: bytes = sink.getvalue().to_pybytes()
    return packed


def cast_batch(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The rows with the types of `schema`, which has the same columns; times in nanoseconds are rounded down."""
    columns: list[Any] = [
        column if column.type == kind else _in_microseconds(column).cast(kind)
        for column, kind in zip(rows.columns, schema.types, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _in_microseconds(column: Any) -> Any:
    """A column whose times in ns, also in lists, structs and maps, are rounded down to us; others as they are."""
    kind = column.type
    if "[ns" not in str(kind):
        return column
    if kind in (pa.duration("ns"), pa.timestamp("ns", getattr(kind, "tz", None))):
        whole = column.cast(pa.int64())
        # Arrow's division rounds towards zero, which is up before 1970.
        cut = pc.divide(whole, 1000)
        floor = pc.subtract(cut, pc.less(whole, pc.multiply(cut, 1000)).cast(pa.int64()))
        return floor.cast(pa.duration("us") if kinds.is_duration(kind) else pa.timestamp("us", kind.tz))
    if kinds.is_dictionary(kind):
        return _in_microseconds(column.dictionary_decode())
    if kinds.is_fixed_size_list(kind):
        return _in_microseconds(column.cast(pa.list_(kind.value_field)))
    if kinds.is_struct(kind):
        parts = [_in_microseconds(column.field(number)) for number in range(kind.num_fields)]
        # The entries of a map may have no mask: pyarrow 25 ends the process.
        mask = column.is_null() if column.null_count else None
        return pa.StructArray.from_arrays(parts, [field.name for field in kind], mask=mask)
    if kinds.is_list(kind) or kinds.is_large_list(kind) or kinds.is_map(kind):
        items = _in_microseconds(column.values)
        of = pa.large_list(items.type) if kinds.is_large_list(kind) else pa.list_(items.type)
        if kinds.is_map(kind):
            of = pa.map_(*(field.type for field in items.type))
        return pa.Array.from_buffers(of, len(column), column.buffers()[:2], offset=column.offset, children=[items])
    return column
