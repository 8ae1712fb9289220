"""What commands print: a table or a line for people, or exactly one JSON document; errors without tracebacks.

`main` makes one for each call of the program, and every command writes through it. Results go to standard output,
everything else (progress, hints, errors, what flows print where JSON is asked for) to standard error.
"""

from __future__ import annotations

import contextlib
import json
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, Final, TextIO

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text
from typer.exceptions import TyperException

from penstock.engine.errors import JobFailedError, PenstockError, UserCodeError, in_full, wants_everything
from penstock.error_report import place_in_program, report, user_line

FAILED: Final = 1
"""The exit code of errors at run time."""
WIDE: Final = 160
"""Columns of a table that goes into a file or a pipe."""
_LONGEST_LINE: Final = 500
_TRACEBACK: Final = "Traceback (most recent call last)"
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""All but tabs and ends of lines; and what turns the direction of text."""
_OPTIONS: Final = {"allow_non_restored_state": "-n"}
"""How the command line spells what messages call by the name of an argument."""


@dataclass(frozen=True, slots=True)
class Output:
    """Where results and messages go.

    Args:
        stream: of the results.
        as_json: whether they are JSON.
        tracebacks: whether errors are shown with theirs.
    """

    stream: TextIO
    as_json: bool = False
    tracebacks: bool = False

    def result(self, document: object, shown: RenderableType) -> None:
        """Print what a command has found or done.

        Args:
            document: the whole of it, as JSON has it.
            shown: the same for people.
        """
        if self.as_json:
            print(json.dumps(document, indent=2, default=str), file=self.stream)
            return
        console = _PlainConsole(file=self.stream)
        if not console.is_terminal:
            console = _PlainConsole(file=self.stream, width=WIDE)
        console.print(Text(shown) if isinstance(shown, str) else shown, soft_wrap=isinstance(shown, str), crop=False)

    @property
    def console(self) -> Console:
        """Where what changes while it is shown is drawn."""
        return _PlainConsole(file=self.stream)

    @contextlib.contextmanager
    def progress(self, text: str) -> Iterator[Callable[[str], object]]:
        """Show in a terminal that something takes its time; gives what changes the text."""
        console = Console(stderr=True)
        if self.as_json or not console.is_terminal:
            yield lambda text: None
            return
        with console.status(Text(text)) as status:
            yield lambda text: status.update(Text(text))

    def say(self, text: str) -> None:
        """Tell people something that is no result."""
        _PlainConsole(stderr=True).print(Text(text), soft_wrap=True)

    def show_help(self, text: str) -> None:
        """Show how a command is called that was given nothing to do; that is a mistake where JSON is wanted."""
        if self.as_json:
            self.error(TyperException("nothing is asked for; --help shows what there is"))
        else:
            self.say(text)

    def error(self, error: BaseException, hint: str = "") -> None:
        """Report why a command failed, and to people a hint."""
        from penstock.savepoints.storage import redact

        # As Python does where nobody catches an error: what is told when the process ends can tell that it failed.
        sys.last_value = error
        tracebacks = self.tracebacks or wants_everything()
        if tracebacks:
            self.say("".join(traceback.format_exception(error)).rstrip())
        if self.as_json:
            print(json.dumps(error_document(error, tracebacks), indent=2), file=self.stream)
        shown = (
            report(error)
            if isinstance(error, JobFailedError | UserCodeError) and not tracebacks
            else message_of(error, tracebacks)
        )
        if isinstance(error, PenstockError) and not isinstance(error, JobFailedError):
            # Raised while the program was built: which of its lines it was.
            hint = f"{user_line(error)}{hint}"
        self.say(f"error: {redact(shown)}{hint}")


class _PlainConsole(Console):
    """Shows control characters of names and values as text: a terminal would obey them, whoever wrote them."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(_CONTROL.sub(_escaped, segment.text), segment.style)


def _escaped(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()


def error_document(error: BaseException, tracebacks: bool = False) -> dict[str, Any]:
    """An error as JSON has it: type, message, and as `at` the line of the user's program where there is one."""
    place = place_in_program(error)
    at = {} if place is None else {"at": {"file": place[0], "line": place[1]}}
    return {"error": {"type": type(error).__name__, "message": message_of(error, tracebacks), **at}}


def message_of(error: BaseException, tracebacks: bool) -> str:
    """What an error says; without the traceback that the message of a job has, unless it is wanted."""
    # Storage is for errors: `--version` does without.
    from penstock.savepoints.storage import redact

    whole = in_full(error) if tracebacks else str(error)
    text = redact(error.format_message() if isinstance(error, TyperException) else whole) or type(error).__name__
    if not tracebacks and _TRACEBACK in text:
        text = f"{text.split(_TRACEBACK)[0].rstrip()}\n(--traceback shows where)"
    said, mark, lines = text.partition(_TRACEBACK)
    for argument, option in _OPTIONS.items():
        said = said.replace(argument, f"{argument} ({option})")
    return said + mark + lines


def one_line(text: str) -> str:
    """The first line of a text, cut where it is long."""
    first = text.partition("\n")[0]
    cut = first if len(first) <= _LONGEST_LINE else f"{first[:_LONGEST_LINE]}..."
    return cut if cut == text else f"{cut} (--verbose shows the rest)"


def duration_text(seconds: float) -> str:
    """A time for people: 40 ms, 2.6 s."""
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


def time_text(milliseconds: object) -> str:
    """Civil time (ms UTC) for people."""
    if not isinstance(milliseconds, int | float):
        return ""
    return datetime.fromtimestamp(milliseconds / 1000, timezone.utc).strftime("%Y-%m-%d %H:%M:%S")


def bytes_text(count: Any) -> str:
    """A number of bytes for people: 950 B, 1.5 MB."""
    if not isinstance(count, int | float):
        return ""
    for limit, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= limit:
            return f"{count / limit:.1f} {unit}"
    return f"{count:.0f} B"
