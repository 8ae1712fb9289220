"""Random keyed functions, compiled, give the rows and keep the state of plain Python; broken code is noticed."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, find, given, settings
from hypothesis import strategies as st

from penstock.engine.compiled import translation
from penstock.engine.compiled.emitting_program import EmittingProgram
from penstock.engine.compiled.narrowing import Shown, shown_by
from penstock.engine.operators.functions.keyed_process import KeyedProcessOperator
from tests.draws import drawn
from tests.engine.compiled.keyed_programs import ROWS, compiled, outcome, plain, sources

# To make such a program smaller takes minutes: that which fails is shown as it is.
SETTINGS = settings(
    max_examples=drawn(15), phases=[Phase.reuse, Phase.generate], suppress_health_check=list(HealthCheck)
)
MANY = settings(SETTINGS, max_examples=20_000, phases=[Phase.generate], derandomize=True, database=None)


def differs(case: tuple[str, list[dict[str, Any]]]) -> bool:
    source, rows = case
    return outcome([compiled(source)] * 2, rows) != outcome([plain(source)] * 2, rows)


@SETTINGS
@given(sources(), ROWS, st.sampled_from([(plain, compiled), (compiled, plain), (compiled, compiled)]))
def test_rows_and_states_are_those_of_plain_python(source: str, rows: list[dict[str, Any]], order: Any) -> None:
    assert outcome([of(source) for of in order], rows) == outcome([plain(source)] * 2, rows)


@pytest.mark.long("the test above compares the same programs; this shows that it would notice")
@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("[groups[i]] = True", "[groups[i]] = False"),
        ("[groups[i]] = 1", "[groups[i]] = 0"),
        ("[groups[i]] = 2", "[groups[i]] = 1"),
        ("if p_", "if not p_"),
        (" != 0", " != 1"),
        ("g_", "not g_"),
        ("q_", "not q_"),
        ("s_text[groups[i]] = ", "s_text[groups[i]] = 0 * "),
        ("o0_origin[at] = i", "o0_origin[at] = 0"),
        ("missing[0] = 1", "missing[0] = 0"),
        ("lw_ints[groups[i]] = True", "lw_ints[groups[i]] = False"),
        ("ll_ints[groups[i]] + 1", "ll_ints[groups[i]] + 0"),
        ("if me_counts", "if mc_counts[groups[i]] > 99 and me_counts"),
        ("mp_counts[t_", "mq_counts[t_"),
    ],
)
def test_broken_code_is_noticed(right: str, wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = EmittingProgram.__init__

    def broken(self: EmittingProgram, given: Any, schema: Any) -> None:
        source = _replaced(given.source, right, wrong)
        if source == given.source:
            raise _UnchangedError
        made(self, dataclasses.replace(given, source=source), schema)

    def noticed(case: tuple[str, list[dict[str, Any]]]) -> bool:
        try:
            return differs(case)
        except _UnchangedError:
            return False

    monkeypatch.setattr(EmittingProgram, "__init__", broken)
    find(st.tuples(sources(), ROWS), noticed, settings=MANY)


class _UnchangedError(BaseException):
    """The program has nothing that could be broken so: another one is asked for, and this one not run."""


def _replaced(source: str, right: str, wrong: str) -> str:
    """Variables and arrays that say whether there is a value are changed where a test reads them, not what guards."""
    if wrong != f"not {right}":
        return source.replace(right, wrong)
    return re.sub(rf"(?<!given\()(?<!^)(?<=[ (]){right}(\w+(\[i\])?)(?! =)", rf"(not {right}\1)", source)


def test_reading_what_may_be_none_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def hasty(test: Any) -> Shown:
        shown = shown_by(test)
        return Shown(shown.if_true | shown.if_false, shown.if_true | shown.if_false)

    monkeypatch.setattr(translation, "shown_by", hasty)
    source = """class Random(ps.KeyedProcessFunction):
    def open(self, context):
        self.int = context.get_state(ps.ValueStateDescriptor("int", "int64"))
    def process_element(self, row, ctx):
        v = self.int.value()
        if v is None:
            self.int.update(v + 1)
        yield {"k": row["k"], "int": 1, "float": 0.5, "bool": True, "text": "a"}
"""
    assert differs((source, [{"k": "a", "i": 1, "x": 0.5, "b": True, "s": "a", "t": "a"}] * 2))


def test_most_random_functions_run_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"k": "ab"[i % 2], "i": i, "x": 0.5, "b": True, "s": "a", "t": "w"} for i in range(6)]
    monkeypatch.setattr(KeyedProcessOperator, "process_batch", lambda *_: pytest.fail("rows were made"))
    case = find(sources(), lambda source: len(source) > 900, settings=MANY)
    assert "Failed" not in outcome([compiled(case)], rows)
