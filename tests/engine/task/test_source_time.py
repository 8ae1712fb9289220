"""Event time in a source: the minimum over its splits, idleness, and what holds it back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.clock import ManualClock
from penstock.engine.connectors import ConnectorContext, SourceReader, Split, Wait
from penstock.engine.elements import (
    MAX_TIMESTAMP,
    MIN_TIMESTAMP,
    Batch,
    Element,
    EndOfInput,
    Watermark,
    WatermarkStatus,
)
from penstock.engine.operators.base import OperatorContext
from penstock.engine.state.snapshot import OperatorSnapshot, Redistribution, StateTable
from penstock.engine.task.alignment import AlignmentMember
from penstock.engine.task.source_head import SPLITS_TABLE, SourceHead
from penstock.engine.task.source_time import TimedSplits
from penstock.engine.windows.watermarks import WatermarkGenerator, WatermarkOutput, WatermarkStrategy
from tests.engine.helpers import RecordingCollector, ScriptedSource, numbers

ACTIVE, IDLE = WatermarkStatus(False), WatermarkStatus(True)
LAST_WORDS = [Watermark(MAX_TIMESTAMP), EndOfInput()]
IN_ORDER = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner("n")

Script = Mapping[str, Sequence[pa.RecordBatch | Wait | Exception]]


def rows(*times: int) -> pa.RecordBatch:
    return numbers(times).data


class _Rewindable(ScriptedSource):
    """What a test gives it is what comes behind the position."""

    def open_at(self, split: Split, position: Any, context: ConnectorContext) -> SourceReader:
        return self.open(split, context)


class Reading:
    """A source head over scripted splits whose column `n` is event time."""

    def __init__(
        self,
        splits: Script,
        strategy: WatermarkStrategy = IN_ORDER,
        interleaved: bool = True,
        member: AlignmentMember | None = None,
    ) -> None:
        self.source, self.clock, self.member = _Rewindable(splits, interleaved), ManualClock(), member
        context = OperatorContext("source", 0, 1, self.clock)
        self.head = SourceHead(
            self.source,
            self.source.splits(1),
            ConnectorContext("source", 0, 1, self.clock),
            100,
            1_000_000,
            lambda out: TimedSplits(strategy, context, out, member),
        )

    def take(self) -> list[Any]:
        """What comes before a time to come, which then passes, or before there is nothing: rows as lists of times."""
        taken: list[Any] = []
        while (item := self.head.next()) is not None:
            if isinstance(item, Wait):
                if item.until <= self.clock.monotonic():
                    continue
                self.clock.wait_until(item.until)
                break
            taken.append(shown(item[1]))
        return taken


def shown(element: Element) -> Any:
    if not isinstance(element, Batch):
        return element
    assert element.timestamps is not None
    assert element.timestamps.to_pylist() == element.data.column("n").to_pylist()
    return element.timestamps.to_pylist()


# The minimum over splits


def test_the_subtask_is_as_far_as_its_slowest_partition() -> None:
    reading = Reading({"a": [rows(100), rows(200)], "b": [rows(10), rows(20)]})
    assert reading.take() == [[100], [10], Watermark(9), [200], [20], Watermark(19), *LAST_WORDS]


def test_a_resumed_partition_is_as_far_as_it_was_though_no_row_comes() -> None:
    forever = Wait(1e9)
    before = Reading({"a": [rows(100), forever], "b": [rows(10), forever]})
    assert before.take()[-1] == Watermark(9)
    table = before.head.capture().tables[SPLITS_TABLE].rows()
    assert dict(zip(table["split_id"].to_pylist(), table["watermark"].to_pylist(), strict=True)) == {"a": 99, "b": 9}
    after = Reading({"a": [forever], "b": [rows(50), forever]})
    after.head.restore(OperatorSnapshot({SPLITS_TABLE: StateTable(Redistribution.UNION, table)}))
    assert after.take() == [Watermark(9), [50], Watermark(49)], "'a' has had its rows"


def test_time_by_the_clock_begins_anew_with_its_clock() -> None:
    reading = Reading({"a": [rows(100), Wait(1e9)]}, WatermarkStrategy.for_ingestion_time())
    while not isinstance(item := reading.head.next(), Wait):
        assert item is not None
    assert reading.head.capture().tables[SPLITS_TABLE].rows()["watermark"].to_pylist() == [None]


def test_a_checkpoint_of_a_version_without_watermarks_of_splits_is_resumed() -> None:
    saved = pa.table({"split_id": ["a"], "position": ["1"], "finished": [False]})
    reading = Reading({"a": [rows(50)]})
    reading.head.restore(OperatorSnapshot({SPLITS_TABLE: StateTable(Redistribution.UNION, saved)}))
    assert reading.take() == [[50], Watermark(49), *LAST_WORDS]


def test_the_splits_that_hold_it_back_are_named() -> None:
    forever = Wait(1e9)
    partitions = Reading({"a": [rows(100), forever], "b": [forever], "c": [forever]}, IN_ORDER.with_idleness("60s"))
    assert partitions.take() == [[100]]
    assert partitions.head.statistics().slowest == ("b", "c")
    assert partitions.head.statistics().behind_ms == 0, "those that have no event time yet are behind by none"
    reading = [partitions.take() for _ in range(9)]
    assert [WatermarkStatus(True)] in reading
    assert partitions.head.statistics().slowest == (), "whoever is idle holds nothing back"
    files = Reading({"a": [rows(100), forever], "b": [rows(10)]}, interleaved=False)
    files.take()
    assert files.head.statistics().slowest == ("b",), "the file that was not opened yet"


def test_how_far_a_partition_is_behind_the_others_is_told() -> None:
    forever = Wait(1e9)
    apart = Reading({"a": [rows(100), forever], "b": [rows(10), forever], "c": [rows(40), forever]})
    assert len(apart.take()) >= 3
    told = apart.head.statistics()
    assert (told.slowest, told.behind_ms) == (("b",), 90)


def test_partitions_that_are_far_apart_make_no_row_late() -> None:
    together = Reading({"a": [rows(1_000_000), rows(1_000_001)], "b": [rows(1), rows(2)]})
    watermark = MIN_TIMESTAMP
    for element in together.take():
        if isinstance(element, Watermark):
            watermark = element.timestamp
        elif isinstance(element, list):
            assert min(element) > watermark


def test_files_read_one_after_another_have_no_watermark_before_the_last_one() -> None:
    """Whatever is in the files: Flink has the rows of the second one late."""
    reading = Reading({"a": [rows(100), rows(200)], "b": [rows(10), rows(20)]}, interleaved=False)
    assert reading.take() == [[100], [200], [10], Watermark(9), [20], Watermark(19), *LAST_WORDS]


def test_event_time_is_known_at_the_end_although_the_last_file_has_no_rows() -> None:
    reading = Reading({"a": [rows(100), rows(200)], "b": [rows(10), rows(20)], "c": []}, interleaved=False)
    assert reading.take() == [[100], [200], [10], [20], Watermark(19), *LAST_WORDS]


def test_files_by_the_clock_wait_for_none_of_them() -> None:
    files = {"a": [rows(1), Wait(3.0), rows(2)], "b": [rows(3)]}
    reading = Reading(files, WatermarkStrategy.for_ingestion_time(), interleaved=False)
    watermarks: list[int] = []
    while (item := reading.head.next()) is not None:
        if isinstance(item, Wait):
            reading.clock.wait_until(item.until)
        elif isinstance(item[1], Watermark):
            watermarks.append(item[1].timestamp)
    assert watermarks[-2:] == [2999, MAX_TIMESTAMP]
    assert [round(watermark, -2) for watermark in watermarks[:-1]] == list(range(0, 3001, 200))


def test_a_subtask_without_splits_ends_at_once() -> None:
    assert Reading({}).take() == LAST_WORDS


def test_a_batch_is_cut_at_the_watermarks_of_its_rows() -> None:
    strategy = WatermarkStrategy.for_punctuated(lambda row, at: at if at % 10 == 0 else None)
    reading = Reading({"a": [rows(1, 10, 2, 20)]}, strategy.with_timestamp_assigner(lambda row: row["n"]))
    assert reading.take() == [[1, 10], Watermark(10), [2, 20], Watermark(20), *LAST_WORDS]


# Idleness


def test_a_quiet_partition_holds_nobody_back_after_its_timeout_until_it_has_rows() -> None:
    reading = Reading(
        {"a": [rows(5), Wait(30.0), rows(8)], "b": [rows(100), Wait(40.0), rows(200)]}, IN_ORDER.with_idleness("10s")
    )
    assert reading.take() == [[5], [100], Watermark(4)]
    assert reading.clock.monotonic() == 10
    assert reading.take() == [IDLE]
    assert reading.clock.monotonic() == 30
    assert reading.take() == [ACTIVE, [8], Watermark(7), IDLE]


def test_one_quiet_partition_among_busy_ones_becomes_idle() -> None:
    reading = Reading(
        {"a": [Wait(100.0), rows(3)], "b": [rows(50), Wait(6.0), rows(60), Wait(12.0), rows(70)]},
        IN_ORDER.with_idleness("10s"),
    )
    assert reading.take() == [[50]]
    assert reading.clock.monotonic() == 6
    assert reading.take() == [[60]]
    assert reading.clock.monotonic() == 10
    assert reading.take() == [Watermark(59)]
    assert reading.clock.monotonic() == 12
    assert reading.take()[:2] == [[70], Watermark(69)]


def test_a_reader_is_asked_before_it_is_called_idle() -> None:
    """Between the steps of a subtask held up by backpressure, what waits for the reader has grown old."""
    reading = Reading({"a": [rows(5), Wait(1.0), rows(6), Wait(500.0)]}, IN_ORDER.with_idleness("10s"))
    assert reading.take() == [[5], Watermark(4)]
    reading.clock.advance(60)
    assert reading.take() == [[6], Watermark(5)]
    assert reading.take() == [IDLE]


def test_a_reader_that_gives_empty_batches_is_quiet_too() -> None:
    reading = Reading({"a": [rows(5), *[rows()] * 50]}, IN_ORDER.with_idleness("1s"))
    assert reading.head.next() is not None
    reader = reading.head._open[0].reader
    ask = reader.next_batch

    def slowly(max_rows: int) -> pa.RecordBatch | Wait | None:
        reading.clock.advance(0.3)
        return ask(max_rows)

    reader.next_batch = slowly  # type: ignore[method-assign]
    assert reading.take() == [Watermark(4), IDLE, ACTIVE, *LAST_WORDS]


class Counting(WatermarkGenerator):
    """Emits how often it was asked."""

    def __init__(self) -> None:
        self.asked = 0

    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        self.asked += 1
        output.emit_watermark(self.asked)


def test_periodic_generators_are_asked_while_readers_wait() -> None:
    strategy = WatermarkStrategy.for_generator(Counting).with_timestamp_assigner("n")
    reading = Reading({"a": [rows(5), Wait(0.5), rows(6)], "b": [Wait(0.5)]}, strategy)
    assert reading.take() == [[5]]
    assert [reading.clock.monotonic(), reading.take()] == [0.2, [Watermark(1)]]
    assert [reading.clock.monotonic(), reading.take()] == [0.4, [Watermark(2)]]
    assert [reading.clock.monotonic(), reading.take()] == [0.5, [Watermark(3), [6], Watermark(4), *LAST_WORDS]]


@dataclass
class _SplitModel:
    times: list[int] = field(default_factory=list)
    idle: bool = False
    ended: bool = False


STEPS = st.lists(
    st.tuples(
        st.integers(0, 2), st.one_of(st.lists(st.integers(0, 50), min_size=1, max_size=3), st.sampled_from("ie"))
    ),
    max_size=25,
)


@given(STEPS, st.integers(0, 5), st.integers(1, 3))
def test_the_watermark_is_the_minimum_over_active_splits(
    steps: list[tuple[int, list[int] | str]], delay: int, splits: int
) -> None:
    """Against a model computed from scratch: rows, idleness (i) and ends (e) of splits in any order."""
    out, clock = RecordingCollector(), ManualClock()
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(f"{delay}ms").with_timestamp_assigner("n")
    times = TimedSplits(strategy.with_idleness("1s"), OperatorContext("source", 0, 1, clock), out)
    opened = [times.open_split() for _ in range(splits)]
    models = [_SplitModel() for _ in range(splits)]
    emitted, idle = MIN_TIMESTAMP, False
    for index, step in steps:
        index %= splits
        model, split = models[index], opened[index]
        if model.ended:
            continue
        if step == "i":
            split.nothing(clock.monotonic(), clock.monotonic() + 9)
            clock.advance(1)
            split.nothing(clock.monotonic(), clock.monotonic() + 9)
            times.tick(clock.monotonic())
            model.idle = True
        elif step == "e":
            split.end()
            model.ended = True
        else:
            assert isinstance(step, list)
            split.rows(rows(*step))
            model.times += step
            model.idle = False
        alive = [m for m in models if not m.ended]
        active = [max(m.times) - delay - 1 if m.times else MIN_TIMESTAMP for m in alive if not m.idle]
        emitted = max(emitted, min(active, default=emitted))
        if not alive and emitted == MIN_TIMESTAMP:
            emitted = min((max(m.times) - delay - 1 for m in models if m.times), default=emitted)
        if alive:
            idle = not active
        assert max(out.watermarks, default=MIN_TIMESTAMP) == emitted
        statuses = [element.idle for element in out.elements if isinstance(element, WatermarkStatus)]
        assert [not status for status in statuses[1:]] == statuses[:-1]
        if alive:
            assert (statuses[-1] if statuses else False) == idle
    assert out.watermarks == sorted(set(out.watermarks))


# Alignment


def test_a_partition_ahead_of_the_others_is_not_read_until_they_catch_up() -> None:
    reading = Reading(
        {"a": [rows(t) for t in range(0, 100, 20)], "b": [Wait(5.0), rows(1), Wait(9.0), rows(45), rows(300)]},
        member=AlignmentMember(30, minimum=MAX_TIMESTAMP),
    )
    assert reading.take() == [[0]]
    assert reading.clock.monotonic() == 5
    # Partition b is at 0: partition a may come to 30, and a batch further.
    assert reading.take() == [[1], Watermark(-1), [20], Watermark(0), [40]]
    assert reading.clock.monotonic() == 9
    assert reading.take() == [
        [45], Watermark(39), [60], Watermark(44), [300], Watermark(59), [80], Watermark(79), Watermark(299), *LAST_WORDS
    ]  # fmt: skip


def test_a_subtask_tells_how_far_it_is_and_waits_for_its_group() -> None:
    member = AlignmentMember(10)
    assert member.position is None
    reading = Reading({"a": [rows(0), rows(20), rows(30)]}, member=member)
    assert member.position == MIN_TIMESTAMP
    assert reading.take() == [[0], Watermark(-1)]
    assert member.position == -1
    member.minimum = -1
    assert reading.take() == [[20], Watermark(19)]
    assert reading.take() == []
    member.minimum = 9
    assert reading.take() == [[30], Watermark(29)]
    member.minimum = 19
    assert reading.take() == LAST_WORDS
    assert member.position is None


def test_a_paused_partition_does_not_become_idle() -> None:
    member = AlignmentMember(10)
    reading = Reading({"a": [rows(0), Wait(3.0), rows(50), Wait(100.0)]}, IN_ORDER.with_idleness("5s"), member=member)
    member.minimum = 0
    assert reading.take() == [[0], Watermark(-1)]
    assert reading.take() == [[50], Watermark(49)]
    reading.clock.advance(50)
    assert reading.take() == []
    member.minimum = 45
    assert reading.take() == []
    assert reading.clock.monotonic() == 58
    assert reading.take() == [IDLE]
    assert member.position is None


def test_the_time_of_a_pause_does_not_count_for_idleness() -> None:
    member = AlignmentMember(10, minimum=MAX_TIMESTAMP)
    reading = Reading({"a": [rows(50), Wait(100.0)]}, IN_ORDER.with_idleness("5s"), member=member)
    assert reading.head.next() is not None
    assert reading.take() == [Watermark(49)]
    # A partition elsewhere has become active again, and is far behind.
    member.minimum = 0
    reading.clock.advance(50)
    assert reading.take() == []
    member.minimum = MAX_TIMESTAMP
    before = reading.clock.monotonic()
    assert reading.take() == []
    assert reading.clock.monotonic() == before + 5
    assert reading.take() == [IDLE]


def test_files_take_part_as_far_as_the_one_that_is_read() -> None:
    member = AlignmentMember(10, minimum=MAX_TIMESTAMP)
    reading = Reading({"a": [rows(100), Wait(1.0)], "b": [rows(5), Wait(2.0)]}, interleaved=False, member=member)
    assert reading.take() == [[100]]
    assert member.position == 99
    assert reading.take() == [[5], Watermark(4)]
    assert member.position == 4
