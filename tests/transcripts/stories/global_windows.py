"""Global windows with triggers, and the count windows that are made of them."""

from __future__ import annotations

from penstock import CountTrigger, EndOfTimeTrigger, PurgingTrigger, global_windows
from tests.transcripts.driver import Transcript

GLOBAL = [
    Transcript("global: without a trigger nothing ever fires", lambda k: k.window(global_windows()), """
        + a@0 1, a@1 2
        w 100
        w max
    """),
    Transcript("global: count trigger, contents kept",
               lambda k: k.window(global_windows()).trigger(CountTrigger(2)), """
        + a@0 1
        + a@1 2
        = a * 3
        + a@2 4
        + a@3 8
        = a * 15
    """),
    Transcript("global: count trigger, several rows at once",
               lambda k: k.window(global_windows()).trigger(CountTrigger(2)), """
        + a@0 1, a@1 2, a@2 4, a@3 8, a@4 16
        = a * 3, a * 15
    """),
    Transcript("global: count trigger by key", lambda k: k.window(global_windows()).trigger(CountTrigger(2)), """
        + a@0 1, b@0 2, b@1 4
        = b * 6
        + a@1 8
        = a * 9
    """),
    Transcript("global: count trigger of one", lambda k: k.window(global_windows()).trigger(CountTrigger(1)), """
        + a@0 1, a@1 2
        = a * 1, a * 3
    """),
    Transcript("global: purging count trigger begins anew",
               lambda k: k.window(global_windows()).trigger(PurgingTrigger(CountTrigger(2))), """
        + a@0 1, a@1 2
        = a * 3
        + a@2 4
        + a@3 8
        = a * 12
    """),
    Transcript("global: nothing is ever late", lambda k: k.window(global_windows()).trigger(CountTrigger(2)), """
        + a@100 1
        w 1000
        + a@5 2
        = a * 3
    """),
    Transcript("global: end of time", lambda k: k.window(global_windows()).trigger(EndOfTimeTrigger()), """
        + a@0 1, b@1 2
        w 1000
        + a@2 4
        w max
        = a * 5, b * 2
    """),
    Transcript("global: end of time, restored", lambda k: k.window(global_windows()).trigger(EndOfTimeTrigger()), """
        + a@0 1
        s
        + a@2 4
        s
        w max
        = a * 5
    """),
    Transcript("global: a restored count goes on", lambda k: k.window(global_windows()).trigger(CountTrigger(3)), """
        + a@0 1, a@1 2
        s
        + a@2 4
        = a * 7
        s
        + a@3 8, a@4 16
        s
        + a@5 32
        = a * 63
    """),
    Transcript("count window of 4", lambda k: k.count_window(4), """
        + a@0 1, a@1 2, a@2 4
        + a@3 8
        = a * 15
        + a@4 16, a@5 32, a@6 64, a@7 128
        = a * 240
    """),
    Transcript("count window of 4: what is left at the end does not fire", lambda k: k.count_window(4), """
        + a@0 1, a@1 2
        w max
    """),
    Transcript("count window of 4: by key", lambda k: k.count_window(2), """
        + a@0 1, b@0 10, a@1 2, b@1 20, b@2 30
        = a * 3, b * 30
    """),
    Transcript("count window of 1", lambda k: k.count_window(1), """
        + a@0 1, a@1 2
        = a * 1, a * 2
    """),
    Transcript("count window: event time plays no part", lambda k: k.count_window(2), """
        + a@50 1
        w 100
        + a@0 2
        = a * 3
    """),
    Transcript("count window: restored", lambda k: k.count_window(3), """
        + a@0 1, a@1 2
        s
        + a@2 4
        = a * 7
        s
        + a@3 8
    """),
    Transcript("count window of 4 by 2", lambda k: k.count_window(4, 2), """
        + a@0 1, a@1 2
        = a * 3
        + a@2 4, a@3 8
        = a * 15
        + a@4 16, a@5 32
        = a * 60
    """),
    Transcript("count window of 4 by 2: an odd row waits", lambda k: k.count_window(4, 2), """
        + a@0 1, a@1 2, a@2 4
        = a * 3
        w max
    """),
    Transcript("count window of 3 by 1", lambda k: k.count_window(3, 1), """
        + a@0 1, a@1 2, a@2 4, a@3 8
        = a * 1, a * 3, a * 7, a * 14
    """),
    Transcript("count window of 2 by 3: rows between windows are left out", lambda k: k.count_window(2, 3), """
        + a@0 1, a@1 2, a@2 4
        = a * 6
        + a@3 8, a@4 16, a@5 32
        = a * 48
    """),
    Transcript("count window of 4 by 2: restored", lambda k: k.count_window(4, 2), """
        + a@0 1, a@1 2, a@2 4
        = a * 3
        s
        + a@3 8
        = a * 15
        s
        + a@4 16, a@5 32
        = a * 60
    """),
    Transcript("all: count window of every key together", lambda s: s.count_window_all(3), """
        + a@0 1, b@1 2
        + c@2 4
        = all * 7
    """, keyed=False),
]  # fmt: skip
