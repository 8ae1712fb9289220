"""How many random examples a property draws that says so, as those do whose examples cost much: jobs, compiled code."""

from __future__ import annotations

from hypothesis import settings

_USUAL = 50


def drawn(number: int) -> int:
    """Half of `number` in `make test`, four times as many in `make test-all`, as of all properties."""
    return max(1, number * settings.default.max_examples // _USUAL)
