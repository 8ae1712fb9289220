"""Joins of changelogs equal DuckDB's after every batch of either side."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.engine.changelog import ChangelogMode
from penstock.engine.errors import GraphError
from penstock.engine.operators.changelog.join import ChangelogJoinSpec, JoinInput, JoinKind
from tests.draws import drawn
from tests.engine.operators.changelog.jobs import Change, ChangelogJob, Materialised, Row, Table, changelogs
from tests.engine.operators.changelog.oracle import query

pytestmark = pytest.mark.usefixtures("keys_compiled_on_the_way")
LEFT = pa.schema({"k": pa.int64(), "x": pa.float64(), "v": pa.int64()})
RIGHT = pa.schema({"w": pa.string(), "id": pa.int64(), "u": pa.int64()})
LEFT_ROWS: st.SearchStrategy[Row] = st.tuples(
    st.sampled_from([0, 1, None]), st.sampled_from([0.5, None]), st.integers(0, 2)
)
RIGHT_ROWS: st.SearchStrategy[Row] = st.tuples(
    st.sampled_from(["a", None]), st.sampled_from([0, 1, None]), st.integers(0, 2)
)
ALL = "l.k, l.x, l.v, r.w, r.id, r.u"


def below(pairs: pa.RecordBatch) -> pa.BooleanArray:
    """A condition beside the equal keys."""
    return pc.less(pairs.column("v"), pairs.column("u"))


def spec(kind: JoinKind, **options: Any) -> ChangelogJoinSpec:
    mode, ttl = options.pop("takes", ChangelogMode.RETRACT), options.pop("ttl_ms", None)
    left, right = JoinInput(LEFT, ("k",), mode, ttl), JoinInput(RIGHT, ("id",), mode, ttl)
    return ChangelogJoinSpec(left, right, kind, **options)


def sql(kind: JoinKind, on: str) -> str:
    if kind in (JoinKind.SEMI, JoinKind.ANTI):
        there = "EXISTS" if kind is JoinKind.SEMI else "NOT EXISTS"
        return f"SELECT l.k, l.x, l.v FROM l WHERE {there} (SELECT 1 FROM r WHERE {on})"
    return f"SELECT {ALL} FROM l {kind.value} JOIN r ON {on}"


@st.composite
def scripts(draw: st.DrawFn, deletes: bool = True) -> list[tuple[int, list[Change]]]:
    """Batches of both sides, mixed, each side in its order."""
    sides = [draw(changelogs(rows, 14, deletes)) for rows in (LEFT_ROWS, RIGHT_ROWS)]
    order = draw(st.permutations([side for side, batches in enumerate(sides) for _ in batches]))
    return [(side, sides[side].pop(0)) for side in order]


def check(
    join: ChangelogJob, script: list[tuple[int, list[Change]]], wanted: str, restart_at: int, backend: str
) -> None:
    tables = (Table(), Table())
    for number, (side, batch) in enumerate(script):
        if number == restart_at:
            join.restart(3, backend)
        join.send(batch, side)
        tables[side].apply(batch)
        held = {"l": (LEFT, tables[0].rows), "r": (RIGHT, tables[1].rows)}
        assert join.materialised.rows == query(wanted, held)
    join.close()


@pytest.mark.parametrize("kind", list(JoinKind))
@settings(max_examples=drawn(12))
@given(script=scripts(), restart_at=st.integers(0, 8), has_condition=st.booleans())
def test_joins_equal_those_of_duckdb_after_every_batch(
    kind: JoinKind, script: list[tuple[int, list[Change]]], restart_at: int, has_condition: bool
) -> None:
    on = "l.k = r.id AND l.v < r.u" if has_condition else "l.k = r.id"
    join = ChangelogJob(spec(kind, condition=below if has_condition else None), [LEFT, RIGHT], 2)
    check(join, script, sql(kind, on), restart_at, "heap")


@settings(max_examples=4)
@given(scripts(), st.integers(0, 8), st.sampled_from([("rocksdb", "heap"), ("heap", "rocksdb")]))
def test_a_full_join_resumes_on_the_other_backend(
    script: list[tuple[int, list[Change]]], restart_at: int, backends: tuple[str, str]
) -> None:
    join = ChangelogJob(spec(JoinKind.FULL), [LEFT, RIGHT], 2, backends[0])
    check(join, script, sql(JoinKind.FULL, "l.k = r.id"), restart_at, backends[1])


@settings(max_examples=drawn(10))
@given(scripts(), st.sampled_from([JoinKind.LEFT, JoinKind.ANTI]))
def test_keys_may_be_told_to_meet_where_they_are_null(script: list[tuple[int, list[Change]]], kind: JoinKind) -> None:
    join = ChangelogJob(spec(kind, null_safe=(0,)), [LEFT, RIGHT], 2)
    check(join, script, sql(kind, "l.k IS NOT DISTINCT FROM r.id"), 2, "heap")


@settings(max_examples=drawn(10))
@given(scripts(deletes=False), st.sampled_from([JoinKind.INNER, JoinKind.SEMI]))
def test_of_rows_that_stay_the_result_stays(script: list[tuple[int, list[Change]]], kind: JoinKind) -> None:
    join = ChangelogJob(spec(kind, takes=ChangelogMode.APPEND, emits=ChangelogMode.APPEND), [LEFT, RIGHT], 2)
    check(join, script, sql(kind, "l.k = r.id"), 2, "heap")
    assert {change for change, _ in join.log} <= {"+I"}


@pytest.mark.parametrize("kind", list(JoinKind))
@settings(max_examples=drawn(8))
@given(script=scripts(deletes=False), restart_at=st.integers(0, 8), has_condition=st.booleans())
def test_rows_that_only_come_count_as_often_as_they_come(
    kind: JoinKind, script: list[tuple[int, list[Change]]], restart_at: int, has_condition: bool
) -> None:
    on = "l.k = r.id AND l.v < r.u" if has_condition else "l.k = r.id"
    condition = below if has_condition else None
    join = ChangelogJob(spec(kind, condition=condition, takes=ChangelogMode.APPEND), [LEFT, RIGHT], 2)
    check(join, script, sql(kind, on), restart_at, "heap")


@pytest.mark.parametrize("kind", list(JoinKind))
def test_a_row_that_comes_several_times_in_and_between_batches_meets_as_often(kind: JoinKind) -> None:
    one, other, third = ("+I", (0, 0.5, 0)), ("+I", (0, None, 1)), ("+I", (1, None, 1))
    met = ("+I", ("a", 0, 2))
    script = [(0, [one, other, one, third]), (1, [met]), (0, [one, third, third]), (1, [met, met])]
    join = ChangelogJob(spec(kind, takes=ChangelogMode.APPEND), [LEFT, RIGHT], 2)
    check(join, script, sql(kind, "l.k = r.id"), 3, "heap")


@settings(max_examples=drawn(8))
@given(scripts())
def test_without_keys_all_rows_meet(script: list[tuple[int, list[Change]]]) -> None:
    sides = JoinInput(LEFT, ()), JoinInput(RIGHT, ())
    join = ChangelogJob(ChangelogJoinSpec(*sides, JoinKind.FULL, below), [LEFT, RIGHT], 2)
    check(join, script, sql(JoinKind.FULL, "l.v < r.u"), 2, "heap")


def test_with_a_key_updates_are_said_as_such() -> None:
    join = ChangelogJob(spec(JoinKind.LEFT, key=("v",), emits=ChangelogMode.UPSERT), [LEFT, RIGHT])
    assert join.send([("+I", (0, None, 7))]) == [("+I", (0, None, 7, None, None, None))]
    assert join.send([("+I", ("a", 0, 1))], 1) == [("+U", (0, None, 7, "a", 0, 1))]
    assert join.send([("-U", ("a", 0, 1)), ("+U", ("b", 0, 1))], 1) == [("+U", (0, None, 7, "b", 0, 1))]
    assert join.send([("-D", ("b", 0, 1))], 1) == [("+U", (0, None, 7, None, None, None))]


def test_rows_that_have_outlived_their_time_meet_nothing_and_are_not_taken_back() -> None:
    join = ChangelogJob(spec(JoinKind.INNER, ttl_ms=100), [LEFT, RIGHT], materialised=Materialised())
    join.send([("+I", (0, None, 7))])
    join.clock.advance(0.06)
    join.restart()
    assert join.send([("+I", ("a", 0, 1))], 1) == [("+I", (0, None, 7, "a", 0, 1))]
    join.clock.advance(0.06)
    assert join.send([("-D", (0, None, 7))]) == []
    assert join.send([("+I", (0, None, 8))]) == [("+I", (0, None, 8, "a", 0, 1))]


def test_a_join_that_cannot_be_is_refused() -> None:
    with pytest.raises(GraphError, match="the result of this left join has updates; let it emit retract"):
        spec(JoinKind.LEFT, takes=ChangelogMode.APPEND, emits=ChangelogMode.APPEND)
    with pytest.raises(GraphError, match=r"the keys of the left side are .*int64.* cast them to the same types"):
        ChangelogJoinSpec(JoinInput(LEFT, ("k",)), JoinInput(RIGHT, ("w",)))
    with pytest.raises(GraphError, match="both sides have a column 'k'; rename it"):
        ChangelogJoinSpec(JoinInput(LEFT, ("k",)), JoinInput(LEFT, ("k",)))


@pytest.mark.parametrize("kind", list(JoinKind))
@pytest.mark.parametrize("mode", [ChangelogMode.APPEND, ChangelogMode.RETRACT])
def test_pairs_without_equal_keys_are_looked_at_in_slices(kind: JoinKind, mode: ChangelogMode) -> None:
    looked_at: list[int] = []

    def equal(pairs: pa.RecordBatch) -> pa.BooleanArray:
        looked_at.append(pairs.num_rows)
        return pc.equal(pairs.column("v"), pairs.column("u"))

    schemas = pa.schema({"v": pa.int64()}), pa.schema({"u": pa.int64()})
    left, right = (JoinInput(schema, (), mode) for schema in schemas)
    emits = mode if kind in (JoinKind.INNER, JoinKind.SEMI) else ChangelogMode.RETRACT
    join = ChangelogJob(ChangelogJoinSpec(left, right, kind, equal, emits=emits), schemas)
    join.send([("+I", (number,)) for number in range(300)])
    join.send([("+I", (number,)) for number in range(200, 500)], 1)
    if mode is ChangelogMode.RETRACT:
        join.send([("-D", (number,)) for number in range(200, 300)], 1)
    join.close()
    assert sum(looked_at) >= 300 * 300
    assert max(looked_at) <= 65_536
    met = range(200, 300) if mode is ChangelogMode.APPEND else []
    pairs = [(number, number) for number in met]
    alone = (
        [(number, None) for number in range(300) if number not in met],
        [(None, number) for number in range(300, 500)],
    )
    wanted: list[Row] = {
        JoinKind.INNER: pairs,
        JoinKind.LEFT: pairs + alone[0],
        JoinKind.RIGHT: pairs + alone[1],
        JoinKind.FULL: pairs + alone[0] + alone[1],
        JoinKind.SEMI: [(number,) for number in met],
        JoinKind.ANTI: [(number,) for number in range(300) if number not in met],
    }[kind]
    assert join.materialised.rows == sorted(wanted, key=repr)
