"""Lookup joins: what the table is asked, what the cache keeps, and agreement with a dict."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.engine.connectors import ConnectorContext, LookupTable
from penstock.engine.elements import Batch
from penstock.engine.errors import ColumnTypeError, ConfigurationError, MissingColumnError, RecordError, UserCodeError
from penstock.engine.operators.join_columns import JoinColumns, JoinSide
from penstock.engine.operators.joins import lookup_join, row_log
from penstock.engine.operators.joins.lookup_cache import LookupCache
from penstock.engine.operators.joins.lookup_join import LookupJoinSpec, LookupRetry
from penstock.engine.operators.joins.lookup_tables import ArrowTable, DictTable
from tests.draws import drawn
from tests.engine.operators.joins.join_jobs import JoinJob, all_codes_equal, copied_rows

SCHEMA = pa.schema({"id": pa.int64(), "name": pa.string()})


class Asked(LookupTable):
    """A table that remembers what it was asked; several rows may have one key."""

    def __init__(self, rows: list[tuple[int, str]], log: list[Any]) -> None:
        self.rows = rows
        self.log = log

    @property
    def schema(self) -> pa.Schema:
        return SCHEMA

    @property
    def keys(self) -> tuple[str, ...]:
        return ("id",)

    def open(self, context: ConnectorContext) -> None:
        self.log.append(f"open {context.subtask}")

    def lookup(self, keys: pa.RecordBatch) -> pa.RecordBatch | pa.Table:
        wanted = keys.column("id").to_pylist()
        assert len(set(wanted)) == len(wanted)
        self.log.append(wanted)
        rows = [{"id": key, "name": name} for key, name in self.rows if key in wanted]
        return pa.Table.from_pylist(rows, SCHEMA)

    def close(self) -> None:
        self.log.append("close")


def job(
    table: LookupTable,
    how: str = "inner",
    cache: LookupCache | None = None,
    on: Any = None,
    retry: LookupRetry | None = None,
) -> JoinJob:
    pairs = on or {"k": "id"}
    columns = JoinColumns(JoinSide(tuple(pairs), None), JoinSide(tuple(pairs.values()), table.schema))
    return JoinJob(LookupJoinSpec(table, columns, how, cache, retry=retry), (tuple(pairs), ()))


def send(join: JoinJob, *keys: int | None) -> list[tuple[Any, ...]]:
    """Rows with these keys and a number each; the results, in order: (key, number, name)."""
    data = pa.record_batch({"k": pa.array(keys, pa.int64()), "number": pa.array(range(len(keys)))})
    join.links[0].process(0, Batch(data, pa.array([100 + i for i in range(len(keys))])))
    rows = [tuple(row.values()) for row in join.out.rows]
    assert join.out.timestamps == [100 + row[1] for row in rows]
    join.out.elements.clear()
    return rows


ROWS = [(1, "a"), (2, "b"), (1, "c"), (4, "d")]


# The join


def test_each_row_meets_all_rows_of_its_key_in_order() -> None:
    assert send(job(Asked(ROWS, [])), 2, 1, 3, 2) == [(2, 0, "b"), (1, 1, "a"), (1, 1, "c"), (2, 3, "b")]


def test_a_left_join_keeps_rows_that_the_table_does_not_have() -> None:
    assert send(job(Asked(ROWS, []), "left"), 3, 1, None) == [(3, 0, None), (1, 1, "a"), (1, 1, "c"), (None, 2, None)]


def test_the_table_is_asked_once_a_batch_for_distinct_keys_without_nulls() -> None:
    log: list[Any] = []
    join = job(Asked(ROWS, log), "left")
    send(join, 2, 1, 2, None, 1)
    send(join, None, None)
    send(join, 2)
    join.links[0].operator.close()
    assert log == ["open 0", [2, 1], [2], "close"]


def test_rows_nobody_asked_for_and_other_columns_are_ignored() -> None:
    class Chatty(Asked):
        def lookup(self, keys: pa.RecordBatch) -> pa.Table:
            return pa.table({"more": [0, 0], "name": ["x", "y"], "id": [9, 1]})

    for cache in (None, LookupCache()):
        assert send(job(Chatty([], []), cache=cache), 1, 5) == [(1, 0, "y")]


class _Late(Asked):
    """A table whose second row comes behind the second lookup."""

    def lookup(self, keys: pa.RecordBatch) -> pa.RecordBatch | pa.Table:
        found = super().lookup(keys)
        if len(self.log) == 3:
            self.rows = [*self.rows, (1, "late"), (1, "later")]
        return found


def test_keys_without_a_row_are_asked_for_again_and_rows_stay_in_order() -> None:
    log: list[Any] = []
    join = job(_Late([(2, "b")], log), "left", retry=LookupRetry(3, 10_000))
    before = join.clock.monotonic()
    wanted = [(9, 0, None), (1, 1, "late"), (1, 1, "later"), (2, 2, "b"), (1, 3, "late"), (1, 3, "later")]
    assert send(join, 9, 1, 2, 1) == wanted
    assert log[1:] == [[9, 1, 2], [9, 1], [9, 1], [9]]
    assert join.clock.monotonic() - before == 30.0


def test_an_error_of_the_table_says_which_keys_were_asked_for() -> None:
    class Broken(Asked):
        def lookup(self, keys: pa.RecordBatch) -> pa.Table:
            raise OSError("connection refused")

    with pytest.raises(UserCodeError, match=r"OSError: connection refused[\s\S]*\{'id': 7\}"):
        send(job(Broken([], [])), 7)


def test_an_error_of_open_is_the_tables() -> None:
    class Closed(Asked):
        def open(self, context: ConnectorContext) -> None:
            raise OSError("no route to host")

    with pytest.raises(UserCodeError, match="OSError: no route to host"):
        job(Closed([], []))


@pytest.mark.parametrize(
    ("made", "message"),
    [
        ([1], r"lookup\(\) of Odd returned list; return a pyarrow Table"),
        (pa.table({"id": [1]}), "returned no column 'name', which its schema has"),
        (pa.table({"id": ["x"], "name": ["y"]}), "columns of other types than its schema has"),
    ],
)
def test_what_a_table_must_not_return_is_refused(made: Any, message: str) -> None:
    class Odd(Asked):
        def lookup(self, keys: pa.RecordBatch) -> Any:
            return made

    with pytest.raises(RecordError, match=message):
        send(job(Odd([], [])), 1)


# The cache


def test_cached_keys_are_not_asked_for_again_and_missing_ones_are_remembered() -> None:
    log: list[Any] = []
    join = job(Asked(ROWS, log), "left", LookupCache(max_rows=10))
    assert send(join, 1, 3) == [(1, 0, "a"), (1, 0, "c"), (3, 1, None)]
    assert send(join, 3, 2, 1) == [(3, 0, None), (2, 1, "b"), (1, 2, "a"), (1, 2, "c")]
    assert log == ["open 0", [1, 3], [2]]
    operator: Any = join.links[0].operator
    assert (operator.cache.hits, operator.cache.misses) == (2, 3)


def test_a_cached_key_is_asked_for_again_when_its_time_is_over() -> None:
    log: list[Any] = []
    table = Asked([(1, "old")], log)
    join = job(table, "left", LookupCache(ttl="10s"))
    assert send(join, 1) == [(1, 0, "old")]
    table.rows[0] = (1, "new")
    join.clock.advance(9.999)
    assert send(join, 1) == [(1, 0, "old")]
    join.clock.advance(0.001)
    assert send(join, 1) == [(1, 0, "new")]
    assert log == ["open 0", [1], [1]]


def test_the_key_that_was_not_used_for_longest_makes_room() -> None:
    log: list[Any] = []
    join = job(Asked([(key, str(key)) for key in range(9)], log), "left", LookupCache(max_rows=2, ttl=None))
    for key in (1, 2, 1, 3, 1, 2):
        send(join, key)
    assert log[1:] == [[1], [2], [3], [2]]


def test_a_batch_with_more_keys_than_the_cache_holds_is_joined_all_the_same() -> None:
    join = job(Asked([(key, str(key)) for key in range(50)], []), "left", LookupCache(max_rows=3))
    assert send(join, *range(60)) == [(key, key, str(key) if key < 50 else None) for key in range(60)]
    operator: Any = join.links[0].operator
    assert len(operator.cache) == 3


def test_rows_that_made_room_do_not_stay_in_memory() -> None:
    rows = [(key, str(key)) for key in range(10) for _ in range(1 if key < 5 else 700)]
    join = job(Asked(rows, []), "inner", LookupCache(max_rows=1000, ttl=None))
    operator: Any = join.links[0].operator
    for turn in range(60):
        # The keys of one row each stay, so that few keys go, but most of the rows.
        send(join, 0, 1, 2, 3, 4, 5 + turn % 5)
        assert len(operator.cache) == 705
        assert operator.cache.held <= 2 * 1000 + 1024 + 700
    assert operator.cache.hits == 59 * 5


def test_a_key_with_more_rows_than_the_cache_holds_leaves_the_others_in_it() -> None:
    log: list[Any] = []
    join = job(Asked([(1, "a"), (2, "b"), *((3, "c") for _ in range(9))], log), "left", LookupCache(max_rows=8))
    for _ in range(2):
        assert [row[0] for row in send(join, 1, 2, 3)] == [1, 2] + [3] * 9
    assert log[1:] == [[1, 2, 3], [3]]


def test_a_batch_copies_no_more_of_the_cache_than_its_own_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    join = job(Asked([(key, str(key)) for key in range(3000)], []), "left", LookupCache(max_rows=5000))
    send(join, *range(2900))
    copied = copied_rows(monkeypatch, lookup_join, row_log)
    assert send(join, 7, 5, 7) == [(7, 0, "7"), (5, 1, "5"), (7, 2, "7")]
    for key in range(2900, 2950):
        send(join, key, 1)
    assert max(copied) < 100


def test_the_columns_of_the_stream_are_copied_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def take(batch: Batch, indices: pa.Array) -> Batch:
        raise AssertionError("the columns come from the pairs; the timestamps and kinds alone are to be taken")

    monkeypatch.setattr(Batch, "take", take)
    assert send(job(Asked(ROWS, [])), 2, 1) == [(2, 0, "b"), (1, 1, "a"), (1, 1, "c")]


def test_an_error_of_close_is_the_tables() -> None:
    class Stuck(Asked):
        def close(self) -> None:
            raise OSError("broken pipe")

    with pytest.raises(UserCodeError, match=r"operator 'tested'[\s\S]*OSError: broken pipe"):
        job(Stuck([], [])).links[0].operator.close()


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"max_rows": 0}, "max_rows"), ({"max_rows": True}, "max_rows"), ({"ttl": "0s"}, "ttl"), ({"ttl": 5}, "ttl")],
)
def test_cache_settings_are_checked(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        LookupCache(**settings)


BATCHES = st.lists(st.lists(st.one_of(st.none(), st.integers(0, 9)), min_size=1, max_size=8), max_size=12)


@given(
    st.lists(st.tuples(st.integers(0, 7), st.text(max_size=2)), max_size=12),
    BATCHES,
    st.sampled_from(["inner", "left"]),
    st.one_of(st.none(), st.builds(LookupCache, st.integers(1, 8), st.sampled_from([None, "5s"]))),
)
@settings(max_examples=drawn(20))
def test_the_join_agrees_with_a_dict(
    rows: list[tuple[int, str]], batches: list[list[int | None]], how: str, cache: LookupCache | None
) -> None:
    join = job(Asked(rows, []), how, cache)
    for keys in batches:
        expected = []
        for number, key in enumerate(keys):
            names = [name for other, name in rows if other == key]
            expected += [(key, number, name) for name in names or [None][: how == "left"]]
        assert send(join, *keys) == expected
        join.clock.advance(2)
        operator: Any = join.links[0].operator
        assert cache is None or len(operator.cache) <= cache.max_rows


# Tables in memory


def test_a_dict_is_a_table() -> None:
    table = DictTable({1: {"name": "Ada", "born": 1815}, 2: {"name": "Bo"}}, keys="id")
    assert send(job(table, "left"), 2, 1, 3) == [(2, 0, "Bo", None), (1, 1, "Ada", 1815), (3, 2, None, None)]


def test_keys_may_be_several_columns() -> None:
    table = DictTable({("a", 1): {"x": 1}, ("b", 1): {"x": 2}}, keys=["s", "n"])
    join = job(table, on={"t": "s", "m": "n"})
    data = pa.record_batch({"m": [1, 1, 2], "t": ["b", "c", "b"]})
    join.links[0].process(0, Batch(data))
    assert join.out.rows == [{"m": 1, "t": "b", "x": 2}]


def test_an_arrow_table_may_have_several_rows_a_key_and_keys_of_null() -> None:
    table = pa.table({"name": ["a", "b", "c", "d"], "id": pa.array([1, None, 2, 1]).dictionary_encode()})
    assert send(job(ArrowTable(table, "id")), 1, None, 2) == [(1, 0, "a"), (1, 0, "d"), (2, 2, "c")]


def test_an_empty_table_has_nothing() -> None:
    assert send(job(ArrowTable(SCHEMA.empty_table(), "id"), "left"), 1) == [(1, 0, None)]
    assert send(job(DictTable({}, "id", {"id": "int64", "name": "string"})), 1) == []


def test_texts_whose_hashes_collide_are_told_apart() -> None:
    with all_codes_equal():
        join = job(DictTable({text: {"x": n} for n, text in enumerate("abc")}, keys="id"), cache=LookupCache())
        join.links[0].process(0, Batch(pa.record_batch({"k": ["b", "z", "c"]})))
        assert join.out.rows == [{"k": "b", "x": 1}, {"k": "c", "x": 2}]


def test_times_with_nanoseconds_are_cached() -> None:
    times = pa.array([1, 2], pa.timestamp("ns"))
    table = ArrowTable(pa.table({"id": times, "x": [1, 2]}), "id")
    join = job(table, cache=LookupCache())
    for _ in range(2):
        join.links[0].process(0, Batch(pa.record_batch({"k": times})))
    assert [batch.data.column("x").to_pylist() for batch in join.out.batches] == [[1, 2], [1, 2]]


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: ArrowTable([1], "id"), ConfigurationError, "pyarrow Table or RecordBatch, not list"),  # type: ignore[arg-type]
        (lambda: ArrowTable(pa.table({"id": [1]}), ()), ConfigurationError, "at least one key"),
        (lambda: ArrowTable(pa.table({"id": [1]}), "ide"), MissingColumnError, "did you mean 'id'"),
        (lambda: ArrowTable(pa.table({"id": [1.5]}), "id"), ColumnTypeError, "id"),
        (lambda: DictTable({}, "id"), ConfigurationError, "declare them with schema="),
        (lambda: DictTable({1: 2}, "id"), ConfigurationError, "row of key 1 is 2, not a dict"),  # type: ignore[dict-item]
        (lambda: DictTable({1: {}}, ("a", "b")), ConfigurationError, "not a tuple of 2 values"),
        (lambda: DictTable({1: {"x": 1}, 2: {"x": "y"}}, "id"), ConfigurationError, "do not fit one type"),
    ],
)
def test_tables_are_checked(make: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()


def test_a_table_is_picklable_before_it_is_opened() -> None:
    import pickle

    table = pickle.loads(pickle.dumps(DictTable({1: {"at": datetime(2024, 1, 1)}}, keys="id")))
    assert send(job(table), 1) == [(1, 0, datetime(2024, 1, 1))]
