"""What a person sees of a job that has failed: one screen, with the user's lines, the place, the row and the remedy.

The command line prints it, scripts get it in place of chained tracebacks, and so do notebooks.
`PENSTOCK_TRACEBACK=full` shows everything instead.
"""

from __future__ import annotations

import functools
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, TypeAlias

from penstock.engine.errors import (
    JobFailedError,
    LifeCycleError,
    PenstockError,
    SubtaskError,
    UserCodeError,
    cause_of,
    wants_everything,
)

_Hook: TypeAlias = "Callable[[type[BaseException], BaseException, TracebackType | None], object]"

_PACKAGE: Final = str(Path(__file__).parent) + os.sep
_MOST_LINES: Final = 30
_MOST_LETTERS: Final = 400


def report(error: BaseException) -> str:
    """The error for a person, in a screen.

    Example:
        >>> print(report(JobFailedError("job 'orders' failed: no room for 4 slots")).splitlines()[0])
        job 'orders' failed: no room for 4 slots
    """
    # The hooks for errors are loaded by each program, and this by one that fails.
    from penstock.engine.tracebacks import own_frames

    cause = cause_of(error)
    lines = [_headline(error, cause)]
    if isinstance(cause, UserCodeError | SubtaskError):
        if cause.traceback:
            lines += ["", *_shortened(own_frames(cause.traceback))]
        lines += ["", f"where: {cause.place}"]
    if isinstance(cause, UserCodeError):
        what = "in:   " if isinstance(cause, LifeCycleError) else "with: "
        lines.append(f"{what} {cause.given}")
    if isinstance(cause, PenstockError) and cause.remedy:
        lines.append(f"what to do: {cause.remedy}")
    if isinstance(cause, UserCodeError | SubtaskError) and cause.traceback:
        lines.append("(PENSTOCK_TRACEBACK=full shows all frames)")
    return "\n".join(lines)


def _headline(error: BaseException, cause: BaseException) -> str:
    from penstock.engine.tracebacks import HEADER

    text = str(error) or type(error).__name__
    if isinstance(cause, UserCodeError | SubtaskError):
        text = text.replace(str(cause), cause.error, 1).split(HEADER)[0].rstrip()
        # The traceback has the whole of it.
        return f"{text[:_MOST_LETTERS]} ..." if cause.traceback and len(text) > _MOST_LETTERS else text
    return text


def _shortened(lines: list[str]) -> list[str]:
    """The last frames: the first of a deep recursion say nothing."""
    return lines if len(lines) <= _MOST_LINES else ["  ...", *lines[-_MOST_LINES:]]


def show_errors_briefly() -> None:
    """Have uncaught errors of Penstock shown so in scripts and notebooks, unless someone else shows errors already.

    So is the interrupt of a program or a cell that waits for Penstock: it is how a job is cancelled.

    The import of the package does; it is called once more behind that of Ray.
    """
    before = sys.excepthook
    # Ray's own, which comes with its import, asks the cluster first, which may have gone.
    if before is sys.__excepthook__ or str(before.__module__).startswith("ray."):
        sys.excepthook = functools.partial(show_uncaught, before)
    shell: Any = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if shell is not None and not shell.custom_exceptions:
        shell.set_custom_exc((PenstockError, KeyboardInterrupt), _show_in_notebook)


def show_uncaught(before: _Hook, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Show an error that nobody has caught: one of Penstock's in a screen, an interrupt of it in two lines, any other
    by `before`.
    """
    frames = traceback.extract_tb(trace)
    if isinstance(error, PenstockError):
        told = f"{kind.__name__}: {report(error)}"
    elif isinstance(error, KeyboardInterrupt) and any(frame.filename.startswith(_PACKAGE) for frame in frames):
        told = "interrupted"
    else:
        told = ""
    if not told or wants_everything():
        before(kind, error, trace)
        return
    print(f"{told}{_at(own_place(frames))}", file=sys.stderr)  # noqa: T201 - the place of tracebacks


def user_line(error: BaseException) -> str:
    """A line that says where in the user's program an error was raised; an empty text where it went through none."""
    return _at(next(reversed(_own(traceback.extract_tb(error.__traceback__))), None))


def place_in_program(error: BaseException) -> tuple[str, int] | None:
    """File and line of the user's program: where a function of it raised, or what it built wrongly; None where neither.

    Args:
        error: of a job, or of a program that makes none.
    """
    from penstock.engine.tracebacks import FRAME, is_of_program

    cause = cause_of(error)
    if isinstance(cause, UserCodeError):
        shown = map(FRAME.match, cause.traceback.splitlines())
        frames = [(frame[1], int(frame[2])) for frame in shown if frame is not None]
    elif isinstance(error, JobFailedError):
        return None
    else:
        frames = [(frame.filename, frame.lineno or 0) for frame in traceback.extract_tb(error.__traceback__)]
    return next((frame for frame in reversed(frames) if is_of_program(frame[0])), None)


def _at(place: traceback.FrameSummary | None) -> str:
    from penstock.engine.redaction import masked_code

    return "" if place is None else f"\nat {place.filename}:{place.lineno}: {masked_code(place.line or '')}"


def own_place(frames: Sequence[traceback.FrameSummary]) -> traceback.FrameSummary | None:
    """Where in the user's own program: what lies below it is ours, or of libraries that we call."""
    # An installed program is what begins.
    begun = [frame for frame in frames[:1] if not frame.filename.startswith((_PACKAGE, "<"))]
    return next(reversed(_own(frames) or begun), None)


def _own(frames: Sequence[traceback.FrameSummary]) -> list[traceback.FrameSummary]:
    """Those of files that nobody has installed."""
    from penstock.engine.tracebacks import is_of_program

    return [frame for frame in frames if is_of_program(frame.filename)]


def _show_in_notebook(
    shell: Any,
    kind: type[BaseException],
    error: BaseException,
    trace: TracebackType | None,
    tb_offset: int | None = None,
) -> None:
    show_uncaught(lambda *_: shell.showtraceback((kind, error, trace), tb_offset=tb_offset), kind, error, trace)
