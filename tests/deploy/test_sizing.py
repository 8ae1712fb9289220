"""The sizing table of docs/deployment.md has the figures that perf/README.md tells of."""

from __future__ import annotations

import re

import pytest

from tests.deploy.manifests import ROOT


def rows(path: str) -> list[list[str]]:
    """The cells of all tables of a file."""
    lines = (ROOT / path).read_text(encoding="utf-8").splitlines()
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines if line.startswith("| ")]


SIZES = [row for row in rows("docs/deployment.md") if len(row) == 4 and re.fullmatch(r"`\w+`, .+", row[1])]


@pytest.mark.parametrize("row", SIZES, ids=[row[1] for row in SIZES])
def test_a_vcpu_takes_what_was_measured_of_it(row: list[str]) -> None:
    _, measured, a_second, planned = row
    program, variant = re.fullmatch(r"`(\w+)`, (.+)", measured).groups()  # type: ignore[union-attr]
    found = []
    running = ""
    for first, *others in rows("perf/README.md"):
        named = re.match(r"`perf/run\.py (\w+)", first)
        running = named.group(1) if named else running if not first.strip("|").strip() else ""
        if running == program and others[0] == variant:
            found.append(others[2])
    assert a_second in found
    assert float(planned) == pytest.approx(float(a_second) / 3, rel=0.06)


def test_all_kinds_of_work_are_there() -> None:
    assert {re.match(r"`(\w+)`", row[1]).group(1) for row in SIZES} == {"grep", "keyed", "window", "process"}  # type: ignore[union-attr]
