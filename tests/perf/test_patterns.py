"""The patterns that are measured find what their definitions say, as patterns and as clauses of SQL."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from penstock import StreamEnvironment
from perf import match_recognize, patterns
from perf.peers.digest import Digest


@pytest.mark.parametrize("variant", patterns.VARIANTS, ids=lambda variant: variant.name)
def test_matches_are_those_of_the_definition(variant: patterns.Variant) -> None:
    env = StreamEnvironment(runtime="local", parallelism=2)
    rows = list(patterns._matched(patterns._rows(50, env, 8_000), variant.pattern).collect())
    _check(variant, rows)


@pytest.mark.parametrize("variant", patterns.VARIANTS, ids=lambda variant: variant.name)
def test_clauses_find_the_same(variant: patterns.Variant) -> None:
    env = StreamEnvironment(runtime="local", parallelism=2)
    _check(variant, list(match_recognize._matched(env, match_recognize._clause(variant), 50, 8_000).collect()))


def _check(variant: patterns.Variant, rows: list[dict[str, Any]]) -> None:
    right = patterns.expected(variant.define, 50, 8_000)
    assert len(rows) > 10
    found = (np.array([row[name] for row in rows]) for name in ("key", "begins", "ends", "n"))
    assert Digest.of(*found) == Digest.of(*right)
