"""Each test of backends runs with all of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.engine.state.backend import KeyedStateBackend
from tests.engine.state.backends import BACKENDS, make_backend


@pytest.fixture(autouse=True, scope="module")
def small_parts() -> Iterator[None]:
    """State is restored in parts of a few rows."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("penstock.engine.state.snapshot._PART_ROWS", 3)
        yield


@pytest.fixture(params=BACKENDS)
def kind(request: pytest.FixtureRequest) -> str:
    if request.param == "rocksdb":
        pytest.importorskip("rocksdict")
    return str(request.param)


@pytest.fixture
def backend(kind: str) -> Iterator[KeyedStateBackend]:
    made = make_backend(kind)
    yield made
    made.close()
