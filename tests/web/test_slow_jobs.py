"""Jobs on Ray that are slow for each of the reasons that `penstock why` knows: it names it, and where."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

import penstock as ps
from penstock import checkpoints
from penstock.engine.errors import NoAnswerError
from penstock.web.look import look_twice
from penstock.web.why_slow import Reason, why_slow
from tests.web import slow_jobs

LONG = pytest.mark.long("the same with figures that were made up: test_why_slow.py")


def named(job: str, kind: str) -> Reason:
    """What holds the job up, as soon as that is of a kind."""
    deadline = time.monotonic() + 120
    while (reason := _seen(job)) is None or reason.kind != kind:
        assert time.monotonic() < deadline, reason
    return reason


def _seen(job: str) -> Reason | None:
    """What holds the job up; None where the machine is too busy for its manager to answer."""
    try:
        return why_slow(look_twice(job, 1.0))
    except NoAnswerError:
        return None


@pytest.mark.ray
@pytest.mark.usefixtures("ray_cluster")
@pytest.mark.parametrize(
    ("build", "words"),
    [
        pytest.param(slow_jobs.busy, "'spin' is busy", marks=LONG),
        pytest.param(slow_jobs.skew, "of 'spin' (key groups", marks=LONG),
        pytest.param(slow_jobs.slow_sink, "'count -> sink' is busy", marks=LONG),
        pytest.param(slow_jobs.source, "it reads as fast as it can", marks=LONG),
        (slow_jobs.garbage, "'collect' looks for garbage"),
        pytest.param(
            slow_jobs.lagging_split, "Split behind of 'apart -> with_columns(k=col(at) % 7)' is 6", marks=LONG
        ),
        pytest.param(slow_jobs.checkpoint, "A checkpoint is under way", marks=LONG),
    ],
)
def test_the_reason_is_named(build: Callable[[ps.StreamEnvironment], object], words: str, tmp_path: Path) -> None:
    kind = build.__name__.replace("_", "-")
    env = ps.StreamEnvironment(
        runtime="ray",
        parallelism=2 if kind == "skew" else 1,
        standbys=0,
        max_batch_rows=100,
        checkpoints=checkpoints("200ms", storage=str(tmp_path)) if kind == "checkpoint" else None,
    )
    build(env)
    job = env.submit(f"slow-{kind}")
    try:
        assert words in named(f"slow-{kind}", kind).sentence
    finally:
        job.cancel()
