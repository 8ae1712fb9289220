"""The head of a source: the order of splits, waiting, the end, and closing what was opened."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pytest

from penstock.engine.clock import ManualClock
from penstock.engine.connectors import ConnectorContext, SourceReader, Split, Wait
from penstock.engine.elements import MAX_TIMESTAMP, Element, EndOfInput, Watermark
from penstock.engine.errors import RecordError
from penstock.engine.task.source_head import SourceHead
from tests.engine.helpers import ScriptedSource, numbers, numbers_in


def rows(*values: int) -> pa.RecordBatch:
    return numbers(values).data


class Reading:
    """A source head over scripted splits, and what it gave."""

    def __init__(
        self, splits: Mapping[str, Sequence[pa.RecordBatch | Wait | Exception]], interleaved: bool = False
    ) -> None:
        self.source = ScriptedSource(splits, interleaved)
        self.clock = ManualClock()
        context = ConnectorContext("source", 0, 1, self.clock)
        self.head = SourceHead(self.source, self.source.splits(1), context, 100, 1_000_000)

    def take(self) -> list[Element | Wait]:
        """Everything up to the end or the first wait for a time to come, which then passes."""
        taken: list[Element | Wait] = []
        while (item := self.head.next()) is not None:
            if isinstance(item, Wait):
                if item.until <= self.clock.monotonic():
                    continue
                self.clock.wait_until(item.until)
                return [*taken, item]
            assert item[0] == 0
            taken.append(item[1])
        return taken


LAST_WORDS = [Watermark(MAX_TIMESTAMP), EndOfInput()]


def test_splits_are_read_one_after_another_and_only_one_is_open() -> None:
    reading = Reading({"a": [rows(1), rows(2)], "b": [rows(3)]})
    assert numbers_in(reading.take()) == [1, 2, 3]
    assert reading.source.events == ["open a", "close a", "open b", "close b"]


def test_splits_that_are_left_are_counted() -> None:
    reading = Reading({"a": [rows(1)], "b": [rows(2)], "c": []})
    assert reading.head.statistics().splits == 3
    reading.head.next()
    assert reading.head.statistics().splits == 3
    reading.take()
    assert reading.head.statistics().splits == 0


def test_partitions_of_a_log_are_read_in_turn() -> None:
    reading = Reading({"a": [rows(1), rows(2), rows(3)], "b": [rows(4)], "c": [rows(5), rows(6)]}, interleaved=True)
    assert numbers_in(reading.take()) == [1, 4, 5, 2, 6, 3]
    assert reading.source.events[:3] == ["open a", "open b", "open c"]
    assert sorted(reading.source.events[3:]) == ["close a", "close b", "close c"]


def test_event_time_is_complete_at_the_end_and_the_end_comes_once() -> None:
    reading = Reading({"a": [rows(1)]})
    assert reading.take()[1:] == LAST_WORDS
    assert reading.head.next() is None


def test_a_subtask_without_splits_ends_at_once() -> None:
    assert Reading({}).take() == LAST_WORDS


class Endless(ScriptedSource):
    bounded = False


def test_a_subtask_without_splits_does_not_complete_event_time_of_endless_input() -> None:
    head = SourceHead(Endless({}), [], ConnectorContext("source", 1, 2, ManualClock()), 100, 1_000_000)
    assert [head.next(), head.next()] == [(0, EndOfInput()), None]


def test_a_waiting_reader_says_when_it_may_have_rows() -> None:
    reading = Reading({"a": [rows(1), Wait(5.0), rows(2)]})
    taken = reading.take()
    assert numbers_in(taken[:1]) == [1]
    assert taken[1:] == [Wait(5.0)]
    assert numbers_in(reading.take()[:1]) == [2]


def test_a_waiting_partition_does_not_hold_up_the_others() -> None:
    reading = Reading({"a": [Wait(9.0), rows(1)], "b": [rows(2), rows(3), Wait(12.0), rows(4)]}, interleaved=True)
    taken = reading.take()
    assert numbers_in(taken[:2]) == [2, 3]
    assert taken[2:] == [Wait(9.0)]
    assert numbers_in(reading.take()[:1]) == [1]


def test_if_all_partitions_wait_the_first_to_be_ready_counts() -> None:
    reading = Reading({"a": [Wait(9.0)], "b": [Wait(4.0)]}, interleaved=True)
    assert reading.take() == [Wait(4.0)]


def test_a_batch_without_rows_is_passed_over() -> None:
    reading = Reading({"a": [rows(), rows(1)]})
    assert numbers_in(reading.take()[:1]) == [1]


@pytest.mark.parametrize("nothing", [rows(), Wait(-1.0)])
def test_a_reader_that_always_gives_nothing_leaves_the_task_its_turn(nothing: pa.RecordBatch | Wait) -> None:
    reading = Reading({"a": [nothing] * 9, "b": [nothing] * 9}, interleaved=True)
    assert [reading.head.next() for _ in range(5)] == [Wait(0.0)] * 5


def test_a_partition_that_gave_no_rows_is_asked_again_before_anyone_waits() -> None:
    reading = Reading({"a": [Wait(9.0)], "b": [rows(), rows(1)]}, interleaved=True)
    assert numbers_in(reading.take()[:1]) == [1]


def test_closing_closes_the_readers_that_are_open_once() -> None:
    reading = Reading({"a": [rows(1)], "b": [rows(2)], "c": []}, interleaved=True)
    reading.head.next()
    reading.head.close()
    reading.head.close()
    assert sorted(reading.source.events) == ["close a", "close b", "close c", "open a", "open b", "open c"]


def test_a_reader_is_closed_after_its_error() -> None:
    reading = Reading({"a": [RecordError("row 3 of a.csv: not a number")], "b": []})
    with pytest.raises(RecordError, match=r"row 3 of a\.csv"):
        reading.head.next()
    reading.head.close()
    assert reading.source.events == ["open a", "close a"]


def test_a_reader_that_waits_is_left_alone_until_then_whoever_steps_the_task() -> None:
    reading = Reading({"a": [Wait(5.0), rows(1)]})
    assert reading.head.next() == Wait(5.0)
    assert reading.head.next() == Wait(5.0)
    reading.clock.wait_until(5.0)
    assert numbers_in(reading.take()) == [1]


class TextReader(SourceReader):
    """Texts of `size` bytes, as many as are asked for; remembers how many that was."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.asked: list[int] = []

    def next_batch(self, max_rows: int) -> pa.RecordBatch:
        self.asked.append(max_rows)
        return pa.record_batch({"n": pa.array([b"x" * self.size] * max_rows, pa.binary(self.size))})


