"""Random patterns and MATCH_RECOGNIZE give what Flink has answered: `python -m tests.flink --save` has kept it."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from penstock.engine.errors import PatternError
from tests.engine.operators.matching.match_job import row
from tests.engine.patterns.cases import Case
from tests.engine.patterns.definition import Definition
from tests.flink.chains import found_here
from tests.flink.clauses import found_here as found_by_clause
from tests.flink.surprises import CLAUSES, SURPRISES

_DATA = Path(__file__).parents[1] / "data"


def _kept(name: str) -> list[Case]:
    loaded: list[Case] = json.loads(gzip.decompress((_DATA / name).read_bytes()))
    return loaded


_CASES = _kept("flink-answers.json.gz")
_SURPRISES = _kept("flink-surprises.json.gz")


def test_patterns_find_what_flink_has_found() -> None:
    given = [case for case in _CASES if "pattern" in case]
    assert len(given) > 100
    for case in given:
        if case["answer"]["error"] is not None:
            with pytest.raises(PatternError):
                found_here(case)
            continue
        wanted = sorted(case["answer"]["rows"])
        assert found_here(case) == wanted, f"seed {case['seed']}"
        if case["seed"] % 4 == 0:
            # Row by row with a restart, which takes several times as long.
            assert found_here(case, True, len(case["steps"]) // 2) == wanted, f"seed {case['seed']}"


def test_clauses_find_what_flink_has_found() -> None:
    given = [case for case in _CASES if "clause" in case]
    assert len(given) > 50
    for case in given:
        assert found_by_clause(case) == sorted(case["answer"]["rows"]), f"seed {case['seed']}: {case['clause']}"


def test_all_surprises_have_been_answered() -> None:
    assert [case["surprise"] for case in _SURPRISES] == [case["surprise"] for case in (*SURPRISES, *CLAUSES)]


_PATTERNS = [case for case in _SURPRISES if "pattern" in case]


@pytest.mark.parametrize("given", _PATTERNS, ids=[case["surprise"] for case in _PATTERNS])
def test_where_patterns_surprise_flink_is_followed(given: Case) -> None:
    found = found_here(given)
    assert found == sorted(given["answer"]["rows"])
    rows = [row(number, *step[1:]) for number, step in enumerate(given["steps"])]
    says = [";".join(sorted(f"{name}={place}" for name, place in way)) for way in Definition(given, rows).matches]
    flat = [";".join(_events(text)) for text in found if text.startswith("match ")]
    assert sorted(flat) != sorted(says)


def _events(text: str) -> list[str]:
    parts = (part.partition("=") for part in text.partition("|")[2].partition("@")[0].split(";"))
    return sorted(f"{name}={place}" for name, _, places in parts for place in places.split(","))


_DIFFERING = [case for case in _SURPRISES if "clause" in case]


@pytest.mark.parametrize("given", _DIFFERING, ids=[case["surprise"] for case in _DIFFERING])
def test_where_flink_leaves_the_standard_clauses_do_not(given: Case) -> None:
    assert found_by_clause(given) == given["here"] != sorted(given["answer"]["rows"])
