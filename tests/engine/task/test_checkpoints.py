"""What one subtask does in checkpoints: what it captures, when it hands that over, and how it resumes from it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from penstock.engine.checkpointing.restored import RestoredTask, share_in_flight
from penstock.engine.checkpointing.task_capture import TaskCapture, in_flight_key, in_flight_origin
from penstock.engine.clock import ManualClock
from penstock.engine.connectors import ConnectorContext
from penstock.engine.elements import (
    MAX_TIMESTAMP,
    Barrier,
    Batch,
    CheckpointMode,
    Element,
    EndOfInput,
    SnapshotKind,
    Watermark,
)
from penstock.engine.errors import RestoreError
from penstock.engine.exchange.outputs import BatchLimits, ChannelBuffer, Message
from penstock.engine.exchange.partitioners import Hash, SplitterContext
from penstock.engine.metrics import SubtaskMetrics
from penstock.engine.operators.base import Collector, Operator, OperatorContext
from penstock.engine.state.capture import CaptureRequest, CaptureScope, OperatorCapture, TableCapture
from penstock.engine.state.snapshot import OperatorSnapshot, Redistribution, StateTable
from penstock.engine.task.chain import ChainLink
from penstock.engine.task.checkpoints import TaskInfo
from penstock.engine.task.input_gate import InputGate
from penstock.engine.task.loop import Blocked, Finished, Head, Idle, Progress, Task
from penstock.engine.task.pace import Pace
from penstock.engine.task.router import Router, RouterEdge
from penstock.engine.task.source_head import SourceHead
from tests.engine.helpers import RecordingChannel, numbers, numbers_in
from tests.engine.task.rewindable import RewindableSource

END = EndOfInput()
LAST = Watermark(MAX_TIMESTAMP)
UNALIGNED = Barrier(1, CheckpointMode.UNALIGNED)


class Summing(Operator):
    """Keeps the sum of what it has seen, and emits it at the end."""

    def __init__(self) -> None:
        self.sum = 0
        self.requests: list[CaptureRequest] = []
        self.completed: list[int] = []
        self.timers = 0
        self.finished = 0

    def process_batch(self, batch: Batch, input_index: int, out: Collector) -> None:
        self.sum += sum(numbers_in([batch]))
        out.collect(batch)

    @property
    def next_processing_time(self) -> int | None:
        return self.due

    due: int | None = None

    def on_processing_time(self, now_ms: int, out: Collector) -> None:
        self.timers += 1

    def capture(self, request: CaptureRequest) -> OperatorCapture:
        self.requests.append(request)
        table = pa.table({"sum": [self.sum]})
        return OperatorCapture({"sum": TableCapture(Redistribution.SPLIT, lambda: table)}, watermark=5)

    def restore(self, snapshot: OperatorSnapshot) -> None:
        self.sum = snapshot.tables["sum"].data.column("sum")[0].as_py()

    def on_checkpoint_complete(self, checkpoint: int) -> None:
        self.completed.append(checkpoint)

    def finish(self, out: Collector) -> None:
        self.finished += 1


class Channel(RecordingChannel):
    """Lets barriers through without credit, as channels do."""

    def send(self, message: Message) -> None:
        alone = len(message) == 1 and isinstance(message[0], Barrier)
        assert self.credits > 0 or alone, "sent without credit"
        self.credits -= 1
        self.sent.append(message)


class Running:
    """A task with one operator, fed by a gate of two channels or by a source, and one output channel."""

    def __init__(self, source: RewindableSource | None = None, credit: int = 100, **info: Any) -> None:
        self.clock = ManualClock()
        self.channel = Channel(credit)
        self.operator = Summing()
        self.gate = InputGate([0, 0])
        self.gate.let_overtake([0, 1])
        buffer = ChannelBuffer(self.channel, BatchLimits(1000, 1_000_000, 0.0))
        splitter = Hash(("n",)).splitter(SplitterContext("next", 1, 0, 128))
        edge = RouterEdge(splitter, [buffer], self.clock, "summing->next", overtakable=True)
        link = ChainLink(self.operator, OperatorContext("summing", 3, 4, self.clock), edge)
        self.source: SourceHead | None = None
        if source is not None:
            context = ConnectorContext("source", 3, 4, self.clock)
            self.source = SourceHead(source, source.splits(1), context, 2, 1_000_000)
            info["source"] = ("uid of source", "source")
        pace = Pace(0.0, 1000 if source is None else 2)
        told = TaskInfo(7, 3, 4, [("uid of summing", "summing")], channels=("a->summing@0", "a->summing@1"), **info)
        head: Head = self.gate if self.source is None else self.source
        metrics = SubtaskMetrics(7, 3)
        gate = self.gate if self.source is None else None
        self.task = Task(head, link, [link], Router([edge]), self.clock, metrics, told, pace, self.source, gate)

    def put(self, channel: int, *elements: Element) -> None:
        for element in elements:
            self.gate.put(channel, (element,), lambda: None)

    def step(self) -> list[TaskCapture]:
        """Step until nothing can be done; returns what was captured."""
        captures: list[TaskCapture] = []
        while isinstance(self.task.step(), Progress):
            captures += self.task.take_captures()
        return captures + self.task.take_captures()

    @property
    def sent(self) -> list[Element]:
        return self.channel.elements


def sum_of(capture: TaskCapture) -> int:
    uid, name, operator = capture.operators[-1]
    assert (uid, name) == ("uid of summing", "summing")
    value: int = operator.tables["sum"].rows().column("sum")[0].as_py()
    return value


def splits_of(capture: TaskCapture) -> list[dict[str, Any]]:
    uid, _, operator = capture.operators[0]
    assert uid == "uid of source"
    assert operator.tables["splits"].redistribution is Redistribution.UNION
    rows: list[dict[str, Any]] = operator.tables["splits"].rows().to_pylist()
    return rows


def in_flight_of(capture: TaskCapture) -> dict[str, list[int]]:
    return {key: numbers_in(rows) for key, rows in capture.in_flight.items() if rows}


def test_a_capture_holds_what_came_before_the_barriers_and_nothing_that_came_behind() -> None:
    running = Running()
    running.put(0, numbers([1]), Barrier(1), numbers([100]))
    running.put(1, numbers([2]))
    assert running.step() == []
    running.put(1, numbers([3]), Barrier(1), numbers([200]))
    (capture,) = running.step()
    assert sum_of(capture) == 6
    assert running.operator.sum == 306
    assert (capture.task, capture.subtask, capture.parallelism) == (7, 3, 4)
    place = running.sent.index(Barrier(1))
    assert sorted(numbers_in(running.sent[:place])) == [1, 2, 3]


def test_a_blocked_channel_gets_no_credit_back() -> None:
    running, released = Running(), list[str]()
    running.put(0, Barrier(1))
    running.gate.put(0, (numbers([1]),), lambda: released.append("behind the barrier"))
    running.step()
    assert released == []
    running.put(1, Barrier(1))
    running.step()
    assert released == ["behind the barrier"]


def test_an_aborted_checkpoint_blocks_nothing() -> None:
    running = Running()
    running.put(0, Barrier(1), numbers([1]))
    running.step()
    running.task.abort(1)
    assert running.step() == []
    assert running.operator.sum == 1


def test_it_is_said_how_long_the_barriers_were_apart() -> None:
    running = Running()
    running.put(0, Barrier(1))
    running.step()
    running.clock.advance(0.25)
    running.put(1, Barrier(1))
    assert running.step()[0].alignment_ms == 250


@pytest.mark.parametrize(("before_ms", "delay_ms"), [(400, 400), (-50, 0)])
def test_it_is_said_how_long_the_first_barrier_was_on_its_way(before_ms: int, delay_ms: int) -> None:
    running = Running()
    # A clock of another machine may be ahead.
    barrier = Barrier(1, triggered_ms=running.clock.now_ms() - before_ms)
    running.put(0, barrier)
    running.step()
    running.clock.advance(0.25)
    running.put(1, barrier)
    (capture,) = running.step()
    assert capture.start_delay_ms == pytest.approx(max(0, delay_ms))
    assert running.task.metrics.start_delay_ms == capture.start_delay_ms


def test_the_first_capture_is_the_base_and_later_ones_are_changes() -> None:
    running = Running()
    kinds = [SnapshotKind.CHECKPOINT, SnapshotKind.CHECKPOINT, SnapshotKind.SAVEPOINT, SnapshotKind.CHECKPOINT]
    for number, kind in enumerate(kinds, start=1):
        running.put(0, Barrier(number, kind=kind))
        running.put(1, Barrier(number, kind=kind))
        running.step()
    scopes = [request.scope for request in running.operator.requests]
    assert scopes == [CaptureScope.BASE, CaptureScope.CHANGES, CaptureScope.COMPLETE, CaptureScope.CHANGES]
    assert [request.checkpoint for request in running.operator.requests] == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("incremental", "tracked", "scopes"),
    [
        (True, True, [CaptureScope.CHANGES, CaptureScope.CHANGES]),
        (True, False, [CaptureScope.BASE, CaptureScope.CHANGES]),
        (False, True, [CaptureScope.BASE, CaptureScope.BASE]),
    ],
)
def test_what_the_writer_knows_need_not_be_captured_again(
    incremental: bool, tracked: bool, scopes: Sequence[CaptureScope]
) -> None:
    running = Running(incremental=incremental)
    running.task.open(RestoredTask(tracked=tracked))
    for number in (1, 2):
        running.put(0, Barrier(number))
        running.put(1, Barrier(number))
        running.step()
    assert [request.scope for request in running.operator.requests] == scopes


def test_operators_are_told_what_is_complete() -> None:
    running = Running()
    running.task.complete(4)
    assert running.operator.completed == [4]


# Unaligned


def test_an_unaligned_barrier_overtakes_rows_that_came_and_rows_that_wait_to_be_sent() -> None:
    running = Running(credit=0)
    running.put(0, numbers([1]))
    running.step()
    running.put(0, numbers([2]), UNALIGNED, numbers([100]))
    running.put(1, numbers([3]), UNALIGNED)
    running.channel.credits = -1
    (capture,) = [
        capture
        for _ in range(3)
        if running.task.step() and (taken := running.task.take_captures())
        for capture in taken
    ]
    assert sum_of(capture) == 1
    assert in_flight_of(capture) == {"a->summing@0": [2], "a->summing@1": [3], "summing->next@3": [1]}
    assert running.sent == [UNALIGNED]


def test_rows_that_arrive_before_a_missing_barrier_are_captured_too() -> None:
    running = Running()
    running.put(0, UNALIGNED)
    running.put(1, numbers([1]))
    assert running.step() == []
    running.put(1, numbers([2]), UNALIGNED, numbers([100]))
    (capture,) = running.step()
    assert in_flight_of(capture) == {"a->summing@1": [1, 2]}
    assert running.operator.sum == 103


def test_captures_are_handed_over_in_their_order() -> None:
    running = Running()
    running.put(0, UNALIGNED)
    running.step()
    running.task.abort(1)
    running.put(0, Barrier(2))
    running.put(1, Barrier(2))
    assert [capture.barrier.checkpoint for capture in running.step()] == [1, 2]


def test_a_barrier_that_waits_too_long_in_the_outputs_overtakes_the_rows_before_it() -> None:
    barrier = Barrier(1, alignment_timeout_ms=500)
    running = Running(credit=0)
    running.put(0, numbers([1]), barrier, numbers([100]))
    running.put(1, barrier)
    assert running.step() == []
    assert running.task.step() == Blocked(running.clock.monotonic() + 0.5)
    running.clock.advance(0.5)
    (capture,) = running.step()
    assert in_flight_of(capture) == {"summing->next@3": [1]}
    assert [element for element in running.sent if isinstance(element, Barrier)] == [running.sent[0]]


# The end of input


def test_a_task_whose_input_has_ended_captures_when_it_is_told_of_a_checkpoint() -> None:
    running = Running()
    running.put(0, LAST, END)
    running.put(1, numbers([1]), LAST, END)
    assert running.step() == []
    assert running.task.step() == Finished()
    running.task.expect(Barrier(1))
    (capture,) = running.task.take_captures()
    assert (capture.finished, sum_of(capture)) == (True, 1)


def test_a_task_that_was_told_captures_when_its_input_ends_without_a_barrier() -> None:
    running = Running()
    running.task.expect(Barrier(1))
    running.put(0, END)
    assert running.step() == []
    running.put(1, END)
    (capture,) = running.step()
    assert (capture.finished, running.operator.finished) == (True, 1)


def test_a_checkpoint_that_was_given_up_is_not_captured_at_the_end() -> None:
    running = Running()
    running.task.expect(Barrier(1))
    running.put(0, Barrier(1))
    running.put(1, Barrier(2), END)
    running.step()
    running.put(0, END)
    assert [capture.barrier.checkpoint for capture in running.step()] == [2]


def test_a_checkpoint_older_than_one_that_was_captured_is_not_captured_at_the_end() -> None:
    running = Running()
    running.task.expect(Barrier(1))
    running.put(0, Barrier(2), numbers([1]), END)
    running.put(1, Barrier(2), END)
    assert [capture.barrier.checkpoint for capture in running.step()] == [2]


def test_a_task_that_had_finished_only_says_so_again() -> None:
    running = Running(credit=2)
    table = StateTable(Redistribution.SPLIT, pa.table({"sum": [6]}))
    in_flight = {"summing->next": [numbers([5])]}
    operators = {"uid of summing": OperatorSnapshot({"sum": table})}
    running.task.open(RestoredTask(operators, in_flight, finished=True))
    released: list[int] = []
    for channel in (0, 1):
        running.gate.put(channel, (LAST, END), lambda: released.append(1))
    running.step()
    assert running.task.step() == Finished()
    assert running.sent == [*running.sent[:1], LAST, END]
    assert numbers_in(running.sent) == [5]
    assert (running.operator.sum, running.operator.finished, len(released)) == (6, 0, 2)
    running.task.expect(Barrier(2))
    assert [capture.finished for capture in running.task.take_captures()] == [True]


# Restoring


def test_rows_that_were_under_way_are_sent_before_anything_else() -> None:
    running = Running()
    running.task.open(RestoredTask(in_flight={"summing->next": [numbers([1, 2]), numbers([3])]}))
    running.put(0, numbers([4]))
    running.step()
    assert numbers_in(running.sent) == [1, 2, 3, 4]
    assert running.operator.sum == 4


def test_rows_for_an_exchange_that_is_gone_are_refused() -> None:
    with pytest.raises(RestoreError, match="'summing->gone', which this program does not have"):
        Running().task.open(RestoredTask(in_flight={"summing->gone": [numbers([1])]}))


def test_each_sender_sends_its_own_rows_again_those_first_that_had_got_farther() -> None:
    received = {in_flight_key("a->b", 0): [numbers([1])], in_flight_key("a->b", 1): [numbers([2])]}
    unsent = {in_flight_key("a->b", 0): [numbers([3])]}
    shared = [share_in_flight([received, unsent], subtask, 2) for subtask in (0, 1)]
    assert [numbers_in(rows.get("a->b", ())) for rows in shared] == [[1, 3], [2]]
    assert numbers_in(share_in_flight([received, unsent], 0, 1)["a->b"]) == [1, 2, 3]
    assert in_flight_origin(in_flight_key("mail@home->b", 12)) == ("mail@home->b", 12)


# Sources


def test_a_source_injects_the_barrier_behind_what_it_has_read() -> None:
    running = Running(RewindableSource({"a": 5, "b": 3}))
    running.task.step()
    running.task.expect(Barrier(1))
    (capture,) = running.step()
    assert sum_of(capture) == 0 + 1
    assert splits_of(capture) == [{"split_id": "a", "position": '{"row": 2}', "finished": False, "watermark": None}]
    place = running.sent.index(Barrier(1))
    assert numbers_in(running.sent[:place]) == [0, 1]
    assert running.sent[-2:] == [LAST, END]


def test_a_source_that_is_told_in_the_wrong_order_gives_barriers_in_the_right_one() -> None:
    running = Running(RewindableSource({"a": 2}))
    running.task.step()
    running.task.expect(Barrier(2))
    running.task.expect(Barrier(1))
    assert [capture.barrier.checkpoint for capture in running.step()] == [1, 2]


def test_a_source_that_has_given_a_later_barrier_takes_no_part() -> None:
    running = Running(RewindableSource({"a": 4}))
    assert running.task.expect(Barrier(2))
    running.task.step()
    assert not running.task.expect(Barrier(1)), "nobody else would give up the checkpoint before its time-out"
    assert [capture.barrier.checkpoint for capture in running.step()] == [2]


def test_a_restored_source_resumes_where_each_split_was() -> None:
    running = Running(RewindableSource({"a": 3, "b": 3, "c": 2}))
    for _ in range(3):
        running.task.step()
    running.task.expect(Barrier(1))
    (capture,) = running.step()
    assert [(row["split_id"], row["finished"]) for row in splits_of(capture)] == [("b", False), ("a", True)]
    other = {"split_id": "of another subtask", "position": '{"row": 7}', "finished": False, "watermark": None}
    table = pa.Table.from_pylist([other, *splits_of(capture)], capture.operators[0][2].tables["splits"].rows().schema)
    again = Running(RewindableSource({"a": 3, "b": 3, "c": 2}))
    snapshot = OperatorSnapshot({"splits": StateTable(Redistribution.UNION, table)})
    again.task.open(RestoredTask({"uid of source": snapshot}))
    again.step()
    assert numbers_in(again.sent) == [2, 0, 1]


def test_a_source_whose_outputs_are_full_lets_an_unaligned_barrier_through() -> None:
    running = Running(RewindableSource({"a": 4}), credit=0)
    while isinstance(running.task.step(), Progress):
        pass
    running.task.expect(Barrier(1))
    (capture,) = running.step()
    assert (capture.barrier.checkpoint, in_flight_of(capture), running.sent) == (1, {}, [])
    running.task.abort(1)
    running.task.expect(Barrier(2, CheckpointMode.UNALIGNED))
    (capture,) = running.step()
    assert capture.barrier.checkpoint == 2
    assert in_flight_of(capture) == {"summing->next@3": [0, 1]}


def test_a_barrier_that_waits_too_long_in_a_source_goes_through_as_well() -> None:
    running = Running(RewindableSource({"a": 4}), credit=0)
    running.step()
    running.task.expect(Barrier(1, alignment_timeout_ms=500))
    assert running.step() == []
    assert running.task.step() == Blocked(running.clock.monotonic() + 0.5)
    running.clock.advance(0.5)
    (capture,) = running.step()
    assert in_flight_of(capture) == {"summing->next@3": [0, 1]}


def test_a_barrier_that_was_given_up_is_not_sent_any_more() -> None:
    running = Running(RewindableSource({"a": 4}), credit=0)
    running.step()
    running.task.expect(Barrier(1))
    running.step()
    running.task.abort(1)
    running.channel.credits = 9
    running.task.expect(Barrier(2))
    running.step()
    assert [element for element in running.sent if isinstance(element, Barrier)] == [Barrier(2)]


def test_nothing_is_read_behind_a_barrier_that_suspends_until_it_is_aborted() -> None:
    running = Running(RewindableSource({"a": 4}))
    running.task.step()
    suspend = Barrier(1, kind=SnapshotKind.SUSPEND)
    running.task.expect(suspend)
    assert len(running.step()) == 1
    assert running.operator.requests[0].scope is CaptureScope.COMPLETE
    running.operator.due = 0
    assert running.task.step() == Idle(None)
    assert (running.sent[-1], running.operator.timers) == (suspend, 0)
    running.task.abort(1)
    running.operator.due = None
    running.step()
    assert numbers_in(running.sent) == [0, 1, 2, 3]


def test_a_drained_source_ends_and_its_position_is_known() -> None:
    running = Running(RewindableSource({"a": 6, "b": 2}, bounded=False))
    running.task.step()
    running.task.drain()
    running.task.expect(Barrier(1))
    (capture,) = running.step()
    assert splits_of(capture) == [{"split_id": "a", "position": '{"row": 2}', "finished": False, "watermark": None}]
    assert numbers_in(running.sent) == [0, 1]
    assert running.sent[-2:] == [LAST, END]


def test_a_task_that_has_ended_does_not_capture_for_a_checkpoint_behind_a_later_one() -> None:
    running = Running()
    running.put(0, numbers([1]), EndOfInput())
    running.put(1, EndOfInput())
    running.step()
    assert running.task.expect(Barrier(2))
    assert [capture.barrier.checkpoint for capture in running.step()] == [2]
    assert not running.task.expect(Barrier(1))
    assert running.step() == []
    assert running.task.expect(Barrier(3))
    assert [capture.barrier.checkpoint for capture in running.step()] == [3]
