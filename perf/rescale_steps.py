"""What a live rescale spends its pause on: reads the stimulus log that the job leaves beside its checkpoints.

`perf/rescale.py` calls it behind each rescale. Times are those at which the job manager heard of the ends of the steps.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from penstock.savepoints.stimulus_logs import find_log

_ENDS: Final[Mapping[str, str]] = {
    "Acknowledged": "parts",
    "Preloaded": "changes_taken_in",
    "Stored": "manifest",
    "Cancelled": "old_ended",
    "Deployed": "new_open",
    "RowsCame": "first_rows",
}
"""Steps by the events that end them; of several the last one counts."""


def steps_since(folder: Path, since: float) -> Mapping[str, float]:
    """The steps of the first switch behind `since` (monotonic seconds), in milliseconds since its checkpoint was begun.

    `preloading_1` and so on are how long it took each time to take in what was there, from its checkpoint's beginning.

    Args:
        folder: of the checkpoints of one job.
    """
    (job,) = (one for one in folder.iterdir() if (one / "log").is_dir())
    steps: dict[str, float] = {}
    began, is_switching, rounds = 0.0, False, 0
    for at, event, said in _events(job):
        name = event["is"]
        if at < since:
            continue
        if is_switching and name in _ENDS:
            steps[_ENDS[name]] = _milliseconds(at - began)
            if name == "RowsCame":
                return steps
        elif name == "Preloaded":
            rounds += 1
            steps[f"preloading_{rounds}"] = _milliseconds(at - began)
        if any(one.startswith("Inject") for one in said):
            began = at
            is_switching = is_switching or any("replaced=[" in one and "replaced=[]" not in one for one in said)
    return steps


def _milliseconds(seconds: float) -> float:
    return round(seconds * 1000, 1)


def _events(job: Path) -> Iterator[tuple[float, Mapping[str, Any], Sequence[str]]]:
    """When (monotonic seconds), what the brain heard, and what it said."""
    for _, lines in find_log(str(job)).lines():
        for line in lines:
            content = json.loads(line)
            if "event" in content:
                yield content["at"][0], content["event"], content["said"]
