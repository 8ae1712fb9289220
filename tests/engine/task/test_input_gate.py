"""The input gate: one event time, one end and fair turns out of many channels."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.elements import (
    FEEDBACK_INPUT,
    INPUT_ENDED,
    MAX_TIMESTAMP,
    MIN_TIMESTAMP,
    Barrier,
    CheckpointMode,
    Control,
    Element,
    EndOfInput,
    IterationBarrier,
    Watermark,
    WatermarkStatus,
)
from penstock.engine.task.input_gate import Choice, InputGate, WatermarkMerger
from penstock.engine.task.pace import Pace
from tests.engine.helpers import numbers, numbers_in

IDLE, ACTIVE, END = WatermarkStatus(True), WatermarkStatus(False), EndOfInput()


def merged(channels: int, *arrivals: tuple[int, Control]) -> list[list[Control]]:
    """What comes out behind each of the control elements that arrive."""
    merger = WatermarkMerger(channels)
    return [merger.on_control(channel, element) for channel, element in arrivals]


def take_all(gate: InputGate) -> list[tuple[int, Element]]:
    taken = []
    while (item := gate.next()) is not None:
        assert isinstance(item, tuple)
        taken.append(item)
    return taken


def gate_of_single_rows(input_indexes: Sequence[int], choose: Choice | None = None) -> InputGate:
    """A gate that puts no rows together."""
    gate = InputGate(input_indexes, choose)
    gate.follow(Pace(0.0, 1))
    return gate


def put(gate: InputGate, channel: int, *elements: Element) -> None:
    gate.put(channel, elements, lambda: None)


# Merging


def test_an_idle_input_is_active_again_behind_the_first_watermark_of_channels_that_replace_its_own() -> None:
    merger = WatermarkMerger(1)
    assert [merger.on_control(0, element) for element in (Watermark(5), IDLE)] == [[Watermark(5)], [IDLE]]
    merger.replace([0], 2)
    assert merger.on_control(1, Watermark(7)) == [ACTIVE]
    assert merger.on_control(2, Watermark(9)) == [Watermark(7)]


def test_event_time_is_that_of_the_slowest_channel() -> None:
    assert merged(2, (0, Watermark(10)), (1, Watermark(4)), (1, Watermark(20)), (0, Watermark(15))) == [
        [],
        [Watermark(4)],
        [Watermark(10)],
        [Watermark(15)],
    ]


def test_a_channel_that_has_said_nothing_holds_event_time_back() -> None:
    assert merged(2, (0, Watermark(MAX_TIMESTAMP))) == [[]]


def test_an_older_watermark_on_a_channel_changes_nothing() -> None:
    assert merged(1, (0, Watermark(10)), (0, Watermark(3)), (0, Watermark(10))) == [[Watermark(10)], [], []]


def test_an_idle_channel_holds_nothing_back() -> None:
    assert merged(2, (0, Watermark(10)), (1, IDLE), (0, Watermark(11))) == [[], [Watermark(10)], [Watermark(11)]]


def test_when_all_channels_are_idle_event_time_moves_to_the_largest_and_then_the_stream_is_idle() -> None:
    assert merged(2, (0, Watermark(10)), (1, Watermark(4)), (0, IDLE), (1, IDLE)) == [
        [],
        [Watermark(4)],
        [],
        [Watermark(10), IDLE],
    ]


def test_the_stream_is_active_again_before_its_next_watermark() -> None:
    assert merged(1, (0, Watermark(1)), (0, IDLE), (0, ACTIVE), (0, Watermark(2))) == [
        [Watermark(1)],
        [IDLE],
        [ACTIVE],
        [Watermark(2)],
    ]


def test_a_channel_back_from_idleness_and_behind_neither_holds_back_nor_regresses() -> None:
    assert merged(
        2,
        (0, Watermark(5)),
        (1, IDLE),
        (0, Watermark(20)),
        (1, ACTIVE),
        (1, Watermark(8)),
        (0, Watermark(30)),
    ) == [[], [Watermark(5)], [Watermark(20)], [], [], [Watermark(30)]]


def test_a_channel_back_from_idleness_counts_again_once_it_has_caught_up() -> None:
    assert merged(
        2, (1, IDLE), (0, Watermark(20)), (1, ACTIVE), (1, Watermark(25)), (0, Watermark(40)), (1, Watermark(26))
    ) == [[], [Watermark(20)], [], [], [Watermark(25)], [Watermark(26)]]


def test_event_time_waits_for_the_only_active_channel_although_it_is_behind() -> None:
    arrivals = [(0, Watermark(20)), (1, IDLE), (1, ACTIVE), (1, Watermark(3)), (0, IDLE), (1, Watermark(21))]
    assert merged(2, *arrivals) == [[], [Watermark(20)], [], [], [], [Watermark(21)]]


def test_an_ended_channel_holds_nothing_back() -> None:
    assert merged(2, (0, Watermark(3)), (1, END), (0, Watermark(4))) == [[], [Watermark(3)], [Watermark(4)]]


def test_the_end_comes_once_after_all_channels_have_ended_and_behind_the_last_watermark() -> None:
    last = Watermark(MAX_TIMESTAMP)
    assert merged(2, (0, last), (0, END), (1, Watermark(7)), (1, last), (1, END)) == [
        [],
        [],
        [Watermark(7)],
        [last],
        [END],
    ]


def test_a_stream_whose_channels_end_while_idle_ends() -> None:
    assert merged(2, (0, IDLE), (1, Watermark(4)), (1, END), (0, END))[-1] == [END]


LAST = Watermark(MAX_TIMESTAMP)


@pytest.mark.parametrize(
    "arrivals",
    [
        [(0, LAST), (0, END), (1, IDLE), (1, LAST), (1, END)],
        [(0, IDLE), (0, LAST), (0, END), (1, Watermark(4)), (1, LAST), (1, END)],
        [(0, IDLE), (1, IDLE), (0, LAST), (0, END), (1, LAST), (1, END)],
        [(1, IDLE), (0, LAST), (0, END), (1, ACTIVE), (1, Watermark(4)), (1, LAST), (1, END)],
    ],
)
def test_event_time_is_complete_once_before_the_end_whoever_was_idle(arrivals: list[tuple[int, Control]]) -> None:
    said = [element for elements in merged(2, *arrivals) for element in elements]
    assert said.count(LAST) == 1
    assert said[-1] == END
    assert said.count(END) == 1


def test_event_time_is_not_complete_while_an_idle_channel_may_have_rows() -> None:
    assert merged(2, (0, LAST), (0, END), (1, Watermark(4)), (1, IDLE), (1, ACTIVE), (1, Watermark(7))) == [
        [],
        [],
        [Watermark(4)],
        [IDLE],
        [ACTIVE],
        [Watermark(7)],
    ]


def test_between_its_last_watermark_and_its_end_a_channel_is_as_if_it_had_ended() -> None:
    assert merged(2, (0, Watermark(4)), (0, IDLE), (1, LAST), (1, END)) == [[], [], [Watermark(4), IDLE], []]


def test_when_all_others_are_idle_event_time_moves_as_far_as_an_ended_channel_had_rows() -> None:
    assert merged(2, (0, Watermark(9)), (0, LAST), (0, END), (1, Watermark(4)), (1, IDLE))[-1] == [Watermark(9), IDLE]


def test_an_end_without_a_last_watermark_does_not_complete_event_time_of_others() -> None:
    assert merged(2, (0, END), (1, Watermark(4)), (1, IDLE), (1, LAST), (1, END)) == [
        [],
        [Watermark(4)],
        [IDLE],
        [LAST],
        [END],
    ]


class _Model:
    """The merging rules, computed from scratch from the whole history."""

    def __init__(self, channels: int) -> None:
        self.history: list[list[Control]] = [[] for _ in range(channels)]
        self.emitted = MIN_TIMESTAMP
        self.idle = False

    def on_control(self, channel: int, element: Control) -> None:
        self.history[channel].append(element)
        times = [
            max([e.timestamp for e in said if isinstance(e, Watermark) and e != LAST], default=MIN_TIMESTAMP)
            for said in self.history
        ]
        active = [time for time, said in zip(times, self.history, strict=True) if self._active(said)]
        aligned = [time for time in active if time >= self.emitted]
        is_open = any(self._open(said) for said in self.history)
        if not is_open and any(LAST in said for said in self.history):
            self.emitted = MAX_TIMESTAMP
        elif not active:
            self.emitted = max(self.emitted, *times)
        elif aligned:
            self.emitted = min(aligned)
        if is_open:
            self.idle = not active

    @property
    def ended(self) -> bool:
        return all(END in said for said in self.history)

    @staticmethod
    def _open(said: Sequence[Control]) -> bool:
        return END not in said and LAST not in said

    @classmethod
    def _active(cls, said: Sequence[Control]) -> bool:
        statuses = [element for element in said if isinstance(element, WatermarkStatus)]
        return cls._open(said) and (not statuses or not statuses[-1].idle)


CONTROLS = st.one_of(st.integers(-5, 12).map(Watermark), st.sampled_from([IDLE, ACTIVE]), st.just(LAST), st.just(END))


@given(channels=st.integers(1, 4), data=st.data())
def test_merging_agrees_with_the_rules_computed_from_scratch(channels: int, data: st.DataObject) -> None:
    merger, model = WatermarkMerger(channels), _Model(channels)
    event_time, idle, ends = MIN_TIMESTAMP, False, 0
    for channel, element in data.draw(st.lists(st.tuples(st.integers(0, channels - 1), CONTROLS), max_size=30)):
        if END in model.history[channel]:
            continue
        model.on_control(channel, element)
        for out in merger.on_control(channel, element):
            assert not ends
            if isinstance(out, Watermark):
                assert out.timestamp > event_time
                event_time = out.timestamp
            elif isinstance(out, WatermarkStatus):
                assert out.idle != idle
                idle = out.idle
            else:
                ends += 1
        assert event_time == model.emitted
        assert ends == model.ended
        assert idle == model.idle or model.ended


# Taking messages


def test_an_empty_gate_has_nothing() -> None:
    assert InputGate([0]).next() is None


def test_elements_come_with_the_input_that_their_channel_feeds() -> None:
    gate = gate_of_single_rows([0, 1, 1])
    batch = numbers([1])
    for channel in range(3):
        put(gate, channel, batch)
    assert [index for index, _ in take_all(gate)] == [0, 1, 1]


def test_a_channels_elements_stay_in_order() -> None:
    gate = gate_of_single_rows([0])
    first, second = numbers([1]), numbers([2])
    put(gate, 0, first, Watermark(1))
    put(gate, 0, second)
    assert [element for _, element in take_all(gate)] == [first, Watermark(1), second]


def test_a_busy_channel_does_not_keep_the_others_waiting() -> None:
    gate = gate_of_single_rows([0, 1, 2])
    batch = numbers([1])
    for channel in (0, 0, 0, 1, 2):
        put(gate, channel, batch)
    assert gate.next() == (0, batch)
    put(gate, 0, batch)
    assert [index for index, _ in take_all(gate)] == [0, 0, 1, 2, 0]


@given(st.lists(st.integers(0, 3), max_size=40))
def test_no_channel_is_overtaken_by_messages_that_came_later(channels: list[int]) -> None:
    gate = gate_of_single_rows(range(4))
    for channel in channels:
        put(gate, channel, numbers([channel]))
    assert [index for index, _ in take_all(gate)] == channels


def test_credit_goes_back_when_a_message_is_taken_and_not_before() -> None:
    gate, released = gate_of_single_rows([0, 0]), Counter[int]()
    for channel in (0, 1):
        gate.put(channel, (numbers([channel]), Watermark(channel)), lambda c=channel: released.update([c]))
    assert released == {}
    gate.next()
    assert released == {0: 1}
    gate.next()
    assert released == {0: 1, 1: 1}
    take_all(gate)
    assert released == {0: 1, 1: 1}


def test_a_message_that_merges_into_nothing_gives_its_credit_back_too() -> None:
    gate, released = InputGate([0, 0]), []
    gate.put(0, (Watermark(1),), lambda: released.append(0))
    assert gate.next() is None
    assert released == [0]


def test_the_choice_function_picks_among_the_channels_that_have_something() -> None:
    offered: list[list[int]] = []

    def last(channels: Sequence[int]) -> int:
        offered.append(sorted(channels))
        return channels[-1]

    gate = InputGate(range(3), choose=last)
    for channel in (0, 2):
        put(gate, channel, numbers([channel]))
    assert [index for index, _ in take_all(gate)] == [2, 0]
    assert offered == [[0, 2], [0]]


def test_a_channel_is_offered_once_however_many_messages_it_has() -> None:
    offered: list[list[int]] = []

    def first(channels: Sequence[int]) -> int:
        offered.append(list(channels))
        return channels[0]

    gate = InputGate([0, FEEDBACK_INPUT], choose=first)
    put(gate, 0, numbers([0]))
    for n in (1, 2, 3):
        put(gate, 1, numbers([n]))
    assert numbers_in(element for _, element in take_all(gate)) == [0, 1, 2, 3]
    assert offered == [[0, 1], [1], [1], [1]]


@given(st.lists(st.integers(0, 2), max_size=20), st.randoms(use_true_random=False))
def test_whatever_is_chosen_each_channel_is_fifo_and_nothing_is_lost(channels: list[int], random) -> None:  # type: ignore[no-untyped-def]
    gate = gate_of_single_rows(range(3), random.choice)
    sent: dict[int, list[Element]] = {0: [], 1: [], 2: []}
    for number, channel in enumerate(channels):
        batch = numbers([number])
        sent[channel].append(batch)
        put(gate, channel, batch)
    taken = take_all(gate)
    assert {c: [element for index, element in taken if index == c] for c in sent} == sent


def test_watermarks_of_all_channels_are_merged_across_inputs() -> None:
    gate = InputGate([0, 1])
    put(gate, 0, Watermark(5))
    put(gate, 1, Watermark(3))
    assert [element for _, element in take_all(gate)] == [Watermark(3)]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_the_end_comes_out_once_and_last(order: tuple[int, int]) -> None:
    gate = InputGate([0, 1])
    for channel in order:
        put(gate, channel, numbers([channel]), Watermark(MAX_TIMESTAMP))
        put(gate, channel, END)
    elements = [element for _, element in take_all(gate)]
    assert elements[-2:] == [Watermark(MAX_TIMESTAMP), END]
    assert elements.count(END) == 1


def test_a_gate_without_channels_ends_at_once() -> None:
    gate = InputGate([])
    assert gate.next() == (0, END)
    assert gate.next() is None


# Loops


def barrier(superstep: int, rows: int = 0, loop: int = 7) -> IterationBarrier:
    return IterationBarrier(loop, superstep, rows)


def test_a_superstep_is_over_when_it_is_over_on_every_channel() -> None:
    gate = InputGate([0, 0])
    put(gate, 0, numbers([1]), barrier(0))
    put(gate, 0, numbers([2]), barrier(1))
    assert [element for _, element in take_all(gate) if isinstance(element, IterationBarrier)] == []
    put(gate, 1, numbers([3]), barrier(0))
    assert take_all(gate)[-1] == (0, barrier(0))
    put(gate, 1, barrier(1))
    assert take_all(gate) == [(0, barrier(1))]


def test_a_channel_that_has_ended_holds_no_superstep_back() -> None:
    gate = InputGate([0, 1])
    put(gate, 0, barrier(0))
    put(gate, 0, barrier(1))
    assert take_all(gate) == []
    put(gate, 1, END)
    assert take_all(gate) == [(1, barrier(0)), (1, barrier(1))]
    put(gate, 0, END)
    assert take_all(gate) == [(0, END)]


def test_supersteps_of_two_loops_are_told_apart() -> None:
    gate = InputGate([0, 0])
    put(gate, 0, barrier(0, loop=1))
    put(gate, 1, barrier(0, loop=2))
    assert take_all(gate) == []
    put(gate, 1, barrier(0, loop=1))
    assert take_all(gate) == [(0, barrier(0, loop=1))]


def head_gate() -> InputGate:
    """The gate of a head with one channel from outside and two from its tails."""
    return InputGate([0, FEEDBACK_INPUT, FEEDBACK_INPUT])


def test_rows_behind_a_tails_barrier_wait_for_the_other_tails() -> None:
    gate = head_gate()
    put(gate, 1, numbers([1]), barrier(0, 1))
    put(gate, 1, numbers([2]), barrier(1, 1))
    put(gate, 0, numbers([3]))
    assert numbers_in(element for _, element in take_all(gate)) == [1, 3]
    put(gate, 2, numbers([4]), barrier(0, 5))
    elements = [element for _, element in take_all(gate)]
    assert elements[1] == barrier(0, 6)
    assert numbers_in(elements) == [4, 2]
    put(gate, 2, barrier(1, 0))
    assert take_all(gate) == [(FEEDBACK_INPUT, barrier(1, 1))]


def test_tails_have_no_part_in_event_time() -> None:
    gate = head_gate()
    put(gate, 0, Watermark(5))
    put(gate, 1, Watermark(9), IDLE)
    assert take_all(gate) == [(0, Watermark(5))]


def test_a_loop_goes_on_when_its_input_has_ended_and_ends_with_its_tails() -> None:
    gate = head_gate()
    put(gate, 0, Watermark(MAX_TIMESTAMP), END)
    assert take_all(gate) == [(0, Watermark(MAX_TIMESTAMP)), (0, IterationBarrier(0, INPUT_ENDED))]
    put(gate, 1, END)
    assert take_all(gate) == []
    put(gate, 2, END)
    assert take_all(gate) == [(FEEDBACK_INPUT, END)]


def test_a_tail_that_ends_early_counts_no_more() -> None:
    gate = head_gate()
    put(gate, 1, barrier(0, 2))
    put(gate, 1, END)
    put(gate, 2, barrier(0, 1))
    assert take_all(gate) == [(FEEDBACK_INPUT, barrier(0, 3))]
    put(gate, 2, barrier(1, 4))
    assert take_all(gate) == [(FEEDBACK_INPUT, barrier(1, 4))]


def test_a_subtask_that_nobody_sends_to_has_its_part_in_the_loop() -> None:
    gate = InputGate([FEEDBACK_INPUT])
    assert take_all(gate) == [(0, IterationBarrier(0, INPUT_ENDED))]


def test_supersteps_of_other_loops_do_not_enter_a_loop() -> None:
    gate = head_gate()
    put(gate, 0, barrier(0, loop=1))
    assert take_all(gate) == []


def test_a_tail_never_waits_for_credit() -> None:
    released = []
    gate = head_gate()
    for channel in range(3):
        gate.put(channel, (numbers([channel]),), lambda: released.append(1))
    assert len(released) == 2
    take_all(gate)
    assert len(released) == 3


# Long messages


def paced(channels: int, rows: int) -> InputGate:
    """A gate of a task that takes so many rows at a time."""
    gate = InputGate(range(channels))
    gate.follow(Pace(0.0, rows))
    return gate


def test_a_long_message_comes_in_even_parts_and_what_is_behind_it_behind_the_last() -> None:
    gate, released = paced(1, 4), []
    gate.put(0, (numbers(range(10)), Watermark(7)), lambda: released.append(0))
    given = [gate.next() for _ in range(2)]
    assert released == []
    given += [gate.next() for _ in range(2)]
    assert released == [0], "its credit goes back with its last part"
    elements = [element for _, element in filter(None, given)]  # type: ignore[misc]
    assert [numbers_in([element]) for element in elements[:3]] == [[0, 1, 2, 3], [4, 5, 6], [7, 8, 9]]
    assert elements[3] == Watermark(7)


def test_other_channels_have_their_turn_between_the_parts() -> None:
    gate = paced(2, 2)
    put(gate, 0, numbers(range(6)))
    put(gate, 1, numbers([9]))
    assert [index for index, _ in take_all(gate)] == [0, 1, 0, 0]


def test_an_unaligned_barrier_passes_between_the_parts_and_the_rest_belongs_to_its_checkpoint() -> None:
    gate = paced(1, 2)
    gate.let_overtake([0])
    put(gate, 0, numbers(range(6)))
    first = gate.next()
    assert first is not None
    assert numbers_in([first[1]]) == [0, 1]  # type: ignore[index, list-item]
    barrier = Barrier(1, CheckpointMode.UNALIGNED)
    put(gate, 0, barrier)
    assert gate.next_urgent(0.0) == (0, barrier)
    overtaken = gate.take_overtaken(1)
    assert overtaken is not None
    assert numbers_in(overtaken[0]) == [2, 3, 4, 5]
    assert numbers_in([element for _, element in take_all(gate)]) == [2, 3, 4, 5]


def test_senders_share_what_the_task_wants_to_have_before_it() -> None:
    gate = InputGate(range(30))
    assert gate.wanted_rows == math.inf
    pace = Pace(0.1, 100_000)
    gate.follow(pace)
    pace.add(100, 0.2)
    assert gate.wanted_rows == 50.0
    for channel in range(2):
        put(gate, channel, numbers([1]))
    assert gate.wanted_rows == 25.0
    for channel in range(30):
        put(gate, channel, numbers([1]))
    assert gate.wanted_rows == 5.0, "beyond ten, messages would cost more than their rows"
