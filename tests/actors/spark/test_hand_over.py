"""History in batch mode, then what comes live in streaming mode: together the result of one job over all of it.

Without Spark: the stages run in this process. `test_hand_over_jobs.py` has Spark.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock import StreamEnvironment
from tests.actors.spark.simulated import run_to_savepoint
from tests.property.programs import Program, programs


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(programs(), st.integers(0, 40), st.sampled_from([(1, 1), (2, 3), (3, 2)]))
def test_a_streaming_job_goes_on_where_the_history_ends(
    program: Program, cut: int, parallelisms: tuple[int, int]
) -> None:
    history, live = (StreamEnvironment(parallelism=number, runtime="local") for number in parallelisms)
    program.build(history, slice(cut))
    result = program.build(live, slice(cut, None))
    with tempfile.TemporaryDirectory() as folder:
        url = Path(folder, "savepoint").as_uri()
        (before,) = run_to_savepoint(history.program().physical(), url).values()
        live.execute(savepoint=url)
    assert program.rows_of([*before, *result]) == program.expected()
