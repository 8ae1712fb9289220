"""Random programs give on Ray and on Spark what plain Python gives; `make parity PROGRAMS=100` runs more of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.actors.spark.conftest import Environment, on_spark
from tests.parity.runs import Mode, mismatches

# pytest.mark.ray: of the files that one process runs.
pytestmark = on_spark


@pytest.mark.parametrize("mode", ["ray", "spark"])
def test_random_programs_give_what_plain_python_gives(spark: Environment, mode: Mode, tmp_path: Path) -> None:
    found = mismatches(range(12), mode, tmp_path)
    assert not found, "\n\n".join(map(str, found))
