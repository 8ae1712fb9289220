"""The program of a query whose rows are read: where it cannot start, the query is taken out of it again.

`Table.collect` makes it. Else the next query would be run together with one that cannot run.
"""

from __future__ import annotations

from penstock.engine.api.program import Program
from penstock.engine.job.handle import JobHandle


class Reading:
    """A program that a query is read of (`RunOnce`).

    Args:
        program: that the query was added to, as the last so far.
        first: the id of its first node.
    """

    def __init__(self, program: Program, first: int) -> None:
        self._program = program
        self._first = first
        self._behind = program.graph.next_id

    @property
    def job(self) -> JobHandle | None:
        """Its job; None where it was not submitted."""
        return self._program.job

    def submit_once(self) -> JobHandle:
        """Its job; where it cannot start, only what the user has added besides stays."""
        try:
            return self._program.submit_once()
        except BaseException:
            if self._program.graph.next_id == self._behind:
                self._program.forget(self._first)
            raise
