"""Ctrl-C and SIGTERM while a job of this process moves: held until the step under way is over, they come as always.

The local runtime holds interrupts while it steps, opens and closes tasks, so that none breaks off a checkpoint, a sink
or a lock half way. A step that takes longer than a second ends between two calls of the user's functions. Handlers are
those of the main thread, the only one that Python interrupts: in other threads this does nothing.
"""

from __future__ import annotations

import logging
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, Final

from penstock.engine.clock import Clock
from penstock.engine.interruption import Interruption
from penstock.engine.job.termination import Termination
from penstock.engine.task.chain import ChainLink

_LOG = logging.getLogger(__name__)
_TOLD: Final = {signal.SIGINT: ("interrupted", "Ctrl-C"), signal.SIGTERM: ("told to end", "SIGTERM")}
_STUCK_SECONDS: Final = 1.0
"""Who interrupts again, so long after an interrupt that is held, means a step that does not end; and so long the user's
functions are called on."""


class _WaitOver(KeyboardInterrupt):
    """Ends a wait, which nothing depends on."""


class _StepOver(Interruption, KeyboardInterrupt):
    """Ends a step, in which a function may clean up as by any Ctrl-C.

    Args:
        raised: what the end of the step is to raise.
    """

    def __init__(self, raised: BaseException) -> None:
        super().__init__()
        self.raised = raised


class Interrupts:
    """Holds the interrupts of one job, and tells at once for which operator one waits.

    Args:
        job: its name.

    Attributes:
        pending: the number of the signal that is held, if one is.

    Example:
        >>> interrupts = Interrupts("orders")
        >>> with interrupts.held():
        ...     while not interrupts.pending:
        ...         break  # one step; KeyboardInterrupt comes at the end of the block, where one was held
    """

    def __init__(self, job: str) -> None:
        self.pending: int | None = None
        self._job = job
        self._first = 0.0
        self._waits = False
        self._handle_here = self._handle
        self._previous: dict[int, Callable[[int, FrameType | None], Any]] = {}

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold interrupts; one that came is handled at the end of the block as if it came then. May be nested."""
        previous = self._install()
        if not previous:
            yield
            return
        self._previous = previous
        try:
            yield
        except _StepOver as over:
            raise over.raised.with_traceback(over.__traceback__) from None
        finally:
            with _none_comes():
                for number, handler in previous.items():
                    signal.signal(number, handler)
                came, self.pending = self.pending, None
                self._let_calls_pass()
            if came is not None:
                previous[came](came, None)

    def handle_pending(self) -> None:
        """Let the interrupt that is held, if one is, come now.

        Raises:
            BaseException: what the handler raises, such as KeyboardInterrupt or SystemExit.
        """
        came, self.pending = self.pending, None
        if came is not None:
            self._previous[came](came, None)

    def _install(self) -> dict[int, Callable[[int, FrameType | None], Any]]:
        """Handle the signals here; what handled them before."""
        handlers: dict[int, Any] = {int(number): signal.getsignal(number) for number in _TOLD}
        # Not what the program ignores, or what ends the process.
        previous = {
            number: handler
            for number, handler in handlers.items()
            if callable(handler) and handler != self._handle_here
        }
        try:
            with _none_comes():
                for number in previous:
                    signal.signal(number, self._handle_here)
        except ValueError:
            # Not the main thread.
            return {}
        return previous

    def _handle(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if self.pending is not None and now - self._first >= _STUCK_SECONDS:
            if self._goes_on(number, frame) and number == signal.SIGTERM:
                return
            raise _StepOver(KeyboardInterrupt())
        is_first = self.pending is None
        if is_first:
            self.pending, self._first = number, now
        if self._waits:
            self._waits = False
            raise _WaitOver
        if is_first and (operator := _operator_at(frame)) is not None:
            told, again = _TOLD[signal.Signals(number)]
            # The function may be within a write to the same stream, which takes no other then.
            with suppress(RuntimeError):
                _LOG.warning(
                    "%s: job %r stops as soon as operator %r has done what it is at; a second %s, after a second or "
                    "more, ends it there",
                    told,
                    self._job,
                    operator,
                    again,
                )
            if sys.gettrace() is None:
                sys.settrace(self._before_call)

    def _goes_on(self, number: int, frame: FrameType | None) -> bool:
        """Have the signal come within the step; whether its handler, the program's own, lets that go on."""
        handler = self._previous[number]
        # Whatever it raises would be an error of the function that it breaks off.
        try:
            handler(number, frame)
        except BaseException as raised:
            raise _StepOver(raised) from None
        return not _ends_jobs(handler)

    def _before_call(self, frame: FrameType, event: str, argument: object) -> None:
        """A function is called while an interrupt is held: the user's has had a second to end the step by itself."""
        held = self.pending
        if held is not None and time.monotonic() - self._first >= _STUCK_SECONDS and _is_of_user(frame):
            self.pending = None
            self._let_calls_pass()
            if not self._goes_on(held, frame):
                raise _StepOver(KeyboardInterrupt())

    def _let_calls_pass(self) -> None:
        if sys.gettrace() == self._before_call:
            sys.settrace(None)

    def wait(self, wait_until: Callable[[float], None], deadline: float) -> None:
        """Wait by a clock's `wait_until`; an interrupt that is held ends it."""
        try:
            self._waits = True
            if self.pending is None:
                wait_until(deadline)
        except _WaitOver:
            pass
        finally:
            self._waits = False


def _ends_jobs(handler: object) -> bool:
    """Whether a handler of SIGTERM has jobs ended; the program's own, which has returned, has not."""
    told = getattr(handler, "__self__", None)
    return isinstance(told, Termination) and told.received


@contextmanager
def _none_comes() -> Iterator[None]:
    """Within, no signal comes: it would find half of the handlers, and may end what changes them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _TOLD)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _operator_at(frame: FrameType | None) -> str | None:
    """The operator that works there; None between two of them."""
    while frame is not None:
        link = frame.f_locals.get("self")
        if isinstance(link, ChainLink):
            return link.context.operator
        frame = frame.f_back
    return None


def _is_of_user(frame: FrameType) -> bool:
    """Whether a function of the user's program is called there by an operator."""
    # Loaded where a job is interrupted.
    from penstock.engine.tracebacks import calls_the_user, is_of_program

    caller, file = frame.f_back, frame.f_code.co_filename
    if caller is None or not calls_the_user(caller.f_code.co_filename) or calls_the_user(file):
        return False
    # What is generated has no file, nor have cells of a notebook.
    is_own = frame.f_globals.get("__name__") == "__main__" or is_of_program(file)
    return is_own and _operator_at(caller) is not None


class InterruptibleClock:
    """A clock whose waits end where an interrupt is held.

    Args:
        clock: tells the time.
        interrupts: of the job that waits.
    """

    def __init__(self, clock: Clock, interrupts: Interrupts) -> None:
        # Of the clock itself: they are asked for several times a step.
        self.now_ms = clock.now_ms
        self.monotonic = clock.monotonic
        self._wait_until = clock.wait_until
        self._interrupts = interrupts

    def wait_until(self, deadline: float) -> None:
        self._interrupts.wait(self._wait_until, deadline)
