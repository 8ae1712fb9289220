"""The loop: what a step does, and what it says when it can do nothing."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest

from penstock.engine.checkpointing.restored import RestoredTask
from penstock.engine.clock import ManualClock
from penstock.engine.connectors import Wait
from penstock.engine.elements import Batch, Element, EndOfInput, Watermark
from penstock.engine.exchange.outputs import BatchLimits, ChannelBuffer
from penstock.engine.exchange.partitioners import Forward, SplitterContext
from penstock.engine.metrics import SubtaskMetrics
from penstock.engine.operators.base import Collector, Operator, OperatorContext
from penstock.engine.state.snapshot import OperatorSnapshot, Redistribution, StateTable
from penstock.engine.task.chain import ChainLink
from penstock.engine.task.checkpoints import TaskInfo
from penstock.engine.task.loop import Blocked, Finished, Idle, Progress, StepResult, Task
from penstock.engine.task.pace import Pace
from penstock.engine.task.router import Router, RouterEdge
from tests.engine.helpers import RecordingChannel, numbers, numbers_in

END = EndOfInput()


class ScriptedHead:
    """Gives the elements of a script, then nothing."""

    def __init__(self, *script: Element | Wait) -> None:
        self.script = list(script)
        self.closed = 0

    deadline = math.inf
    presses = False

    @property
    def is_empty(self) -> bool:
        return not self.script

    def follow(self, pace: Pace) -> None:
        self.pace = pace

    def next_urgent(self, now: float) -> None:
        """Nothing is urgent."""

    def abort(self, checkpoint: int) -> None:
        """No barriers come."""

    def is_over(self, checkpoint: int) -> bool:
        return False

    def next(self) -> tuple[int, Element] | Wait | None:
        if not self.script:
            return None
        item = self.script.pop(0)
        return item if isinstance(item, Wait) else (0, item)

    def next_watermark(self) -> tuple[int, Element] | None:
        return (0, self.script.pop(0)) if self.script and isinstance(self.script[0], Watermark) else None

    def close(self) -> None:
        self.closed += 1


def info_of(*operators: str) -> TaskInfo:
    return TaskInfo(1, 0, 1, [(f"uid of {name}", name) for name in operators])


class Working(Operator):
    """Passes rows on, and works for a second on each batch."""

    def __init__(self, clock: ManualClock, events: list[str], name: str = "", fails: bool = False) -> None:
        self.clock, self.events, self.name, self.fails = clock, events, name, fails

    def open(self, context: OperatorContext) -> None:
        self.events.append(f"open {self.name}")

    def process_batch(self, batch: Batch, input_index: int, out: Collector) -> None:
        self.clock.advance(1.0)
        out.collect(batch)

    def close(self) -> None:
        self.events.append(f"close {self.name}")
        if self.fails:
            raise OSError(f"cannot close {self.name}")


class Running:
    """A task of one or more operators and one output channel."""

    def __init__(
        self,
        head: ScriptedHead,
        credit: int = 100,
        timeout: float = 0.0,
        rows: int = 1000,
        operators: tuple[str, ...] = ("only",),
        fails: bool = False,
        kind: type[Working] = Working,
        is_source: bool = False,
        rest: float = 0.0,
    ) -> None:
        self.head, self.clock, self.events = head, ManualClock(), list[str]()
        self.channel = RecordingChannel(credit)
        buffer = ChannelBuffer(self.channel, BatchLimits(rows, 1_000_000, timeout))
        edge = RouterEdge(Forward().splitter(SplitterContext("next", 1, 0, 128)), [buffer], self.clock)
        links: list[ChainLink] = []
        behind: Collector = edge
        for name in reversed(operators):
            context = OperatorContext(name, 0, 1, self.clock)
            behind = ChainLink(kind(self.clock, self.events, name, fails), context, behind)
            links.insert(0, behind)
        self.metrics = SubtaskMetrics(1, 0)
        self.links = links
        source: Any = head if is_source else None
        info, pace = info_of(*operators), Pace(0.0, rows)
        router = Router([edge])
        self.task = Task(head, links[0], links, router, self.clock, self.metrics, info, pace, source, rest=rest)


def test_few_rows_and_the_watermark_behind_them_take_one_step_unless_the_outputs_are_full() -> None:
    running = Running(ScriptedHead(numbers([1]), Watermark(5)))
    assert [running.task.step(), running.task.step()] == [Progress(), Idle(None)]
    assert running.channel.elements == [numbers([1]), Watermark(5)]
    full = Running(ScriptedHead(numbers([1]), Watermark(5)), credit=0, rows=1)
    assert [full.task.step(), full.task.step()] == [Progress(), Blocked(None)]
    assert len(full.head.script) == 1


def test_a_step_takes_one_element_and_sends_what_comes_of_it() -> None:
    running = Running(ScriptedHead(numbers([1]), numbers([2])))
    assert running.task.step() == Progress()
    assert numbers_in(running.channel.elements) == [1]
    assert running.task.step() == Progress()
    assert numbers_in(running.channel.elements) == [1, 2]


def test_no_step_is_taken_while_an_output_is_full() -> None:
    head = ScriptedHead(numbers([1]), numbers([2]))
    running = Running(head, credit=0, rows=1)
    assert running.task.step() == Progress()
    assert running.task.step() == Blocked(None)
    assert running.task.step() == Blocked(None)
    assert len(head.script) == 1
    running.channel.credits = 1
    assert running.task.step() == Progress()
    assert head.script == []


@pytest.mark.parametrize(("is_source", "result"), [(True, Blocked(None)), (False, Progress())])
def test_a_source_gathers_its_input_while_due_rows_wait_for_the_message_before_them(
    is_source: bool, result: StepResult
) -> None:
    running = Running(ScriptedHead(numbers([1]), numbers([2])), is_source=is_source)
    running.channel.waiting = 1
    assert running.task.step() == Progress()
    assert running.task.step() == result
    running.channel.waiting = 0
    running.task.step()
    assert numbers_in(running.channel.elements)[:1] == [1]


def test_behind_few_rows_a_task_sends_what_came_of_them_and_rests() -> None:
    head = ScriptedHead(numbers([1]), numbers([2]))
    running = Running(head, timeout=10.0, rest=10.0)
    assert running.task.step() == Progress()
    assert running.channel.elements == []
    assert running.task.step() == Idle(12.0)
    assert numbers_in(running.channel.elements) == [1, 2]
    head.script.append(numbers([3]))
    assert running.task.step() == Idle(12.0)
    assert running.task.rests
    running.clock.advance(10.0)
    head.script.append(numbers([4]))
    assert running.task.step() == Progress()
    assert not running.task.rests


def test_a_source_sends_the_first_of_few_rows_at_once_and_is_asked_when_it_says() -> None:
    head = ScriptedHead(numbers([1]), Wait(3.0), numbers([2]), Wait(5.0), Wait(12.0))
    head.presses = True
    running = Running(head, timeout=10.0, rest=10.0, is_source=True)
    assert [running.task.step() for _ in range(2)] == [Progress(), Idle(3.0)]
    running.clock.advance(2.0)
    assert [running.task.step() for _ in range(2)] == [Progress(), Idle(5.0)]
    assert numbers_in(running.channel.elements) == [1]
    running.clock.advance(7.0)
    assert running.task.step() == Idle(12.0)
    assert numbers_in(running.channel.elements) == [1, 2]


def test_a_source_that_has_long_nothing_more_sends_few_rows_each_time() -> None:
    head = ScriptedHead(numbers([1]), Wait(9.0), numbers([2]), Wait(15.0), numbers([3]), Wait(18.0))
    head.presses = True
    running = Running(head, timeout=10.0, rest=10.0, is_source=True)
    for at, sent in ((9.0, [1]), (15.0, [1, 2]), (18.0, [1, 2])):
        assert [running.task.step() for _ in range(2)] == [Progress(), Idle(at)]
        assert numbers_in(running.channel.elements) == sent
        running.clock.advance(at - running.clock.monotonic())


def test_rows_that_timers_emit_are_sent_at_once_and_then_no_sooner_than_a_rest_ends() -> None:
    head = ScriptedHead()
    running = Running(head, timeout=10.0, rest=10.0, kind=Emitting)
    assert [running.task.step() for _ in range(2)] == [Progress(), Idle(4.0)]
    assert numbers_in(running.channel.elements) == [0]
    head.script.append(numbers([5]))
    running.clock.advance(4.0)
    assert [running.task.step() for _ in range(2)] == [Progress(), Idle(8.0)]
    assert len(head.script) == 1
    assert numbers_in(running.channel.elements) == [0]
    running.clock.advance(6.0)
    assert running.task.step() == Progress()
    running.task.step()
    assert head.script == []


def test_timers_that_emit_nothing_are_followed_by_no_rest() -> None:
    running = Running(ScriptedHead(), timeout=10.0, rest=10.0, kind=Insistent)
    assert [running.task.step() for _ in range(2)] == [Progress(), Idle(0.0)]
    assert not running.task.rests


def test_what_presses_ends_a_rest() -> None:
    head = ScriptedHead(numbers([1]))
    running = Running(head, timeout=10.0, rest=10.0)
    assert running.task.step() == Idle(11.0)
    head.script.append(numbers([2]))
    head.presses = True
    assert not running.task.rests
    running.task.step()
    assert head.script == []


def test_behind_many_rows_that_ended_a_rest_the_next_ones_are_a_reason_to_step() -> None:
    head = ScriptedHead(numbers([1]))
    running = Running(head, rest=10.0, rows=2000)
    assert running.task.step() == Idle(11.0)
    head.script.append(numbers(range(1000)))
    head.presses = True
    assert running.task.step() == Progress()
    assert running.task.step() == Idle(None)
    head.presses = False
    assert not running.task.rests


@pytest.mark.parametrize(("rows", "nothing"), [(1000, None), (1, Wait(1.0))])
def test_a_task_with_much_to_do_does_not_rest_nor_one_that_may_ask_at_once(rows: int, nothing: Wait | None) -> None:
    head = ScriptedHead(numbers(range(rows)), *filter(None, [nothing]))
    running = Running(head, timeout=10.0, rest=10.0, rows=2000)
    assert running.task.step() == Progress()
    assert isinstance(running.task.step(), Idle)
    assert running.channel.elements == []
    head.script.append(numbers([3]))
    running.task.step()
    assert head.script == []


def test_rows_that_would_follow_a_message_under_way_wait_for_the_timeout() -> None:
    running = Running(ScriptedHead(numbers([1])), timeout=10.0, rest=10.0)
    running.channel.waiting = 1
    assert running.task.step() == Idle(11.0)
    assert running.channel.elements == []
    assert not running.task.awaits_credit, "it is stepped when they are due anyway"
    running.clock.advance(10.0)
    assert isinstance(running.task.step(), Idle)
    assert running.channel.elements == []
    assert running.task.awaits_credit
    running.channel.waiting = 0
    running.task.step()
    assert numbers_in(running.channel.elements) == [1]


def test_rows_are_taken_as_long_as_they_fit_an_unsent_batch() -> None:
    running = Running(ScriptedHead(*(numbers([n]) for n in range(5))), credit=0, rows=3)
    assert [running.task.step() for _ in range(4)] == [Progress(), Progress(), Progress(), Blocked(None)]


def test_without_input_the_task_is_idle() -> None:
    assert Running(ScriptedHead()).task.step() == Idle(None)


def test_an_idle_task_wakes_when_its_rows_are_due() -> None:
    running = Running(ScriptedHead(numbers([1])), timeout=0.5)
    running.task.step()
    assert running.channel.sent == []
    assert running.task.step() == Idle(1.5)
    running.clock.advance(0.5)
    assert running.task.step() == Idle(None)
    assert numbers_in(running.channel.elements) == [1]


def test_a_waiting_source_says_until_when() -> None:
    assert Running(ScriptedHead(Wait(7.0))).task.step() == Idle(7.0)


@pytest.mark.parametrize(("until", "expected"), [(9.0, 1.5), (1.2, 1.2)])
def test_a_waiting_task_wakes_for_whatever_comes_first(until: float, expected: float) -> None:
    running = Running(ScriptedHead(numbers([1]), Wait(until)), timeout=0.5)
    running.task.step()
    assert running.task.step() == Idle(expected)


def test_the_task_finishes_once_everything_was_sent() -> None:
    running = Running(ScriptedHead(numbers([1]), END), credit=0, timeout=1000.0)
    assert [running.task.step() for _ in range(4)] == [Progress(), Progress(), Blocked(None), Blocked(None)]
    running.channel.credits = 1
    assert running.task.step() == Finished()
    assert running.channel.elements[-1] == END


class Insistent(Working):
    """Has something to do by the clock at every moment."""

    fired = 0

    @property
    def next_processing_time(self) -> int | None:
        return 0

    def on_processing_time(self, now_ms: int, out: Collector) -> None:
        self.fired += 1


class Emitting(Working):
    """Emits a row each four seconds by the clock, the first at once: how often it has before."""

    fired = 0

    @property
    def next_processing_time(self) -> int | None:
        return 4000 * self.fired

    def on_processing_time(self, now_ms: int, out: Collector) -> None:
        out.collect(numbers([self.fired]))
        self.fired += 1


def test_timers_that_are_always_due_do_not_keep_the_input_waiting() -> None:
    running = Running(ScriptedHead(numbers([1]), numbers([2])), kind=Insistent)
    for _ in range(4):
        assert running.task.step() == Progress()
    assert numbers_in(running.channel.elements) == [1, 2]
    operator = running.links[0].operator
    assert isinstance(operator, Insistent)
    assert operator.fired == 2


def test_an_operator_is_opened_with_what_belongs_to_no_key_and_then_given_all_its_state() -> None:
    running = Running(ScriptedHead(Watermark(5), Watermark(8)), kind=Restored)
    table = pa.table({"value": [1]})
    tables = {"l": StateTable(Redistribution.SPLIT, table), "k": StateTable(Redistribution.KEYED, table)}
    running.task.open(RestoredTask({"uid of only": OperatorSnapshot(tables, watermark=6)}))
    assert running.events == ["open with l", "restore l, k"]
    running.task.step()
    running.task.step()
    assert [e for e in running.channel.elements if isinstance(e, Watermark)] == [Watermark(8)]


class Restored(Working):
    """Tells what it is given of a snapshot."""

    def open(self, context: OperatorContext) -> None:
        assert context.restored is not None
        self.events.append(f"open with {', '.join(context.restored.tables)}")

    def restore(self, snapshot: OperatorSnapshot) -> None:
        self.events.append(f"restore {', '.join(snapshot.tables)}")


def test_operators_are_opened_from_the_last_to_the_first() -> None:
    running = Running(ScriptedHead(), operators=("first", "last"))
    running.task.open()
    assert running.events == ["open last", "open first"]


def test_closing_closes_everything_once() -> None:
    head = ScriptedHead()
    running = Running(head, operators=("first", "last"))
    running.task.close()
    assert head.closed == 1
    assert running.events == ["close first", "close last"]


def test_closing_goes_on_after_an_error_and_raises_the_first() -> None:
    running = Running(ScriptedHead(), operators=("first", "last"), fails=True)
    with pytest.raises(OSError, match="cannot close first"):
        running.task.close()
    assert running.events == ["close first", "close last"]


def test_time_is_counted_as_busy_blocked_or_idle() -> None:
    running = Running(ScriptedHead(numbers([1]), numbers([2])), credit=0, rows=1)
    running.clock.advance(4.0)
    running.task.step()
    running.task.step()
    running.clock.advance(16.0)
    running.channel.credits = 2
    running.task.step()
    running.task.step()
    running.clock.advance(32.0)
    running.task.step()
    metrics = running.metrics
    assert (metrics.busy_seconds, metrics.blocked_seconds, metrics.idle_seconds) == (2.0, 16.0, 36.0)


def test_the_metrics_follow_event_time() -> None:
    running = Running(ScriptedHead(Watermark(5), Watermark(8)))
    running.task.step()
    running.task.step()
    assert running.links[0].context.metrics.watermark == 8


def test_a_blocked_channel_does_not_hold_the_rows_of_another_back_beyond_the_timeout() -> None:
    clock, metrics = ManualClock(), SubtaskMetrics(1, 0)
    stuck, free = RecordingChannel(credit=0), RecordingChannel()
    buffers = [ChannelBuffer(channel, BatchLimits(1, 1_000_000, 0.05)) for channel in (stuck, free)]
    buffers[1] = ChannelBuffer(free, BatchLimits(10, 1_000_000, 0.05))
    edge = RouterEdge(lambda batch: [(0, batch), (1, batch)], buffers, clock)
    link = ChainLink(Working(clock, []), OperatorContext("both", 0, 1, clock), edge)
    task = Task(
        ScriptedHead(numbers([1]), numbers([2])),
        link,
        [link],
        Router([edge]),
        clock,
        metrics,
        info_of("both"),
        Pace(0.0, 1000),
    )
    assert task.step() == Progress()
    blocked = task.step()
    assert blocked == Blocked(clock.monotonic() + 0.05)
    assert task.awaits_credit
    clock.advance(0.05)
    assert task.step() == Blocked(None)
    assert numbers_in(free.elements) == [1]
