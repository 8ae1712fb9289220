"""What the functions of a subtask print and log, kept for whoever asks: with the operator that said it.

One for each subtask's process: it takes what goes to `logging`, standard output and standard error, and passes it on as
it was. The newest lines are kept; which operator speaks is found when it does, so that data costs nothing.
"""

from __future__ import annotations

import io
import logging
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import BinaryIO, Final, TextIO

from penstock.engine.task.chain import ChainLink

KEPT: Final = 2_000
LONGEST_LINE: Final = 4_000
_DEEPEST: Final = 100
_PROCESS: Final = ChainLink.process.__code__


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line.

    Args:
        number: grows from line to line of a subtask, over restarts as well.
        at_ms: when, civil time in ms UTC.
        level: as `logging` calls it; `STDOUT` and `STDERR` for what was printed.
        logger: its name; empty for what was printed.
        text: without the line's end; tracebacks have several lines.
        task, subtask, attempt: whose; 0 where none ran.
        operator: name of the operator that said it; empty where none did.
    """

    number: int
    at_ms: int
    level: str
    logger: str
    text: str
    task: int = 0
    subtask: int = 0
    attempt: int = 0
    operator: str = ""


class TaskLog:
    """The newest lines of this process."""

    def __init__(self) -> None:
        self._lines: deque[LogLine] = deque(maxlen=KEPT)
        self._place = (0, 0, 0)
        self._count = 0
        # Garbage that is collected while a line is made may log by itself, in this thread.
        self._lock = threading.RLock()
        self._handler = _Handler(self)
        self._error: TextIO = sys.stderr
        self._shown: logging.Handler | None = None

    def install(self, level: int = logging.INFO) -> None:
        """Take what this process says from now on.

        Args:
            level: the lowest of `logging` that is taken.
        """
        root = logging.getLogger()
        self._handler.setLevel(level)
        root.addHandler(self._handler)
        if root.level in (logging.NOTSET, logging.WARNING):
            # Nobody has chosen one: that is Python's default, which drops what functions say of their work.
            root.setLevel(level)
        self._error = sys.stderr
        sys.stdout = _Tee(self, sys.stdout, "STDOUT")
        sys.stderr = _Tee(self, sys.stderr, "STDERR")

    def set_levels(self, levels: Sequence[tuple[str, str]]) -> None:
        """Take what loggers say from these levels on.

        Args:
            levels: by name of a logger; "" for all others.
        """
        for logger, level in levels:
            logging.getLogger(logger or None).setLevel(level)
        if levels:
            # What a logger lets pass is wanted.
            self._handler.setLevel(logging.NOTSET)

    def show(self, levels: Sequence[tuple[str, str]], form: tuple[str, str] | None) -> None:
        """Write to standard error, which Ray brings to the driver, what the driver itself would show if it said it.

        Args:
            levels: as of `set_levels`, those of the driver; of others Python's own default.
            form: how it formats lines, and times in them; None: it has set up nothing, so the message alone.
        """
        root = logging.getLogger()
        if self._shown is not None:
            root.removeHandler(self._shown)
        self._shown = logging.StreamHandler(self._error)
        self._shown.setFormatter(logging.Formatter(*(form or ("%(message)s", ""))))
        chosen = {logger: logging.getLevelName(level) for logger, level in levels}
        self._shown.addFilter(lambda record: record.levelno >= _level_of(record.name, chosen))
        root.addHandler(self._shown)

    def place(self, task: int, subtask: int, attempt: int) -> None:
        """What is said from now on is said by this subtask."""
        self._place = (task, subtask, attempt)

    def add(self, level: str, logger: str, text: str) -> None:
        """Keep a line."""
        speaker = _current_operator()
        with self._lock:
            now = time.time_ns()
            # Numbers by the clock keep growing when another process takes the subtask over.
            self._count = max(self._count + 1, now // 1_000)
            place = self._place
            line = LogLine(self._count, now // 1_000_000, level, logger, text[:LONGEST_LINE], *place, speaker)
            self._lines.append(line)

    def after(self, number: int, most: int) -> Sequence[LogLine]:
        """The lines behind that number, the newest `most` of them."""
        with self._lock:
            return [line for line in self._lines if line.number > number][-most:]


def _current_operator() -> str:
    """The operator in whose call this is."""
    frame = sys._getframe(2)
    for _ in range(_DEEPEST):
        if frame.f_code is _PROCESS:
            return str(frame.f_locals["self"].context.operator)
        if frame.f_back is None:
            return ""
        frame = frame.f_back
    return ""


def _level_of(logger: str, levels: Mapping[str, int]) -> int:
    """The level of a logger: its own, or that of the nearest one above it that has one."""
    while logger and logger not in levels:
        logger = logger.rpartition(".")[0]
    return levels.get(logger, logging.WARNING)


class _Handler(logging.Handler):
    def __init__(self, log: TaskLog) -> None:
        super().__init__()
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._log.add(record.levelname, record.name, self.format(record))
        except Exception:
            self.handleError(record)


class _Tee(io.TextIOBase):
    """Keeps whole lines, and passes everything on at once."""

    def __init__(self, log: TaskLog, stream: TextIO, level: str) -> None:
        self._log = log
        self._stream = stream
        self._level = level
        self._begun = threading.local()

    def write(self, text: str) -> int:
        *lines, rest = (getattr(self._begun, "text", "") + text).split("\n")
        self._begun.text = rest[:LONGEST_LINE]
        for line in lines:
            if line.strip():
                self._log.add(self._level, "", line)
        return self._stream.write(text)

    def flush(self) -> None:
        self._stream.flush()

    def fileno(self) -> int:
        return self._stream.fileno()

    def isatty(self) -> bool:
        return False

    @property
    def buffer(self) -> BinaryIO:
        """For programs that write bytes: those are passed on, and not kept."""
        return self._stream.buffer

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._stream.encoding
