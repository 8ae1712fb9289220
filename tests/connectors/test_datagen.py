from __future__ import annotations

import pickle
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.connectors import datagen
from penstock.connectors.datagen import (
    Choice,
    DataGenSource,
    EventTime,
    RandomFloat,
    RandomInt,
    Sequence,
    Zipf,
)
from penstock.connectors.random_words import stream
from penstock.engine.clock import ManualClock
from penstock.engine.connectors import ConnectorContext, SplitOrder, Wait
from penstock.engine.errors import ConfigurationError, RecordError, UserCodeError
from tests.connectors.reading import context, read_rows, read_table
from tests.draws import drawn

MASK = 2**64 - 1
ALL_FIELDS: dict[str, Any] = {
    "id": Sequence(),
    "int": RandomInt(-3, 100),
    "wide": RandomInt(-(2**62), 2**62),
    "float": RandomFloat(-1.0, 1.0),
    "choice": Choice(["AA", "UA", None]),
    "weighted": Choice([1.5, 2.5], [1, 3]),
    "zipf": Zipf(10),
    "ts": EventTime(1000, 300, delayed=0.3, max_delay_ms=50),
    "own": lambda rows: rows % 7,
}


def _columns(source: DataGenSource, name: str, max_rows: int = 65_536) -> list[Any]:
    values: list[Any] = read_table(source, max_rows)[name].to_pylist()
    return values


def _milliseconds(field: EventTime, rows: int) -> list[int]:
    table = read_table(DataGenSource({"t": field}, rows))
    return [int(value) for value in table["t"].cast(pa.int64()).to_pylist()]


def _splitmix(seed_word: int, row: int) -> int:
    """SplitMix64 in plain Python integers."""
    z = (seed_word + row * 0x9E3779B97F4A7C15) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


@settings(max_examples=drawn(40))
@given(
    rows=st.integers(0, 200),
    parallelism=st.integers(1, 9),
    max_rows=st.integers(1, 250),
    seed=st.integers(-5, 5),
)
def test_rows_do_not_depend_on_parallelism_and_batch_size(
    rows: int, parallelism: int, max_rows: int, seed: int
) -> None:
    source = DataGenSource(ALL_FIELDS, rows=rows, seed=seed)
    split = read_table(source, max_rows, parallelism).sort_by("id")
    assert split.to_pylist() == read_rows(source)
    assert split["id"].to_pylist() == list(range(rows))


def test_chunks_inside_a_batch_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    source = DataGenSource(ALL_FIELDS, rows=50)
    whole = read_table(source)
    monkeypatch.setattr(datagen, "_CHUNK_ROWS", 7)
    assert read_table(source).equals(whole)


@pytest.mark.parametrize("size", [1, 3, 1000, 2**32, 2**32 + 1, 2**63])
def test_random_ints_equal_the_obvious_computation(size: int) -> None:
    low = -17 if size < 2**63 else -(2**63)
    start = int(stream("5/k"))
    words = [_splitmix(start, row) for row in range(200)]
    expected = [low + (word * size >> 64 if size <= 2**32 else word % size) for word in words]
    assert _columns(DataGenSource({"k": RandomInt(low, low + size)}, rows=200, seed=5), "k") == expected


def test_seed_and_name_both_matter() -> None:
    first = DataGenSource({"a": RandomInt(0, 2**40), "b": RandomInt(0, 2**40)}, rows=20)
    table = read_table(first)
    assert table["a"].to_pylist() != table["b"].to_pylist()
    other_seed = read_table(DataGenSource({"a": RandomInt(0, 2**40)}, rows=20, seed=1))
    assert table["a"].to_pylist() != other_seed["a"].to_pylist()
    alone = read_table(DataGenSource({"b": RandomInt(0, 2**40)}, rows=20))
    assert table["b"].to_pylist() == alone["b"].to_pylist()


def test_types() -> None:
    utc = pa.timestamp("ms", tz="UTC")
    i, f, s = pa.int64(), pa.float64(), pa.string()
    assert DataGenSource(ALL_FIELDS).schema.types == [i, i, i, f, s, f, i, utc, i]


def test_sequence() -> None:
    assert _columns(DataGenSource({"n": Sequence(5, -2)}, rows=4), "n") == [5, 3, 1, -1]


def test_uniform_fields_fill_their_range() -> None:
    table = read_table(DataGenSource({"i": RandomInt(-2, 3), "f": RandomFloat(10, 20)}, rows=5000))
    counts = Counter(table["i"].to_pylist())
    assert sorted(counts) == [-2, -1, 0, 1, 2]
    assert all(800 < count < 1200 for count in counts.values())
    floats = np.array(table["f"])
    assert 10 <= floats.min() < 10.1
    assert 19.9 < floats.max() < 20
    assert abs(floats.mean() - 15) < 0.2


