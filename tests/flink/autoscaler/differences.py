"""Where our autoscaler decides other than Flink's, and why; in all else the two are one.

- Fewer subtasks may be taken: Flink rounds up, and takes the next number that divides the key groups; here the fullest
  subtask may get 5 % more than it is to take (`scaling.least`).
- A task that others wait for while there is a backlog takes rows as fast as it can: that is believed, if busy time
  promises much more. So it can get more subtasks.
- A task within its bounds stays, whatever becomes of others; Flink's changes with them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from penstock.engine.autoscaler.scaling import Advice, worth
from tests.flink.autoscaler.traces import Trace, found_here, is_believed_less, needed

_ROUNDED: Final = 1.0
"""Flink rounds the capacities that it compares to whole rows a second."""
_MORE_THAN_ITS_SHARE: Final = 1.05


def difference(trace: Trace) -> str | None:
    """What of a trace, with its `answer`, is decided here as it should not be; None: nothing."""
    figures, advised = found_here(trace)
    for place, (task, answer, advice) in enumerate(zip(trace["tasks"], trace["answer"], advised, strict=True)):
        less = is_believed_less(figures, place)
        said = _figures(answer, advice, less) or ("" if less else _decision(task, answer, advice))
        if said:
            return f"seed {trace['seed']}, task {task['id']}: {said}; Flink {answer}, ours {advice}"
    return None


def kinds(trace: Trace) -> Iterator[str]:
    """What was decided of each task, in words."""
    figures, advised = found_here(trace)
    for place, (answer, advice) in enumerate(zip(trace["answer"], advised, strict=True)):
        now = advice.figures.task.parallelism
        if is_believed_less(figures, place):
            yield "believed less"
        elif _within(answer):
            yield "stays"
        elif advice.wanted == answer["wanted"]:
            yield "more" if advice.wanted > now else "fewer" if advice.wanted < now else "the same"
        else:
            yield "fewer than Flink takes"


def _figures(answer: Mapping[str, Any], advice: Advice, less: bool) -> str:
    ours = advice.figures
    pairs = {"target_rate": ours.target_rate, "catch_up_rate": ours.catch_up_rate, "true_rate": ours.true_rate}
    for name, found in pairs.items():
        same = found is not None and math.isclose(found, answer[name], rel_tol=1e-3, abs_tol=_ROUNDED)
        if name == "true_rate" and less:
            same = found is not None and found < answer[name]
        if not same:
            return f"{name} is {found}"
    return ""


def _within(answer: Mapping[str, Any]) -> bool:
    idle = answer["too_idle_above"]
    return answer["too_slow_below"] <= answer["true_rate"] <= (math.inf if idle is None else idle)


def _decision(task: Mapping[str, Any], answer: Mapping[str, Any], advice: Advice) -> str:
    edges: Sequence[float] = [one for one in (answer["too_slow_below"], answer["too_idle_above"]) if one is not None]
    if any(math.isclose(answer["true_rate"], edge, rel_tol=2e-3, abs_tol=_ROUNDED) for edge in edges):
        return ""
    if _within(answer):
        return "" if advice.wanted == task["parallelism"] else "it is within its bounds"
    enough = min(needed(answer, task), task["most"]) / _MORE_THAN_ITS_SHARE
    if advice.wanted > answer["wanted"]:
        return "more subtasks than Flink takes"
    if worth(advice.wanted, advice.figures.task.divides) < enough * (1 - 2e-3):
        return f"fewer than {enough:.2f}, which are needed"
    return ""
