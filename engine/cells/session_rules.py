"""How rows are put into sessions: Flink's rules, as plain loops over arrays.

`SessionCells` calls them as they are for few rows, and compiled by `session_kernel` for many. A key's sessions are a
linked list, latest first; no two of them touch.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

NONE = -1
"""No session."""


def place_rows(
    slots: Ints,
    starts: Ints,
    ends: Ints,
    fresh: Ints,
    heads: Ints,
    earlier: Ints,
    session_slots: Ints,
    session_starts: Ints,
    session_ends: Ints,
    merged_into: Ints,
    merged: Ints,
    sessions: Ints,
    horizon: int,
) -> tuple[int, int]:
    """Put each row into the session of its key that it touches, or a new one; sessions that come to touch are merged.

    A row is late, and in none, if its session ended then at the horizon or before: those that rows behind it open do
    not count.

    Args:
        slots, starts, ends: of the rows; a row lasts from its start to its end, both included.
        fresh: ids for new sessions, as many as rows.
        heads: the latest session of each slot.
        earlier: by session, the key's session before it.
        session_slots, session_starts, session_ends: by session.
        merged_into: by session, NONE for all.
        merged: results: the sessions that were merged into others, which are in `merged_into`; room for all.
        sessions: results: the session of each row, which may have been merged since; NONE of late ones.
        horizon: the last millisecond of sessions that take no rows in any more.

    Returns:
        How many of `fresh` were used, and how many sessions were merged.
    """
    used, gone = 0, 0
    for row in range(len(slots)):
        slot, start, end = slots[row], starts[row], ends[row]
        later, session = NONE, heads[slot]
        while session != NONE and session_starts[session] > end:
            later, session = session, earlier[session]
        touches = session != NONE and session_ends[session] >= start
        if end - 1 <= horizon and not (touches and session_ends[session] - 1 > horizon):
            sessions[row] = NONE
            continue
        if not touches:
            before, session = session, fresh[used]
            used += 1
            session_slots[session], session_starts[session], session_ends[session] = slot, start, end
            earlier[session] = before
            if later == NONE:
                heads[slot] = session
            else:
                earlier[later] = session
        else:
            if session_ends[session] < end:
                session_ends[session] = end
            if session_starts[session] > start:
                session_starts[session] = start
                other = earlier[session]
                while other != NONE and session_ends[other] >= start:
                    if session_starts[other] < session_starts[session]:
                        session_starts[session] = session_starts[other]
                    merged[gone], merged_into[other] = other, session
                    gone += 1
                    other = earlier[other]
                earlier[session] = other
        sessions[row] = session
    return used, gone


def take_out(gone: Ints, slots: Ints, heads: Ints, earlier: Ints) -> None:
    """Take sessions out of the lists of their keys.

    Args:
        gone: the sessions, each in its list.
        slots: the slot of each of them.
        heads, earlier: as for `place_rows`.
    """
    for index in range(len(gone)):
        session, later = heads[slots[index]], NONE
        while session != gone[index]:
            later, session = session, earlier[session]
        if later == NONE:
            heads[slots[index]] = earlier[session]
        else:
            earlier[later] = earlier[session]
