"""A program under construction, shared by all its streams: the graph so far, and who takes its results."""

from __future__ import annotations

from collections.abc import Callable

from penstock.engine.errors import GraphError
from penstock.engine.graph.logical import GraphBuilder
from penstock.engine.job.handle import JobHandle, ResultConsumer


class Program:
    """What the verbs of the streams add to, until it is submitted.

    Args:
        submit: starts the program that it is called with, where a `collect()` is read before anyone has submitted it.

    Attributes:
        asked_for: called when somebody runs, explains or drops the program.
        refusal: why it cannot be submitted now, such as that somebody else does so; None: it can.
    """

    def __init__(self, submit: Callable[[Program], JobHandle]) -> None:
        self.asked_for: Callable[[], object] = lambda: None
        self.refusal: str | None = None
        self.graph = GraphBuilder()
        self.consumers: dict[int, ResultConsumer] = {}
        self.job: JobHandle | None = None
        self.one_subtask: set[int] = set()
        """The operators that must see all rows, and so have one subtask."""
        self._submit = submit

    def submit_once(self) -> JobHandle:
        """The program's job; submits the program unless that has happened."""
        return self.job or self._submit(self)

    def begin(self) -> None:
        """It is about to be submitted.

        Raises:
            GraphError: that is refused.
        """
        self.asked_for()
        if self.refusal is not None:
            raise GraphError(self.refusal)

    def see_all_rows(self, node: int) -> None:
        """Let an operator have one subtask for good: it must see all rows."""
        self.graph.parallelism(node, 1)
        self.one_subtask.add(node)

    def forget(self, first: int) -> None:
        """Take the nodes from that id on out again, as if they had never been added."""
        for node in range(first, self.graph.next_id):
            self.consumers.pop(node, None)
            self.one_subtask.discard(node)
        self.graph.forget(first)

    def check_open(self) -> None:
        """Raise unless operators can still be added."""
        if self.job is not None:
            raise GraphError(
                f"the program was submitted as job {self.job.name!r} and takes no more operators; "
                "start the next one from the environment's sources"
            )
