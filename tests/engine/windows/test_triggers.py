"""What each trigger says to a row, a timer and a merge, by Flink's rules."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from penstock.engine.elements import MAX_TIMESTAMP, MIN_TIMESTAMP
from penstock.engine.errors import ConfigurationError
from penstock.engine.windows.trigger_base import Trigger, TriggerResult
from penstock.engine.windows.triggers import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    CountTrigger,
    DeltaTrigger,
    EndOfTimeTrigger,
    EventTimeTrigger,
    NeverTrigger,
    ProcessingTimeTrigger,
    PurgingTrigger,
)
from penstock.engine.windows.windows import GLOBAL_WINDOW, TimeWindow

CONTINUE, FIRE = TriggerResult.CONTINUE, TriggerResult.FIRE
PURGE, FIRE_AND_PURGE = TriggerResult.PURGE, TriggerResult.FIRE_AND_PURGE
WINDOW = TimeWindow(0, 100)


class _State:
    """One state of one window: a reduced value, or any value."""

    def __init__(self, descriptor: Any) -> None:
        self._reduce = getattr(descriptor, "function", None)
        self.held: Any = None

    def get(self) -> Any:
        return self.held

    value = get

    def add(self, value: Any) -> None:
        self.held = value if self.held is None else self._reduce(self.held, value)

    def update(self, value: Any) -> None:
        self.held = value

    def clear(self) -> None:
        self.held = None


class Context:
    """Time, timers and state of one window, and the states of windows that were merged into it."""

    def __init__(self, *merged: Context) -> None:
        self.current_watermark = MIN_TIMESTAMP
        self.current_processing_time = 0
        self.event_timers: set[int] = set()
        self.processing_timers: set[int] = set()
        self.states: dict[str, _State] = {}
        self._merged = merged

    def register_event_time_timer(self, time: int) -> None:
        self.event_timers.add(time)

    def register_processing_time_timer(self, time: int) -> None:
        self.processing_timers.add(time)

    def delete_event_time_timer(self, time: int) -> None:
        self.event_timers.discard(time)

    def delete_processing_time_timer(self, time: int) -> None:
        self.processing_timers.discard(time)

    def get_partitioned_state(self, descriptor: Any) -> Any:
        return self.states.setdefault(descriptor.name, _State(descriptor))

    def merge_partitioned_state(self, descriptor: Any) -> None:
        for other in self._merged:
            held = other.get_partitioned_state(descriptor)
            if held.get() is not None:
                self.get_partitioned_state(descriptor).add(held.get())
                held.clear()

    @property
    def is_clean(self) -> bool:
        """Whether nothing is left of the window."""
        held = [state for state in self.states.values() if state.held is not None]
        return not (held or self.event_timers or self.processing_timers)


def rows(
    trigger: Trigger, context: Context, count: int, at: int = 0, window: TimeWindow = WINDOW
) -> list[TriggerResult]:
    return [trigger.on_element({"v": 1}, at, window, context) for _ in range(count)]  # type: ignore[arg-type]


def merge(trigger: Trigger, *contexts: Context, window: TimeWindow = WINDOW, watermark: int = MIN_TIMESTAMP) -> Context:
    into = Context(*contexts)
    into.current_watermark = watermark
    trigger.on_merge(window, into)  # type: ignore[arg-type]
    return into


def test_results_say_whether_to_fire_and_to_purge() -> None:
    said = {result.name: (result.is_fire, result.is_purge) for result in TriggerResult}
    assert said == {
        "CONTINUE": (False, False),
        "FIRE": (True, False),
        "PURGE": (False, True),
        "FIRE_AND_PURGE": (True, True),
    }


class TestEventTime:
    def test_it_waits_for_the_end_of_the_window(self) -> None:
        trigger, context = EventTimeTrigger(), Context()
        assert rows(trigger, context, 2) == [CONTINUE, CONTINUE]
        assert context.event_timers == {99}
        assert trigger.on_event_time(50, WINDOW, context) is CONTINUE
        assert trigger.on_event_time(99, WINDOW, context) is FIRE
        assert trigger.on_processing_time(99, WINDOW, context) is CONTINUE

    def test_a_late_row_fires_at_once(self) -> None:
        trigger, context = EventTimeTrigger(), Context()
        context.current_watermark = 99
        assert rows(trigger, context, 2) == [FIRE, FIRE]
        assert context.event_timers == set()

    def test_a_merged_window_waits_for_its_own_end_unless_that_is_over(self) -> None:
        assert merge(EventTimeTrigger(), Context(), Context(), watermark=98).event_timers == {99}
        assert merge(EventTimeTrigger(), Context(), Context(), watermark=99).event_timers == set()

    def test_clear_leaves_nothing(self) -> None:
        trigger = EventTimeTrigger(early_every="1s", early_count=5, late_count=3)
        context = Context()
        rows(trigger, context, 3)
        context.current_watermark = 99
        rows(trigger, context, 2)
        trigger.clear(WINDOW, context)
        assert context.is_clean

    def test_early_results_by_count(self) -> None:
        trigger, context = EventTimeTrigger().with_early_firings(count=3), Context()
        assert rows(trigger, context, 7) == [CONTINUE, CONTINUE, FIRE, CONTINUE, CONTINUE, FIRE, CONTINUE]
        assert trigger.on_event_time(99, WINDOW, context) is FIRE

    def test_early_results_by_time_count_from_the_first_row(self) -> None:
        trigger, context = EventTimeTrigger().with_early_firings(every="5s"), Context()
        context.current_processing_time = 1_200
        rows(trigger, context, 1)
        context.current_processing_time = 3_000
        rows(trigger, context, 1)
        assert context.processing_timers == {6_200}
        context.processing_timers.clear()
        context.current_processing_time = 6_200
        assert trigger.on_processing_time(6_200, WINDOW, context) is FIRE
        assert context.processing_timers == {11_200}
        assert trigger.on_processing_time(7_777, WINDOW, context) is CONTINUE

    def test_early_results_that_were_missed_are_not_made_up_for(self) -> None:
        trigger, context = EventTimeTrigger(early_every="5s"), Context()
        rows(trigger, context, 1)
        context.current_processing_time = 60_000
        assert trigger.on_processing_time(5_000, WINDOW, context) is FIRE
        assert 65_000 in context.processing_timers

    def test_no_early_results_behind_the_watermark(self) -> None:
        trigger, context = EventTimeTrigger(early_every="5s", early_count=2), Context()
        rows(trigger, context, 1)
        context.current_watermark = 99
        assert trigger.on_event_time(99, WINDOW, context) is FIRE
        assert context.processing_timers == set()
        assert trigger.on_processing_time(5_000, WINDOW, context) is CONTINUE
        assert rows(trigger, context, 1) == [FIRE]

    def test_late_results_by_count_and_the_rest_at_the_end_of_the_lateness(self) -> None:
        trigger, context = EventTimeTrigger().with_late_firings(count=2), Context()
        context.current_watermark = 99
        assert rows(trigger, context, 3) == [CONTINUE, FIRE, CONTINUE]
        assert trigger.on_event_time(150, WINDOW, context) is FIRE
        assert trigger.on_event_time(150, WINDOW, context) is CONTINUE

    def test_merging_adds_counts_and_keeps_the_earliest_time(self) -> None:
        trigger = EventTimeTrigger(early_every="5s", early_count=4)
        one, other = Context(), Context()
        other.current_processing_time = 1_000
        rows(trigger, one, 2)
        rows(trigger, other, 1)
        merged = merge(trigger, one, other)
        assert merged.processing_timers == {5_000}
        assert rows(trigger, merged, 1) == [FIRE]


class TestProcessingTime:
    def test_it_waits_for_the_clock(self) -> None:
        trigger, context = ProcessingTimeTrigger(), Context()
        assert rows(trigger, context, 1) == [CONTINUE]
        assert context.processing_timers == {99}
        assert trigger.on_event_time(99, WINDOW, context) is CONTINUE
        assert trigger.on_processing_time(99, WINDOW, context) is FIRE
        trigger.clear(WINDOW, context)
        assert context.is_clean

    def test_a_merged_window_waits_for_its_own_end(self) -> None:
        assert merge(ProcessingTimeTrigger(), Context()).processing_timers == {99}


class TestCount:
    def test_it_fires_at_each_nth_row(self) -> None:
        trigger, context = CountTrigger(3), Context()
        assert rows(trigger, context, 7) == [CONTINUE, CONTINUE, FIRE, CONTINUE, CONTINUE, FIRE, CONTINUE]
        assert trigger.on_event_time(99, WINDOW, context) is CONTINUE
        assert trigger.on_processing_time(99, WINDOW, context) is CONTINUE
        trigger.clear(WINDOW, context)
        assert context.is_clean

    def test_merged_counts_add_up(self) -> None:
        trigger, one, other = CountTrigger(4), Context(), Context()
        rows(trigger, one, 2)
        rows(trigger, other, 1)
        assert rows(trigger, merge(trigger, one, other, Context()), 1) == [FIRE]


class TestContinuousEventTime:
    def test_it_fires_at_multiples_of_the_interval(self) -> None:
        trigger, context = ContinuousEventTimeTrigger("30ms"), Context()
        assert rows(trigger, context, 2, at=35) == [CONTINUE, CONTINUE]
        assert context.event_timers == {60, 99}
        context.event_timers.remove(60)
        assert trigger.on_event_time(60, WINDOW, context) is FIRE
        assert context.event_timers == {90, 99}
        context.event_timers.remove(90)
        assert trigger.on_event_time(90, WINDOW, context) is FIRE
        assert context.event_timers == {99}
        assert trigger.on_event_time(99, WINDOW, context) is FIRE

    def test_before_1970_multiples_are_found_downwards(self) -> None:
        context = Context()
        rows(ContinuousEventTimeTrigger("30ms"), context, 1, at=-35, window=TimeWindow(-100, 0))
        assert context.event_timers == {-30, -1}

    def test_another_windows_timer_is_none_of_its_own(self) -> None:
        trigger, context = ContinuousEventTimeTrigger("30ms"), Context()
        rows(trigger, context, 1)
        assert trigger.on_event_time(31, WINDOW, context) is CONTINUE

    def test_a_late_row_fires_at_once(self) -> None:
        trigger, context = ContinuousEventTimeTrigger("30ms"), Context()
        context.current_watermark = 99
        assert rows(trigger, context, 1) == [FIRE]

    def test_the_global_window_fires_once_at_the_end_of_time(self) -> None:
        trigger, context = ContinuousEventTimeTrigger("30ms"), Context()
        rows(trigger, context, 1, window=GLOBAL_WINDOW)
        assert context.event_timers == {30, MAX_TIMESTAMP}
        context.current_watermark = MAX_TIMESTAMP
        assert trigger.on_event_time(30, GLOBAL_WINDOW, context) is CONTINUE
        assert context.event_timers == {30, MAX_TIMESTAMP}
        assert trigger.on_event_time(MAX_TIMESTAMP, GLOBAL_WINDOW, context) is FIRE

    def test_merging_keeps_the_earliest_time(self) -> None:
        trigger, one, other = ContinuousEventTimeTrigger("30ms"), Context(), Context()
        rows(trigger, one, 1, at=65)
        rows(trigger, other, 1, at=35)
        assert merge(trigger, one, other).event_timers == {60}

    def test_clear_leaves_nothing(self) -> None:
        trigger, context = ContinuousEventTimeTrigger("30ms"), Context()
        rows(trigger, context, 1)
        trigger.clear(WINDOW, context)
        assert context.is_clean


class TestContinuousProcessingTime:
    def test_it_fires_at_multiples_of_the_interval_and_at_the_end(self) -> None:
        trigger, context = ContinuousProcessingTimeTrigger("40ms"), Context()
        context.current_processing_time = 3
        rows(trigger, context, 2)
        assert context.processing_timers == {40}
        assert trigger.on_processing_time(40, WINDOW, context) is FIRE
        assert trigger.on_processing_time(80, WINDOW, context) is FIRE
        assert context.processing_timers == {40, 80, 99}
        assert trigger.on_processing_time(99, WINDOW, context) is FIRE

    def test_a_window_of_event_time_that_ended_long_ago_does_not_stand_still(self) -> None:
        trigger, context = ContinuousProcessingTimeTrigger("40ms"), Context()
        context.current_processing_time = 1_000
        rows(trigger, context, 1)
        assert context.processing_timers == {1_040}
        assert trigger.on_processing_time(1_040, WINDOW, context) is FIRE
        assert context.processing_timers == {1_040, 1_080}

    def test_merging_and_clearing(self) -> None:
        trigger, one, other = ContinuousProcessingTimeTrigger("40ms"), Context(), Context()
        rows(trigger, one, 1)
        other.current_processing_time = 50
        rows(trigger, other, 1)
        merged = merge(trigger, one, other)
        assert merged.processing_timers == {40}
        trigger.clear(WINDOW, merged)
        assert merged.is_clean
        assert trigger.on_processing_time(40, WINDOW, merged) is CONTINUE


class TestPurging:
    def test_whatever_fires_is_purged(self) -> None:
        trigger, context = PurgingTrigger(CountTrigger(2)), Context()
        assert rows(trigger, context, 3) == [CONTINUE, FIRE_AND_PURGE, CONTINUE]

    @pytest.mark.parametrize(
        ("said", "result"),
        [(CONTINUE, CONTINUE), (FIRE, FIRE_AND_PURGE), (PURGE, PURGE), (FIRE_AND_PURGE, FIRE_AND_PURGE)],
    )
    def test_other_results_stay(self, said: TriggerResult, result: TriggerResult) -> None:
        class Says(Trigger):
            def on_element(self, *given: Any) -> TriggerResult:
                return said

        assert rows(PurgingTrigger(Says()), Context(), 1) == [result]

    def test_it_merges_as_the_other_does(self) -> None:
        assert PurgingTrigger(CountTrigger(2)).can_merge
        assert not PurgingTrigger(DeltaTrigger(1, _rise)).can_merge
        assert merge(PurgingTrigger(EventTimeTrigger()), Context()).event_timers == {99}

    def test_timers_and_clearing_go_to_the_other(self) -> None:
        trigger, context = PurgingTrigger(EventTimeTrigger()), Context()
        rows(trigger, context, 1)
        assert trigger.on_event_time(99, WINDOW, context) is FIRE_AND_PURGE
        trigger.clear(WINDOW, context)
        assert context.is_clean
        assert PurgingTrigger(ProcessingTimeTrigger()).on_processing_time(99, WINDOW, context) is FIRE_AND_PURGE


class TestDelta:
    def test_it_fires_above_the_threshold_since_the_last_firing(self) -> None:
        trigger, context = DeltaTrigger(5, _rise), Context()
        results = [trigger.on_element({"v": v}, 0, WINDOW, context) for v in (1, 6, 7, 8, 12, 13)]
        assert results == [CONTINUE, CONTINUE, FIRE, CONTINUE, CONTINUE, FIRE]
        trigger.clear(WINDOW, context)
        assert context.is_clean

    def test_it_does_not_merge(self) -> None:
        assert not DeltaTrigger(5, _rise).can_merge
        with pytest.raises(NotImplementedError, match="DeltaTrigger has no on_merge"):
            merge(DeltaTrigger(5, _rise), Context())


def test_the_end_of_time_fires_once() -> None:
    trigger, context = EndOfTimeTrigger(), Context()
    assert rows(trigger, context, 1) == [CONTINUE]
    assert context.event_timers == {MAX_TIMESTAMP}
    assert trigger.on_event_time(99, WINDOW, context) is CONTINUE
    assert trigger.on_event_time(MAX_TIMESTAMP, WINDOW, context) is FIRE
    assert merge(trigger, context).event_timers == {MAX_TIMESTAMP}
    trigger.clear(WINDOW, context)
    assert context.is_clean


def test_never_is_never() -> None:
    trigger, context = NeverTrigger(), Context()
    assert rows(trigger, context, 1) == [CONTINUE]
    assert trigger.on_event_time(MAX_TIMESTAMP, WINDOW, context) is CONTINUE
    assert merge(trigger, context).is_clean


ALL: list[Trigger] = [
    EventTimeTrigger(),
    EventTimeTrigger("1s", 2, 3),
    ProcessingTimeTrigger(),
    CountTrigger(5),
    ContinuousEventTimeTrigger("1m"),
    ContinuousProcessingTimeTrigger("1m"),
    EndOfTimeTrigger(),
    NeverTrigger(),
    PurgingTrigger(CountTrigger(5)),
]


@pytest.mark.parametrize("trigger", ALL, ids=Trigger.describe)
def test_triggers_are_values(trigger: Trigger) -> None:
    copied = pickle.loads(pickle.dumps(trigger))
    assert copied == trigger
    assert copied.describe() == trigger.describe()
    assert not trigger.reads_rows


def test_triggers_tell_what_they_are() -> None:
    assert [trigger.describe() for trigger in [*ALL, DeltaTrigger(2.5, _rise)]] == [
        "event time",
        "event time, early every 1s every 2 rows, late every 3 rows",
        "processing time",
        "count 5",
        "continuous event time 1m",
        "continuous processing time 1m",
        "end of time",
        "never",
        "purging count 5",
        "delta over 2.5",
    ]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: CountTrigger(0), "CountTrigger: count must be a whole number of 1 or more, not 0"),
        (lambda: CountTrigger(2.5), "not 2.5"),  # type: ignore[arg-type]
        (lambda: EventTimeTrigger(early_every="0s"), "early_every must be more than 0"),
        (lambda: EventTimeTrigger(early_count=0), "early_count must be a whole number"),
        (lambda: EventTimeTrigger().with_early_firings(), "give every='10s', count=100, or both"),
        (lambda: EventTimeTrigger().with_late_firings(count=0), "count must be a whole number"),
        (lambda: ContinuousEventTimeTrigger("0ms"), "interval must be more than 0"),
        (lambda: ContinuousProcessingTimeTrigger(f"{2**60 + 1}ms"), r"interval must be at most 2\*\*60 ms"),
        (lambda: EventTimeTrigger(early_every=f"{2**63}ms"), r"early_every must be at most 2\*\*60 ms"),
        (lambda: ContinuousProcessingTimeTrigger("now"), "'now' is no duration"),
        (lambda: PurgingTrigger(CountTrigger), "PurgingTrigger takes a trigger"),  # type: ignore[arg-type]
        (lambda: DeltaTrigger(1, "v"), "delta must be a function of two rows"),  # type: ignore[arg-type]
    ],
)
def test_what_cannot_be_used_is_refused(make: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        make()


def _rise(last: dict[str, Any], new: dict[str, Any]) -> float:
    return float(new["v"] - last["v"])
