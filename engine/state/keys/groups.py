"""Key groups: which share of the keyed state a key belongs to, and which subtask owns it.

Used by the router, keyed state and rescaling. Pure functions; the same key has the same group on every
machine, in every version, and in Spark (`xxhash64` of bigint and string columns).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from penstock.engine.columns import numpy_type
from penstock.engine.errors import ColumnTypeError, GraphError, missing_column
from penstock.engine.state.keys.codec import is_text, is_word, pooled_empty

_Hashes: TypeAlias = npt.NDArray[np.uint64]
_Seed: TypeAlias = int | _Hashes

_SEED: Final = 42
_MASK: Final = 2**64 - 1
_P1: Final = np.uint64(0x9E3779B185EBCA87)
_P2: Final = np.uint64(0xC2B2AE3D27D4EB4F)
_P3: Final = np.uint64(0x165667B19E3779F9)
_P4: Final = np.uint64(0x85EBCA77C2B2AE63)
_P5_PLUS_LENGTH: Final = 0x27D4EB2F165667C5 + 8

_BLOCK_ROWS: Final = 4096
"""Rows hashed at once: three arrays of this many words stay in a core's cache."""
_MANY_WORDS: Final = 100_000
"""From here on, numba hashes words in a tenth of the time: state has so many, batches have not."""
_FEW_WORDS: Final = 32
"""Up to here they are hashed one by one sooner than numpy has begun."""
_LONGS: Final = frozenset((pa.int64(), pa.uint64()))
_SAMPLE_ROWS: Final = 1024
_FEW_STRINGS: Final = 64
_MICROSECONDS: Final = {"s": 1_000_000, "ms": 1_000, "us": 1}
_MILLISECONDS_PER_DAY: Final = 86_400_000
_CASTS_OF_VIEWS: Final = {pa.string_view(): "narwhals.String", pa.binary_view(): "narwhals.Binary"}


def hash_columns(columns: Sequence[pa.Array]) -> npt.NDArray[np.int64]:
    """XXH64 of each row of `columns`, as Spark's `xxhash64` chains them: a column's hash seeds the next one.

    The first seed is 42; a null leaves the seed as it is. What is hashed of a value:

    - integers of every width, and booleans (0 or 1): the number as 8 bytes, little-endian;
    - dates: days since the epoch, likewise; timestamps, times and durations: microseconds, rounded down;
    - decimals: their text with all decimal places, such as `1.50`;
    - strings: their UTF-8 bytes; binary values: their bytes;
    - dictionary columns: their values.

    bigint, string, binary and timestamp columns hash as in Spark, which hashes shorter integers, dates and
    decimals in other ways.

    Args:
        columns: one or more arrays of the same length.

    Returns:
        One int64 a row.

    Raises:
        ColumnTypeError: a column of a type that cannot be a key.

    Example:
        >>> hash_columns([pa.array([7, None]), pa.array([None, "a"])]).tolist()
        [-2864211556195259663, -8582455328737087284]
    """
    if not columns:
        raise GraphError("hash_columns: give at least one key column")
    seed: _Seed = _SEED
    for column in columns:
        seed = _hash_column(column, seed)
    return _per_row(seed, len(columns[0])).view(np.int64)


