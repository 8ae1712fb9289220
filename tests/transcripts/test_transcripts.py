"""Windows, triggers, evictors, lateness and merging sessions do what Flink's documentation says, on every path."""

from __future__ import annotations

import pytest

from tests.transcripts.driver import Function, Transcript, run
from tests.transcripts.stories import STORIES

FUNCTIONS: tuple[Function, ...] = ("aggregate", "process", "reduce")
# Rows of a batch, and where the operator is restored.
WAYS = ((1, "always"), (1_000, "marked"), (1, "marked"), (1_000, "always"))
OTHER_WAY = pytest.mark.long(
    "each transcript goes two ways, by one function or another; each function goes them in turns"
)


@pytest.mark.parametrize(
    ("transcript", "function", "batch_rows", "restores"),
    [
        pytest.param(story, function, *way, marks=() if place == (number + turn) % 2 else OTHER_WAY)
        for number, story in enumerate(STORIES)
        for turn, function in enumerate(FUNCTIONS)
        for place, way in enumerate(WAYS)
    ],
    ids=str,
)
def test_transcript(transcript: Transcript, function: Function, batch_rows: int, restores: str) -> None:
    run(transcript, function, "heap", batch_rows, restores)


# A database takes a tenth of a second to open: those that restore from a snapshot have most to show.
@pytest.mark.parametrize("transcript", [story for story in STORIES if " s\n" in story.steps], ids=repr)
def test_transcript_on_rocksdb(transcript: Transcript) -> None:
    pytest.importorskip("rocksdict")
    run(transcript, "process", "rocksdb", 1_000, "marked")


def test_there_are_enough_of_them() -> None:
    assert len(STORIES) >= 120
    assert len({story.name for story in STORIES}) == len(STORIES)
