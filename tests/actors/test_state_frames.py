"""What one process asks another for its state, and is answered, arrives as it was, whatever the types are."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from penstock.actors.state_frames import (
    packed_answer,
    packed_question,
    rows_frame,
    unpacked_answer,
    unpacked_question,
)
from penstock.engine.errors import StateError
from penstock.engine.state.snapshot import Redistribution
from penstock.savepoints.layout import layout_of
from penstock.savepoints.live_rows import LiveRows, Question, ScanFilter

COLUMNS = {
    "number": pa.array([1, None, 3]),
    "text": pa.array(["a", None, "ccc"]),
    "bytes": pa.array([b"a", None, b"ccc"]),
    "decimal": pa.array([Decimal("1.50"), None, Decimal("3.25")]),
    "time": pa.array([1, None, 3], pa.timestamp("us", "UTC")),
    "truth": pa.array([True, None, False]),
    "dictionary": pa.array(["a", None, "ccc"]).dictionary_encode(),
    "list": pa.array([[1], None, [2, 3]]),
    "dictionaries": pa.array([["a"], None, ["b", "c"]], pa.list_(pa.dictionary(pa.int32(), pa.string()))),
    "nulls": pa.nulls(3),
}


def live(stored: pa.Table) -> LiveRows:
    layout = layout_of("accumulators", Redistribution.KEYED, stored)
    return LiveRows(layout, Redistribution.KEYED, layout.show(stored))


@pytest.mark.parametrize("kind", COLUMNS)
@pytest.mark.parametrize("wanted", [ScanFilter(), ScanFilter({"n": [1, "x"]}, 7)])
def test_keys_of_each_type_arrive(kind: str, wanted: ScanFilter) -> None:
    keys = pa.record_batch({"k": COLUMNS[kind], "other": pa.array([7, 8, 9])})
    attempt, uid, state, question = unpacked_question(packed_question(3, "op", "total", Question(keys, wanted)))
    assert (attempt, uid, state, question.wanted) == (3, "op", "total", wanted)
    assert question.keys is not None
    assert question.keys.equals(keys)


def test_a_question_for_all_keys_arrives() -> None:
    assert unpacked_question(packed_question(3, "op", "total", Question(None)))[3] == Question(None)


@pytest.mark.parametrize("kind", COLUMNS)
def test_rows_of_each_type_arrive_and_each_gets_its_own(kind: str) -> None:
    whole = live(pa.table({"k": [1, 2, 3], "__sum": COLUMNS[kind]}))
    packed = packed_answer(whole)
    for begin, end in [(0, 3), (1, 2), (2, 3), (1, 1)]:
        given: Any = unpacked_answer(rows_frame(begin, end, packed))
        assert (given.layout, given.redistribution) == (whole.layout, Redistribution.KEYED)
        assert given.data.equals(whole.data.slice(begin, end - begin))


@pytest.mark.parametrize("parts", [[], [[1, 2], [3]]])
def test_rows_in_no_part_or_in_several_arrive(parts: list[list[int]]) -> None:
    column = pa.chunked_array(parts, pa.int64())
    whole = live(pa.table({"k": column, "__sum": column}))
    given: Any = unpacked_answer(rows_frame(0, whole.data.num_rows, packed_answer(whole)))
    assert given.data.equals(whole.data)


def test_an_error_and_nothing_arrive() -> None:
    assert unpacked_answer(rows_frame(0, 0, packed_answer(None))) is None
    error = unpacked_answer(rows_frame(0, 0, packed_answer(StateError("it keeps no such thing"))))
    assert (type(error), str(error)) == (StateError, "it keeps no such thing")
