"""Rows are read in the order of their timestamps, whatever the order they were sent in, and however they were cut."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock.actors.spark.outbox import Outbox
from penstock.actors.spark.parcels import FIRST_TURN, Arrival, Parcel, Phase, unpack
from penstock.actors.spark.time_order import TimeMerger, interleaved
from penstock.engine.elements import Batch, Watermark

_TIMES = st.lists(st.lists(st.integers(-9, 9), max_size=12), min_size=1, max_size=3)


def rows(times: list[int], name: str) -> Batch:
    data = pa.record_batch({"row": [f"{name}{number}" for number in range(len(times))]})
    return Batch(data, pa.array(times, pa.int64()))


def opened(parcel: Parcel) -> Arrival:
    return Arrival(parcel.edge, parcel.phase, parcel.turn, parcel.sender, parcel.sequence, unpack(parcel.rows))


def parcels_of(times: list[int], edge: int, batch_rows: int, held_bytes: int) -> list[Parcel]:
    outbox = Outbox(0, parcel_bytes=30, held_bytes=held_bytes)
    lane = outbox.lane(edge, route=0, is_timed=True)
    whole = rows(times, "abc"[edge])
    for begin in range(0, len(times), batch_rows):
        lane.send((whole.slice(begin, batch_rows), Watermark(5)))
    return [one for one in outbox.finish() if one.phase is Phase.ROWS]


def merged(merger: TimeMerger, inputs: list[list[int]], batch_rows: int, held_bytes: int) -> list[tuple[int, int, str]]:
    """Input, time and name of each row, in the order in which they come out."""
    sent = [one for edge, times in enumerate(inputs) for one in parcels_of(times, edge, batch_rows, held_bytes)]
    came: list[tuple[int, Batch]] = []
    for parcel in sorted(sent, key=lambda one: (one.turn, one.edge, one.sender, one.sequence)):
        came += merger.add(parcel.edge, opened(parcel))
    came += merger.finish()
    return [
        (channel, time, name)
        for channel, batch in came
        for time, name in zip(batch.timestamps.to_pylist(), batch.data["row"].to_pylist(), strict=True)
    ]


def in_order(inputs: list[list[int]]) -> list[tuple[int, int, str]]:
    numbered = [(time, edge, number) for edge, times in enumerate(inputs) for number, time in enumerate(times)]
    return [(edge, time, f"{'abc'[edge]}{number}") for time, edge, number in sorted(numbered)]


_ROWS = st.integers(1, 4)
_HELD = st.sampled_from([1, 60, 10_000])
_RELEASED = st.sampled_from([1, 50, 10_000])


@given(_TIMES, _ROWS, _HELD, _RELEASED)
def test_inputs_are_merged_as_one_sort_of_all_rows_would(
    inputs: list[list[int]], batch_rows: int, held_bytes: int, release_bytes: int
) -> None:
    came = merged(TimeMerger(len(inputs), release_bytes), inputs, batch_rows, held_bytes)
    assert came == in_order(inputs)


@given(_TIMES, _ROWS, _HELD, _RELEASED)
def test_inputs_that_are_not_mixed_are_in_order_each(
    inputs: list[list[int]], batch_rows: int, held_bytes: int, release_bytes: int
) -> None:
    came = merged(TimeMerger(len(inputs), release_bytes, mixes=False), inputs, batch_rows, held_bytes)
    # A stable sort by input: the order within each stays.
    assert sorted(came, key=lambda row: row[0]) == sorted(in_order(inputs), key=lambda row: row[0])


def test_inputs_that_are_not_mixed_are_not_cut() -> None:
    merger = TimeMerger(2, mixes=False)
    for channel, times in enumerate(([1, 3, 5], [2, 4])):
        assert list(merger.add(channel, Arrival(channel, Phase.ROWS, 1, 0, 0, rows(times, "ab"[channel])))) == []
    assert [(channel, batch.num_rows) for channel, batch in merger.finish()] == [(0, 3), (1, 2)]


def test_rows_go_on_before_all_have_come() -> None:
    merger = TimeMerger(1, release_bytes=1)
    assert list(merger.add(0, Arrival(0, Phase.ROWS, 1, 0, 0, rows([1, 5], "a")))) == []
    ((_, first),) = merger.add(0, Arrival(0, Phase.ROWS, 4, 0, 1, rows([4, 6], "b")))
    assert first.timestamps.to_pylist() == [1]


def test_a_single_input_is_not_cut() -> None:
    batch = rows([1, 2, 3], "a")
    assert list(interleaved([(4, batch)])) == [(4, batch)]


def test_rows_without_time_keep_their_order_and_their_turn_is_first() -> None:
    outbox = Outbox(3)
    lane = outbox.lane(0, route=9, is_timed=True)
    data = pa.record_batch({"row": [2, 1]})
    lane.send((Batch(data),))
    (parcel,) = outbox.finish()
    assert (parcel.turn, parcel.route, parcel.sender) == (FIRST_TURN, 9, 3)
    assert unpack(parcel.rows).data == data


def test_rows_for_all_subtasks_go_first_whatever_their_time() -> None:
    outbox = Outbox(0)
    lane = outbox.lane(0, route=0, is_timed=False)
    lane.send((rows([9, 3], "a"),))
    (parcel,) = outbox.finish()
    assert parcel.turn == FIRST_TURN
    assert unpack(parcel.rows).timestamps.to_pylist() == [9, 3]


def test_rows_without_time_do_not_wait_for_others() -> None:
    outbox = Outbox(0, parcel_bytes=100)
    lane = outbox.lane(0, route=0, is_timed=True)
    lane.send((Batch(pa.record_batch({"n": list(range(20))})),))
    assert sum(unpack(parcel.rows).num_rows for parcel in outbox.take()) == 20


def test_what_is_held_is_bounded() -> None:
    outbox = Outbox(0, held_bytes=1_000)
    lanes = [outbox.lane(0, route=number, is_timed=True) for number in range(2)]
    taken = 0
    for number in range(100):
        lanes[number % 2].send((rows([number] * 10, "a"),))
        taken += sum(unpack(parcel.rows).num_rows for parcel in outbox.take())
    assert taken > 900


def dealt(batches: list[Batch]) -> int:
    outbox = Outbox(0)
    lanes = [outbox.lane(0, route=number, is_dealt=True) for number in range(2)]
    for number, batch in enumerate(batches):
        lanes[number % 2].send((batch,))
    outbox.finish()
    return outbox.dealt


def test_a_subtask_that_deals_out_otherwise_is_noticed_by_time_alone() -> None:
    first = [rows([10, 10], "a"), rows([11], "a")]
    assert dealt([rows([10, 10], "a"), rows([11], "a")]) == dealt(first)
    assert dealt([rows([11], "a"), rows([10, 10], "a")]) != dealt(first)
    assert dealt([rows([10, 11], "a"), rows([10], "a")]) != dealt(first)
