"""Rules are compiled once each: a user's first rows wait for it."""

from __future__ import annotations

import sys
from typing import Any

import numba
import pytest

from penstock.engine.patterns import compiled_rules as compiling
from penstock.engine.patterns.compiled_rules import compiled_rules


def adds(number: int, more: int) -> int:
    return number + more


def counts(steps: int) -> int:
    number = 0
    for _ in range(steps):
        number = adds(number, 1)
        number = adds(number, 2)
    return adds(number, steps)


def test_constants_make_no_versions_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    # What an earlier run has left on disk would not be compiled.
    monkeypatch.setattr(compiling, "compile_cached", lambda function, from_python: numba.njit(function))
    rules: dict[str, Any] = compiled_rules(sys.modules[__name__], ("counts",), called=("adds",))
    assert rules["counts"](5) == counts(5) == 20
    assert len(rules["adds"].signatures) == 1
