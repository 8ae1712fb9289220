"""Limits at which a job of a few rows changes how it finds its keys, as one of many rows does."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.engine.state.keys import index


@pytest.fixture(scope="module")
def keys_compiled_on_the_way() -> Iterator[None]:
    """Keys lie in a dict first, and are compiled while the job runs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index, "_FEW", 4)
        patch.setattr(index, "_TRICKLE", 1)
        patch.setattr(index, "_EARNED", 10)
        yield
