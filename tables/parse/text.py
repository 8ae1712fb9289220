"""The text of a script, and the errors that point into it.

Everything that reads statements holds one, and raises its errors by it: each says line, column and what to do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from penstock.engine.errors import SqlError, SqlSyntaxError, SqlUnsupportedError, SqlValidationError
from penstock.engine.redaction import masked_line

_E = TypeVar("_E", bound=SqlError)


@dataclass(frozen=True, slots=True)
class SqlText:
    """The text of one or several statements; places in it are offsets, from 0."""

    text: str

    def syntax(self, at: int, problem: str) -> SqlSyntaxError:
        """The error for text that is no SQL."""
        return self._error(SqlSyntaxError, at, problem)

    def invalid(self, at: int, problem: str) -> SqlValidationError:
        """The error for a wrong name, type or option."""
        return self._error(SqlValidationError, at, problem)

    def unsupported(self, at: int, problem: str) -> SqlUnsupportedError:
        """The error for what is not supported."""
        return self._error(SqlUnsupportedError, at, problem)

    def _error(self, kind: type[_E], at: int, problem: str) -> _E:
        at = min(max(at, 0), len(self.text))
        begin = self.text.rfind("\n", 0, at) + 1
        end = self.text.find("\n", begin)
        excerpt = self.text[begin : len(self.text) if end < 0 else end]
        return kind(problem, self.text.count("\n", 0, at) + 1, at - begin + 1, masked_line(excerpt.replace("\t", " ")))
