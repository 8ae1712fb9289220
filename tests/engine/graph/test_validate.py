"""Programs that make no job: what is wrong, and where, before anything runs."""

from __future__ import annotations

import pytest

from penstock.engine.errors import ConfigurationError, GraphError
from penstock.engine.expressions import col
from tests.engine.graph.programs import rows, same
from tests.engine.helpers import RecordingSink, local_environment


def test_a_program_without_operators_is_empty() -> None:
    with pytest.raises(GraphError, match="the program is empty"):
        local_environment().execute()


def test_a_program_without_a_sink_is_refused_with_a_remedy() -> None:
    env = local_environment()
    rows(env).map(same)
    with pytest.raises(
        GraphError, match=r"has no sink, .*; end a stream with sink_to\(\.\.\.\), print\(\) or collect\(\)"
    ):
        env.execute()


def test_a_branch_without_a_sink_does_not_run() -> None:
    def never(row: dict[str, object]) -> dict[str, object]:
        raise AssertionError("this branch leads nowhere")

    env = local_environment()
    stream = rows(env)
    result = stream.collect()
    stream.map(never).rebalance().map(same).name("forgotten")
    assert "forgotten" not in env.explain().split("== Plan ==")[1]
    assert result.to_arrow().num_rows == 1


def test_an_operator_with_one_branch_to_nowhere_fuses_with_the_other() -> None:
    env = local_environment()
    far = rows(env).filter(col("distance") > 1)
    far.select("distance")
    far.select("carrier").print()
    assert "  filter(col(distance) > 1) -> select(carrier)\n" in env.explain()


def test_a_uid_used_twice_names_both_operators() -> None:
    env = local_environment()
    rows(env).map(same).name("first").uid("it").map(same).name("second").uid("it").print()
    with pytest.raises(GraphError, match="uid 'it' is used by operator 'first' and by operator 'second'"):
        env.execute()


def test_a_sinks_uid_counts_too() -> None:
    env = local_environment()
    rows(env).map(same).uid("it").sink_to(RecordingSink()).uid("it")
    with pytest.raises(GraphError, match="uids must be unique"):
        env.execute()


def test_forward_between_different_parallelisms_is_refused_with_both() -> None:
    env = local_environment()
    stream = rows(env).map(same).name("three").set_parallelism(3)
    stream.forward().map(same).name("two").set_parallelism(2).print()
    with pytest.raises(GraphError, match=r"'two' has parallelism 2, but forward\(\) needs .*'three', which is 3"):
        env.execute()


def test_forward_to_the_client_needs_no_parallelism() -> None:
    env = local_environment()
    result = rows(env).map(same).set_parallelism(3).forward().collect()
    assert result.to_arrow().num_rows == 1


def test_a_source_over_its_own_maximum_is_refused_with_a_remedy() -> None:
    env = local_environment()
    rows(env).set_parallelism(2).print()
    with pytest.raises(ConfigurationError, match=r"2 is over the 1 .* set the parallelism of the next operator"):
        env.execute()


def test_a_refused_program_may_be_mended_and_run() -> None:
    env = local_environment()
    stream = rows(env).map(same)
    with pytest.raises(GraphError):
        env.execute()
    result = stream.collect()
    env.execute()
    assert result.to_arrow().num_rows == 1
