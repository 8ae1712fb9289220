"""Session windows: merging, lateness, gaps that rows give. A row opens [t, t + gap); windows that touch merge."""

from __future__ import annotations

from typing import Any

from penstock import session
from tests.transcripts.driver import Transcript


def _gap_of(row: dict[str, Any]) -> str:
    """The value as milliseconds."""
    return f"{int(row['v'])}ms"


SESSIONS = [
    Transcript("session: one row", lambda k: k.window(session("10ms")), """
        + a@5 1
        w 13
        w 14
        = a 5-15 1
    """),
    Transcript("session: rows within the gap are one session", lambda k: k.window(session("10ms")), """
        + a@0 1, a@9 2, a@15 4
        w 23
        w 24
        = a 0-25 7
    """),
    Transcript("session: a row exactly at the gap still belongs", lambda k: k.window(session("10ms")), """
        + a@0 1, a@10 2
        w 19
        = a 0-20 3
    """),
    Transcript("session: a row beyond the gap opens the next", lambda k: k.window(session("10ms")), """
        + a@0 1, a@11 2
        w 10
        = a 0-10 1
        w 20
        = a 11-21 2
    """),
    Transcript("session: rows in reverse order", lambda k: k.window(session("10ms")), """
        + a@20 1, a@12 2, a@5 4
        w 29
        = a 5-30 7
    """),
    Transcript("session: a row bridges two sessions", lambda k: k.window(session("10ms")), """
        + a@0 1, a@18 2
        + a@9 4
        w 27
        = a 0-28 7
    """),
    Transcript("session: a row bridges three sessions, one by one", lambda k: k.window(session("10ms")), """
        + a@0 1, a@15 2, a@30 4
        + a@8 8
        + a@23 16
        w 39
        = a 0-40 31
    """),
    Transcript("session: keys have their own", lambda k: k.window(session("10ms")), """
        + a@0 1, b@5 2, a@9 4
        w 14
        = b 5-15 2
        w 18
        = a 0-19 5
    """),
    Transcript("session: a watermark within closes nothing", lambda k: k.window(session("10ms")), """
        + a@0 1
        w 5
        + a@6 2
        w 10
        + a@12 4
        w 21
        = a 0-22 7
    """),
    Transcript("session: two close at one watermark", lambda k: k.window(session("10ms")), """
        + a@0 1, a@50 2
        w 100
        = a 0-10 1, a 50-60 2
    """),
    Transcript("session: the end of time closes all", lambda k: k.window(session("10ms")), """
        + a@0 1, b@500 2
        w max
        = a 0-10 1, b 500-510 2
    """),
    Transcript("session: a row whose session has closed is late", lambda k: k.window(session("10ms")), """
        + a@0 1
        w 9
        = a 0-10 1
        + a@-1 2
        ~ a@-1 2
        w max
    """),
    Transcript("session: an old row that reaches beyond the watermark opens a new session",
               lambda k: k.window(session("10ms")), """
        + a@0 1
        w 9
        = a 0-10 1
        + a@1 2
        w 10
        = a 1-11 2
    """),
    Transcript("session: an old row that touches an open session is not late", lambda k: k.window(session("10ms")), """
        + a@12 1
        w 15
        + a@4 2
        w 21
        = a 4-22 3
    """),
    Transcript("session: two old rows, the first late, the second not", lambda k: k.window(session("10ms")), """
        + a@20 1
        w 15
        + a@2 2
        ~ a@2 2
        + a@11 4
        w 29
        = a 11-30 5
    """),
    Transcript("session: late rows of a key without state", lambda k: k.window(session("10ms")), """
        + b@100 1
        w 50
        + a@40 2
        ~ a@40 2
        + a@41 8
        ~ a@41 8
        + a@42 4
        w 51
        = a 42-52 4
        w max
        = b 100-110 1
    """),
    Transcript("session: times before 1970", lambda k: k.window(session("10ms")), """
        + a@-15 1, a@-7 2
        w 2
        = a -15-3 3
    """),
    Transcript("session: the same time twice", lambda k: k.window(session("10ms")), """
        + a@5 1, a@5 2
        w 14
        = a 5-15 3
    """),
    Transcript("session: a gap of one millisecond", lambda k: k.window(session("1ms")), """
        + a@1 1, a@2 2, a@4 4
        w 2
        = a 1-3 3
        w 4
        = a 4-5 4
    """),
    Transcript("session: a row inside changes nothing but the sum", lambda k: k.window(session("10ms")), """
        + a@0 1, a@10 2
        + a@5 4
        w 19
        = a 0-20 7
    """),
    Transcript("session: restored sessions go on", lambda k: k.window(session("10ms")), """
        + a@0 1, b@3 2
        s
        + a@8 4
        s
        w 12
        = b 3-13 2
        s
        w 17
        = a 0-18 5
        s
        + a@1 8
        ~ a@1 8
    """),
    Transcript("session: restored sessions are bridged", lambda k: k.window(session("10ms")), """
        + a@0 1, a@18 2
        s
        + a@9 4
        s
        w 27
        = a 0-28 7
    """),
    Transcript("session, lateness: a late row joins its session and fires it again",
               lambda k: k.window(session("10ms")).allowed_lateness("20ms"), """
        + a@0 1, a@8 2
        w 17
        = a 0-18 3
        + a@5 4
        = a 0-18 7
    """),
    Transcript("session, lateness: a late row that opens the session again fires when it closes",
               lambda k: k.window(session("10ms")).allowed_lateness("20ms"), """
        + a@0 1
        w 9
        = a 0-10 1
        + a@5 2
        w 13
        w 14
        = a 0-15 3
    """),
    Transcript("session, lateness: a row that is late by itself but touches a kept session",
               lambda k: k.window(session("10ms")).allowed_lateness("20ms"), """
        + a@10 1
        w 19
        = a 10-20 1
        + a@3 2
        = a 3-20 3
    """),
    Transcript("session, lateness: a late row bridges two fired sessions",
               lambda k: k.window(session("10ms")).allowed_lateness("50ms"), """
        + a@0 1, a@15 2
        w 30
        = a 0-10 1, a 15-25 2
        + a@9 4
        = a 0-25 7
    """),
    Transcript("session, lateness: a late row bridges a fired and an open session",
               lambda k: k.window(session("10ms")).allowed_lateness("50ms"), """
        + a@0 1, a@15 2
        w 12
        = a 0-10 1
        + a@8 4
        w 24
        = a 0-25 7
    """),
    Transcript("session, lateness: behind the lateness a row is late",
               lambda k: k.window(session("10ms")).allowed_lateness("5ms"), """
        + a@0 1
        w 13
        = a 0-10 1
        + a@0 2
        = a 0-10 3
        w 14
        + a@0 4
        ~ a@0 4
    """),
    Transcript("session, lateness: a new session of late rows fires at once",
               lambda k: k.window(session("10ms")).allowed_lateness("20ms"), """
        + b@100 1
        w 20
        + a@5 2
        = a 5-15 2
        w max
        = b 100-110 1
    """),
    Transcript("session, lateness: a dropped session does not come back",
               lambda k: k.window(session("10ms")).allowed_lateness("5ms"), """
        + a@0 1
        w 20
        = a 0-10 1
        + a@7 2
        = a 7-17 2
        w 21
        + a@7 4
        ~ a@7 4
    """),
    Transcript("session, lateness: restored between fire and update",
               lambda k: k.window(session("10ms")).allowed_lateness("20ms"), """
        + a@0 1
        w 9
        = a 0-10 1
        s
        + a@0 2
        = a 0-10 3
        s
        + a@2 4
        s
        w 11
        = a 0-12 7
    """),
    Transcript("session of given gaps: each row gives its own", lambda k: k.window(session(_gap_of)), """
        + a@0 5
        w 4
        = a 0-5 5
        + a@10 20
        w 28
        w 29
        = a 10-30 20
    """),
    Transcript("session of given gaps: a long one takes in the short", lambda k: k.window(session(_gap_of)), """
        + a@0 50, a@10 5, a@45 3
        w 48
        w 49
        = a 0-50 58
    """),
    Transcript("session of given gaps: a short one in front of a long one", lambda k: k.window(session(_gap_of)), """
        + a@0 5, a@5 30
        w 34
        = a 0-35 35
    """),
    Transcript("session of given gaps: too short to touch", lambda k: k.window(session(_gap_of)), """
        + a@0 5, a@6 5
        w 10
        = a 0-5 5, a 6-11 5
    """),
    Transcript("session of given gaps: late by its own gap", lambda k: k.window(session(_gap_of)), """
        + b@90 9
        w 20
        + a@10 5, a@11 20
        ~ a@10 5
        w 30
        = a 11-31 20
        s
        w max
        = b 90-99 9
    """),
    Transcript("session of given gaps, lateness", lambda k: k.window(session(_gap_of)).allowed_lateness("10ms"), """
        + a@0 5
        w 4
        = a 0-5 5
        + a@2 3
        = a 0-5 8
        w 14
        + a@2 3
        ~ a@2 3
    """),
    Transcript("all: sessions of every key together", lambda s: s.window_all(session("10ms")), """
        + a@0 1, b@8 2
        w 17
        = all 0-18 3
    """, keyed=False),
]  # fmt: skip
