"""The patterns that are measured find what their definitions say."""

from __future__ import annotations

import numpy as np
import pytest

from penstock import StreamEnvironment
from perf import patterns
from perf.peers.digest import Digest


@pytest.mark.parametrize("variant", patterns._variants(), ids=lambda variant: variant.name)
def test_matches_are_those_of_the_definition(variant: patterns._Variant) -> None:
    env = StreamEnvironment(runtime="local", parallelism=2)
    rows = list(patterns._matched(patterns._rows(50, env, 8_000), variant.pattern).collect())
    right = patterns.expected(variant.define, 50, 8_000)
    assert len(rows) > 10
    assert Digest.of(*(np.array([row[name] for row in rows]) for name in ("key", "begins", "ends", "n"))) == Digest.of(
        *right
    )
