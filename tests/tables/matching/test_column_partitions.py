"""Clauses whose definitions ask of each row alone run on columns, and find what they find on objects and by definition.

A case is a seed; the rules are compiled in some, and forget what is not needed at once. `PATTERNS=2000` tries more.
"""

from __future__ import annotations

import os
from random import Random

import pytest

from penstock.engine.patterns.rows import column_search
from penstock.engine.patterns.rows.automaton import RowAutomaton
from penstock.engine.patterns.rows.syntax import shown
from penstock.tables.lower.matching import column_partitions, operator
from penstock.tables.lower.matching.column_partitions import runs_on_columns
from penstock.tables.plan.row_references import RowMatch
from tests.draws import drawn
from tests.tables.matching.test_row_patterns import (
    found_at_once,
    found_in_steps,
    random_clause,
    random_rows,
    spec_of,
    wanted,
)

_CASES = int(os.environ.get("PATTERNS", drawn(60)))
_MEASURES = (
    *("{}.v", "FIRST({}.v, 1)", "LAST({}.v, 1)", "v", "FIRST(v)", "COUNT({}.v)", "COUNT(*)", "CLASSIFIER()"),
    *("SUM({}.v)", "AVG({}.v)", "MIN({}.v)", "MAX(v)", "MATCH_ROWTIME()", "{}.k", "COUNT({}.v) + FIRST({}.v)"),
)


@pytest.fixture(autouse=True)
def nothing_is_kept_for_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that are not needed any more are forgotten at once."""
    monkeypatch.setattr(column_search, "_MIN_GARBAGE", 0)
    monkeypatch.setattr(column_partitions, "_MIN_IDLE", -1)


def test_random_clauses_find_what_the_definition_says(monkeypatch: pytest.MonkeyPatch) -> None:
    matches = 0
    for seed in range(_CASES):
        random = Random(seed)
        names, texts, meaning = random_clause(random, alone=True)
        if next(meaning.empty_ways(), None) is not None:
            continue
        spec, rows = spec_of(shown(meaning.pattern), names, texts, meaning), random_rows(random)
        monkeypatch.setattr(column_search, "_MANY_ROWS", 0 if seed % 4 == 0 else 1_000)
        monkeypatch.setattr(operator, "runs_on_columns", runs_on_columns)
        whole = found_at_once(spec, rows)
        found = [(key, at, name, count, value) for _, (key, at, name, _, count, value) in whole]
        assert sorted(found, key=repr) == wanted(meaning, rows), f"seed {seed}: {shown(meaning.pattern)} {texts}"

        def either(match: RowMatch, automaton: RowAutomaton, random: Random = random) -> bool:
            assert runs_on_columns(match, automaton)
            return random.random() < 0.7

        # Each restart may go on with the other way of searching.
        monkeypatch.setattr(operator, "runs_on_columns", either)
        assert sorted(found_in_steps(spec, rows, random), key=repr) == sorted(whole, key=repr), f"seed {seed}"
        matches += len(found)
    assert matches > _CASES


def test_measures_are_those_of_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    matches = 0
    for seed in range(_CASES):
        random = Random(seed)
        names, texts, meaning = random_clause(random, alone=True)
        if next(meaning.empty_ways(), None) is not None:
            continue
        given = [random.choice(_MEASURES).replace("{}", random.choice(names)) for _ in range(4)]
        results = f"MEASURES {', '.join(f'{text} AS m{place}' for place, text in enumerate(given))} ONE ROW PER MATCH"
        spec, rows = spec_of(shown(meaning.pattern), names, texts, meaning, results), random_rows(random)
        monkeypatch.setattr(operator, "runs_on_columns", runs_on_columns)
        by_columns = found_at_once(spec, rows)
        monkeypatch.setattr(operator, "runs_on_columns", lambda match, automaton: False)
        assert by_columns == found_at_once(spec, rows), f"seed {seed}: {shown(meaning.pattern)} {results}"
        matches += len(by_columns)
    assert matches > _CASES
