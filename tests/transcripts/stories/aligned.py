"""Tumbling, sliding and cumulative windows of event time, lateness included."""

from __future__ import annotations

from penstock import cumulative, sliding, tumbling
from tests.transcripts.driver import Transcript

ALIGNED = [
    Transcript("tumbling: fires when the watermark reaches the last millisecond",
               lambda k: k.window(tumbling("10ms")), """
        + a@0 1, a@9 2
        w 8
        w 9
        = a 0-10 3
    """),
    Transcript("tumbling: the end does not belong to the window", lambda k: k.window(tumbling("10ms")), """
        + a@9 1, a@10 2
        w 9
        = a 0-10 1
        w 19
        = a 10-20 2
    """),
    Transcript("tumbling: keys are apart", lambda k: k.window(tumbling("10ms")), """
        + a@1 1, b@2 2, a@3 4, c@4 8
        w 9
        = a 0-10 5, b 0-10 2, c 0-10 8
    """),
    Transcript("tumbling: times before 1970", lambda k: k.window(tumbling("10ms")), """
        + a@-1 1, a@-10 2, a@-11 4, a@0 8
        w -11
        = a -20--10 4
        w -1
        = a -10-0 3
        w 9
        = a 0-10 8
    """),
    Transcript("tumbling: rows in any order", lambda k: k.window(tumbling("10ms")), """
        + a@25 1, a@3 2, a@14 4, a@8 8
        w 30
        = a 0-10 10, a 10-20 4, a 20-30 1
    """),
    Transcript("tumbling: a watermark that jumps fires all windows below it", lambda k: k.window(tumbling("10ms")), """
        + a@5 1, a@15 2, a@25 4, a@35 8
        w 29
        = a 0-10 1, a 10-20 2, a 20-30 4
        w max
        = a 30-40 8
    """),
    Transcript("tumbling: no rows, no window", lambda k: k.window(tumbling("10ms")), """
        + a@5 1
        w 100
        = a 0-10 1
        w 200
        w max
    """),
    Transcript("tumbling: the end of time fires what is left", lambda k: k.window(tumbling("10ms")), """
        + a@5 1, b@12345678 2
        w max
        = a 0-10 1, b 12345670-12345680 2
    """),
    Transcript("tumbling: an offset moves the bounds", lambda k: k.window(tumbling("10ms", offset="3ms")), """
        + a@2 1, a@3 2, a@12 4, a@13 8
        w 12
        = a -7-3 1, a 3-13 6
        w 22
        = a 13-23 8
    """),
    Transcript("tumbling: an offset as large as the window moves nothing",
               lambda k: k.window(tumbling("10ms", offset="10ms")), """
        + a@2 1, a@10 2
        w 19
        = a 0-10 1, a 10-20 2
    """),
    Transcript("tumbling: a row behind the watermark is not late while its window is open",
               lambda k: k.window(tumbling("10ms")), """
        + a@1 1
        w 8
        + a@2 2
        w 9
        = a 0-10 3
    """),
    Transcript("tumbling: a row of a fired window is late", lambda k: k.window(tumbling("10ms")), """
        + a@1 1
        w 9
        = a 0-10 1
        + a@9 2, a@10 4
        ~ a@9 2
        w 19
        = a 10-20 4
    """),
    Transcript("tumbling: late without a row in the window before", lambda k: k.window(tumbling("10ms")), """
        + b@55 1
        w 30
        + a@9 2, a@29 4, a@30 8
        ~ a@9 2, a@29 4
        w max
        = b 50-60 1, a 30-40 8
    """),
    Transcript("tumbling: one key's late row is dropped, another's window is untouched",
               lambda k: k.window(tumbling("10ms")), """
        + a@1 1, b@11 1
        w 10
        = a 0-10 1
        + b@5 2, b@12 4
        ~ b@5 2
        w 19
        = b 10-20 5
    """),
    Transcript("tumbling: sums of negative and broken numbers", lambda k: k.window(tumbling("10ms")), """
        + a@1 -1.5, a@2 0.5
        w 9
        = a 0-10 -1
    """),
    Transcript("tumbling: a window of one millisecond", lambda k: k.window(tumbling("1ms")), """
        + a@5 1, a@5 2, a@6 4
        w 5
        = a 5-6 3
        w 6
        = a 6-7 4
    """),
    Transcript("tumbling: restored windows go on", lambda k: k.window(tumbling("10ms")), """
        + a@1 1, b@2 2
        s
        + a@3 4
        s
        w 9
        = a 0-10 5, b 0-10 2
        s
        + a@4 8
        ~ a@4 8
    """),
    Transcript("tumbling, lateness: a late row fires its window again at once",
               lambda k: k.window(tumbling("10ms")).allowed_lateness("5ms"), """
        + a@1 1
        w 9
        = a 0-10 1
        + a@2 2
        = a 0-10 3
        + a@3 4
        = a 0-10 7
    """),
    Transcript("tumbling, lateness: several late rows, one update each",
               lambda k: k.window(tumbling("10ms")).allowed_lateness("5ms"), """
        + a@1 1, b@1 1
        w 10
        = a 0-10 1, b 0-10 1
        + a@2 2, b@3 4, a@4 8
        = a 0-10 3, b 0-10 5, a 0-10 11
    """),
    Transcript("tumbling, lateness: the last moment at which a late row counts",
               lambda k: k.window(tumbling("10ms")).allowed_lateness("5ms"), """
        + a@1 1
        w 13
        = a 0-10 1
        + a@2 2
        = a 0-10 3
        w 14
        + a@3 4
        ~ a@3 4
    """),
    Transcript("tumbling, lateness: a window that was empty until now fires at once",
               lambda k: k.window(tumbling("10ms")).allowed_lateness("20ms"), """
        + a@25 1
        w 12
        + a@3 2
        = a 0-10 2
        + a@4 4
        = a 0-10 6
        w 29
        = a 20-30 1
    """),
    Transcript("tumbling, lateness: no update without a late row",
               lambda k: k.window(tumbling("10ms")).allowed_lateness("100ms"), """
        + a@1 1
        w 9
        = a 0-10 1
        w 50
        w 109
        + a@1 2
        ~ a@1 2
    """),
    Transcript("tumbling, lateness: the other windows do not fire",
               lambda k: k.window(tumbling("10ms")).allowed_lateness("20ms"), """
        + a@1 1, a@11 2, b@1 4
        w 19
        = a 0-10 1, a 10-20 2, b 0-10 4
        + a@5 8
        = a 0-10 9
        + a@15 16
        = a 10-20 18
        w max
    """),
    Transcript("tumbling, lateness: late and punctual rows together",
               lambda k: k.window(tumbling("10ms")).allowed_lateness("10ms"), """
        + a@1 1
        w 15
        = a 0-10 1
        + a@2 2, a@12 4, a@-5 8
        = a 0-10 3
        ~ a@-5 8
        w 19
        = a 10-20 4
    """),
    Transcript("tumbling, lateness: of zero is none",
               lambda k: k.window(tumbling("10ms")).allowed_lateness("0ms"), """
        + a@1 1
        w 9
        = a 0-10 1
        + a@2 2
        ~ a@2 2
    """),
    Transcript("tumbling, lateness: a restored window still counts what it had",
               lambda k: k.window(tumbling("10ms")).allowed_lateness("10ms"), """
        + a@1 1
        w 9
        = a 0-10 1
        s
        + a@2 2
        = a 0-10 3
        s
        w 18
        s
        + a@3 4
        = a 0-10 7
        w 19
        s
        + a@4 8
        ~ a@4 8
    """),
    Transcript("sliding: a row belongs to size / slide windows", lambda k: k.window(sliding("10ms", "5ms")), """
        + a@7 1
        w 9
        = a 0-10 1
        w 14
        = a 5-15 1
        w max
    """),
    Transcript("sliding: the worked example, 27 and 22", lambda k: k.window(sliding("60s", "30s")), """
        + a@0 9, a@15000 6
        + a@30000 8, a@45000 4
        w 29999
        = a -30000-30000 15
        w 59999
        = a 0-60000 27
        + a@60000 7, a@75000 3
        w 89999
        = a 30000-90000 22
        w max
        = a 60000-120000 10
    """),
    Transcript("sliding: on a boundary", lambda k: k.window(sliding("10ms", "5ms")), """
        + a@5 1, a@10 2
        w 9
        = a 0-10 1
        w 14
        = a 5-15 3
        w 19
        = a 10-20 2
    """),
    Transcript("sliding: late for one window, not for the next", lambda k: k.window(sliding("10ms", "5ms")), """
        + a@12 1
        w 9
        + a@7 2
        w 14
        = a 5-15 3
        w 19
        = a 10-20 1
    """),
    Transcript("sliding: late for all its windows", lambda k: k.window(sliding("10ms", "5ms")), """
        + a@12 1
        w 14
        = a 5-15 1
        + a@7 2
        ~ a@7 2
        w max
        = a 10-20 1
    """),
    Transcript("sliding: with gaps between the windows", lambda k: k.window(sliding("5ms", "10ms")), """
        + a@2 1, a@14 2
        w 4
        = a 0-5 1
        w 14
        = a 10-15 2
    """),
    Transcript("sliding: an old row between the windows is late", lambda k: k.window(sliding("5ms", "10ms")), """
        + a@2 1
        w 8
        = a 0-5 1
        + a@7 2, a@9 4
        ~ a@7 2
    """),
    Transcript("sliding: a slide that does not divide the size", lambda k: k.window(sliding("10ms", "4ms")), """
        + a@9 1
        w 9
        = a 0-10 1
        w 13
        = a 4-14 1
        w 17
        = a 8-18 1
        w max
    """),
    Transcript("sliding: an offset", lambda k: k.window(sliding("10ms", "5ms", offset="2ms")), """
        + a@6 1
        w 6
        = a -3-7 1
        w 11
        = a 2-12 1
    """),
    Transcript("sliding: slide equal to size is tumbling", lambda k: k.window(sliding("10ms", "10ms")), """
        + a@9 1, a@10 2
        w 19
        = a 0-10 1, a 10-20 2
    """),
    Transcript("sliding: before 1970", lambda k: k.window(sliding("10ms", "5ms")), """
        + a@-3 1
        w -1
        = a -10-0 1
        w 4
        = a -5-5 1
    """),
    Transcript("sliding: keys with rows in other panes", lambda k: k.window(sliding("10ms", "5ms")), """
        + a@1 1, b@6 2, a@8 4
        w 4
        = a -5-5 1
        w 9
        = a 0-10 5, b 0-10 2
        w 14
        = a 5-15 4, b 5-15 2
    """),
    Transcript("sliding: a watermark over several windows", lambda k: k.window(sliding("10ms", "5ms")), """
        + a@1 1, a@6 2, a@11 4
        w 19
        = a -5-5 1, a 0-10 3, a 5-15 6, a 10-20 4
    """),
    Transcript("sliding, lateness: a late row updates each fired window it is in",
               lambda k: k.window(sliding("10ms", "5ms")).allowed_lateness("10ms"), """
        + a@7 1
        w 14
        = a 0-10 1, a 5-15 1
        + a@8 2
        = a 0-10 3, a 5-15 3
        w 19
        + a@9 4
        = a 5-15 7
        w 24
        + a@9 8
        ~ a@9 8
    """),
    Transcript("sliding, lateness: fired and open windows of one row",
               lambda k: k.window(sliding("10ms", "5ms")).allowed_lateness("10ms"), """
        + a@7 1
        w 9
        = a 0-10 1
        + a@8 2
        = a 0-10 3
        w 14
        = a 5-15 3
    """),
    Transcript("sliding: restored panes go on", lambda k: k.window(sliding("10ms", "5ms")), """
        + a@7 1
        s
        w 9
        = a 0-10 1
        s
        + a@11 2
        w 14
        = a 5-15 3
        s
        w 19
        = a 10-20 2
    """),
    Transcript("cumulative: windows grow by a step to the largest",
               lambda k: k.window(cumulative("30ms", "10ms")), """
        + a@1 1, a@11 2, a@21 4
        w 9
        = a 0-10 1
        w 19
        = a 0-20 3
        w 29
        = a 0-30 7
        w max
    """),
    Transcript("cumulative: a new round begins behind the largest", lambda k: k.window(cumulative("20ms", "10ms")), """
        + a@5 1, a@25 2
        w 19
        = a 0-10 1, a 0-20 1
        w 39
        = a 20-30 2, a 20-40 2
    """),
    Transcript("cumulative: a row of the last step is in the last window alone",
               lambda k: k.window(cumulative("30ms", "10ms")), """
        + a@25 1
        w 19
        w 29
        = a 0-30 1
    """),
    Transcript("cumulative: late for the small windows, not for the large one",
               lambda k: k.window(cumulative("30ms", "10ms")), """
        + a@1 1
        w 9
        = a 0-10 1
        + a@2 2
        w 19
        = a 0-20 3
        w 29
        = a 0-30 3
        + a@3 4
        ~ a@3 4
    """),
    Transcript("cumulative: an offset", lambda k: k.window(cumulative("20ms", "10ms", offset="5ms")), """
        + a@4 1, a@5 2
        w 4
        = a -15-5 1
        w 14
        = a 5-15 2
        w 24
        = a 5-25 2
    """),
    Transcript("cumulative: step equal to the largest is tumbling", lambda k: k.window(cumulative("10ms", "10ms")), """
        + a@1 1, a@11 2
        w max
        = a 0-10 1, a 10-20 2
    """),
    Transcript("cumulative, lateness: a late row updates every fired window it is in",
               lambda k: k.window(cumulative("20ms", "10ms")).allowed_lateness("10ms"), """
        + a@1 1
        w 19
        = a 0-10 1, a 0-20 1
        + a@12 2
        = a 0-20 3
        w 28
        + a@2 4
        = a 0-20 7
    """),
    Transcript("cumulative: restored in the middle of a round", lambda k: k.window(cumulative("20ms", "10ms")), """
        + a@1 1
        w 9
        = a 0-10 1
        s
        + a@11 2
        s
        w 19
        = a 0-20 3
    """),
    Transcript("all: rows of every key together", lambda s: s.window_all(tumbling("10ms")), """
        + a@1 1, b@2 2, c@11 4
        w 9
        = all 0-10 3
        w max
        = all 10-20 4
    """, keyed=False),
    Transcript("all: sliding", lambda s: s.window_all(sliding("10ms", "5ms")), """
        + a@7 1, b@12 2
        w 9
        = all 0-10 1
        w 14
        = all 5-15 3
        s
        w max
        = all 10-20 2
    """, keyed=False),
    Transcript("all, lateness: late rows of any key",
               lambda s: s.window_all(tumbling("10ms")).allowed_lateness("5ms"), """
        + a@1 1
        w 9
        = all 0-10 1
        + b@2 2
        = all 0-10 3
        w 14
        + c@3 4
        ~ c@3 4
    """, keyed=False),
]  # fmt: skip
