"""Where the threads of a process are, as flame graphs and stack dumps want it; no privileges are needed.

A subtask's actor calls it in a thread of its own. It sees Python's frames: time within Arrow or NumPy counts for the
line that called them.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Collection, Sequence
from types import FrameType
from typing import Final, TypeAlias

Stack: TypeAlias = tuple[str, ...]
"""The thread's name, then its calls, the outermost first: `function (folder/file.py:line)`."""
OFTEN: Final = 100
"""Samples a second."""
LONGEST_SECONDS: Final = 60.0
_DEEPEST: Final = 200


def sampled_stacks(seconds: float, threads: Collection[str] | None = None) -> Sequence[tuple[Stack, int]]:
    """How often each stack was seen, the most frequent first.

    Args:
        seconds: for how long to look, a minute at the most; 0: once.
        threads: names of those that are looked at; None: all but this one.
    """
    seen: Counter[Stack] = Counter()
    until = time.monotonic() + min(seconds, LONGEST_SECONDS)
    own = threading.get_ident()
    while True:
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        for ident, frame in sys._current_frames().items():
            name = names.get(ident, "native")
            if ident != own and (threads is None or name in threads):
                stack: Stack = (name, *_calls(frame))
                seen[stack] += 1
        if time.monotonic() >= until:
            return seen.most_common()
        time.sleep(1 / OFTEN)


def _calls(innermost: FrameType) -> Sequence[str]:
    calls: list[str] = []
    frame: FrameType | None = innermost
    while frame is not None and len(calls) < _DEEPEST:
        code = frame.f_code
        folder, file = os.path.split(code.co_filename)
        calls.append(f"{code.co_name} ({os.path.basename(folder)}/{file}:{frame.f_lineno})")
        frame = frame.f_back
    return calls[::-1]
