"""How much joins emit at once: bounded by bytes, whatever the number of rows, and the results the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.engine.elements import MAX_TIMESTAMP, Batch
from penstock.engine.operators.base import Operator
from penstock.engine.operators.join_columns import LEFT, RIGHT, JoinColumns, JoinSide
from penstock.engine.operators.joins import join_buffers
from penstock.engine.operators.joins.interval_join import IntervalJoinSpec
from penstock.engine.operators.joins.join_buffers import KeySegment, KeySegments, TimeSegments, expired, parts
from penstock.engine.operators.joins.lookup_join import LookupJoinSpec
from penstock.engine.operators.joins.lookup_tables import ArrowTable
from penstock.engine.operators.joins.row_bytes import row_bytes, widest_row_bytes
from penstock.engine.operators.joins.temporal_join import TemporalJoinSpec
from penstock.engine.operators.joins.window_join import BOUNDS, WindowJoinSpec
from penstock.engine.windows.assigners import AlignedWindows, SessionWindows
from tests.engine.operators.joins.join_jobs import JoinJob

TYPES = (pa.schema({"k": pa.int64(), "text": pa.string()}), pa.schema({"k": pa.int64(), "more": pa.string()}))
SIDES = (JoinSide(("k",), TYPES[LEFT]), JoinSide(("k",), TYPES[RIGHT]))
BETWEEN = JoinColumns(*SIDES, between=BOUNDS)
SMALL = 20_000

TABLE = ArrowTable(pa.table({"k": [1] * 30, "more": ["x" * 5000, *["y"] * 29]}, TYPES[RIGHT]), "k")
JOINS: dict[str, Callable[[], Operator]] = {
    "window": WindowJoinSpec(AlignedWindows(10, 10), BETWEEN, "full"),
    "session": WindowJoinSpec(SessionWindows(10), BETWEEN, "full"),
    "sliding": WindowJoinSpec(AlignedWindows(10, 2), BETWEEN, "full"),
    "interval": IntervalJoinSpec(JoinColumns(*SIDES), -9, 9),
    "temporal": TemporalJoinSpec(JoinColumns(*SIDES), "left"),
    "lookup": LookupJoinSpec(TABLE, JoinColumns(*SIDES), "left"),
}


def _rows(side: int, keys: list[int], texts: list[str]) -> Batch:
    data = pa.record_batch([pa.array(keys), pa.array(texts)], schema=TYPES[side])
    return Batch(data, pa.array(np.arange(len(keys)) % 4 + (side == LEFT)))


def _run(spec: Callable[[], Operator], right: bool) -> list[Batch]:
    join = JoinJob(spec, (("k",), ("k",)))
    if right:
        join.send(RIGHT, _rows(RIGHT, [1] * 8 + [3] * 9, ["z" * 3000, *["v"] * 7, *["w" * 4000] * 9]))
    join.send(LEFT, _rows(LEFT, [1] * 12 + [2] * 9, ["x" * 5000, *["y"] * 11, *["u" * 4000] * 9]))
    join.advance(MAX_TIMESTAMP)
    return join.out.batches


@pytest.mark.parametrize("name", JOINS)
def test_long_texts_are_emitted_in_batches_of_bounded_size(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = _run(JOINS[name], right=name != "lookup")
    monkeypatch.setattr(join_buffers, "EMIT_BYTES", SMALL)
    batches = _run(JOINS[name], right=name != "lookup")
    rows = [row for batch in batches for row in batch.data.to_pylist()]
    assert sorted(rows, key=repr) == sorted((row for batch in whole for row in batch.data.to_pylist()), key=repr)
    assert [at for b in batches for at in b.timestamps.to_pylist()] == [  # type: ignore[union-attr]
        at
        for b in whole
        for at in b.timestamps.to_pylist()  # type: ignore[union-attr]
    ]
    assert max(batch.nbytes for batch in whole) > 2 * SMALL
    assert max(batch.nbytes for batch in batches) < 1.5 * SMALL


def test_a_result_that_is_too_large_by_itself_is_emitted_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(join_buffers, "EMIT_BYTES", 100)
    texts = pa.record_batch({"text": ["x" * 500, "y", "z", "w" * 500]})
    assert list(parts((texts, np.array([0, 0, 1, 2, 3, 1])))) == [
        slice(0, 1),
        slice(1, 2),
        slice(2, 4),
        slice(4, 5),
        slice(5, 6),
    ]
    assert list(parts((texts, np.empty(0, np.int64)))) == [slice(0, 0)]


def test_long_texts_are_not_merged_into_batches_that_arrow_cannot_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(join_buffers, "_MERGED_BYTES", SMALL)
    by_time, by_key = TimeSegments(), KeySegments(expired)
    for n in range(40):
        rows = pa.record_batch({"text": ["x" * 3000]})
        by_time.append(rows, np.array([n]))
        by_key.append(KeySegment.sort(rows, np.array([1]), np.array([n])))
    for segments in (by_time, by_key):
        sizes = [segment.rows.nbytes for segment in segments]  # type: ignore[attr-defined]
        assert sum(sizes) > 100_000
        assert SMALL / 4 < max(sizes) <= SMALL


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (pa.array([1, None, 3], pa.int32()), [4, 4, 4]),
        (pa.array([True, False, None]), [1, 1, 1]),
        (pa.array(["", "abc", None]), [4, 7, 4]),
        (pa.array([b"ab", b"", None], pa.large_binary()), [10, 8, 8]),
        (pa.array([["a", "bcd"], [], None]), [16, 4, 4]),
        (pa.array([[1, 2], [3, 4], [5, 6]], pa.list_(pa.int64(), 2)), [16, 16, 16]),
        (pa.array([{"n": 1, "s": "xyz"}, {"n": 2, "s": ""}, None]), [15, 12, 12]),
        (pa.array([[("a", 1)], [("b", 2), ("ccc", 3)], []], pa.map_(pa.string(), pa.int64())), [17, 32, 4]),
    ],
)
def test_bytes_of_rows(values: Any, expected: list[int]) -> None:
    for first in range(3):
        rows = pa.record_batch({"values": pa.concat_arrays([values, values]).slice(first, 3)})
        wanted = [*expected, *expected][first : first + 3]
        assert row_bytes(rows, np.array([2, 0, 1, 0])).tolist() == [wanted[i] for i in (2, 0, 1, 0)]
        assert widest_row_bytes(rows) == max(wanted)
    assert widest_row_bytes(rows.slice(0, 0)) == 0
    assert row_bytes(rows.slice(0, 0), np.empty(0, np.int64)).tolist() == []