def key_groups(columns: Sequence[pa.Array], max_parallelism: int) -> npt.NDArray[np.int32]:
    """The key group of each row: the hash of its key, floor-mod `max_parallelism`.

    Args:
        columns: the key columns, arrays of the same length.
        max_parallelism: how many key groups there are.

    Raises:
        ColumnTypeError: a column of a type that cannot be a key.

    Example:
        >>> key_groups([pa.array([1, 2, 3])], 128).tolist()
        [50, 77, 75]
    """
    if columns and len(columns[0]) <= _FEW_WORDS and _are_words(columns):
        return _few_key_groups(columns[0], max_parallelism)
    hashes = hash_columns(columns)
    # In place: what there is much of takes as long to get memory for as to compute.
    if max_parallelism & (max_parallelism - 1) == 0:
        hashes &= max_parallelism - 1
        return hashes.astype(np.int32)
    # numpy divides by a constant with vector instructions, but takes remainders one by one.
    return (hashes - hashes // max_parallelism * max_parallelism).astype(np.int32)


def _are_words(columns: Sequence[pa.Array]) -> bool:
    """Whether keys are integers of 64 bits."""
    column = columns[0]
    return len(columns) == 1 and column.type in _LONGS and not column.null_count and len(column) > 0


def _few_key_groups(column: pa.Array, max_parallelism: int) -> npt.NDArray[np.int32]:
    """One by one, in a third of the time."""
    words = memoryview(column.buffers()[1])[8 * column.offset :]
    each = [xxhash.xxh64_intdigest(words[place : place + 8], _SEED) for place in range(0, 8 * len(column), 8)]
    # With a sign, as `hash_columns` gives them.
    return np.array([(one - (one >> 63 << 64)) % max_parallelism for one in each], np.int32)


@overload
def subtask_of(groups: int, parallelism: int, max_parallelism: int) -> int: ...
@overload
def subtask_of(groups: npt.NDArray[np.int32], parallelism: int, max_parallelism: int) -> npt.NDArray[np.int32]: ...
def subtask_of(
    groups: int | npt.NDArray[np.int32], parallelism: int, max_parallelism: int
) -> int | npt.NDArray[np.int32]:
    """The subtask that owns a key group, or one for each of an array of key groups.

    As Flink's `KeyGroupRangeAssignment.computeOperatorIndexForKeyGroup`.

    Example:
        >>> subtask_of(127, parallelism=4, max_parallelism=128)
        3
    """
    return groups * parallelism // max_parallelism


def key_group_range(subtask: int, parallelism: int, max_parallelism: int) -> range:
    """The key groups of one subtask: those for which `subtask_of` gives `subtask`.

    As Flink's `KeyGroupRangeAssignment.computeKeyGroupRangeForOperatorIndex`.

    Example:
        >>> key_group_range(1, parallelism=3, max_parallelism=128)
        range(43, 86)
    """
    start = (subtask * max_parallelism + parallelism - 1) // parallelism
    stop = ((subtask + 1) * max_parallelism - 1) // parallelism + 1
    return range(start, stop)


def check_key_column(schema: pa.Schema, name: str, where: str) -> pa.Field:
    """The field of column `name`, if it can be a key (one of type null may: it is undecided).

    Args:
        schema: the stream's columns.
        name: the key column.
        where: the operation, for the message.

    Raises:
        MissingColumnError: no such column.
        ColumnTypeError: floating or nested, another type without a stable hash, or a view, of which Arrow can take no
            single rows.
    """
    if name not in schema.names:
        raise missing_column(name, schema.names, where)
    field = schema.field(name)
    kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    if pa.types.is_floating(kind):
        raise ColumnTypeError(
            f"{where}: column {name!r} is {field.type}, and whether such keys are equal is a matter of "
            "rounding; cast it to an integer or a string first"
        )
    if field.type in _CASTS_OF_VIEWS:
        raise ColumnTypeError(
            f"{where}: column {name!r} is {field.type}, of which Arrow cannot give each subtask its rows; cast "
            f"it first: with_columns({name}=col({name!r}).cast({_CASTS_OF_VIEWS[field.type]}))"
        )
    if not _is_hashable(kind):
        raise ColumnTypeError(
            f"{where}: column {name!r} is {field.type}, which cannot be a key; "
            "take a single field out of it, or cast it to an integer or a string first"
        )
    return field


def _is_hashable(kind: pa.DataType) -> bool:
    return _is_bytes(kind) or is_word(kind) or bool(pa.types.is_decimal(kind) or pa.types.is_null(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    return is_text(kind) or bool(pa.types.is_fixed_size_binary(kind))


def _hash_column(column: pa.Array, seed: _Seed) -> _Hashes:
    kind = column.type
    if len(column) == 0 or pa.types.is_null(kind):
        return _per_row(seed, len(column))
    if is_word(kind):
        return _keep_seed_at_nulls(column, _hash_words(_words(column), seed), seed)
    if pa.types.is_dictionary(kind):
        return _hash_dictionary(column, seed)
    if pa.types.is_decimal(kind):
        return _hash_text(column.cast(pa.string()), seed)
    if _is_bytes(kind):
        return _hash_text(column, seed)
    raise ColumnTypeError(f"a column of type {kind} cannot be a key; cast it to an integer or a string first")


def _per_row(seed: _Seed, rows: int) -> _Hashes:
    return np.full(rows, seed, dtype=np.uint64) if isinstance(seed, int) else seed


def _keep_seed_at_nulls(column: pa.Array, hashes: _Hashes, seed: _Seed) -> _Hashes:
    if column.null_count == 0:
        return hashes
    np.copyto(hashes, np.uint64(seed) if isinstance(seed, int) else seed, where=_mask(column.is_null()))
    return hashes


def _mask(array: pa.BooleanArray) -> npt.NDArray[np.bool_]:
    mask: npt.NDArray[np.bool_] = array.to_numpy(zero_copy_only=False)
    return mask


def _words(column: pa.Array) -> npt.NDArray[np.int64]:
    """The values as integers; anything at nulls."""
    kind = column.type
    if pa.types.is_boolean(kind):
        return _values(column.cast(pa.uint8())).astype(np.int64)
    if pa.types.is_integer(kind):
        return _values(column).astype(np.int64, copy=False)
    width = pa.int32() if kind.bit_width == 32 else pa.int64()
    numbers = _values(column.view(width)).astype(np.int64, copy=False)
    if pa.types.is_date32(kind):
        return numbers
    if pa.types.is_date64(kind):
        return numbers // _MILLISECONDS_PER_DAY
    # Far outside the years that Python knows this wraps, which spreads keys as well as any other number.
    return numbers // 1000 if kind.unit == "ns" else numbers * _MICROSECONDS[kind.unit]


def _values(column: pa.Array) -> npt.NDArray[np.signedinteger]:
    """A view of an integer column's buffer (`to_numpy` would turn it into floats where there are nulls)."""
    values = np.frombuffer(column.buffers()[1], dtype=numpy_type(column.type))
    view: npt.NDArray[np.signedinteger] = values[column.offset : column.offset + len(column)]
    return view


def _hash_words(words: npt.NDArray[np.int64], seed: _Seed) -> _Hashes:
    """XXH64 of each word's 8 bytes."""
    if len(words) <= _FEW_WORDS:
        return _hash_few_words(words, seed)
    return _hash_blocks(words, seed) if len(words) < _MANY_WORDS else _hash_many_words(words, seed)


def _hash_few_words(words: npt.NDArray[np.int64], seed: _Seed) -> _Hashes:
    """By the `xxhash` package: small batches would wait longer for numpy's calls than for their hashes."""
    data = words.tobytes()
    seeds = [seed] * len(words) if isinstance(seed, int) else seed.tolist()
    each = [xxhash.xxh64_intdigest(data[8 * row : 8 * row + 8], own) for row, own in enumerate(seeds)]
    return np.array(each, np.uint64)


def _hash_many_words(words: npt.NDArray[np.int64], seed: _Seed) -> _Hashes:
    from penstock.engine.state.keys.xxh64_kernel import hash_words

    plain = words.view(np.uint64)
    plain.flags.writeable = False
    out = pooled_empty(len(words), np.uint64)
    hash_words(plain, np.array([seed], np.uint64) if isinstance(seed, int) else seed, out)
    return out


def _hash_blocks(words: npt.NDArray[np.int64], seed: _Seed) -> _Hashes:
    """Without numba: block by block, so that the intermediate results stay in cache."""
    out = np.empty(len(words), dtype=np.uint64)
    scratch = np.empty(min(len(words), _BLOCK_ROWS), dtype=np.uint64)
    for start in range(0, len(words), _BLOCK_ROWS):
        block = out[start : start + _BLOCK_ROWS]
        other = scratch[: len(block)]
        lane = words[start : start + _BLOCK_ROWS].view(np.uint64) * _P2
        _rotate(lane, 31, other)
        lane *= _P1
        if isinstance(seed, int):
            lane ^= np.uint64((seed + _P5_PLUS_LENGTH) & _MASK)
        else:
            np.add(seed[start : start + _BLOCK_ROWS], np.uint64(_P5_PLUS_LENGTH), out=other)
            lane ^= other
        _rotate(lane, 27, other)
        lane *= _P1
        lane += _P4
        for shift, factor in ((33, _P2), (29, _P3)):
            np.right_shift(lane, np.uint64(shift), out=other)
            lane ^= other
            lane *= factor
        np.right_shift(lane, np.uint64(32), out=other)
        np.bitwise_xor(lane, other, out=block)
    return out


def _rotate(words: _Hashes, bits: int, scratch: _Hashes) -> None:
    np.right_shift(words, np.uint64(64 - bits), out=scratch)
    words <<= np.uint64(bits)
    words |= scratch


def _hash_dictionary(column: pa.DictionaryArray, seed: _Seed) -> _Hashes:
    if not isinstance(seed, int) or len(column.dictionary) == 0:
        return _hash_column(column.dictionary_decode(), seed)
    of_values = _hash_column(column.dictionary, seed)
    hashes: _Hashes = of_values[_values(column.indices.fill_null(0))]
    return _keep_seed_at_nulls(column.indices, hashes, seed)


def _hash_text(column: pa.Array, seed: _Seed) -> _Hashes:
    if column.null_count == len(column):
        return _per_row(seed, len(column))
    if len(column) <= _FEW_STRINGS:
        return _hash_few(column, seed)
    if isinstance(seed, int) and len(column.slice(0, _SAMPLE_ROWS).unique()) <= _SAMPLE_ROWS // 8:
        encoded = column.dictionary_encode()
        if len(encoded.dictionary) <= max(_FEW_STRINGS, len(column) // 16):
            hashes: _Hashes = _hash_few(encoded.dictionary, seed)[_values(encoded.indices.fill_null(0))]
            return _keep_seed_at_nulls(encoded.indices, hashes, seed)
    return _hash_many(column, seed)


def _hash_few(column: pa.Array, seed: _Seed) -> _Hashes:
    """By the `xxhash` package: 200 ns a value, but without numba."""
    hashes: _Hashes = _per_row(seed, len(column)).copy()
    for row, value in enumerate(column.cast(pa.large_binary()).to_pylist()):
        if value is not None:
            hashes[row] = xxhash.xxh64_intdigest(value, int(hashes[row]))
    return hashes


def _hash_many(column: pa.Array, seed: _Seed) -> _Hashes:
    from penstock.engine.state.keys.xxh64_kernel import hash_strings

    packed = column.cast(pa.large_binary())
    _, offsets, data = packed.buffers()
    positions = np.frombuffer(offsets, dtype=np.int64)[packed.offset : packed.offset + len(packed) + 1]
    text = np.frombuffer(b"" if data is None else data, dtype=np.uint8)
    # Some Arrow buffers are writable, and numba would compile once more for those.
    positions.flags.writeable = text.flags.writeable = False
    hashes = np.empty(len(packed), dtype=np.uint64)
    hash_strings(text, positions, _per_row(seed, len(packed)), hashes)
    return _keep_seed_at_nulls(packed, hashes, seed)
