"""Windows over two real git histories, in batch mode: the digests of `tests/golden/test_commits.py`."""

from __future__ import annotations

import pytest

from tests.actors.spark.conftest import Environment, on_spark
from tests.golden import test_commits

pytestmark = [*on_spark, test_commits.pytestmark]

LONG = pytest.mark.long("the other history; both in one process: tests/golden/test_commits.py")


@pytest.mark.parametrize("history", [pytest.param("commits-a", marks=LONG), "commits-b"])
def test_windows_of_a_history_on_spark(spark: Environment, history: str) -> None:
    test_commits.check(history, spark(), "batch")
