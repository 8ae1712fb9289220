"""The shell of `penstock sql`: statements of several lines, history, completion, and errors that do not end it.

`sql.py` starts it where a terminal is given nothing to run. Tables, views and options stay until it ends.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from penstock.console.output import Output
from penstock.engine.errors import PenstockError, SqlSyntaxError
from penstock.environment import StreamEnvironment
from penstock.tables.functions.aggregates import AGGREGATES
from penstock.tables.functions.registry import SCALAR_FUNCTIONS
from penstock.tables.parse.cursor import RESERVED
from penstock.tables.parse.text import SqlText
from penstock.tables.parse.tokens import tokenize

_PROMPT: Final = "penstock> "
_MORE: Final = "      ... "
_ENDS: Final = ("QUIT", "EXIT")
_HELP: Final = """Statements end with ; and may have several lines.
SHOW TABLES, DESCRIBE t and EXPLAIN query say what there is.
Ctrl-C stops a query, or forgets what was typed; QUIT, EXIT or Ctrl-D end the shell."""
_CLOSINGS: Final = ("'", "`", "*/")
_STARTS: Final = ("CREATE", "DESCRIBE", "EXPLAIN", "INSERT", "RESET", "SET", "SHOW", "TABLES", "VIEWS", "STATEMENT")
_HISTORY_LINES: Final = 1000


class SqlShell:
    """Reads statements and runs them, one after another.

    Args:
        env: whose tables they use.
        output: for errors and help.
        run: runs a script of them.
        read: gives the next line for a prompt; EOFError ends the shell, KeyboardInterrupt forgets what was typed.
    """

    def __init__(
        self, env: StreamEnvironment, output: Output, run: Callable[[str], None], read: Callable[[str], str]
    ) -> None:
        self._env = env
        self._output = output
        self._run = run
        self._read = read

    def loop(self) -> None:
        """Until the user ends it."""
        self._output.say("penstock sql: HELP; says what can be written")
        typed: list[str] = []
        while True:
            try:
                typed.append(self._read(_MORE if typed else _PROMPT))
            except EOFError:
                return
            except KeyboardInterrupt:
                self._output.say("")
                typed = []
                continue
            text = "\n".join(typed)
            word = text.strip().rstrip(";").strip().upper()
            if word in _ENDS:
                return
            if word in ("HELP", ""):
                self._output.say(_HELP if word else "")
                typed = []
            elif is_complete(text):
                self._answer(text)
                typed = []

    def _answer(self, text: str) -> None:
        try:
            self._run(text)
        except KeyboardInterrupt:
            self._output.say("stopped")
        except PenstockError as error:
            self._output.error(error)

    def completions(self, text: str) -> list[str]:
        """The words that may be meant by the beginning of one: tables and views, keywords, functions."""
        names = [entry.name for entry in self._env.tables.catalog]
        words = sorted({*RESERVED, *_STARTS, *(name for name in (*SCALAR_FUNCTIONS, *AGGREGATES) if name[0].isalpha())})
        begin = text.upper()
        return [name for name in names if name.startswith(text)] + [word for word in words if word.startswith(begin)]


def is_complete(text: str) -> bool:
    """Whether the text is whole statements: ended by a semicolon that is in no text, comment or statement set.

    Example:
        >>> is_complete("SELECT ';'"), is_complete("SELECT 1;")
        (False, True)
    """
    try:
        words = [token.word for token in tokenize(SqlText(text))]
    except SqlSyntaxError:
        return not any(_reads(text + closing) for closing in _CLOSINGS) and text.rstrip().endswith(";")
    if words[-2:-1] != [";"]:
        return False
    begins = [place for place, word in enumerate(words) if words[place : place + 2] == ["STATEMENT", "SET"]]
    return not begins or "END" in words[begins[-1] :]


def _reads(text: str) -> bool:
    try:
        tokenize(SqlText(text))
    except SqlSyntaxError:
        return False
    return True


@contextlib.contextmanager
def line_editing(shell: SqlShell) -> Iterator[None]:
    """History over sessions and completion, where Python has readline."""
    try:
        import readline
    except ImportError:
        yield
        return
    state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "penstock"
    history = state / "sql_history"
    with contextlib.suppress(OSError):
        readline.read_history_file(history)

    def complete(text: str, place: int) -> str | None:
        found = shell.completions(text)
        return found[place] if place < len(found) else None

    readline.set_completer(complete)
    readline.set_completer_delims(" \t\n,();=<>'`.")
    readline.parse_and_bind("tab: complete")
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            state.mkdir(parents=True, exist_ok=True)
            readline.set_history_length(_HISTORY_LINES)
            readline.write_history_file(history)
