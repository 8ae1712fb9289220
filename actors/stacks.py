"""Where the threads of a process are, as flame graphs and stack dumps want it; no privileges are needed.

A subtask's actor calls it in a thread of its own. It sees Python's frames: time within Arrow or NumPy counts for the
line that called them. A look at a thread that has not run since the last one costs next to nothing.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Final, TypeAlias

Stack: TypeAlias = tuple[str, ...]
"""The thread's name, then its calls, the outermost first: `function (folder/file.py:line)`."""
OFTEN: Final = 50
"""Samples a second: in the two seconds of a flame graph of Flink's web UI as many as Flink takes for one."""
LONGEST_SECONDS: Final = 60.0
_DEEPEST: Final = 200
_ON_CPU: Final = 0.5
"""A thread is on the processor where it had, or waited for, a core for more than this part of the time since the last
sample."""
_LINE_BYTES: Final = 256
_Walked: TypeAlias = tuple[str, tuple[tuple[int, int], ...]]
"""A thread's name, and its calls, the innermost first: the id of the code, and the line."""


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
    until = time.monotonic() + min(seconds, LONGEST_SECONDS)
    with ExitStack() as opened:
        looks = _Looks(threads, _Used(opened))
        while True:
            looks.look()
            if time.monotonic() >= until:
                return looks.stacks()
            time.sleep(1 / OFTEN)


def together(looks: Iterable[Sequence[SampledStack]]) -> Sequence[SampledStack]:
    """What was seen of several processes, as if it were one: the most frequent stack first."""
    seen: Counter[Stack] = Counter()
    on_cpu: Counter[Stack] = Counter()
    for one in (one for look in looks for one in look):
        seen[one.stack] += one.count
        on_cpu[one.stack] += one.on_cpu
    return [SampledStack(stack, count, on_cpu[stack]) for stack, count in seen.most_common()]


class _Looks:
    """What is seen of the threads of this process.

    Args:
        threads: names of those that are looked at; None: all but the one that looks.
        used: says which of them have run.
    """

    def __init__(self, threads: Collection[str] | None, used: _Used) -> None:
        self._threads = threads
        self._used = used
        self._own = threading.get_ident()
        self._codes: dict[int, CodeType] = {}
        self._last: dict[int, _Walked] = {}
        self._seen: Counter[_Walked] = Counter()
        self._on_cpu: Counter[_Walked] = Counter()

    def look(self) -> None:
        """Count where each thread is."""
        named = {thread.ident: thread for thread in threading.enumerate() if thread.ident is not None}
        wanted = named if self._threads is not None else sys._current_frames()
        uses = {ident: self._use(named.get(ident)) for ident in wanted if self._is_wanted(ident, named)}
        # Who has not run since the last look is where it was.
        frames = sys._current_frames() if any(use.ran for use in uses.values()) else {}
        for ident, use in uses.items():
            if use.ran:
                if ident not in frames:
                    continue
                thread = named.get(ident)
                self._last[ident] = ("native" if thread is None else thread.name, self._walked(frames[ident]))
            walked = self._last[ident]
            self._seen[walked] += 1
            self._on_cpu[walked] += use.mostly

    def _is_wanted(self, ident: int, named: Mapping[int, threading.Thread]) -> bool:
        return ident != self._own and (self._threads is None or named[ident].name in self._threads)

    def _use(self, thread: threading.Thread | None) -> _Use:
        return _UNKNOWN if thread is None else self._used.since_the_last_look(thread.native_id)

    def _walked(self, innermost: FrameType) -> tuple[tuple[int, int], ...]:
        calls: list[tuple[int, int]] = []
        frame: FrameType | None = innermost
        while frame is not None and len(calls) < _DEEPEST:
            # Codes are compared by what they are made of, which takes longer.
            self._codes[id(frame.f_code)] = frame.f_code
            calls.append((id(frame.f_code), frame.f_lineno))
            frame = frame.f_back
        return tuple(calls)

    def stacks(self) -> Sequence[SampledStack]:
        """How often each stack was seen, the most frequent first."""
        told = [
            SampledStack((name, *(_call(self._codes[code], line) for code, line in calls[::-1])), count, on_cpu)
            for (name, calls), count in self._seen.items()
            for on_cpu in (self._on_cpu[name, calls],)
        ]
        return together([told])


@dataclass(frozen=True, slots=True)
class _Use:
    """What a thread had of the processor since the last look: whether it ran, and had or waited for a core mostly."""

    ran: bool
    mostly: bool


_UNKNOWN: Final = _Use(True, True)


class _Used:
    """The processor time of threads between looks at them. Where a thread cannot be asked, it counts as running.

    Args:
        opened: closes what is opened here.
    """

    def __init__(self, opened: ExitStack) -> None:
        self._opened = opened
        self._files: dict[int | None, int] = {}
        self._before: dict[int | None, tuple[int, int, int]] = {}

    def since_the_last_look(self, thread: int | None) -> _Use:
        """What a thread of this process had since the last look; at the first one, it has run and waited."""
        # Unlike a thread's own clock, the file of one that has just ended is safe to ask for.
        try:
            ran, waited, *_ = map(int, os.pread(self._file(thread), _LINE_BYTES, 0).split())
        except (OSError, ValueError):
            return _UNKNOWN
        now = time.monotonic_ns()
        since, ran_before, waited_before = self._before.get(thread, (now, -1, waited))
        self._before[thread] = now, ran, waited
        return _Use(ran > ran_before, ran - ran_before + waited - waited_before > _ON_CPU * (now - since))

    def _file(self, thread: int | None) -> int:
        if thread not in self._files:
            file = os.open(f"/proc/self/task/{thread}/schedstat", os.O_RDONLY | os.O_CLOEXEC)
            self._opened.callback(os.close, file)
            self._files[thread] = file
        return self._files[thread]


def _call(code: CodeType, line: int) -> str:
    folder, file = os.path.split(code.co_filename)
    return f"{code.co_name} ({os.path.basename(folder)}/{file}:{line})"
