"""Final aggregates: one row a key at the end of the input, however rows are cut and state restored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.aggregates import functions as agg
from penstock.engine.aggregates.functions import collect_list, count
from penstock.engine.aggregates.grouped import GroupedAggregation
from penstock.engine.elements import MAX_TIMESTAMP, Batch, WatermarkStatus
from penstock.engine.errors import StateError
from penstock.engine.operators.keyed_aggregates import FinalAggregateSpec
from penstock.engine.state.capture import CaptureRequest, CaptureScope
from penstock.engine.state.snapshot import share
from tests.engine.helpers import RunningOperator, timed
from tests.engine.state.saved import Saved, contents, snapshot_of

TYPES = {"at": pa.int64(), "key": pa.string(), "n": pa.int64()}
AGGREGATION = GroupedAggregation(["key"], {"rows": count(), "total": agg.sum("n"), "all": collect_list("n")})
KeyAndValue = tuple[str, int | None]


class Final(RunningOperator):
    """The operator, by `key`."""

    def __init__(self, is_timed: bool = False) -> None:
        super().__init__(FinalAggregateSpec(AGGREGATION, is_timed).create())

    def rows(self, *rows: KeyAndValue) -> None:
        data = {"key": pa.array([key for key, _ in rows]), "n": pa.array([n for _, n in rows], pa.int64())}
        self.process(Batch(pa.record_batch(data)))


def test_nothing_is_emitted_before_the_end_and_event_time_waits_for_it() -> None:
    final = Final(is_timed=True)
    final.process(timed([{"at": at, "key": key, "n": at} for at, key in ((5, "a"), (9, "b"), (3, "a"))], TYPES))
    final.advance(7)
    assert final.operator.on_watermark_status(WatermarkStatus(idle=True), final.out) is None
    final.process(timed([{"at": 4, "key": "a", "n": 1}], TYPES))
    assert final.out.elements == []
    final.advance(MAX_TIMESTAMP)
    assert sorted(zip([row["key"] for row in final.out.rows], final.out.timestamps, strict=True)) == [
        ("a", 5),
        ("b", 9),
    ]
    assert final.out.rows[0] == {"key": "a", "rows": 3, "total": 9, "all": [5, 3, 1]}
    # Behind the rows.
    assert final.out.elements[-1] is not final.out.batches[-1]
    assert final.out.watermarks == [MAX_TIMESTAMP]


def test_input_that_ends_without_event_time_is_complete_too() -> None:
    final = Final()
    final.rows(("a", 1), ("b", None))
    final.operator.finish(final.out)
    assert final.out.rows == [
        {"key": "a", "rows": 1, "total": 1, "all": [1]},
        {"key": "b", "rows": 1, "total": None, "all": []},
    ]
    assert final.out.timestamps == [None, None]


def test_results_are_given_once() -> None:
    final, saved = Final(), Saved()
    final.rows(("a", 1))
    saved.take(final.operator.capture(CaptureRequest(1, CaptureScope.BASE)))
    final.advance(MAX_TIMESTAMP)
    final.operator.finish(final.out)
    assert len(final.out.rows) == 1
    # Whoever resumes from behind them does not give them again.
    saved.take(final.operator.capture(CaptureRequest(2, CaptureScope.CHANGES)))
    restored = Final()
    restored.operator.restore(saved.snapshot())
    restored.advance(MAX_TIMESTAMP)
    assert restored.out.rows == []


def test_results_come_in_batches_of_the_usual_size() -> None:
    final = Final(is_timed=True)
    most = final.operator._context.config.max_batch_rows
    keys = [str(number) for number in range(most + 1)]
    final.process(timed([{"at": 5, "key": key, "n": 1} for key in keys], TYPES))
    final.advance(MAX_TIMESTAMP)
    assert [batch.num_rows for batch in final.out.batches] == [most, 1]


def test_state_of_rows_with_event_time_is_not_restored_without() -> None:
    final = Final(is_timed=True)
    final.process(timed([{"at": 5, "key": "a", "n": 1}], TYPES))
    with pytest.raises(StateError, match=r"'tested', .* was saved with the accumulators .*__latest time"):
        Final().operator.restore(snapshot_of(final.operator))


@given(
    st.lists(st.tuples(st.sampled_from("abcd"), st.none() | st.integers(-9, 9)), max_size=30),
    st.lists(st.integers(0, 30), max_size=6),
    st.integers(1, 3),
)
def test_each_key_has_its_value_however_rows_are_cut_and_restored(
    rows: Sequence[KeyAndValue], cuts: Sequence[int], parallelism: int
) -> None:
    final, saved = Final(), Saved()
    for begin, end in zip([0, *sorted(cuts)], [*sorted(cuts), len(rows)], strict=True):
        if rows[begin:end]:
            final.rows(*rows[begin:end])
        saved.take(final.operator.capture(CaptureRequest(1, CaptureScope.CHANGES)))
    assert contents(saved.snapshot()) == contents(snapshot_of(final.operator))
    got: list[dict[str, Any]] = []
    for subtask in range(parallelism):
        restored = Final()
        restored.operator.restore(share([saved.snapshot()], subtask, parallelism, 128))
        restored.advance(MAX_TIMESTAMP)
        got += restored.out.rows
    expected = []
    for key in sorted({key for key, _ in rows}):
        every = [n for k, n in rows if k == key]
        values = [n for n in every if n is not None]
        expected.append({"key": key, "rows": len(every), "total": sum(values) if values else None, "all": values})
    assert sorted(got, key=lambda row: row["key"]) == expected
