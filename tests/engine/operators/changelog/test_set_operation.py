"""Set operations equal DuckDB's after every batch of either side."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.engine.changelog import ChangelogMode
from penstock.engine.errors import GraphError
from penstock.engine.operators.changelog.set_operation import SetOperation, SetOperationSpec
from tests.draws import drawn
from tests.engine.operators.changelog.jobs import Change, ChangelogJob, Row, Table, changelogs
from tests.engine.operators.changelog.oracle import query

LEFT = pa.schema({"a": pa.int64(), "b": pa.float64()})
RIGHT = pa.schema({"c": pa.int64(), "d": pa.float64()})
ROWS: st.SearchStrategy[Row] = st.tuples(st.sampled_from([1, 2, None]), st.sampled_from([0.0, -0.0, None]))


@pytest.mark.parametrize("operation", list(SetOperation))
@settings(max_examples=drawn(10))
@given(data=st.data())
def test_sets_equal_those_of_duckdb_after_every_batch(operation: SetOperation, data: st.DataObject) -> None:
    check(operation, data, "heap")


@settings(max_examples=4)
@given(data=st.data())
def test_sets_lie_in_rocksdb_as_well(data: st.DataObject) -> None:
    check(SetOperation.EXCEPT_ALL, data, "rocksdb")


def check(operation: SetOperation, data: st.DataObject, backend: str) -> None:
    takes = data.draw(st.sampled_from([ChangelogMode.APPEND, ChangelogMode.RETRACT]))
    sides = [data.draw(changelogs(ROWS, 10, takes is ChangelogMode.RETRACT)) for _ in range(2)]
    order = data.draw(st.permutations([side for side, batches in enumerate(sides) for _ in batches]))
    restart_at = data.draw(st.integers(0, 6))
    stays = takes is ChangelogMode.APPEND and "except" not in operation.value
    emits = ChangelogMode.APPEND if stays else ChangelogMode.RETRACT
    job = ChangelogJob(SetOperationSpec(LEFT, RIGHT, operation, takes, emits), [LEFT, RIGHT], 2, backend)
    tables = (Table(), Table())
    for number, side in enumerate(order):
        if number == restart_at:
            job.restart(3)
        batch: list[Change] = sides[side].pop(0)
        job.send(batch, side)
        tables[side].apply(batch)
        held = {"l": (LEFT, tables[0].rows), "r": (RIGHT, tables[1].rows)}
        wanted = query(f"SELECT a, b FROM l {operation.value} SELECT c, d FROM r", held)
        # Both zeros are one value.
        assert _plain(job.materialised.rows) == _plain(wanted)
    job.close()


def _plain(rows: list[Row]) -> list[Row]:
    return sorted(((a, None if b is None else b + 0.0) for a, b in rows), key=repr)


def test_a_set_operation_that_cannot_be_is_refused() -> None:
    with pytest.raises(GraphError, match=r"except: the left side is \(int64, double\), the right \(int64\); cast"):
        SetOperationSpec(LEFT, pa.schema({"c": pa.int64()}), SetOperation.EXCEPT)
    with pytest.raises(GraphError, match="except all: rows of the result may go again; let it emit retract"):
        SetOperationSpec(LEFT, RIGHT, SetOperation.EXCEPT_ALL, ChangelogMode.APPEND, ChangelogMode.APPEND)
