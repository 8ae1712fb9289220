"""Random functions of `reduce` and `aggregate`, compiled, give the rows and keep the state of plain Python."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, find, given, settings
from hypothesis import strategies as st

from penstock.engine.compiled.folding_program import FoldProgram
from penstock.engine.operators.functions.keyed_process import KeyedProcessOperator
from tests.draws import drawn
from tests.engine.compiled.fold_programs import GIVEN, ROWS, added, aggregates, compiled, plain, reduces
from tests.engine.compiled.keyed_programs import outcome

SETTINGS = settings(
    max_examples=drawn(10), phases=[Phase.reuse, Phase.generate], suppress_health_check=list(HealthCheck)
)
FEW = settings(SETTINGS, max_examples=100, phases=[Phase.generate], derandomize=True, database=None)


def differs(case: tuple[str, list[dict[str, Any]]]) -> bool:
    source, rows = case
    return outcome([compiled(source)], rows, GIVEN) != outcome([plain(source)], rows, GIVEN)


@SETTINGS
@given(reduces(), ROWS, st.sampled_from([(plain, compiled), (compiled, plain), (compiled, compiled)]))
def test_rows_and_states_are_those_of_plain_python(source: str, rows: list[dict[str, Any]], order: Any) -> None:
    assert outcome([of(source) for of in order], rows, GIVEN) == outcome([plain(source)] * 2, rows, GIVEN)


@SETTINGS
@given(aggregates(), ROWS)
def test_accumulators_are_those_of_plain_python(source: str, rows: list[dict[str, Any]]) -> None:
    found = added(source, rows, is_compiled=True)
    assert found is None or found == added(source, rows, is_compiled=False)


@pytest.mark.long("the tests above compare the same programs; this shows that they would notice")
@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("if not p[", "if p["),
        ("p[groups[i]] = True", "p[groups[i]] = False"),
        ("held + i", "held"),
        ("_1[groups[i]] = t_", "_1[groups[0]] = t_"),
        ("= s_1[groups[i]]", "= s_1[groups[0]]"),
    ],
)
def test_broken_code_is_noticed(right: str, wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = FoldProgram.__init__

    def broken(self: FoldProgram, given: Any, schema: Any) -> None:
        made(self, dataclasses.replace(given, source=given.source.replace(right, wrong)), schema)

    monkeypatch.setattr(FoldProgram, "__init__", broken)
    find(st.tuples(reduces(), ROWS), differs, settings=FEW)


def test_most_random_functions_run_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"k": "ab"[i % 2], "i": i, "x": 0.5, "b": True, "s": "a", "at": None, "small": 1} for i in range(6)]
    monkeypatch.setattr(KeyedProcessOperator, "process_batch", lambda *_: pytest.fail("rows were made"))
    case = find(reduces(), lambda source: len(source) > 400 and " * " not in source, settings=FEW)
    assert "Failed" not in outcome([compiled(case)], rows, GIVEN)
