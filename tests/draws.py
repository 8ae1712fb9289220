"""How many random examples a property draws whose examples are costly: whole jobs, or code that is compiled."""

from __future__ import annotations

from hypothesis import settings

_USUAL = 50


def drawn(number: int) -> int:
    """`number` in `make test`, four times as many in `make test-all`, as of all properties."""
    return number * settings.default.max_examples // _USUAL