class CategoryReader(TextReader):
    """The same, as a dictionary of one text."""

    def next_batch(self, max_rows: int) -> pa.RecordBatch:
        text = super().next_batch(max_rows).column("n")
        return pa.record_batch({"n": text.cast(pa.binary()).dictionary_encode()})


class FailingReader(TextReader):
    """Cannot be closed."""

    closed = 0

    def close(self) -> None:
        self.closed += 1
        raise OSError(f"reader {self.size} is broken")


class ReadBy(ScriptedSource):
    """A source with given readers, one a split."""

    def __init__(self, *readers: TextReader) -> None:
        super().__init__({str(index): [] for index in range(len(readers))}, interleaved=True)
        self.readers = readers

    def open(self, split: Split, context: ConnectorContext) -> SourceReader:
        return self.readers[int(split.split_id)]


def head_of(*readers: TextReader, max_rows: int = 100, max_bytes: int = 10_000) -> SourceHead:
    source = ReadBy(*readers)
    return SourceHead(source, source.splits(1), ConnectorContext("source", 0, 1, ManualClock()), max_rows, max_bytes)


@pytest.mark.parametrize(("size", "rows"), [(1000, 10), (10, 100), (3000, 3), (50_000, 1), (0, 100)])
def test_a_source_is_asked_for_as_many_rows_as_fit_a_batch(size: int, rows: int) -> None:
    reader = TextReader(size)
    head = head_of(reader)
    for _ in range(3):
        head.next()
    assert reader.asked == [9, rows, rows]


def test_the_size_of_a_dictionary_does_not_count_for_each_row() -> None:
    reader = CategoryReader(50_000)
    head = head_of(reader)
    head.next()
    head.next()
    assert reader.asked == [9, 100]


def test_all_readers_are_closed_and_the_first_error_is_raised() -> None:
    readers = [FailingReader(0), FailingReader(1), FailingReader(2)]
    head = head_of(*readers)
    head.next()
    with pytest.raises(OSError, match="reader 1 is broken"):
        head.close()
    assert [reader.closed for reader in readers] == [1, 1, 1]
    head.close()
