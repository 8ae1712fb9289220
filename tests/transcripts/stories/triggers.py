"""Triggers on windows of event time, early and late firings, and triggers and windows of one's own."""

from __future__ import annotations

from typing import Any

from penstock import (
    ContinuousEventTimeTrigger,
    CountTrigger,
    DeltaTrigger,
    EventTimeTrigger,
    PurgingTrigger,
    TimeWindow,
    Trigger,
    TriggerContext,
    TriggerResult,
    WindowAssigner,
    global_windows,
    session,
    sliding,
    tumbling,
)
from tests.transcripts.driver import Transcript


def _rise(last: dict[str, Any], new: dict[str, Any]) -> float:
    """How much larger the new value is."""
    return float(new["v"] - last["v"])


class _AtNinety(Trigger):
    """Fires whenever a row has the value 90, and purges at 99."""

    def on_element(
        self, row: dict[str, Any], timestamp: int | None, window: TimeWindow, context: TriggerContext
    ) -> TriggerResult:
        return {90: TriggerResult.FIRE, 99: TriggerResult.FIRE_AND_PURGE}.get(row["v"], TriggerResult.CONTINUE)


class _Nearest(WindowAssigner):
    """Two windows around each row: that of its ten, and that of its hundred."""

    def assign_windows(self, row: dict[str, Any], timestamp: int | None, context: Any) -> list[TimeWindow]:
        assert timestamp is not None
        return [TimeWindow(timestamp - timestamp % size, timestamp - timestamp % size + size) for size in (10, 100)]


