"""The functions of users that make rows of matches, and what they may know.

`PatternStream.process` takes a `PatternProcessFunction`; `select` wraps plain functions into one. Each subtask has a
copy of its own.

Source: Flink's documentation, "Detecting Patterns", `PatternProcessFunction` and `TimedOutPartialMatchHandler`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from penstock.engine.functions import OutputTag
from penstock.engine.patterns.partial import Match


class MatchRuntimeContext(Protocol):
    """What `PatternProcessFunction.open` is given: where the function runs. It has no state of its own, as in Flink."""

    @property
    def operator(self) -> str:
        """The operator's name."""
        ...

    @property
    def subtask(self) -> int:
        """Index of the subtask, from 0."""
        ...

    @property
    def parallelism(self) -> int:
        """How many subtasks there are."""
        ...


class PatternContext(Protocol):
    """What `process_match` and `process_timed_out_match` may know beside the match."""

    @property
    def key(self) -> Any:
        """The key: a value, or a tuple where there are several key columns."""
        ...

    @property
    def timestamp(self) -> int:
        """The time (int64 ms) of the match: that of the event that completed it, or at which the partial match timed
        out; of the clock in processing time."""
        ...

    def current_processing_time(self) -> int:
        """The time of the clock (int64 ms)."""
        ...

    def output(self, tag: OutputTag, row: Mapping[str, Any]) -> None:
        """Emit a row to a side output."""
        ...


class PatternProcessFunction:
    """What to make of matches, and of partial matches that time out; subclass it.

    Example:
        >>> class Alert(PatternProcessFunction):
        ...     def process_match(self, match, context):
        ...         yield {"card": context.key, "amount": match["large"][0]["amount"]}
    """

    def open(self, context: MatchRuntimeContext) -> None:
        """Load models, open clients. Called once, before the first match."""

    def close(self) -> None:
        """Release resources. Called once, also after an error."""

    def process_match(self, match: Match, context: PatternContext) -> Iterable[Mapping[str, Any]] | None:
        """A match was found; yield or return rows, which get `context.timestamp`.

        Args:
            match: the rows (dicts, not to be changed) of each variable that has any, in order of the pattern.
            context: key, time, and side outputs.
        """
        raise NotImplementedError

    def process_timed_out_match(self, match: Match, context: PatternContext) -> None:
        """A partial match has timed out; emit what should be known of it: `context.output(tag, row)`."""


@dataclass(frozen=True, slots=True)
class SelectFunction:
    """Makes one row of each match, and of each partial match that times out, by plain functions.

    Args:
        selected: called with the match; returns a row.
        timed_out: called with the partial match and its time; returns a row, for the side output `tag`.
    """

    selected: Callable[[Match], Mapping[str, Any]]
    timed_out: Callable[[Match, int], Mapping[str, Any]] | None = None
    tag: OutputTag | None = None

    def open(self, context: MatchRuntimeContext) -> None:
        """Nothing to do."""

    def close(self) -> None:
        """Nothing to do."""

    def process_match(self, match: Match, context: PatternContext) -> Iterable[Mapping[str, Any]] | None:
        """As `PatternProcessFunction.process_match`."""
        return [self.selected(match)]

    def process_timed_out_match(self, match: Match, context: PatternContext) -> None:
        """As `PatternProcessFunction.process_timed_out_match`."""
        if self.timed_out is not None and self.tag is not None:
            context.output(self.tag, self.timed_out(match, context.timestamp))
