"""Top-N and deduplication equal DuckDB's after every batch; a sink's key keeps the last of its rows."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.engine.changelog import ChangelogMode
from penstock.engine.errors import GraphError
from penstock.engine.operators.changelog.ranks import Nulls, Order
from penstock.engine.operators.changelog.top_n import Rank, Ties, TopNSpec, deduplication, upsert_materializer
from tests.draws import drawn
from tests.engine.operators.changelog.jobs import Change, ChangelogJob, Materialised, Row, Table, changelogs
from tests.engine.operators.changelog.oracle import query

pytestmark = pytest.mark.usefixtures("keys_compiled_on_the_way")
SCHEMA = pa.schema({"k": pa.string(), "p": pa.int64(), "t": pa.string(), "id": pa.int64()})
ROWS: st.SearchStrategy[Row] = st.tuples(
    st.sampled_from(["a", "b", None]),
    st.sampled_from([None, 1, 2, 3]),
    st.sampled_from([None, "x", "y"]),
    st.integers(0, 3),
)
ORDER = (Order("p", descending=True, nulls=Nulls.LAST), Order("t"), Order("id"))
BY = "p DESC NULLS LAST, t NULLS FIRST, id"
APPEND, RETRACT, UPSERT = ChangelogMode.APPEND, ChangelogMode.RETRACT, ChangelogMode.UPSERT


def sql(rank: str, first: int, last: int, by: str = BY, partition: str = "k") -> str:
    over = f"PARTITION BY {partition} ORDER BY {by}" if partition else f"ORDER BY {by}"
    return f"SELECT k, p, t, id, {rank}() OVER ({over}) AS n FROM rows QUALIFY n BETWEEN {first} AND {last}"


def check(job: ChangelogJob, batches: list[list[Change]], wanted: str, restart_at: int, columns: int = 5) -> None:
    table = Table()
    for number, batch in enumerate(batches):
        if number == restart_at:
            job.restart(3)
        job.send(batch)
        table.apply(batch)
        rows = [row[:columns] for row in query(wanted, {"rows": (SCHEMA, table.rows)})]
        assert job.materialised.rows == sorted(rows, key=repr)
    job.close()


@settings(max_examples=drawn(15))
@given(
    data=st.data(),
    takes=st.sampled_from([APPEND, RETRACT]),
    emits=st.sampled_from([RETRACT, UPSERT]),
    first=st.integers(1, 2),
    more=st.integers(0, 2),
    partition=st.sampled_from([("k",), ()]),
)
def test_row_numbers_equal_those_of_duckdb_after_every_batch(
    data: st.DataObject, takes: ChangelogMode, emits: ChangelogMode, first: int, more: int, partition: tuple[str, ...]
) -> None:
    batches = data.draw(changelogs(ROWS, deletes=takes is RETRACT))
    spec = TopNSpec(SCHEMA, partition, ORDER, first + more, first, rank_column="n", takes=takes, emits=emits)
    key = [0, 4] if partition else [4]
    job = ChangelogJob(spec, [SCHEMA], 2, materialised=Materialised(key, emits is RETRACT))
    wanted = sql("row_number", first, first + more, partition=",".join(partition))
    check(job, batches, wanted, data.draw(st.integers(0, 5)))


@pytest.mark.parametrize("rank", [Rank.RANK, Rank.DENSE_RANK])
@settings(max_examples=drawn(8))
@given(data=st.data(), takes=st.sampled_from([APPEND, RETRACT]), column=st.sampled_from([None, "n"]))
def test_ranks_are_shared_by_equal_rows(
    rank: Rank, data: st.DataObject, takes: ChangelogMode, column: str | None
) -> None:
    batches = data.draw(changelogs(ROWS, deletes=takes is RETRACT))
    spec = TopNSpec(SCHEMA, ("k",), (Order("p"),), 2, rank=rank, rank_column=column, takes=takes)
    wanted = sql(rank.value, 1, 2, by="p NULLS FIRST")
    check(ChangelogJob(spec, [SCHEMA], 2), batches, wanted, data.draw(st.integers(0, 5)), 5 if column else 4)


@settings(max_examples=drawn(8))
@given(st.data(), st.sampled_from([APPEND, RETRACT]), st.integers(0, 5))
def test_top_rows_lie_in_rocksdb_as_well(data: st.DataObject, takes: ChangelogMode, restart_at: int) -> None:
    batches = data.draw(changelogs(ROWS, deletes=takes is RETRACT))
    spec = TopNSpec(SCHEMA, ("k",), ORDER, 2, takes=takes)
    check(ChangelogJob(spec, [SCHEMA], 2, "rocksdb"), batches, sql("row_number", 1, 2), restart_at, 4)


@settings(max_examples=drawn(40))
@given(
    st.lists(st.lists(ROWS, min_size=1, max_size=12), max_size=6),
    st.sampled_from([ORDER, ORDER[:1], (Order("id"), Order("p"))]),
    st.integers(1, 3),
    st.sampled_from([None, "n"]),
    st.sampled_from(list(Rank)),
)
def test_rows_that_only_come_say_what_rows_that_may_go_would_say(
    batches: list[list[Row]], order: tuple[Order, ...], last: int, column: str | None, rank: Rank
) -> None:
    # Rows that may go are all kept, and ranked anew before and behind each batch.
    jobs = [
        ChangelogJob(TopNSpec(SCHEMA, ("k",), order, last, rank=rank, rank_column=column, takes=takes), [SCHEMA])
        for takes in (APPEND, RETRACT)
    ]
    for batch in batches:
        one, other = (job.send([("+I", row) for row in batch]) for job in jobs)
        assert sorted(one, key=repr) == sorted(other, key=repr)


@settings(max_examples=drawn(12))
@given(
    changelogs(ROWS, deletes=False),
    st.integers(0, 5),
    st.sampled_from(list(Ties)),
    st.sampled_from([None, "p"]),
)
def test_one_row_a_key_is_the_first_or_the_last(
    batches: list[list[Change]], restart_at: int, keep: Ties, time: str | None
) -> None:
    # Rows that are alike are one row: each has its own number.
    numbered = [
        [(kind, (*row[:3], 10 * b + r)) for r, (kind, row) in enumerate(batch)] for b, batch in enumerate(batches)
    ]
    last = keep is Ties.LAST_ARRIVED
    direction = "DESC" if last else "ASC"
    by = f"arrival {direction}" if time is None else f"p {direction} NULLS FIRST, arrival {direction}"
    emits = APPEND if time is None and not last else RETRACT
    job = ChangelogJob(
        deduplication(SCHEMA, ("k",), keep, time, emits=emits), [SCHEMA], 2, materialised=Materialised([0])
    )
    check(job, numbered, sql("row_number", 1, 1, by=by), restart_at, 4)
    operators: list[Any] = job.operators
    assert sum(len(one._states["rows"].rows) for one in operators) <= 3, "what is no longer needed is forgotten"


def test_the_first_of_rows_stays_the_first_when_it_comes_again_in_its_batch() -> None:
    job = ChangelogJob(deduplication(SCHEMA, ("k",), Ties.FIRST_ARRIVED), [SCHEMA])
    first, other = ("a", 1, "x", 0), ("a", 1, "y", 0)
    assert job.send([("+I", first), ("+I", other), ("+I", first)]) == [("+I", first)]


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("ties", list(Ties))
def test_a_row_that_goes_and_comes_again_is_behind_its_equals_in_whatever_batch(ties: Ties, at_once: bool) -> None:
    first, other = ("a", 1, "x", 0), ("a", 1, "y", 0)
    job = ChangelogJob(TopNSpec(SCHEMA, ("k",), (Order("p"),), 1, ties=ties), [SCHEMA], materialised=Materialised([0]))
    job.send([("+I", first), ("+I", other)])
    changes: list[Change] = [("-D", first), ("+I", first)]
    for batch in [changes] if at_once else [[change] for change in changes]:
        job.send(batch)
    assert job.materialised.rows == [first if ties is Ties.LAST_ARRIVED else other]


@settings(max_examples=drawn(15))
@given(changelogs(ROWS), st.integers(0, 5))
def test_a_sink_gets_the_last_row_that_came_for_its_key(batches: list[list[Change]], restart_at: int) -> None:
    job = ChangelogJob(
        upsert_materializer(SCHEMA, ("k",)), [SCHEMA], 2, materialised=Materialised([0], has_before=False)
    )
    table: list[Row] = []
    for number, batch in enumerate(batches):
        if number == restart_at:
            job.restart(1)
        job.send(batch)
        for kind, row in batch:
            if kind in ("+I", "+U"):
                table.append(row)
            else:
                table.remove(row)
        last = {row[0]: row for row in table}
        assert job.materialised.rows == sorted(last.values(), key=repr)


def test_a_better_row_is_an_update_of_a_result_with_one_row() -> None:
    job = ChangelogJob(TopNSpec(SCHEMA, ("k",), (Order("p"),), 1), [SCHEMA], materialised=Materialised([0]))
    assert job.send([("+I", ("a", 2, None, 0))]) == [("+I", ("a", 2, None, 0))]
    assert job.send([("+I", ("a", 3, None, 1))]) == []
    assert job.send([("+I", ("a", 1, None, 2))]) == [("-U", ("a", 2, None, 0)), ("+U", ("a", 1, None, 2))]
    assert job.send([("-D", ("a", 1, None, 2)), ("-D", ("a", 2, None, 0))]) == [
        ("-U", ("a", 1, None, 2)),
        ("+U", ("a", 3, None, 1)),
    ]


def test_a_result_that_cannot_be_is_refused() -> None:
    with pytest.raises(GraphError, match="ranks from 3 to 2 are none"):
        TopNSpec(SCHEMA, ("k",), ORDER, 2, 3)
    with pytest.raises(GraphError, match="rows leave the result when better ones come; let it emit retract"):
        TopNSpec(SCHEMA, ("k",), ORDER, 2, takes=APPEND, emits=APPEND)
    with pytest.raises(GraphError, match="a result in upsert mode needs a key"):
        TopNSpec(SCHEMA, ("k",), ORDER, 2, emits=UPSERT)