TRIGGERS = [
    Transcript("count trigger: a window fires early, and not at its end",
               lambda k: k.window(tumbling("10ms")).trigger(CountTrigger(2)), """
        + a@0 1, a@1 2
        = a 0-10 3
        + a@2 4
        w 9
        + a@3 8
        ~ a@3 8
    """),
    Transcript("count trigger: each window counts by itself",
               lambda k: k.window(tumbling("10ms")).trigger(CountTrigger(2)), """
        + a@0 1, a@11 2, a@1 4, b@2 8
        = a 0-10 5
        + a@12 16, b@3 32
        = a 10-20 18, b 0-10 40
    """),
    Transcript("count trigger: sliding", lambda k: k.window(sliding("10ms", "5ms")).trigger(CountTrigger(2)), """
        + a@6 1
        + a@11 2
        = a 5-15 3
        + a@7 4
        = a 0-10 5
    """),
    Transcript("count trigger: counts of merged sessions add up",
               lambda k: k.window(session("10ms")).trigger(CountTrigger(3)), """
        + a@0 1, a@18 2
        + a@9 4
        = a 0-28 7
        w 100
    """),
    Transcript("count trigger: restored counts of sessions",
               lambda k: k.window(session("10ms")).trigger(CountTrigger(3)), """
        + a@0 1
        s
        + a@18 2
        s
        + a@9 4
        = a 0-28 7
    """),
    Transcript("count trigger, lateness: late rows count too",
               lambda k: k.window(tumbling("10ms")).trigger(CountTrigger(2)).allowed_lateness("10ms"), """
        + a@0 1
        w 9
        + a@1 2
        = a 0-10 3
        w 19
        + a@2 4
        ~ a@2 4
    """),
    Transcript("purging event time trigger: a late row comes alone",
               lambda k: k.window(tumbling("10ms")).trigger(PurgingTrigger(EventTimeTrigger())).allowed_lateness("9ms"),
               """
        + a@0 1
        w 9
        = a 0-10 1
        + a@1 2
        = a 0-10 2
        + a@2 4
        = a 0-10 4
    """),
    Transcript("purging event time trigger: session",
               lambda k: k.window(session("10ms")).trigger(PurgingTrigger(EventTimeTrigger())).allowed_lateness("50ms"),
               """
        + a@0 1
        w 9
        = a 0-10 1
        + a@5 2
        w 14
        = a 0-15 2
    """),
    Transcript("purging count trigger on a tumbling window",
               lambda k: k.window(tumbling("10ms")).trigger(PurgingTrigger(CountTrigger(2))), """
        + a@0 1, a@1 2, a@2 4, a@3 8, a@4 16
        = a 0-10 3, a 0-10 12
        w max
    """),
    Transcript("purging count trigger, restored", lambda k: k.window(tumbling("10ms")).trigger(
        PurgingTrigger(CountTrigger(2))), """
        + a@0 1
        s
        + a@1 2
        = a 0-10 3
        s
        + a@2 4
        s
        + a@3 8
        = a 0-10 12
    """),
    Transcript("continuous event time: every interval, and at the end",
               lambda k: k.window(tumbling("20ms")).trigger(ContinuousEventTimeTrigger("5ms")), """
        + a@1 1
        w 4
        w 5
        = a 0-20 1
        w 9
        w 10
        = a 0-20 1
        + a@12 2
        w 15
        = a 0-20 3
        w 18
        w 19
        = a 0-20 3
        w 40
    """),
    Transcript("continuous event time: a jump fires each time in between",
               lambda k: k.window(tumbling("20ms")).trigger(ContinuousEventTimeTrigger("5ms")), """
        + a@1 1
        w 16
        = a 0-20 1, a 0-20 1, a 0-20 1
        w max
        = a 0-20 1
    """),
    Transcript("continuous event time: the first fire follows the first row",
               lambda k: k.window(tumbling("20ms")).trigger(ContinuousEventTimeTrigger("5ms")), """
        + a@12 1
        w 14
        w 15
        = a 0-20 1
        w 19
        = a 0-20 1
    """),
    Transcript("continuous event time: keys have their own times",
               lambda k: k.window(tumbling("20ms")).trigger(ContinuousEventTimeTrigger("5ms")), """
        + a@1 1, b@11 2
        w 5
        = a 0-20 1
        w 10
        = a 0-20 1
        w 15
        = a 0-20 1, b 0-20 2
    """),
    Transcript("continuous event time, lateness: a late row fires at once",
               lambda k: k.window(tumbling("20ms")).trigger(ContinuousEventTimeTrigger("10ms")).allowed_lateness("9ms"),
               """
        + a@1 1
        w 19
        = a 0-20 1, a 0-20 1
        + a@2 2
        = a 0-20 3
    """),
    Transcript("continuous event time: restored",
               lambda k: k.window(tumbling("20ms")).trigger(ContinuousEventTimeTrigger("5ms")), """
        + a@1 1
        s
        w 5
        = a 0-20 1
        s
        w 10
        = a 0-20 1
        s
        w 19
        = a 0-20 1, a 0-20 1
    """),
    Transcript("continuous event time, purging: only what came since",
               lambda k: k.window(tumbling("20ms")).trigger(PurgingTrigger(ContinuousEventTimeTrigger("5ms"))), """
        + a@1 1
        w 5
        = a 0-20 1
        w 10
        + a@12 2
        w 15
        = a 0-20 2
        w 19
    """),
    Transcript("continuous event time: global window goes on for ever",
               lambda k: k.window(global_windows()).trigger(ContinuousEventTimeTrigger("10ms")), """
        + a@1 1
        w 10
        = a * 1
        + a@2 2
        w 20
        = a * 3
    """),
    Transcript("delta: fires on a rise of more than the threshold",
               lambda k: k.window(global_windows()).trigger(DeltaTrigger(5, _rise)), """
        + a@0 1, a@1 4
        + a@2 7
        = a * 12
        + a@3 12
        + a@4 13
        = a * 37
    """),
    Transcript("delta: by key", lambda k: k.window(global_windows()).trigger(DeltaTrigger(5, _rise)), """
        + a@0 1, b@1 100
        + a@2 7
        = a * 8
        + b@3 101
    """),
    Transcript("delta: purging begins anew, the last value stays",
               lambda k: k.window(global_windows()).trigger(PurgingTrigger(DeltaTrigger(5, _rise))), """
        + a@0 1, a@1 7
        = a * 8
        + a@2 12
        + a@3 13
        = a * 25
    """),
    Transcript("delta: in a tumbling window", lambda k: k.window(tumbling("10ms")).trigger(DeltaTrigger(5, _rise)), """
        + a@0 1, a@1 9
        = a 0-10 10
        + a@11 100
        + a@12 103
        w max
    """),
    Transcript("delta: restored", lambda k: k.window(global_windows()).trigger(DeltaTrigger(5, _rise)), """
        + a@0 1
        s
        + a@1 7
        = a * 8
        s
        + a@2 12
        s
        + a@3 13
        = a * 33
    """),
    Transcript("event time trigger given by hand is the default",
               lambda k: k.window(tumbling("10ms")).trigger(EventTimeTrigger()), """
        + a@0 1
        w 9
        = a 0-10 1
        + a@1 2
        ~ a@1 2
    """),
    Transcript("early results by count, the final one at the end",
               lambda k: k.window(tumbling("10ms")).trigger(EventTimeTrigger().with_early_firings(count=2)), """
        + a@0 1
        + a@1 2
        = a 0-10 3
        + a@2 4
        w 9
        = a 0-10 7
        + a@3 8
        ~ a@3 8
    """),
    Transcript("early results by count: each key and window counts by itself",
               lambda k: k.window(tumbling("10ms")).trigger(EventTimeTrigger().with_early_firings(count=2)), """
        + a@0 1, b@0 2, a@11 4
        + b@1 8
        = b 0-10 10
        w 19
        = a 0-10 1, b 0-10 10, a 10-20 4
    """),
    Transcript("early results by the clock, the final one at the end",
               lambda k: k.window(tumbling("1s")).trigger(EventTimeTrigger().with_early_firings(every="10ms")), """
        p 5
        + a@0 1
        p 14
        p 15
        = a 0-1000 1
        + a@1 2
        p 25
        = a 0-1000 3
        w 999
        = a 0-1000 3
        p 100
    """),
    Transcript("early results by the clock and by count",
               lambda k: k.window(tumbling("1s")).trigger(
                   EventTimeTrigger().with_early_firings(every="10ms", count=2)), """
        + a@0 1
        + a@1 2
        = a 0-1000 3
        p 10
        = a 0-1000 3
        w 999
        = a 0-1000 3
    """),
    Transcript("early results, then late ones within the allowed lateness",
               lambda k: k.window(tumbling("10ms")).trigger(
                   EventTimeTrigger().with_early_firings(count=2)).allowed_lateness("10ms"), """
        + a@0 1, a@1 2
        = a 0-10 3
        w 9
        = a 0-10 3
        + a@2 4
        = a 0-10 7
        w 19
        + a@3 8
        ~ a@3 8
    """),
    Transcript("late results for so many late rows, and what is left when the lateness is over",
               lambda k: k.window(tumbling("10ms")).trigger(
                   EventTimeTrigger().with_late_firings(count=2)).allowed_lateness("10ms"), """
        + a@0 1
        w 9
        = a 0-10 1
        + a@1 2
        + a@2 4
        = a 0-10 7
        + a@3 8
        w 19
        = a 0-10 15
    """),
    Transcript("early results, restored", lambda k: k.window(tumbling("1s")).trigger(
        EventTimeTrigger().with_early_firings(every="10ms")), """
        + a@0 1
        s
        p 10
        = a 0-1000 1
        s
        p 20
        = a 0-1000 1
        s
        w 999
        = a 0-1000 1
    """),
    Transcript("early results of sessions go on when they merge", lambda k: k.window(session("10ms")).trigger(
        EventTimeTrigger().with_early_firings(count=2)), """
        + a@0 1
        + a@5 2
        = a 0-15 3
        + a@9 4
        w 18
        = a 0-19 7
    """),
    Transcript("a trigger of one's own", lambda k: k.window(global_windows()).trigger(_AtNinety()), """
        + a@0 1, a@1 90
        = a * 91
        + a@2 99
        = a * 190
        + a@3 90
        = a * 90
    """),
    Transcript("a trigger of one's own in windows of time: they are cleared at their end",
               lambda k: k.window(tumbling("10ms")).trigger(_AtNinety()), """
        + a@0 1, a@11 2
        w 9
        + a@12 90
        = a 10-20 92
    """),
    Transcript("windows of one's own", lambda k: k.window(_Nearest()), """
        + a@5 1, a@42 2
        w 9
        = a 0-10 1
        w 49
        = a 40-50 2
        w 99
        = a 0-100 3
    """),
    Transcript("windows of one's own, lateness", lambda k: k.window(_Nearest()).allowed_lateness("5ms"), """
        + a@5 1
        w 12
        = a 0-10 1
        + a@6 2
        = a 0-10 3
        w 14
        + a@7 4
        w 99
        = a 0-100 7
    """),
    Transcript("late results: late rows that came out with a longer session do not count again",
               lambda k: k.window(session("10ms")).trigger(
                   EventTimeTrigger().with_late_firings(count=3)).allowed_lateness("100ms"), """
        + a@0 1
        w 9
        = a 0-10 1
        + a@0 2
        + a@5 4
        w 14
        = a 0-15 7
        w 200
    """),
]  # fmt: skip
