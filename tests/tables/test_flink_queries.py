"""Queries over rows that change, windows and joins give the rows that Flink 2.3 has given in the end (`tests/data`)."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from penstock import StreamEnvironment
from tests.flink.queries import in_folder, kept, written

_KEPT = kept()
_LONG = pytest.mark.long("every third of the queries")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the tables read."""
    made = tmp_path_factory.mktemp("tables")
    written(_KEPT["files"], made)
    return made


def _text(value: Any) -> str:
    """A value as PyFlink shows it, but that the order within maps does not count."""
    if isinstance(value, bytes):
        return repr(bytearray(value))
    if isinstance(value, list) and value and isinstance(value[0], tuple):
        return repr(sorted(value))
    return repr(value)


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(answer, marks=_LONG if number % 3 else (), id=answer["query"][:60])
        for number, answer in enumerate(_KEPT["answers"])
    ],
)
def test_a_query_gives_in_the_end_what_flink_has_given(answer: dict[str, Any], folder: Path) -> None:
    env = StreamEnvironment(runtime="local", parallelism=1)
    for statement in in_folder(_KEPT["tables"], folder):
        env.sql(statement)
    table = env.sql(answer["query"])
    assert table is not None
    held: Counter[tuple[str, ...]] = Counter()
    for change in table.to_changelog().collect():
        kind, *values = change.values()
        held[tuple(map(_text, values))] += 1 if kind in ("+I", "+U") else -1
    assert +held == Counter({tuple(row): count for row, count in answer["rows"]})
