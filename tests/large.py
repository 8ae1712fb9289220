"""How large what is called large is, where a test passes it through a connector or a format."""

from __future__ import annotations

import pytest

# More than one block of a file, one answer of a broker, one buffer of a client: those are of a few megabytes at most.
LARGE = pytest.mark.parametrize(
    "large",
    [8 << 20, pytest.param(50 << 20, marks=pytest.mark.long("the same with eight megabytes"))],
    ids=["8MB", "50MB"],
)
