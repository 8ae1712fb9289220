"""Windows, triggers, evictors, lateness and merging sessions do what Flink's documentation says, on every path."""

from __future__ import annotations

import pytest

from tests.transcripts.driver import Function, Transcript, run
from tests.transcripts.stories import STORIES

# Rows of a batch, and where the operator is restored.
WAYS = ((1, "always"), (1_000, "marked"))
OTHER_WAYS = pytest.param(
    ((1, "marked"), (1_000, "always")), marks=pytest.mark.long("each batch and each kind of restore has one way")
)


@pytest.mark.parametrize("ways", [WAYS, OTHER_WAYS], ids=["ways", "other ways"])
@pytest.mark.parametrize("function", ["aggregate", "process", "reduce"])
@pytest.mark.parametrize("transcript", STORIES, ids=repr)
def test_transcript(transcript: Transcript, function: Function, ways: tuple[tuple[int, str], ...]) -> None:
    for batch_rows, restores in ways:
        run(transcript, function, "heap", batch_rows, restores)


# A database takes a tenth of a second to open: those that restore from a snapshot have most to show.
@pytest.mark.parametrize("transcript", [story for story in STORIES if " s\n" in story.steps], ids=repr)
def test_transcript_on_rocksdb(transcript: Transcript) -> None:
    pytest.importorskip("rocksdict")
    run(transcript, "process", "rocksdb", 1_000, "marked")


def test_there_are_enough_of_them() -> None:
    assert len(STORIES) >= 120
    assert len({story.name for story in STORIES}) == len(STORIES)
