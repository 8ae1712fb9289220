"""What a request to rescale single operators means for the others, and which requests are refused."""

from __future__ import annotations

from typing import Any

import pytest

import penstock as ps
from penstock.engine.errors import ConfigurationError, GraphError, UnknownOperatorError
from penstock.engine.graph.physical import JobProgram
from penstock.engine.graph.rescaling import scale_for
from penstock.engine.graph.scale import Scale
from tests.engine.helpers import RecordingSink, local_environment


def same(row: dict[str, Any]) -> dict[str, Any]:
    return row


def orders(parallelism: int = 2) -> JobProgram:
    """A source that one process reads, a map, a count by key, and a sink that follows each count."""
    env = local_environment(parallelism)
    rows = env.from_collection([("a", 1)], schema=["k", "n"]).name("orders")
    counts = rows.map(same, returns={"k": "string"}).name("clean").key_by("k").aggregate(n=ps.count())
    counts.name("counts").uid("c").sink_to(RecordingSink()).name("sink")
    return env.program("orders")


def parallelisms(program: JobProgram, scale: Scale) -> dict[str, int]:
    tasks = program.rescaled(scale).physical().tasks
    return {name: task.parallelism for task in tasks for name in task.operator_names}


@pytest.mark.parametrize("name", ["c", "counts", "sink", "counts -> sink"])
def test_operators_that_hand_rows_one_to_one_are_rescaled_together(name: str) -> None:
    program = orders()
    scale = scale_for(program, {name: 3}, Scale())
    assert parallelisms(program, scale) == {"orders": 1, "clean": 2, "counts": 3, "sink": 3}
    assert [task.name for task in program.rescaled(scale).physical().tasks][-1] == "counts -> sink"


def test_a_second_request_keeps_what_the_first_one_asked_for() -> None:
    program = orders()
    scale = scale_for(program, {"clean": 4}, scale_for(program, {"counts": 3}, Scale()))
    assert parallelisms(program, scale) == {"orders": 1, "clean": 4, "counts": 3, "sink": 3}


def test_one_number_for_all_ends_what_single_operators_had() -> None:
    program = orders()
    assert scale_for(program, 4, scale_for(program, {"counts": 3}, Scale())) == Scale(4)


def test_single_operators_are_rescaled_on_top_of_what_all_have() -> None:
    program = orders()
    scale = scale_for(program, {"clean": 1}, Scale(4))
    assert parallelisms(program, scale) == {"orders": 1, "clean": 1, "counts": 4, "sink": 4}


def test_a_source_that_goes_along_keeps_to_what_it_can() -> None:
    program = orders(1)
    scale = scale_for(program, {"clean": 3}, Scale())
    assert parallelisms(program, scale) == {"orders": 1, "clean": 3, "counts": 1, "sink": 1}


def test_the_parallelism_that_the_program_sets_can_be_changed() -> None:
    env = local_environment(1)
    env.from_collection([1]).rebalance().map(same).name("mapped").set_parallelism(2).print()
    program = env.program("set")
    assert parallelisms(program, scale_for(program, {"mapped": 3}, Scale()))["mapped"] == 3


def refused(program: JobProgram, wanted: Any) -> str:
    with pytest.raises((ConfigurationError, GraphError)) as error:
        program.rescaled(scale_for(program, wanted, Scale())).physical()
    return str(error.value)


def test_requests_that_cannot_be_met_say_why() -> None:
    assert "cannot be rescaled to 129" in refused(orders(), {"counts": 129})
    assert "whole number of 1 or more, not 0" in refused(orders(), {"counts": 0})
    assert "whole number of 1 or more, not '3'" in refused(orders(), {"counts": "3"})
    assert "this source can be read with 1 at most" in refused(orders(), {"orders": 2})
    assert "one parallelism: 3 or 2, not both" in refused(orders(), {"counts": 3, "sink": 2})
    assert "name at least one operator" in refused(orders(), {})


def test_an_operator_that_there_is_not_is_named_with_those_that_there_are() -> None:
    with pytest.raises(UnknownOperatorError, match=r"no operator 'count' \(did you mean 'counts'\?\); it has orders, "):
        scale_for(orders(), {"count": 2}, Scale())


def test_a_name_that_several_have_needs_a_uid() -> None:
    env = local_environment(2)
    numbers = env.from_collection([1])
    for uid in ("one", "other"):
        numbers.rebalance().map(same).name("mapped").uid(uid).print()
    program = env.program("two")
    with pytest.raises(UnknownOperatorError, match=r"called 'mapped'; name one by its uid: one, other"):
        scale_for(program, {"mapped": 3}, Scale())
    assert dict(scale_for(program, {"other": 3}, Scale()).operators)["other"] == 3


def test_what_needs_all_rows_in_one_place_stays_there() -> None:
    env = local_environment(2)
    env.from_collection([1]).global_().map(same).name("all").set_parallelism(1).print()
    assert "all its rows go to a single subtask" in refused(env.program("single"), {"all": 2})
