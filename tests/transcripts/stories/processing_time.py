"""Windows and triggers of processing time: the clock alone counts, the rows' event times do not."""

from __future__ import annotations

from penstock import (
    ContinuousProcessingTimeTrigger,
    CountTrigger,
    cumulative,
    global_windows,
    session,
    sliding,
    tumbling,
)
from tests.transcripts.driver import Transcript

PROCESSING_TIME = [
    Transcript("processing time: tumbling", lambda k: k.window(tumbling("10ms", time="processing")), """
        p 3
        + a@1000 1
        p 8
        + a@5 2
        p 9
        = a 0-10 3
        p 50
    """),
    Transcript("processing time: a watermark fires nothing",
               lambda k: k.window(tumbling("10ms", time="processing")), """
        + a@0 1
        w 100
        p 9
        = a 0-10 1
    """),
    Transcript("processing time: the end of time fires nothing",
               lambda k: k.window(tumbling("10ms", time="processing")), """
        + a@0 1
        w max
        p 9
        = a 0-10 1
    """),
    Transcript("processing time: nothing is late", lambda k: k.window(tumbling("10ms", time="processing")), """
        w 1000
        p 5
        + a@0 1
        p 20
        = a 0-10 1
    """),
    Transcript("processing time: an offset", lambda k: k.window(tumbling("10ms", offset="3ms", time="processing")), """
        + a@0 1
        p 2
        = a -7-3 1
        p 4
        + a@0 2
        p 12
        = a 3-13 2
    """),
    Transcript("processing time: keys", lambda k: k.window(tumbling("10ms", time="processing")), """
        + a@0 1
        p 10
        = a 0-10 1
        + b@0 2, a@0 4
        p 19
        = a 10-20 4, b 10-20 2
    """),
    Transcript("processing time: sliding", lambda k: k.window(sliding("10ms", "5ms", time="processing")), """
        p 7
        + a@0 1
        p 9
        = a 0-10 1
        p 14
        = a 5-15 1
    """),
    Transcript("processing time: session", lambda k: k.window(session("10ms", time="processing")), """
        + a@0 1
        p 5
        + a@0 2
        p 13
        p 14
        = a 0-15 3
        p 20
        + a@0 4
        p 100
        = a 20-30 4
    """),
    Transcript("processing time: cumulative", lambda k: k.window(cumulative("20ms", "10ms", time="processing")), """
        p 1
        + a@0 1
        p 9
        = a 0-10 1
        p 11
        + a@0 2
        p 19
        = a 0-20 3
    """),
    Transcript("processing time: count trigger", lambda k: k.window(
        tumbling("10ms", time="processing")).trigger(CountTrigger(2)), """
        + a@0 1, a@0 2
        = a 0-10 3
        p 30
        + a@0 4, a@0 8
        = a 30-40 12
    """),
    Transcript("processing time: restored before the window ends",
               lambda k: k.window(tumbling("10ms", time="processing")), """
        p 3
        + a@0 1
        s
        p 9
        = a 0-10 1
        s
        p 30
    """),
    Transcript("processing time: restored in the millisecond in which a window fired",
               lambda k: k.window(tumbling("10ms", time="processing")), """
        + a@0 1
        p 9
        = a 0-10 1
        s
        + a@0 2
        p 19
        = a 10-20 2
    """),
    Transcript("processing time: restored session", lambda k: k.window(session("10ms", time="processing")), """
        + a@0 1
        s
        p 5
        + a@0 2
        s
        p 14
        = a 0-15 3
    """),
    Transcript("continuous processing time: global window", lambda k: k.window(
        global_windows()).trigger(ContinuousProcessingTimeTrigger("10ms")), """
        p 3
        + a@0 1
        p 9
        p 10
        = a * 1
        p 20
        = a * 1
        + a@1 2
        p 30
        = a * 3
    """),
    Transcript("continuous processing time: inside a window, and at its end", lambda k: k.window(
        tumbling("20ms", time="processing")).trigger(ContinuousProcessingTimeTrigger("5ms")), """
        p 1
        + a@0 1
        p 5
        = a 0-20 1
        p 6
        + a@0 2
        p 10
        = a 0-20 3
        p 19
        = a 0-20 3, a 0-20 3
        p 60
    """),
    Transcript("continuous processing time: restored", lambda k: k.window(
        global_windows()).trigger(ContinuousProcessingTimeTrigger("10ms")), """
        p 3
        + a@0 1
        s
        p 10
        = a * 1
        s
        p 20
        = a * 1
    """),
    Transcript("all: processing time", lambda s: s.window_all(tumbling("10ms", time="processing")), """
        + a@0 1, b@0 2
        p 9
        = all 0-10 3
    """, keyed=False),
]  # fmt: skip