def test_choice_takes_any_type_and_weights() -> None:
    nested = pa.array([[1], None, [2, 3]])
    values = _columns(DataGenSource({"c": Choice(nested)}, rows=100), "c")
    assert all(expected in values for expected in ([1], None, [2, 3]))
    counts = Counter(_columns(DataGenSource({"c": Choice(["a", "b", "c"], [1, 0, 3])}, rows=4000), "c"))
    assert set(counts) == {"a", "c"}
    assert 2.5 < counts["c"] / counts["a"] < 3.5


def test_zipf_follows_its_law() -> None:
    counts = Counter(_columns(DataGenSource({"z": Zipf(100)}, rows=20_000), "z"))
    assert min(counts) == 0
    assert max(counts) == 99
    assert 1.8 < counts[0] / counts[1] < 2.2
    assert 8 < counts[0] / counts[9] < 12.5
    even = Counter(_columns(DataGenSource({"z": Zipf(4, exponent=0)}, rows=4000), "z"))
    assert all(850 < even[key] < 1150 for key in range(4))


def test_event_time_advances_evenly() -> None:
    assert _milliseconds(EventTime(500, 400), 5) == [500, 502, 505, 507, 510]
    assert _milliseconds(EventTime(0, 0.5), 3) == [0, 2000, 4000]
    assert _milliseconds(EventTime(-5, 1_000_000), 2) == [-5, -5]


def test_a_share_of_rows_is_moved_back() -> None:
    on_time = _milliseconds(EventTime(0, 100), 4000)
    moved = _milliseconds(EventTime(0, 100, delayed=0.25, max_delay_ms=400), 4000)
    delays = np.array(on_time) - np.array(moved)
    assert delays.min() == 0
    assert 390 <= delays.max() <= 400
    assert 0.2 < (delays > 0).mean() < 0.3
    assert abs(delays[delays > 0].mean() - 200) < 20
    assert _milliseconds(EventTime(0, 100, delayed=1.0), 10) == on_time[:10]


def test_bounded_or_not() -> None:
    bounded, unbounded = DataGenSource({"a": Sequence()}, rows=3), DataGenSource({"a": Sequence()})
    assert bounded.bounded
    assert not unbounded.bounded
    assert unbounded.split_order is SplitOrder.INTERLEAVED
    reader = unbounded.open(unbounded.splits(2)[1], context())
    for first in (1, 41, 81):
        batch = reader.next_batch(20)
        assert isinstance(batch, pa.RecordBatch)
        assert batch.column(0).to_pylist() == list(range(first, first + 40, 2))
    assert bounded.describe() == "datagen(a; 3 rows)"
    assert unbounded.describe() == "datagen(a; unbounded)"


def test_sources_without_functions_are_picklable() -> None:
    fields = {name: field for name, field in ALL_FIELDS.items() if isinstance(field, datagen.Field)}
    source = DataGenSource(fields, rows=20)
    assert read_rows(pickle.loads(pickle.dumps(source))) == read_rows(source)


@pytest.mark.parametrize("parallelism", [1, 3])
def test_rate_is_kept_over_all_subtasks(parallelism: int) -> None:
    clock = ManualClock()
    source = DataGenSource({"i": Sequence()}, rows=30, rate=7)
    readers = [source.open(split, context(clock=clock)) for split in source.splits(parallelism)]
    due: dict[int, float] = {}
    running = set(range(parallelism))
    while running:
        waits = []
        for index in sorted(running):
            answer = readers[index].next_batch(100)
            if answer is None:
                running.discard(index)
            elif isinstance(answer, Wait):
                assert answer.until > clock.monotonic()
                waits.append(answer.until)
            else:
                due.update(dict.fromkeys(answer.column(0).to_pylist(), clock.monotonic()))
        if waits and len(waits) == len(running):
            clock.wait_until(min(waits))
    assert due == {row: pytest.approx(row / 7) for row in range(30)}


def test_rate_gives_what_is_due_and_honours_max_rows() -> None:
    clock = ManualClock()
    source = DataGenSource({"i": Sequence()}, rate=10)
    reader = source.open(source.splits(1)[0], context(clock=clock))
    first = reader.next_batch(100)
    assert isinstance(first, pa.RecordBatch)
    assert first.num_rows == 1
    assert reader.next_batch(100) == Wait(0.1)
    clock.advance(1.05)
    rows = []
    while not isinstance(answer := reader.next_batch(4), Wait):
        assert answer is not None
        rows.append(answer.num_rows)
    assert rows == [4, 4, 2]
    assert answer == Wait(1.1)


@settings(max_examples=drawn(60))
@given(rate=st.floats(1e-3, 1e7), start=st.floats(0, 1e7), step=st.integers(1, 4))
def test_waiting_until_the_answer_always_gives_a_row(rate: float, start: float, step: int) -> None:
    clock = ManualClock()
    clock.advance(start)
    source = DataGenSource({"i": Sequence()}, rate=rate)
    reader = source.open(source.splits(step)[step - 1], context(clock=clock))
    for _ in range(5):
        if isinstance(answer := reader.next_batch(3), Wait):
            clock.wait_until(answer.until)
            answer = reader.next_batch(3)
        assert isinstance(answer, pa.RecordBatch)


