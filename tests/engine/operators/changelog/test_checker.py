"""The checker of changelogs objects to those that are not well-formed."""

from __future__ import annotations

import pytest

from tests.engine.operators.changelog.jobs import Change, Materialised, NotWellFormed


@pytest.mark.parametrize(
    ("changes", "key", "has_before"),
    [
        ([("-D", ("a", 1))], None, True),
        ([("+I", ("a", 1)), ("-U", ("a", 2))], None, True),
        ([("+I", ("a", 1)), ("+I", ("a", 2))], [0], True),
        ([("+I", ("a", 1)), ("-D", ("a", 1)), ("-D", ("a", 1))], [0], True),
        ([("+U", ("a", 1))], [0], False),
        ([("+I", ("a", 1)), ("-D", ("a", 2))], [0], False),
    ],
)
def test_a_changelog_that_is_not_well_formed_is_objected_to(
    changes: list[Change], key: list[int] | None, has_before: bool
) -> None:
    materialised = Materialised(key, has_before)
    *fine, last = changes
    for kind, row in fine:
        materialised.apply(kind, row)
    with pytest.raises(NotWellFormed):
        materialised.apply(*last)


def test_a_changelog_adds_up_to_rows() -> None:
    materialised = Materialised([0])
    for kind, row in [("+I", ("a", 1)), ("-U", ("a", 1)), ("+U", ("a", 2)), ("+I", ("b", 3)), ("-D", ("b", 3))]:
        materialised.apply(kind, row)
    assert materialised.rows == [("a", 2)]
