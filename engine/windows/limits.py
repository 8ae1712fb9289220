"""How long spans of time may be, and how small counts: checked alike wherever users give them.

Assigners, triggers, watermarks and joins use it. It guarantees that arithmetic on times below 2**62 fits int64.
"""

from __future__ import annotations

from typing import Final

from penstock.engine.errors import ConfigurationError

LARGEST_SPAN_MS: Final = 2**60
"""The longest span of event time, in milliseconds: with timestamps below 2**62, window arithmetic fits int64."""


def check_span(milliseconds: int, option: str) -> int:
    """The span itself, if it is more than 0 and not too long.

    Raises:
        ConfigurationError: it is not so.
    """
    if milliseconds <= 0:
        raise ConfigurationError(f"{option} must be more than 0, not {milliseconds} ms")
    if milliseconds > LARGEST_SPAN_MS:
        raise ConfigurationError(f"{option} must be at most 2**60 ms, not {milliseconds} ms")
    return milliseconds


def check_count(value: int, option: str) -> int:
    """The number itself, if it is a whole number of 1 or more.

    Raises:
        ConfigurationError: it is none.
    """
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ConfigurationError(f"{option} must be a whole number of 1 or more, not {value!r}")
    return value
