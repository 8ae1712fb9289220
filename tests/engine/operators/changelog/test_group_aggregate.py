"""GROUP BY over changelogs equals DuckDB's after every batch, wherever batches are cut and whatever is restored."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.engine.api.changelog import add_changelog
from penstock.engine.changelog import ANY_MODE, ChangelogMode
from penstock.engine.connectors import ConnectorContext, Sink, SinkWriter
from penstock.engine.elements import Batch
from penstock.engine.errors import GraphError, StateError
from penstock.engine.operators.changelog.calls import AggregateCall
from penstock.engine.operators.changelog.group_aggregate import GroupAggregateSpec
from tests.draws import drawn
from tests.engine.helpers import local_environment
from tests.engine.operators.changelog.jobs import (
    Change,
    ChangelogJob,
    Materialised,
    Row,
    Table,
    changelogs,
    changes_of,
)
from tests.engine.operators.changelog.oracle import query

SCHEMA = pa.schema(
    {"k": pa.string(), "v": pa.int64(), "d": pa.decimal128(6, 2), "t": pa.string(), "x": pa.float64(), "b": pa.bool_()}
)
ROWS: st.SearchStrategy[Row] = st.tuples(
    st.sampled_from(["a", "b", None]),
    st.one_of(st.none(), st.integers(-3, 3)),
    st.sampled_from([None, Decimal("0.25"), Decimal("-1.50"), Decimal("7.00")]),
    st.sampled_from([None, "", "y", "z"]),
    st.sampled_from([None, 0.5, -2.0, 4.0]),
    st.sampled_from([None, True, False]),
)
INT, MONEY = pa.int64(), pa.decimal128(38, 2)
CALLS = (
    AggregateCall("count", "n", INT),
    AggregateCall("count", "n_v", INT, "v", filter="b"),
    AggregateCall("sum", "sum_v", INT, "v"),
    AggregateCall("sum", "sum_d", MONEY, "d", filter="b"),
    AggregateCall("avg", "avg_x", pa.float64(), "x"),
    AggregateCall("min", "min_v", INT, "v"),
    AggregateCall("max", "max_t", pa.string(), "t"),
    AggregateCall("max", "max_d", pa.decimal128(6, 2), "d", filter="b"),
    AggregateCall("min", "min_b", pa.bool_(), "b"),
    AggregateCall("count", "distinct_v", INT, "v", distinct=True),
    AggregateCall("sum", "distinct_d", MONEY, "d", distinct=True),
    AggregateCall("var_pop", "var_v", pa.float64(), "v"),
)
SQL = """SELECT {keys} count(*), count(v) FILTER (b), sum(v)::BIGINT, sum(d) FILTER (b), avg(x), min(v), max(t),
    max(d) FILTER (b), min(b), count(DISTINCT v), sum(DISTINCT d), round(var_pop(v), 9)
    FROM rows {group}"""
GROUPED = SQL.format(keys="k,", group="GROUP BY k")
ALONE = SQL.format(keys="", group="HAVING count(*) > 0")


ORDERED = pa.schema({"k": pa.int64(), "t": pa.string()})
ORDERED_CALLS = (
    AggregateCall("first_value", "first_t", pa.string(), "t"),
    AggregateCall("last_value", "last_t", pa.string(), "t"),
    AggregateCall("listagg", "texts", pa.string(), "t", separator="; "),
    AggregateCall("array_agg", "list", pa.list_(pa.string()), "t"),
)
ORDERED_SQL = """SELECT k, first(t ORDER BY arrival) FILTER (t IS NOT NULL),
    last(t ORDER BY arrival) FILTER (t IS NOT NULL), string_agg(t, '; ' ORDER BY arrival),
    array_agg(t ORDER BY arrival) FROM rows GROUP BY k"""


def job(
    keys: Sequence[str] = ("k",), calls: Sequence[AggregateCall] = CALLS, backend: str = "heap", **options: object
) -> ChangelogJob:
    spec = GroupAggregateSpec(SCHEMA, tuple(keys), tuple(calls), **options)  # type: ignore[arg-type]
    has_before = spec.emits is ChangelogMode.RETRACT
    materialised = Materialised(list(range(len(keys))), has_before)
    return ChangelogJob(spec, [SCHEMA], 2, backend, materialised)


def rounded(rows: list[Row]) -> list[Row]:
    return sorted((tuple(round(v, 9) if isinstance(v, float) else v for v in row) for row in rows), key=repr)


def check(
    aggregate: ChangelogJob,
    batches: list[list[Change]],
    sql: str,
    restart_at: int,
    backend: str = "heap",
    schema: pa.Schema = SCHEMA,
) -> None:
    table = Table()
    for number, batch in enumerate(batches):
        if number == restart_at:
            aggregate.restart(3, backend)
        aggregate.send(batch)
        table.apply(batch)
        assert rounded(aggregate.materialised.rows) == rounded(query(sql, {"rows": (schema, table.rows)}))
    aggregate.close()


@settings(max_examples=drawn(8))
@given(changelogs(ROWS), st.integers(0, 6), st.sampled_from([ChangelogMode.RETRACT, ChangelogMode.UPSERT]))
def test_groups_equal_those_of_duckdb_after_every_batch(
    batches: list[list[Change]], restart_at: int, emits: ChangelogMode
) -> None:
    check(job(emits=emits), batches, GROUPED, restart_at)


@settings(max_examples=drawn(6))
@given(changelogs(ROWS), st.integers(0, 6))
def test_without_keys_all_rows_are_one_group(batches: list[list[Change]], restart_at: int) -> None:
    check(job(()), batches, ALONE, restart_at)


@settings(max_examples=4)
@given(changelogs(ROWS, deletes=False), st.integers(0, 6))
def test_of_rows_that_stay_less_is_kept(batches: list[list[Change]], restart_at: int) -> None:
    check(job(takes=ChangelogMode.APPEND), batches, GROUPED, restart_at)


@pytest.mark.parametrize("takes", [ChangelogMode.APPEND, ChangelogMode.RETRACT])
@settings(max_examples=drawn(8))
@given(data=st.data(), restart_at=st.integers(0, 6))
def test_what_goes_by_arrival_loses_the_oldest_of_equal_values(
    takes: ChangelogMode, data: st.DataObject, restart_at: int
) -> None:
    rows = st.tuples(st.integers(0, 1), st.sampled_from([None, "", "y", "z"]))
    batches = data.draw(changelogs(rows, deletes=takes is ChangelogMode.RETRACT))
    spec = GroupAggregateSpec(ORDERED, ("k",), ORDERED_CALLS, takes)
    aggregate = ChangelogJob(spec, [ORDERED], 2, materialised=Materialised([0]))
    check(aggregate, batches, ORDERED_SQL, restart_at, schema=ORDERED)


@settings(max_examples=4)
@given(changelogs(ROWS), st.integers(0, 6), st.sampled_from([("rocksdb", "heap"), ("heap", "rocksdb")]))
def test_backends_restore_what_each_other_saved(
    batches: list[list[Change]], restart_at: int, backends: tuple[str, str]
) -> None:
    check(job(backend=backends[0]), batches, GROUPED, restart_at, backends[1])


@settings(max_examples=drawn(6))
@given(changelogs(ROWS), st.sets(st.integers(0, 8)))
def test_a_checkpoint_of_changes_is_worth_one_of_all(batches: list[list[Change]], at: set[int]) -> None:
    aggregate, table = job(), Table()
    for number, batch in enumerate(batches):
        aggregate.send(batch)
        table.apply(batch)
        if number in at:
            aggregate.checkpoint()
    aggregate.checkpoint()
    aggregate.recover(1)
    aggregate.send([("-D", row) for row in table.rows])
    assert aggregate.materialised.rows == []


def test_lists_and_multisets_follow_what_goes() -> None:
    calls = (
        AggregateCall("array_agg", "all", pa.list_(INT), "v"),
        AggregateCall("array_agg", "once", pa.list_(INT), "v", distinct=True),
        AggregateCall("collect", "counts", pa.map_(INT, pa.int32()), "v"),
    )
    aggregate = job(calls=calls)
    row = lambda v: ("a", v, None, None, None, None)  # noqa: E731
    aggregate.send([("+I", row(v)) for v in (2, 1, 2, None)])
    assert aggregate.materialised.rows == [("a", (2, 1, 2, None), (2, 1, None), ((1, 1), (2, 2)))]
    aggregate.send([("-D", row(2))])
    assert aggregate.materialised.rows == [("a", (1, 2, None), (1, 2, None), ((1, 1), (2, 1)))]


@pytest.mark.parametrize("backend", ["heap", "rocksdb"])
def test_values_of_every_kind_have_extremes_and_ends(backend: str) -> None:
    pairs = {
        pa.date32(): (date(2020, 1, 1), date(2021, 1, 1)),
        pa.timestamp("ms", "UTC"): (
            datetime(2020, 1, 1, tzinfo=timezone.utc),
            datetime(2021, 1, 1, tzinfo=timezone.utc),
        ),
        pa.time32("ms"): (time(1), time(2)),
        pa.duration("ms"): (timedelta(1), timedelta(2)),
        pa.binary(): (b"a", b"b"),
        pa.decimal256(60, 2): (Decimal("1.00"), Decimal("2.00")),
        pa.float32(): (1.5, 2.5),
        pa.uint64(): (1, 2**63 + 1),
    }
    names = [f"c{place}" for place in range(len(pairs))]
    schema = pa.schema([*zip(names, pairs, strict=True)])
    functions = ("min", "max", "first_value", "last_value")
    calls = tuple(
        AggregateCall(function, f"{function} {name}", kind, name)
        for function in functions
        for name, kind in zip(names, pairs, strict=True)
    )
    aggregate = ChangelogJob(GroupAggregateSpec(schema, (), calls), [schema], backend=backend)
    less, more = (tuple(pair[place] for pair in pairs.values()) for place in (0, 1))
    aggregate.send([("+I", more), ("+I", less), ("+I", less)])
    aggregate.restart()
    assert aggregate.materialised.rows == [(*less, *more, *more, *less)]
    aggregate.send([("-D", more)])
    assert aggregate.materialised.rows == [less * 4]
    aggregate.close()


def test_what_has_not_changed_is_not_said_again() -> None:
    aggregate = job(calls=[AggregateCall("max", "m", INT, "v")])
    row = lambda v: ("a", v, None, None, None, None)  # noqa: E731
    assert aggregate.send([("+I", row(3))]) == [("+I", ("a", 3))]
    assert aggregate.send([("+I", row(1)), ("+I", row(2)), ("-D", row(2))]) == []
    assert aggregate.send([("-U", row(3)), ("+U", row(2))]) == [("-U", ("a", 3)), ("+U", ("a", 2))]


@pytest.mark.parametrize("backend", ["heap", "rocksdb"])
def test_sums_of_decimals_beyond_their_type_are_null_until_they_fit_again(backend: str) -> None:
    kind, large, one = pa.decimal128(38, 2), Decimal("9" * 36 + ".99"), Decimal("0.01")
    schema = pa.schema({"k": pa.string(), "d": kind})
    calls = (AggregateCall("sum", "s", kind, "d"), AggregateCall("avg", "a", pa.decimal128(38, 6), "d"))
    sums = ChangelogJob(GroupAggregateSpec(schema, ("k",), calls), [schema], backend=backend)
    assert sums.send([("+I", ("a", large)), ("+I", ("a", one))]) == [("+I", ("a", None, None))]
    after = [("-U", ("a", None, None)), ("+U", ("a", one, Decimal("0.010000")))]
    assert sums.send([("-D", ("a", large))]) == after
    sums.close()


def test_a_group_is_forgotten_when_its_time_to_live_is_over() -> None:
    aggregate = job(
        calls=[AggregateCall("count", "n", INT), AggregateCall("count", "d", INT, "v", distinct=True)], ttl_ms=100
    )
    row = lambda k, v: (k, v, None, None, None, None)  # noqa: E731
    aggregate.send([("+I", row("a", 1)), ("+I", row("b", 1))])
    aggregate.clock.advance(0.06)
    aggregate.restart(2)
    aggregate.send([("+I", row("a", 2))])
    aggregate.clock.advance(0.06)
    assert aggregate.send([("-D", row("b", 1))]) == []
    # The value 1 was not written again, and is new; the group lives since it was.
    assert aggregate.send([("+I", row("a", 1))]) == [("-U", ("a", 2, 2)), ("+U", ("a", 3, 3))]


@pytest.mark.parametrize("cut", [1, 2, 3, 4])
def test_what_comes_to_a_group_that_was_forgotten_counts_wherever_batches_are_cut(cut: int) -> None:
    aggregate = job(calls=[AggregateCall("count", "n", INT), AggregateCall("sum", "s", INT, "v")], ttl_ms=100)
    row = lambda v: ("a", v, None, None, None, None)  # noqa: E731
    aggregate.send([("+I", row(5)), ("+I", row(8))])
    aggregate.clock.advance(0.1)
    changes = [("-U", row(5)), ("+U", row(6)), ("-U", row(6)), ("+U", row(7)), ("+I", row(1))]
    aggregate.materialised = Materialised([0])
    aggregate.send(changes[:cut])
    aggregate.send(changes[cut:])
    assert aggregate.materialised.rows == [("a", 2, 8)]


def test_other_aggregates_do_not_take_the_state() -> None:
    aggregate = job(calls=[AggregateCall("count", "n", INT)])
    aggregate.send([("+I", ("a", 1, None, None, None, None))])
    aggregate.spec = GroupAggregateSpec(SCHEMA, ("k",), (AggregateCall("sum", "s", INT, "v"),))
    with pytest.raises(StateError, match=r"state 'groups' was saved with the columns .*keep the query"):
        aggregate.restart()


def test_wrong_calls_are_refused_when_they_are_made() -> None:
    with pytest.raises(GraphError, match=r"there is no function 'summ' \(did you mean 'sum'"):
        AggregateCall("summ", "s", INT, "v")
    with pytest.raises(GraphError, match="sum takes numbers, and column 't' is string; cast it"):
        GroupAggregateSpec(SCHEMA, ("k",), (AggregateCall("sum", "s", INT, "t"),))


class _Changelog(Sink):
    """Keeps the changes that come."""

    def __init__(self) -> None:
        self.changes: list[Change] = []

    @property
    def changelog_modes(self) -> AbstractSet[ChangelogMode]:
        return ANY_MODE

    def open(self, context: ConnectorContext) -> SinkWriter:
        return _ChangelogWriter(self)

    def describe(self) -> str:
        return "changelog"


class _ChangelogWriter(SinkWriter):
    def __init__(self, sink: _Changelog) -> None:
        self._sink = sink

    def write(self, batch: Batch) -> None:
        self._sink.changes += changes_of(batch)


def test_aggregates_of_aggregates_in_a_job_count_what_is_there_now() -> None:
    env = local_environment(parallelism=2, max_batch_rows=3)
    words = [{"word": word} for word in ("a", "b", None, "a", "c", "b", "a", None, "d")]
    stream = env.from_collection(words, schema={"word": "string"})
    counted = GroupAggregateSpec(
        pa.schema({"word": pa.string()}), ("word",), (AggregateCall("count", "n", INT),), ChangelogMode.APPEND
    )
    of_counts = GroupAggregateSpec(counted.schema, ("n",), (AggregateCall("count", "words", INT),))
    counts = add_changelog(counted, counted.schema, stream)
    sink = _Changelog()
    add_changelog(of_counts, of_counts.schema, counts).sink_to(sink)
    env.execute()
    materialised = Materialised([0])
    for kind, row in sink.changes:
        materialised.apply(kind, row)
    assert materialised.rows == [(1, 2), (2, 2), (3, 1)]


@pytest.mark.parametrize(("before", "after"), [("heap", "heap"), ("heap", "rocksdb"), ("rocksdb", "heap")])
def test_values_with_nanoseconds_come_and_go_and_are_restored(before: str, after: str) -> None:
    moment = pa.timestamp("ns")
    schema = pa.schema({"k": pa.list_(moment), "t": moment, "m": pa.map_(pa.string(), moment)})
    calls = (
        AggregateCall("array_agg", "list", pa.list_(moment), "t"),
        AggregateCall("collect", "counts", pa.map_(moment, pa.int32()), "t"),
        AggregateCall("first_value", "first", schema.field("m").type, "m"),
        AggregateCall("count", "maps", INT, "m", distinct=True),
        AggregateCall("max", "last", moment, "t"),
    )
    tested = ChangelogJob(GroupAggregateSpec(schema, ("k",), calls), [schema], 2, before)

    def row(key: int, time: int) -> Row:
        return ([1000, key], time, [("a", time)])

    tested.send([("+I", row(1, 7)), ("+I", row(1, 8)), ("+I", row(2, 7)), ("+I", row(1, 8)), ("+I", row(2000, 1000))])
    tested.restart(3, after)
    tested.send([("-D", row(1, 7)), ("+I", row(2, 9)), ("-D", row(2000, 1000))])
    assert tested.materialised.rows == [
        ((1000, 1), (8, 8), ((8, 2),), (("a", 8),), 1, 8),
        ((1000, 2), (7, 9), ((7, 1), (9, 1)), (("a", 7),), 2, 9),
    ]
    tested.close()
