"""What happens to other partial matches when a match is found: after-match skip strategies.

Users give one to `Pattern.begin`; the matcher asks it which partial matches to drop. It guarantees Flink's rules: a
strategy drops by the first event of a partial match alone.

Source: Flink's documentation, "After Match Skip Strategy".
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace

from penstock.engine.errors import PatternError


class SkipKind(enum.Enum):
    """Which partial matches go."""

    NO_SKIP = "no skip"
    TO_NEXT = "skip to next"
    PAST_LAST = "skip past last event"
    TO_FIRST = "skip to first"
    TO_LAST = "skip to last"


@dataclass(frozen=True, slots=True)
class AfterMatchSkipStrategy:
    """Which other partial matches a match ends. Make one by a class method.

    With every strategy but `no_skip`, a match is held back while a partial match lives that began before it; if that
    one never ends, because the pattern has no `within`, the match never comes out.

    Args:
        kind: which.
        variable: for `TO_FIRST` and `TO_LAST`.
        throws_on_miss: whether a match without that variable is an error.

    Example:
        >>> AfterMatchSkipStrategy.skip_to_first("a").describe()
        "skip to first 'a'"
    """

    kind: SkipKind = SkipKind.NO_SKIP
    variable: str | None = None
    throws_on_miss: bool = False

    @classmethod
    def no_skip(cls) -> AfterMatchSkipStrategy:
        """Every possible match is given."""
        return cls()

    @classmethod
    def skip_to_next(cls) -> AfterMatchSkipStrategy:
        """Partial matches that began with the same event go."""
        return cls(SkipKind.TO_NEXT)

    @classmethod
    def skip_past_last_event(cls) -> AfterMatchSkipStrategy:
        """Partial matches that began at or before the match's last event go."""
        return cls(SkipKind.PAST_LAST)

    @classmethod
    def skip_to_first(cls, variable: str) -> AfterMatchSkipStrategy:
        """Partial matches that began before the first event of `variable` go; none if it has no event."""
        return cls(SkipKind.TO_FIRST, _checked(variable))

    @classmethod
    def skip_to_last(cls, variable: str) -> AfterMatchSkipStrategy:
        """Partial matches that began before the last event of `variable` go; none if it has no event."""
        return cls(SkipKind.TO_LAST, _checked(variable))

    def throw_exception_on_miss(self) -> AfterMatchSkipStrategy:
        """The same, but a match without the variable, or that begins with it, fails the job.

        Raises:
            PatternError: the strategy has no variable.
        """
        if self.variable is None:
            raise PatternError(f"throw_exception_on_miss: {self.describe()!r} has no variable that a match could miss")
        return replace(self, throws_on_miss=True)

    def describe(self) -> str:
        """For `explain()`."""
        return self.kind.value if self.variable is None else f"{self.kind.value} {self.variable!r}"


def _checked(variable: object) -> str:
    if not isinstance(variable, str) or not variable:
        raise PatternError(f"a skip strategy names a variable of the pattern (a text), not {variable!r:.200}")
    return variable