def test_functions_may_fail_on_no_rows_or_give_lists() -> None:
    def first_row_decides(rows: Any) -> list[str]:
        return [f"k{rows[0] - rows[0] + row}" for row in rows]

    source = DataGenSource({"a": first_row_decides, "b": lambda rows: rows.tolist()}, rows=3)
    assert source.schema.types == [pa.string(), pa.int64()]
    assert read_rows(source, 2)[2] == {"a": "k2", "b": 2}


def test_functions_that_fail_name_their_column() -> None:
    def late_failure(rows: Any) -> Any:
        if len(rows) and rows[-1] > 5:
            raise KeyError("oops")
        return rows

    with pytest.raises(UserCodeError, match=r"(?s)operator 'test'.*KeyError.*column 'a'.*late_failure"):
        read_rows(DataGenSource({"a": late_failure}, rows=10))
    with pytest.raises(RecordError, match="column 'a' gave 1 values for 10 rows"):
        read_rows(DataGenSource({"a": lambda rows: rows[:1]}, rows=10))
    with pytest.raises(RecordError, match="column 'a' gave string, but int64"):
        read_rows(DataGenSource({"a": lambda rows: np.array(["x"] * len(rows)) if len(rows) else rows}, rows=10))
    with pytest.raises(ConfigurationError, match="function of column 'a' cannot be called"):
        DataGenSource({"a": lambda rows: int("x")})


def test_functions_cannot_change_the_row_numbers_of_others() -> None:
    def careless(rows: Any) -> Any:
        if len(rows):
            rows += 1
        return rows

    with pytest.raises(UserCodeError, match="read-only"):
        read_rows(DataGenSource({"a": careless}, rows=10))


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: DataGenSource({}), "at least one column"),
        (lambda: DataGenSource({"a": 5}), "column 'a': 5 is no field"),  # type: ignore[dict-item]
        (lambda: DataGenSource({"a": Sequence}), "is no field"),  # type: ignore[dict-item]
        (lambda: DataGenSource({1: Sequence()}), "names must be text"),  # type: ignore[dict-item]
        (lambda: DataGenSource({"a": Sequence()}, rows=-1), "rows must be"),
        (lambda: DataGenSource({"a": Sequence()}, rows=1.5), "rows must be"),  # type: ignore[arg-type]
        (lambda: DataGenSource({"a": Sequence()}, rate=0), "rate must be"),
        (lambda: DataGenSource({"a": Sequence()}, rate=float("nan")), "rate must be"),
        (lambda: DataGenSource({"a": Sequence()}, seed="x"), "seed must be"),  # type: ignore[arg-type]
        (lambda: Sequence(start=2**63), "start must be"),
        (lambda: RandomInt(3, 3), "low 3 must be below high 3"),
        (lambda: RandomInt(0, 1.5), "high must be"),  # type: ignore[arg-type]
        (lambda: RandomFloat(1, 0), "must be below"),
        (lambda: RandomFloat(0, float("inf")), "high must be a finite"),
        (lambda: Choice([]), "no values"),
        (lambda: Choice([1, "a"]), "not of one type"),
        (lambda: Choice([1, 2], [1]), "one for each of the 2 values"),
        (lambda: Choice([1, 2], [0, 0]), "not all 0"),
        (lambda: Choice([1, 2], [1, -1]), "none negative"),
        (lambda: Zipf(0), "n must be"),
        (lambda: Zipf(5, -1), "exponent not negative"),
        (lambda: EventTime(rows_per_second=0), "over 0"),
        (lambda: EventTime(delayed=1.5), "from 0 to 1"),
        (lambda: EventTime(max_delay_ms=-1), "not negative"),
    ],
)
def test_arguments_are_checked(build: object, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        build()  # type: ignore[operator]


def test_a_high_rate_comes_in_steps_and_a_low_one_in_longer_ones_of_few_rows() -> None:
    def first_batch(rate: float, others: int = 0) -> tuple[int, float]:
        """Its rows, and when it comes; behind so many `others`."""
        clock = ManualClock()
        source = DataGenSource({"n": Sequence()}, rate=rate)
        reader = source.open(source.splits(1)[0], ConnectorContext("source", 0, 1, clock))
        given = []
        while len(given) <= others:
            if isinstance(answer := reader.next_batch(1000), Wait):
                clock.wait_until(answer.until)
            else:
                assert answer is not None
                given.append(answer.num_rows)
        return given[-1], clock.monotonic()

    assert first_batch(50.0) == (1, 0.0)
    assert first_batch(19.0, others=1) == (1, pytest.approx(1 / 19))
    assert first_batch(50.0, others=1) == (5, pytest.approx(0.1))
    assert first_batch(500.0, others=1) == (8, pytest.approx(0.022))
    rows, seconds = first_batch(10_000.0)
    assert rows == 80
    assert seconds == pytest.approx(0.0079)
