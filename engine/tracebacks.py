"""Tracebacks as texts: which frames are the user's.

Errors (`errors.py`) carry the whole text from a worker to the client, and show the user's frames alone.
"""

from __future__ import annotations

import os
import re
import sysconfig
from pathlib import Path
from typing import Final

from penstock.engine.redaction import masked_code

HEADER: Final = "Traceback (most recent call last):"
PACKAGE: Final = str(Path(__file__).parents[1]) + os.sep
"""The folder of the package, in this process."""
FRAME: Final = re.compile(r'^(?: *\| )?  File "([^"]+)", line (\d+)')
"""Of an error, or of one in an exception group, whose lines stand behind a bar."""
_BAR: Final = re.compile(r"^ *(\| |(?=\+[- ]))")
"""Before a line of an exception group; before its header and its rules nothing but blanks."""
_LIBRARIES: Final = tuple({sysconfig.get_path(name) + os.sep for name in ("stdlib", "purelib", "platlib")})
_CALLERS: Final = re.compile(
    rf"{re.escape(PACKAGE)}|.*[/\\]python3\.\d+[/\\](asyncio|concurrent[/\\]futures|site-packages[/\\]penstock)[/\\]"
)
"""What calls the user's code: this package, here or where the error arose, and what runs its threads and coroutines."""


def calls_the_user(filename: str) -> bool:
    """Whether a file is of what calls the user's code, so that its frames are none of his."""
    return _CALLERS.match(filename) is not None


def is_of_program(filename: str) -> bool:
    """Whether a file is of the user's program: neither of this package, nor installed, nor generated."""
    return not filename.startswith((PACKAGE, "<", *_LIBRARIES))


def own_frames(text: str) -> list[str]:
    """The lines of a traceback without the frames of what calls the user's code, without header, and secrets masked."""
    kept: list[str] = []
    is_callers = is_frame = False
    for line in text.rstrip().splitlines():
        is_code = is_frame
        frame = FRAME.match(line)
        if frame is not None:
            is_callers = calls_the_user(frame[1])
        elif not _BAR.sub("", line).startswith(" "):
            is_callers = False
        is_frame = frame is not None
        if not is_callers and line != HEADER:
            kept.append(masked_code(line) if is_code else line)
    return kept


def in_short(text: str) -> str:
    """The traceback with the user's frames alone; empty where it has none.

    Example:
        >>> print(in_short('Traceback (most recent call last):\\n  File "mine.py", line 1, in f\\nValueError: no'))
        Traceback (most recent call last):
          File "mine.py", line 1, in f
        ValueError: no
    """
    lines = own_frames(text)
    if not any(map(FRAME.match, lines)):
        return ""
    # A group has a header of its own.
    return "\n".join(lines if lines[0].startswith("  + ") else [HEADER, *lines])
