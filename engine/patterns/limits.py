"""How much a key may have under way: the number of its partial matches, and how long one may be idle.

`KeyedStream.match` makes the limits, the matcher and the machine keep them. They go beyond Flink, where partial matches
of a pattern without `within` live for ever, and nothing bounds those of one key.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

from penstock.engine.durations import Duration, format_duration, parse_duration
from penstock.engine.errors import ConfigurationError, RecordError


class Overflow(enum.Enum):
    """What happens to a key that has more partial matches than it may have."""

    FAIL = "fail"
    """The job fails."""
    DROP_OLDEST = "drop_oldest"
    """Those that began first go."""
    DROP_NEWEST = "drop_newest"
    """Those that began last go."""


@dataclass(frozen=True, slots=True)
class MatchLimits:
    """Limits of one key.

    Args:
        most: partial matches after an event; None for any number.
        overflow: what happens to more.
        ttl_ms: for how long a partial match lives without a further event; None for ever.
    """

    most: int | None = None
    overflow: Overflow = Overflow.FAIL
    ttl_ms: int | None = None

    def describe(self) -> list[str]:
        """For the operator's name: what differs from the default."""
        parts = []
        if self.most is not None:
            parts.append(f"at most {self.most} partial matches a key, else {self.overflow.value}")
        if self.ttl_ms is not None:
            parts.append(f"ttl {format_duration(self.ttl_ms)}")
        return parts

    def exceeded(self, found: int, where: str) -> RecordError:
        """What the job fails with where a key has `found` partial matches."""
        return RecordError(
            f"{where}: a key has {found} partial matches, and max_partial_matches is {self.most}; make the pattern "
            "stricter (within, consecutive, fewer followed_by_any), raise the limit, or say what goes: "
            "overflow='drop_oldest' or 'drop_newest'"
        )


NO_LIMITS: Final = MatchLimits()


def limits_of(most: int | None, overflow: str, ttl: Duration | None) -> MatchLimits:
    """What the user asked for.

    Raises:
        ConfigurationError: no number of 1 or more, no such policy, or no duration of more than 0.
    """
    if most is not None and (not isinstance(most, int) or isinstance(most, bool) or most < 1):
        raise ConfigurationError(f"match: max_partial_matches is a number of 1 or more, not {most!r:.100}")
    policies = [policy.value for policy in Overflow]
    if overflow not in policies:
        raise ConfigurationError(f"match: overflow is one of {', '.join(policies)}, not {overflow!r:.100}")
    ttl_ms = None if ttl is None else parse_duration(ttl, "match: ttl")
    if ttl_ms is not None and ttl_ms <= 0:
        raise ConfigurationError(f"match: ttl must be more than 0, not {ttl_ms} ms")
    return MatchLimits(most, Overflow(overflow), ttl_ms)
