"""Random programs give in batch mode what plain Python gives: those of one job run in one Spark plan."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from tests.actors.spark.conftest import Environment, on_spark
from tests.property.programs import Program, programs

pytestmark = on_spark


def some_programs(number: int) -> list[Program]:
    """The same ones each time."""
    found: list[Program] = []

    @settings(
        max_examples=number,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(programs())
    def draw(program: Program) -> None:
        found.append(program)

    draw()
    return found


@pytest.mark.long("tests/parity and test_parity.py run other random programs")
def test_random_programs_give_what_plain_python_gives(spark: Environment) -> None:
    env = spark()
    drawn = [program for program in some_programs(13) if program.rows]
    assert len(drawn) >= 9
    results = [program.build(env) for program in drawn]
    env.execute("programs", mode="batch")
    for program, result in zip(drawn, results, strict=True):
        assert program.rows_of(result) == program.expected(), program
