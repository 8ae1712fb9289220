"""Windows over two real git histories, in batch mode: the digests of `tests/golden/test_commits.py`."""

from __future__ import annotations

import pytest

from tests.actors.spark.conftest import Environment, on_spark
from tests.golden import test_commits

pytestmark = [*on_spark, test_commits.pytestmark]


@pytest.mark.long(
    "the digests: tests/golden/test_commits.py; windows by Spark: test_native.py; sessions in stages: tests/parity"
)
@pytest.mark.parametrize("history", test_commits.HISTORIES)
def test_windows_of_a_history_on_spark(spark: Environment, history: str) -> None:
    test_commits.check(history, spark(), "batch")
