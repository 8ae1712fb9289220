"""Evictors: what they take out of a window before its function sees it, and out of its state."""

from __future__ import annotations

from typing import Any

from penstock import (
    CountEvictor,
    CountTrigger,
    DeltaEvictor,
    PurgingTrigger,
    TimeEvictor,
    global_windows,
    session,
    sliding,
    tumbling,
)
from tests.transcripts.driver import Transcript


def _rise(one: dict[str, Any], last: dict[str, Any]) -> float:
    """How much larger the last value is."""
    return float(last["v"] - one["v"])


EVICTORS = [
    Transcript("count evictor: the last two", lambda k: k.window(tumbling("10ms")).evictor(CountEvictor(2)), """
        + a@0 1, a@1 2, a@2 4
        w 9
        = a 0-10 6
    """),
    Transcript("count evictor: fewer rows stay", lambda k: k.window(tumbling("10ms")).evictor(CountEvictor(5)), """
        + a@0 1, a@1 2
        w 9
        = a 0-10 3
    """),
    Transcript("count evictor: last by arrival, not by time",
               lambda k: k.window(tumbling("10ms")).evictor(CountEvictor(1)), """
        + a@9 1, a@0 2
        w 9
        = a 0-10 2
    """),
    Transcript("count evictor: what was evicted is gone",
               lambda k: k.window(global_windows()).trigger(CountTrigger(2)).evictor(CountEvictor(3)), """
        + a@0 1, a@1 2
        = a * 3
        + a@2 4, a@3 8
        = a * 14
        + a@4 16, a@5 32
        = a * 56
    """),
    Transcript("count evictor: with a purging trigger",
               lambda k: k.window(global_windows()).trigger(PurgingTrigger(CountTrigger(3))).evictor(CountEvictor(2)),
               """
        + a@0 1, a@1 2, a@2 4
        = a * 6
        + a@3 8, a@4 16, a@5 32
        = a * 48
    """),
    Transcript("count evictor: late update",
               lambda k: k.window(tumbling("10ms")).allowed_lateness("10ms").evictor(CountEvictor(2)), """
        + a@0 1, a@1 2
        w 9
        = a 0-10 3
        + a@2 4
        = a 0-10 6
        w 19
        + a@3 8
        ~ a@3 8
    """),
    Transcript("count evictor: behind the function, for the next time",
               lambda k: k.window(global_windows()).trigger(CountTrigger(2)).evictor(
                   CountEvictor(1, evict="after")), """
        + a@0 1, a@1 2
        = a * 3
        + a@2 4, a@3 8
        = a * 14
    """),
    Transcript("count evictor: sliding", lambda k: k.window(sliding("10ms", "5ms")).evictor(CountEvictor(1)), """
        + a@6 1, a@7 2
        w 9
        = a 0-10 2
        w 14
        = a 5-15 2
    """),
    Transcript("count evictor: session", lambda k: k.window(session("10ms")).evictor(CountEvictor(2)), """
        + a@0 1, a@5 2, a@9 4
        s
        w 18
        = a 0-19 6
    """),
    Transcript("count evictor: restored",
               lambda k: k.window(global_windows()).trigger(CountTrigger(2)).evictor(CountEvictor(2)), """
        + a@0 1
        s
        + a@1 2
        = a * 3
        s
        + a@2 4, a@3 8
        = a * 12
    """),
    Transcript("time evictor: rows near the youngest stay",
               lambda k: k.window(tumbling("100ms")).evictor(TimeEvictor("10ms")), """
        + a@0 1, a@40 2, a@41 4, a@50 8
        w 99
        = a 0-100 12
    """),
    Transcript("time evictor: exactly as old as allowed goes",
               lambda k: k.window(tumbling("100ms")).evictor(TimeEvictor("10ms")), """
        + a@10 1, a@20 2
        w 99
        = a 0-100 2
    """),
    Transcript("time evictor: the youngest counts, not the last",
               lambda k: k.window(tumbling("100ms")).evictor(TimeEvictor("10ms")), """
        + a@50 1, a@45 2, a@30 4
        w 99
        = a 0-100 3
    """),
    Transcript("time evictor: global window",
               lambda k: k.window(global_windows()).trigger(CountTrigger(1)).evictor(TimeEvictor("10ms")), """
        + a@0 1
        = a * 1
        + a@5 2
        = a * 3
        + a@12 4
        = a * 6
        + a@100 8
        = a * 8
    """),
    Transcript("time evictor: by key",
               lambda k: k.window(tumbling("100ms")).evictor(TimeEvictor("10ms")), """
        + a@0 1, b@50 2, a@5 4
        w 99
        = a 0-100 5, b 0-100 2
    """),
    Transcript("delta evictor: rows far below the last go",
               lambda k: k.window(tumbling("10ms")).evictor(DeltaEvictor(5, _rise)), """
        + a@0 1, a@1 6, a@2 8
        w 9
        = a 0-10 14
    """),
    Transcript("delta evictor: at the threshold goes",
               lambda k: k.window(tumbling("10ms")).evictor(DeltaEvictor(5, _rise)), """
        + a@0 3, a@1 8
        w 9
        = a 0-10 8
    """),
    Transcript("delta evictor: larger ones stay",
               lambda k: k.window(tumbling("10ms")).evictor(DeltaEvictor(5, _rise)), """
        + a@0 100, a@1 8
        w 9
        = a 0-10 108
    """),
    Transcript("all: count evictor", lambda s: s.window_all(tumbling("10ms")).evictor(CountEvictor(1)), """
        + a@0 1, b@1 2
        w 9
        = all 0-10 2
    """, keyed=False),
]  # fmt: skip
