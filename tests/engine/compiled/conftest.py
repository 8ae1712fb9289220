"""Lets compiled code compute the small batches of these tests, which plain Python would."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.engine.operators import compiled
from penstock.engine.operators.functions import compiled_process, compiled_reduce
from penstock.engine.operators.matching import event_tests
from penstock.engine.operators.windows import compiled_window, compiled_window_process
from penstock.engine.operators.windows.compiled_window_process import CompiledWindowProcessOperator


@pytest.fixture(autouse=True, scope="package")
def _no_batch_is_small() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for module in (
            compiled,
            compiled_process,
            compiled_reduce,
            compiled_window,
            compiled_window_process,
            event_tests,
        ):
            patch.setattr(module, "FEW_ROWS", 0)
        patch.setattr(compiled_process, "FEW_ROWS_OF_MANY", 0)
        patch.setattr(CompiledWindowProcessOperator, "_least_rows", 1)
        yield
