"""How a row lies in Redis: its key, and its columns as the fields of a hash.

`RedisSink` writes rows so and `RedisLookup` reads them so. What a sink has written a lookup with the same columns reads
back as it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.engine.aggregates.accumulators import plain
from penstock.engine.errors import ColumnTypeError, ConfigurationError, RecordError, nearest

_SEPARATOR: Final = ":"
_TEXT: Final = pa.large_string()


@dataclass(frozen=True, slots=True)
class Layout:
    """Keys are `prefix` and the key columns' values, with colons between them; the other columns are fields.

    Args:
        prefix: comes before each key as it is.
        keys: the columns that make the key.
    """

    prefix: str
    keys: tuple[str, ...]

    @classmethod
    def of(cls, prefix: str, keys: str | Sequence[str], where: str) -> Layout:
        """The layout for keys as users give them: a column, or several.

        Raises:
            ConfigurationError: no key.
        """
        names = (keys,) if isinstance(keys, str) else tuple(keys)
        if not names:
            raise ConfigurationError(f"{where}: name at least one key column")
        return cls(prefix, names)

    def check(self, schema: pa.Schema, where: str) -> None:
        """Refuse columns that have no form in Redis.

        Raises:
            ConfigurationError: a key that is no column.
            ColumnTypeError: a nested column, or another that has no text.
        """
        for key in self.keys:
            if key not in schema.names:
                raise ConfigurationError(
                    f"{where}: the rows have no column {key!r}{nearest(key, schema.names)} to be a key; they have "
                    f"{', '.join(schema.names)}"
                )
        for field in schema:
            if not _has_text(field.type) or (field.name in self.keys and pa.types.is_floating(field.type)):
                what = "a key" if field.name in self.keys else "a field of a hash"
                raise ColumnTypeError(
                    f"{where}: column {field.name!r} is {field.type}, which cannot be {what}; cast it to text before, "
                    "or leave it out"
                )

    def fields(self, schema: pa.Schema) -> list[str]:
        """The columns that are no keys."""
        return [name for name in schema.names if name not in self.keys]

    def keys_of(self, rows: pa.RecordBatch, where: str) -> list[bytes]:
        """The key of each row.

        Raises:
            RecordError: a key is null.
        """
        parts = []
        for name in self.keys:
            column = encode(rows.column(name))
            if None in column:
                raise RecordError(f"{where}: column {name!r}: a key is null; filter such rows out before")
            # A colon within a value of several would make two rows' keys equal.
            parts.append(column if len(self.keys) == 1 else [_escaped(value) for value in column])
        prefix = self.prefix.encode("utf-8")
        return [prefix + _SEPARATOR.encode().join(values) for values in zip(*parts, strict=True)]


def _escaped(value: Any) -> bytes:
    return bytes(value).replace(b"\\", b"\\\\").replace(b":", b"\\:")


def _has_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return _has_text(kind.value_type)
    return not (pa.types.is_nested(kind) or pa.types.is_duration(kind) or pa.types.is_interval(kind))


def encode(column: pa.Array) -> list[bytes | None]:
    """The values as Redis holds them: bytes as they are, the rest as text; times in ISO 8601, with a zone in UTC."""
    values = plain(column)
    if _is_bytes(values.type):
        return values.to_pylist()  # type: ignore[no-any-return]
    if pa.types.is_timestamp(values.type) and values.type.tz is not None:
        # The text of other zones has minutes alone of their distance to UTC, which once had seconds.
        values = values.cast(pa.timestamp(values.type.unit, "UTC"))
    texts = pa.nulls(len(values), _TEXT) if pa.types.is_null(values.type) else values.cast(_TEXT)
    return texts.cast(pa.large_binary()).to_pylist()  # type: ignore[no-any-return]


def decode(values: Sequence[bytes | None], kind: pa.DataType, where: str) -> pa.Array:
    """The column of what Redis gave.

    Raises:
        RecordError: a value that is none of this type.
    """
    given = pa.array(values, pa.large_binary())
    try:
        if _is_bytes(kind):
            return given.cast(kind)
        texts = given.cast(_TEXT)
        if pa.types.is_time(kind):
            # Arrow reads times of a day only behind a date.
            moment = pc.binary_join_element_wise(pa.scalar("1970-01-01 ", _TEXT), texts, pa.scalar("", _TEXT))
            return moment.cast(pa.timestamp(kind.unit)).cast(kind)
        return texts.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise RecordError(
            f"{where}: a value is no {kind}: {' '.join(str(error).split())}; correct it in Redis, or declare the "
            "column as string"
        ) from error


def _is_bytes(kind: pa.DataType) -> bool:
    whole = pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind)
    return bool(whole or pa.types.is_fixed_size_binary(kind)) and not pa.types.is_decimal(kind)
