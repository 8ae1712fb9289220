"""Which jobs can take checkpoints."""

from __future__ import annotations

import pytest

from penstock.connectors.datagen import DataGenSource, Sequence
from penstock.engine.errors import GraphError
from penstock.engine.graph.checkpointable import check_checkpointable
from tests.engine.graph.programs import same
from tests.engine.helpers import RecordingSink, ScriptedSource, local_environment


def test_a_job_whose_sources_resume_where_they_were_can_take_checkpoints() -> None:
    env = local_environment(2)
    env.from_source(DataGenSource({"n": Sequence()}, rows=10)).rebalance().map(same).sink_to(RecordingSink())
    check_checkpointable(env.program("test").physical())


def test_sources_that_cannot_are_named_all_together_with_what_to_do() -> None:
    env = local_environment(1)
    for name in ("first", "second"):
        env.from_source(ScriptedSource({}), name=name).sink_to(RecordingSink())
    with pytest.raises(GraphError, match=r"source 'first' \(ScriptedSource\) cannot .*open_at.*source 'second'"):
        check_checkpointable(env.program("test").physical())


def test_loops_are_refused() -> None:
    env = local_environment(2)
    numbers = env.from_source(DataGenSource({"n": Sequence()}, rows=10))
    numbers.iterate(lambda loop: (loop, loop)).sink_to(RecordingSink())
    with pytest.raises(GraphError, match="is the head of a loop"):
        check_checkpointable(env.program("test").physical())
