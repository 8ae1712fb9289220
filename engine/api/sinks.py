"""Where streams end: the handle of a sink operator, and the printer on the client."""

from __future__ import annotations

from penstock.engine.api.program import Program
from penstock.engine.api.settings import OperatorSettings
from penstock.engine.elements import Batch, SchemaGuard
from penstock.engine.rows import row_texts


class StreamSink(OperatorSettings):
    """The end of a stream: a sink operator, to be named or given a parallelism."""

    def __init__(self, program: Program, node: int) -> None:
        self._program = program
        self._node = node

    def name(self, name: str) -> StreamSink:
        """Give the sink a name, for `explain()`, the live view and messages."""
        self._set_name(name)
        return self

    def uid(self, uid: str) -> StreamSink:
        """Give the sink an id that stays the same when the program changes."""
        self._set_uid(uid)
        return self

    def set_parallelism(self, parallelism: int) -> StreamSink:
        """Run the sink with this many subtasks.

        Raises:
            ConfigurationError: not a whole number of 1 or more.
        """
        self._set_parallelism(parallelism)
        return self


class Printer:
    """Prints rows on the client."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._guard = SchemaGuard("print()")

    def accept(self, batch: Batch) -> None:
        self._guard.check(batch)
        for row in row_texts(batch.data):
            print(f"{self._prefix}{row}")  # noqa: T201 - this is what print() is for
