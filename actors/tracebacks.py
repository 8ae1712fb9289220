"""Tracebacks of other processes, as texts: what Ray and Spark tell of a program that does not load where it runs."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from penstock.engine.errors import ClusterError, wants_everything

_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")
_FRAME: Final = re.compile(r'^[ \t]*File "([^"]+)", line (\d+)(?:, in .*)?$', re.MULTILINE)
_INSTALLED: Final = re.compile(r"^<|site-packages|[/\\]lib[/\\]python3")
_PACKAGE: Final = str(Path(__file__).parents[1]) + os.sep


def in_a_line(text: str) -> str:
    """The error at the end of a text, and the last line of a file that nobody has installed; all where there is none.

    `PENSTOCK_TRACEBACK=full` leaves the text as it is, but for colours.

    Example:
        >>> in_a_line('Traceback:\\n  File "/flows/shop.py", line 8, in <module>\\n    x = A["b"]\\nKeyError: 1')
        'KeyError: 1, raised at /flows/shop.py:8'
    """
    text = _COLOUR.sub("", text).rstrip()
    frames = list(_FRAME.finditer(text))
    if not frames or wants_everything():
        return text
    # Its first line is not indented; those behind it belong to its text.
    error = re.split(r"\n(?=\S)", text[frames[-1].end() :])[1:]
    own = [frame for frame in frames if not _INSTALLED.search(frame[1]) and not frame[1].startswith(_PACKAGE)]
    at = f", raised at {own[-1][1]}:{own[-1][2]}" if own else ""
    return " ".join(" ".join(error).split()) + at if error else text


def program_not_loaded(text: str) -> ClusterError:
    """The error of a program that a process could not load; `text`: what that raised."""
    return ClusterError(
        f"the program does not load on the cluster: {in_a_line(text)}; what it imports must load there, too: "
        "install modules on every machine or put their folders on PYTHONPATH there, and give the cluster's processes "
        "the files and environment variables that they read"
    )
