"""Random programs give on Ray and on Spark what plain Python gives; `make parity PROGRAMS=100` runs more of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.actors.spark.conftest import Environment, on_spark
from tests.parity.runs import Mode, mismatches

pytestmark = on_spark

LONG = pytest.mark.long("tests/parity runs random programs on the local runtime and in stages, test_operators.py verbs")

# Those that have many kinds of verbs in few stages: a subtask on Ray, and a stage on Spark, takes a second.
ON_RAY = (178, 189)
ON_SPARK = (198, 215)
MORE_ON_SPARK = (154, 162, 187, 199)


@pytest.mark.parametrize(
    ("mode", "seeds"),
    [("ray", ON_RAY), ("spark", ON_SPARK), ("spark", MORE_ON_SPARK)],
)
@LONG
def test_random_programs_give_what_plain_python_gives(
    spark: Environment, mode: Mode, seeds: tuple[int, ...], tmp_path: Path
) -> None:
    found = mismatches(seeds, mode, tmp_path)
    assert not found, "\n\n".join(map(str, found))
