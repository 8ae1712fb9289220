"""Subtasks that run on while those that they have channels to or from are replaced."""

from __future__ import annotations

import penstock as ps
from penstock.engine.clock import ManualClock
from penstock.engine.elements import Barrier, Batch, Element, EndOfInput, Watermark, WatermarkStatus
from penstock.engine.exchange.outputs import BatchLimits, ChannelBuffer
from penstock.engine.graph.physical import ChannelPlan, PhysicalGraph
from penstock.engine.task.input_gate import InputGate
from penstock.engine.task.rewiring import crossings
from penstock.engine.task.router import Router, RouterEdge
from tests.engine.helpers import RecordingChannel, numbers, numbers_in

TO_COUNT = 2


def edge(*channels: RecordingChannel) -> RouterEdge:
    """Sends all rows to all of the channels."""
    buffers = [ChannelBuffer(channel, BatchLimits(4, 1_000_000, 0.0)) for channel in channels]
    numbered = range(len(channels))
    return RouterEdge(lambda batch: [(one, batch) for one in numbered], buffers, ManualClock(), downstream=TO_COUNT)


def told(channel: RecordingChannel) -> list[object]:
    elements: list[Element] = [element for message in channel.sent for element in message]
    return [numbers_in([one]) if isinstance(one, Batch) else one for one in elements]


def held_back() -> tuple[Router, RecordingChannel]:
    """A router that has sent a row and event time 7, and keeps back a row and event time 9 behind a barrier."""
    channel = RecordingChannel()
    tested = edge(channel)
    router = Router([tested])
    tested.collect(numbers([1]))
    router.broadcast(WatermarkStatus(False))
    router.broadcast(Watermark(7))
    router.forward(Barrier(3))
    router.hold({TO_COUNT})
    tested.collect(numbers([2]))
    router.broadcast(Watermark(9))
    return router, channel


def test_what_is_emitted_behind_the_barrier_goes_to_the_new_channels_and_event_time_before_it() -> None:
    router, old = held_back()
    router.flush(1.0)
    assert told(old)[-2:] == [Watermark(7), Barrier(3)]
    assert not router.drained
    first, second = RecordingChannel(), RecordingChannel()
    router.connect({0: edge(first, second)})
    router.flush(1.0)
    for new in (first, second):
        shown = told(new)
        assert shown.index(WatermarkStatus(False)) < shown.index([2])
        assert shown[-1] == Watermark(9)
    assert Barrier(3) not in told(first)
    assert router.drained


def test_new_channels_learn_that_the_task_has_ended() -> None:
    tested = edge(RecordingChannel())
    router = Router([tested])
    for element in (WatermarkStatus(False), Watermark(9), EndOfInput()):
        router.broadcast(element)
    router.flush(1.0)
    new = RecordingChannel(credit=1)
    router.connect({0: edge(new)})
    router.flush(1.0)
    assert new.sent == [(Watermark(9), EndOfInput())]


def test_a_rescale_that_is_given_up_loses_nothing() -> None:
    router, old = held_back()
    router.resume()
    router.flush(1.0)
    assert told(old)[-2:] == [[2], Watermark(9)]


def test_other_tasks_are_sent_to_all_the_while_and_the_task_stops_when_much_is_kept_back() -> None:
    channel, other = RecordingChannel(), RecordingChannel()
    kept, passed = edge(channel), edge(other)
    passed.downstream = TO_COUNT + 1
    router = Router([kept, passed])
    router.hold({TO_COUNT})
    for one in (kept, passed):
        one.collect(numbers([1]))
    router.flush(1.0)
    assert (told(channel), told(other)) == ([], [[1]])
    assert router.has_capacity
    kept.collect(numbers(list(range(70_000))))
    assert not router.has_capacity


def put(gate: InputGate, channel: int, *elements: Element) -> None:
    gate.put(channel, elements, lambda: None)


def taken(gate: InputGate) -> list[Element]:
    elements = []
    while (given := gate.next()) is not None:
        assert isinstance(given, tuple)
        elements.append(given[1])
    return elements


def test_a_gate_takes_event_time_barriers_and_the_end_of_new_channels_in_the_place_of_old_ones() -> None:
    gate = InputGate([0, 0, 1])
    for channel, reached in enumerate((10, 12, 30)):
        put(gate, channel, Watermark(reached), Barrier(1))
    assert taken(gate) == [Watermark(10), Barrier(1)]
    gate.replace_channels([0, 1], [0], [True])
    put(gate, 2, Watermark(40))
    assert taken(gate) == [], "the new channel is where the old ones were together"
    put(gate, 3, Watermark(20), Barrier(2))
    assert taken(gate) == [Watermark(20)]
    put(gate, 2, Barrier(2), EndOfInput())
    assert taken(gate) == [Barrier(2)]
    put(gate, 3, EndOfInput())
    assert taken(gate)[-1] == EndOfInput()
    assert gate.statistics().channels == 2


def graph() -> PhysicalGraph:
    env = ps.StreamEnvironment(runtime="local", parallelism=2)
    rows = env.from_collection([{"k": 1}], schema={"k": "int64"}).rebalance()
    rows.key_by("k").aggregate(n=ps.count()).uid("count").rebalance().filter(ps.col("n") > 0).collect()
    return env.program("crossing").physical({})


def test_channels_cross_where_one_end_is_started_and_the_other_runs_on() -> None:
    tested = graph()
    channels = tested.output_channels()
    assert not crossings(tested, channels, list(channels)).inputs
    count = next(task for task in tested.tasks if "count" in task.uids)
    behind = count.outputs[0].downstream
    started = [(count.id, subtask) for subtask in range(count.parallelism)]
    crossing = crossings(tested, channels, started)
    assert {place[0] for place in crossing.inputs} == {behind}
    assert all(set(outputs) == {0} for outputs in crossing.outputs.values())
    assert {place[0] for place in crossing.outputs} == {
        channel.upstream_task for channel in tested.input_channels(*started[0])
    }
    assert list(next(iter(crossing.inputs.values()))) == [
        ChannelPlan(count.id, subtask, 0, 0) for subtask in range(count.parallelism)
    ]
