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
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Final, TypeAlias

Stack: TypeAlias = tuple[str, ...]
"""The thread's name, then its calls, the outermost first: `function (folder/file.py:line)`."""
OFTEN: Final = 100
"""Samples a second."""
LONGEST_SECONDS: Final = 60.0
_DEEPEST: Final = 200
_ON_CPU: Final = 0.5
"""A thread is on the processor where it had, or waited for, a core for more than this part of the time since the last
sample."""


@dataclass(frozen=True, slots=True)
class SampledStack:
    """A stack, how often it was seen, and how often of that its thread was on the processor or waited for a core.

    Where the system does not say (Linux does), threads count as being on it.
    """

    stack: Stack
    count: int
    on_cpu: int


def sampled_stacks(seconds: float, threads: Collection[str] | None = None) -> Sequence[SampledStack]:
    """How often each stack was seen, the most frequent first.

    Args:
        seconds: for how long to look, a minute at the most; 0: once.
        threads: names of those that are looked at; None: all but this one.
    """
    seen: Counter[Stack] = Counter()
    on_cpu: Counter[Stack] = Counter()
    used = _Used()
    until = time.monotonic() + min(seconds, LONGEST_SECONDS)
    own = threading.get_ident()
    while True:
        known = {thread.ident: thread for thread in threading.enumerate()}
        for ident, frame in sys._current_frames().items():
            thread = known.get(ident)
            name = "native" if thread is None else thread.name
            if ident != own and (threads is None or name in threads):
                stack: Stack = (name, *_calls(frame))
                seen[stack] += 1
                on_cpu[stack] += thread is None or used.most_of_the_time(thread.native_id)
        if time.monotonic() >= until:
            return [SampledStack(stack, count, on_cpu[stack]) for stack, count in seen.most_common()]
        time.sleep(1 / OFTEN)


def together(looks: Iterable[Sequence[SampledStack]]) -> Sequence[SampledStack]:
    """What was seen of several processes, as if it were one: the most frequent stack first."""
    seen: Counter[Stack] = Counter()
    on_cpu: Counter[Stack] = Counter()
    for one in (one for look in looks for one in look):
        seen[one.stack] += one.count
        on_cpu[one.stack] += one.on_cpu
    return [SampledStack(stack, count, on_cpu[stack]) for stack, count in seen.most_common()]


class _Used:
    """The processor time of threads between looks at them. Where a thread is cannot be asked: it stands while it is
    sampled."""

    def __init__(self) -> None:
        self._before: dict[int | None, tuple[int, int]] = {}

    def most_of_the_time(self, thread: int | None) -> bool:
        """Whether a thread of this process had a core, or waited for one, most of the time since the last look."""
        # Unlike a thread's own clock, the file of one that has just ended is safe to ask for.
        try:
            ran, waited, *_ = Path(f"/proc/self/task/{thread}/schedstat").read_text().split()
        except (OSError, ValueError):
            return True
        now, used = time.monotonic_ns(), int(ran) + int(waited)
        since, before = self._before.get(thread, (now, -1))
        self._before[thread] = now, used
        return used - before > _ON_CPU * (now - since)


def _calls(innermost: FrameType) -> Sequence[str]:
    calls: list[str] = []
    frame: FrameType | None = innermost
    while frame is not None and len(calls) < _DEEPEST:
        code = frame.f_code
        folder, file = os.path.split(code.co_filename)
        calls.append(f"{code.co_name} ({os.path.basename(folder)}/{file}:{frame.f_lineno})")
        frame = frame.f_back
    return calls[::-1]
