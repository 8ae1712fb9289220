"""Random patterns give what Flink has answered: `python -m tests.flink --save` has kept it."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from penstock.engine.errors import PatternError
from tests.engine.patterns.cases import Case
from tests.flink.chains import found_here

_CASES: list[Case] = json.loads(
    gzip.decompress((Path(__file__).parents[1] / "data" / "flink-answers.json.gz").read_bytes())
)


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
