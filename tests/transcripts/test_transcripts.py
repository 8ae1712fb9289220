"""Windows, triggers, evictors, lateness and merging sessions do what Flink's documentation says, on every path."""

from __future__ import annotations

import pytest

from tests.transcripts.driver import Function, Transcript, run
from tests.transcripts.stories import STORIES


@pytest.mark.parametrize("function", ["aggregate", "process", "reduce"])
@pytest.mark.parametrize("transcript", STORIES, ids=repr)
def test_transcript(transcript: Transcript, function: Function) -> None:
    for batch_rows in (1, 1_000):
        for restores in ("marked", "always"):
            run(transcript, function, "heap", batch_rows, restores)


# A database takes a tenth of a second to open: those that restore from a snapshot have most to show.
@pytest.mark.parametrize("transcript", [story for story in STORIES if " s\n" in story.steps], ids=repr)
def test_transcript_on_rocksdb(transcript: Transcript) -> None:
    pytest.importorskip("rocksdict")
    run(transcript, "process", "rocksdb", 1_000, "marked")


def test_there_are_enough_of_them() -> None:
    assert len(STORIES) >= 120
    assert len({story.name for story in STORIES}) == len(STORIES)
