"""Key groups: equal to the `xxhash` package and to Spark, and partitioned as in Flink."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import narwhals
import numba
import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.aggregates.functions import count
from penstock.engine.errors import ColumnTypeError, GraphError, MissingColumnError
from penstock.engine.expressions import col
from penstock.engine.state.keys import groups as module
from penstock.engine.state.keys.groups import (
    check_key_column,
    hash_columns,
    key_group_range,
    key_groups,
    subtask_of,
)
from penstock.engine.state.keys.xxh64_kernel import compile_cached
from tests.engine.helpers import local_environment

GOLDEN = json.loads((Path(__file__).parents[3] / "data" / "spark_xxhash64.json").read_text(encoding="utf-8"))
WORDS = st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1))
TEXTS = st.one_of(st.none(), st.text(max_size=80))


def expected(*row: int | str | bytes | None) -> int:
    """The hash of one row of keys, by the `xxhash` package, value by value."""
    seed = 42
    for value in row:
        if value is None:
            continue
        if isinstance(value, int):
            data = value.to_bytes(8, "little", signed=value < 2**63)
        else:
            data = value.encode() if isinstance(value, str) else value
        seed = xxhash.xxh64_intdigest(data, seed)
    return seed - 2**64 if seed >= 2**63 else seed


def hash_one(array: pa.Array) -> list[int]:
    return hash_columns([array]).tolist()


def test_bigint_columns_hash_as_in_spark() -> None:
    values, hashes = zip(*GOLDEN["bigint"], strict=True)
    assert hash_one(pa.array(values, pa.int64())) == list(hashes)


def test_string_columns_hash_as_in_spark() -> None:
    values, hashes = zip(*GOLDEN["string"], strict=True)
    assert hash_one(pa.array(values)) == list(hashes)


def test_several_columns_chain_as_in_spark() -> None:
    numbers, texts, hashes = zip(*GOLDEN["bigint_string"], strict=True)
    assert hash_columns([pa.array(numbers, pa.int64()), pa.array(texts)]).tolist() == list(hashes)


@given(st.lists(WORDS), st.integers(0, 5))
def test_integers_equal_the_xxhash_package(values: list[int | None], skipped: int) -> None:
    array = pa.array(values, pa.int64()).slice(skipped)
    assert hash_one(array) == [expected(value) for value in values[skipped:]]


def test_integers_of_more_than_one_block_equal_the_xxhash_package() -> None:
    values = [number * 7919 for number in range(2 * module._BLOCK_ROWS + 3)]
    assert hash_one(pa.array(values)) == [expected(value) for value in values]


@given(st.lists(TEXTS), st.integers(0, 5))
def test_strings_equal_the_xxhash_package(values: list[str | None], skipped: int) -> None:
    array = pa.array(values, pa.string()).slice(skipped)
    assert hash_one(array) == [expected(value) for value in values[skipped:]]


@given(st.lists(TEXTS, min_size=1), st.integers(0, 5))
def test_the_compiled_path_equals_the_xxhash_package(values: list[str | None], skipped: int) -> None:
    array = pa.array(values, pa.string()).slice(skipped)
    hashes = module._hash_many(array, 42).view(np.int64)
    assert hashes.tolist() == [expected(value) for value in values[skipped:]]


@pytest.mark.parametrize("distinct", [3, 300, 5000])
def test_every_length_whether_strings_repeat_or_not(distinct: int) -> None:
    values = [f"{number % distinct}:" + "x" * (number % distinct % 100) for number in range(5000)]
    values[::17] = [None] * len(values[::17])  # type: ignore[list-item]
    assert hash_one(pa.array(values)) == [expected(value) for value in values]


def test_strings_that_repeat_only_at_first() -> None:
    values = ["same"] * 1024 + [f"other {number}" for number in range(4000)]
    assert hash_one(pa.array(values)) == [expected(value) for value in values]


@given(st.lists(st.tuples(TEXTS, WORDS, TEXTS), min_size=1))
def test_several_columns_chain(rows: list[tuple[Any, Any, Any]]) -> None:
    first, second, third = zip(*rows, strict=True)
    columns = [pa.array(first, pa.string()), pa.array(second, pa.int64()), pa.array(third, pa.string())]
    assert hash_columns(columns).tolist() == [expected(*row) for row in rows]


def test_many_strings_chain_behind_another_column() -> None:
    rows = [(number % 5, None if number % 7 == 0 else f"text {number}") for number in range(500)]
    columns = [pa.array([row[0] for row in rows]), pa.array([row[1] for row in rows])]
    assert hash_columns(columns).tolist() == [expected(*row) for row in rows]


def test_few_rows_and_many_hash_alike() -> None:
    columns = [pa.array([None if row % 5 == shift else row * 7919 - 3 for row in range(100)]) for shift in (1, 2)]
    parts = [hash_columns([column.slice(row, 20) for column in columns]) for row in range(0, 100, 20)]
    assert np.concatenate(parts).tolist() == hash_columns(columns).tolist()


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view()])
@pytest.mark.parametrize("rows", [3, 300])
def test_every_kind_of_string_hashes_its_bytes(kind: pa.DataType, rows: int) -> None:
    values = [f"ü{number % 90}" if number else None for number in range(rows)]
    assert hash_one(pa.array(values, kind)) == [expected(value) for value in values]


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(2)])
@pytest.mark.parametrize("rows", [3, 300])
def test_every_kind_of_binary_hashes_its_bytes(kind: pa.DataType, rows: int) -> None:
    values = [bytes([number % 90, 255]) if number else None for number in range(rows)]
    assert hash_one(pa.array(values, kind)) == [expected(value) for value in values]


@pytest.mark.parametrize(
    "kind",
    [pa.int8(), pa.uint8(), pa.int16(), pa.uint16(), pa.int32(), pa.uint32(), pa.int64(), pa.uint64()],
)
def test_integers_of_every_width_hash_alike(kind: pa.DataType) -> None:
    assert hash_one(pa.array([0, None, 100], kind)) == [expected(0), expected(None), expected(100)]


def test_the_largest_unsigned_integer() -> None:
    assert hash_one(pa.array([2**64 - 1], pa.uint64())) == [expected(-1)]


UTC_DAY = datetime(2013, 7, 4, 12, 30, tzinfo=timezone.utc)
MICROSECONDS = int(UTC_DAY.timestamp()) * 1_000_000


@pytest.mark.parametrize(
    ("array", "number"),
    [
        (pa.array([True]), 1),
        (pa.array([date(1969, 12, 31)], pa.date32()), -1),
        (pa.array([date(1969, 12, 31)], pa.date64()), -1),
        *[(pa.array([UTC_DAY], pa.timestamp(unit, "UTC")), MICROSECONDS) for unit in ("s", "ms", "us", "ns")],
        (pa.array([-1], pa.timestamp("ns")), -1),
        (pa.array([time(0, 0, 2)], pa.time32("s")), 2_000_000),
        (pa.array([time(0, 0, 2)], pa.time64("ns")), 2_000_000),
        (pa.array([timedelta(milliseconds=5)], pa.duration("ms")), 5000),
        (pa.array([2**62], pa.timestamp("s")), (2**62 * 1_000_000) % 2**64),
    ],
)
def test_booleans_and_times_hash_as_integers(array: pa.Array, number: int) -> None:
    assert hash_one(pa.concat_arrays([array, pa.nulls(1, array.type)])) == [expected(number), 42]


@pytest.mark.parametrize("kind", [pa.decimal64(9, 2), pa.decimal128(9, 2), pa.decimal256(50, 2)])
def test_decimals_hash_as_their_text(kind: pa.DataType) -> None:
    assert hash_one(pa.array([Decimal("1.5"), None], kind)) == [expected("1.50"), 42]


def test_dictionary_columns_hash_as_their_values() -> None:
    values = ["a", None, "b", "a", "c"]
    encoded = pa.array(values).dictionary_encode()
    assert hash_one(encoded.slice(1)) == [expected(value) for value in values[1:]]
    assert hash_columns([pa.array(range(5)), encoded]).tolist() == [
        expected(number, value) for number, value in enumerate(values)
    ]
    nulls_in_dictionary = pa.DictionaryArray.from_arrays(pa.array([0, 1, None]), pa.array([None, "b"]))
    assert hash_one(nulls_in_dictionary) == [42, expected("b"), 42]
    assert hash_one(pa.array([None, None], pa.string()).dictionary_encode()) == [42, 42]


def test_undecided_and_empty_columns() -> None:
    assert hash_one(pa.nulls(3)) == [42, 42, 42]
    assert hash_columns([pa.nulls(2), pa.array([1, 2])]).tolist() == [expected(1), expected(2)]
    for kind in (pa.int64(), pa.string(), pa.decimal128(5)):
        assert hash_one(pa.array([], kind)) == []


@pytest.mark.parametrize("kind", [pa.string(), pa.binary(), pa.decimal128(5, 2), pa.int64(), pa.timestamp("ms")])
@pytest.mark.parametrize("rows", [3, 300, 5000])
def test_columns_of_nulls_alone(kind: pa.DataType, rows: int) -> None:
    nulls = pa.nulls(rows, kind)
    assert hash_one(nulls) == [42] * rows
    words = list(range(rows))
    assert hash_columns([pa.array(words), nulls]).tolist() == [expected(word) for word in words]


def test_a_column_that_cannot_be_hashed() -> None:
    with pytest.raises(ColumnTypeError, match="double"):
        hash_columns([pa.array([1.5])])
    with pytest.raises(GraphError, match="at least one"):
        hash_columns([])


@given(st.lists(WORDS, min_size=1), st.sampled_from([1, 33]), st.integers(0, 2), st.integers(1, 32_768))
def test_key_groups_are_the_hash_floor_mod_the_maximum(
    some: list[int | None], times: int, skipped: int, maximum: int
) -> None:
    values = some * times
    words = pa.array(values, pa.int64()).slice(skipped)
    wanted = [expected(value) % maximum for value in values[skipped:]]
    for array in (words, words.view(pa.uint64())):
        groups = key_groups([array], maximum)
        assert groups.dtype == np.int32
        assert groups.tolist() == wanted


@given(st.lists(st.tuples(TEXTS, WORDS), min_size=1))
def test_keys_of_any_columns_have_the_groups_of_their_hashes(rows: list[tuple[Any, Any]]) -> None:
    texts, words = (list(column) for column in zip(*rows, strict=True))
    strings, numbers = pa.array(texts, pa.string()), pa.array(words, pa.int64())
    for columns in ([strings], [numbers], [numbers, strings], [numbers, numbers], [numbers.view(pa.timestamp("ms"))]):
        assert key_groups(columns, 100).tolist() == (hash_columns(columns) % 100).tolist()


@given(st.integers(1, 300).flatmap(lambda p: st.tuples(st.just(p), st.integers(p, 1000))))
def test_ranges_partition_the_key_groups_and_agree_with_the_owner(numbers: tuple[int, int]) -> None:
    parallelism, maximum = numbers
    ranges = [key_group_range(subtask, parallelism, maximum) for subtask in range(parallelism)]
    assert [group for groups in ranges for group in groups] == list(range(maximum))
    owners = [subtask for subtask, groups in enumerate(ranges) for _ in groups]
    assert subtask_of(np.arange(maximum, dtype=np.int32), parallelism, maximum).tolist() == owners
    assert [subtask_of(group, parallelism, maximum) for group in range(maximum)] == owners


def test_the_largest_topology_does_not_overflow() -> None:
    last = np.array([32_767], dtype=np.int32)
    assert subtask_of(last, 32_768, 32_768).tolist() == [32_767]


SCHEMA = pa.schema(
    {
        "carrier": pa.dictionary(pa.int32(), pa.string()),
        "delay": pa.float64(),
        "legs": pa.list_(pa.int64()),
        "undecided": pa.null(),
    }
)


def test_columns_that_can_be_keys() -> None:
    assert check_key_column(SCHEMA, "carrier", "key_by").name == "carrier"
    assert check_key_column(SCHEMA, "undecided", "key_by").type == pa.null()


@pytest.mark.parametrize("name", ["delay", "legs"])
def test_columns_that_cannot_be_keys(name: str) -> None:
    with pytest.raises(ColumnTypeError, match=rf"key_by: column '{name}' .* cast it to an integer or a string"):
        check_key_column(SCHEMA, name, "key_by")


@pytest.mark.parametrize(("kind", "remedy"), [(pa.string_view(), narwhals.String), (pa.binary_view(), narwhals.Binary)])
def test_views_are_refused_with_the_cast_that_makes_them_keys(kind: pa.DataType, remedy: Any) -> None:
    schema = pa.schema({"code": kind})
    with pytest.raises(ColumnTypeError, match=rf"key_by: column 'code' is {kind}.*\.cast\(narwhals\.{remedy}"):
        check_key_column(schema, "code", "key_by")
    text = pa.array(["a"] if remedy is narwhals.String else [b"a"])
    keyed = local_environment(2).from_collection(pa.table({"code": text.cast(kind)}))
    counted = keyed.with_columns(code=col("code").cast(remedy)).key_by("code").aggregate(n=count())
    assert [row["n"] for row in counted.collect()] == [1]


def test_a_missing_key_column_suggests_the_nearest() -> None:
    with pytest.raises(MissingColumnError, match=r"key_by: no column 'carier'.*did you mean 'carrier'"):
        check_key_column(SCHEMA, "carier", "key_by")


def test_numba_compiles_without_a_cache_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locator(self: object) -> None:
        raise RuntimeError("cannot cache function: no locator available")

    monkeypatch.setattr(numba.core.dispatcher.Dispatcher, "enable_caching", no_locator)
    assert compile_cached(lambda number: number + 1)(1) == 2


def test_numba_is_not_imported_for_integers_and_few_strings() -> None:
    program = (
        "import sys, pyarrow as pa\n"
        "from penstock.engine.state.keys.groups import key_groups\n"
        "key_groups([pa.array(range(1000))], 128)\n"
        "key_groups([pa.array(['a', 'b'] * 500)], 128)\n"
        "sys.exit('numba' in sys.modules)\n"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_very_many_words_hash_as_few_do() -> None:
    words = np.random.default_rng(7).integers(-(2**63), 2**63, module._MANY_WORDS + 3)
    first = pa.array(words, mask=words % 5 == 0)
    second = pa.array(words[::-1].copy())
    many = hash_columns([first, second])
    half = module._MANY_WORDS // 2
    few = [hash_columns([column.slice(start, half) for column in (first, second)]) for start in (0, half, 2 * half)]
    assert (many == np.concatenate(few)).all()
