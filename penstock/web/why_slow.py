"""Why a job is not faster: one sentence, and the figures behind it.

Made of what was observed and nothing else; REST, the pages and `penstock why` show it. The reasoning is Flink's users'
own: upstream of a bottleneck all is backpressured, the bottleneck is busy, behind it all is idle.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from penstock.engine.job.status import JobStatus
from penstock.engine.state.keys.groups import key_group_range
from penstock.web.observed import JobView, TaskView, status_of

_BLOCKED: Final = 0.2
"""A task that waits for so much of its time is held up by what is behind it."""
_BUSY: Final = 0.8
_SKEWED: Final = 2.0
"""The fullest subtask gets so many times as many rows as the others on average."""
_MUCH_GARBAGE: Final = 0.25
"""A subtask that looks for garbage for so much of its time lacks it for rows."""
_LAGGING_MS: Final = 60_000
"""A split that is behind the others by so much event time keeps windows of them open."""
_LONG_CHECKPOINT_SHARE: Final = 0.5
_YOUNG_SECONDS: Final = 10.0
"""A job that has run for less may have no rows since its sources have just begun, and not for want of them."""
_RECENT: Final = 5
_ENOUGH: Final = 3
_IN_WORDS: Final = {JobStatus.CREATED: "starting", JobStatus.DEPLOYING: "starting"}
_MUCH_STATE: Final = 32_000_000
"""Bytes of state a second: a busy task that encodes so much for its checkpoints lacks the time for rows."""


@dataclass(frozen=True, slots=True)
class Reason:
    """Why the job is as fast as it is.

    Args:
        kind: `not-running`, `starting`, `skew`, `garbage`, `busy`, `slow-sink`, `checkpoint`, `lagging-split`,
            `event-time`, `source`, `idle` or `fine`.
        sentence: for people.
        task: id of the task that it is about; None: of none.
        subtask: index of the subtask, where it is about one.
        figures: what it was concluded from, by name.
    """

    kind: str
    sentence: str
    task: int | None = None
    subtask: int | None = None
    figures: tuple[tuple[str, float], ...] = ()


def why_slow(view: JobView) -> Reason:
    """What holds the job up most, if anything."""
    status = status_of(view)
    if status is not JobStatus.RUNNING:
        waits = f", waiting for {view.info.waiting_for}" if view.info.waiting_for else ""
        return Reason("not-running", f"The job does not run: it is {_IN_WORDS.get(status, status.value)}{waits}.")
    tasks = [task for task in view.tasks if task.subtasks]
    if not tasks:
        return Reason("starting", "The job has just started: there are no figures yet.")
    slow = _bottleneck(tasks)
    if slow is None:
        return _unhindered(view, tasks)
    task, held_up = slow
    return _explained(view, task, held_up)


def _bottleneck(tasks: Sequence[TaskView]) -> tuple[TaskView, Sequence[TaskView]] | None:
    """The last task of which those before it wait, and they; or one whose busiest subtask has no time left."""
    by_id = {task.info.id: task for task in tasks}
    candidates: list[tuple[TaskView, list[TaskView]]] = []
    for task in tasks:
        before = [by_id[one.task] for one in task.info.inputs if one.task in by_id]
        held_up = [one for one in before if one.subtasks.highest("blocked") >= _BLOCKED]
        is_full = bool(held_up) or task.subtasks.highest("busy") >= _BUSY
        if is_full and task.subtasks.highest("blocked") < _BLOCKED:
            candidates.append((task, held_up))
    return max(candidates, key=lambda one: (len(one[1]), one[0].subtasks.highest("busy")), default=None)


def _explained(view: JobView, task: TaskView, held_up: Sequence[TaskView]) -> Reason:
    name = task.info.name
    busiest = task.subtasks.busiest()
    figures = (
        ("busy", round(task.mean("busy"), 3)),
        ("busiest", round(busiest.rates.busy, 3)),
        ("skew", round(task.subtasks.skew, 3)),
        ("rows_in_per_second", round(task.subtasks.rate("rows_in"), 1)),
        ("rows_out_per_second", round(task.subtasks.rate("rows_out"), 1)),
    )
    waits = f"; {_names(held_up)} waits for it" if held_up else ""
    if task.info.inputs and task.subtasks.unevenness() >= _SKEWED and not _are_others_busy(task):
        return _skewed(view, task, waits, figures)
    if (most := task.subtasks.highest("garbage")) >= _MUCH_GARBAGE:
        return Reason(
            "garbage",
            f"{name!r} looks for garbage {most:.0%} of its time{waits}: its functions keep, or make, many Python "
            "objects. Fewer would help: batches instead of rows, state instead of members, `gc.freeze()` in `open` "
            "behind what is loaded there.",
            task.info.id,
            None,
            (*figures, ("garbage", round(most, 3))),
        )
    recent = _Checkpoints(view)
    is_to_blame = recent.stop_rows(task) or (recent.write_much and not held_up)
    if is_to_blame and recent.share >= _LONG_CHECKPOINT_SHARE:
        return recent.to_blame(task.info.id, figures)
    is_last = not any(one.task == task.info.id for other in view.tasks for one in other.info.inputs)
    if held_up and is_last and busiest.rates.busy < _BUSY:
        return Reason(
            "slow-sink",
            f"{name!r}, the end of the job, takes rows more slowly than they come{waits}, and is busy only "
            f"{busiest.rates.busy:.0%} of its time: it waits for whoever takes its rows.",
            task.info.id,
            busiest.subtask,
            figures,
        )
    kind = "slow-sink" if is_last and held_up else "source" if not task.info.inputs else "busy"
    if kind == "source" and (lagging := _lagging_split([task])) is not None:
        return lagging
    less_work = ", or less work a row," if len(task.info.operators) > 1 else ""
    help_text = (
        f"it reads as fast as it can: more splits and a higher parallelism{less_work} would help"
        if kind == "source"
        else "a higher parallelism, or less work a row, would help"
    )
    return Reason(
        kind,
        f"{name!r} is busy {busiest.rates.busy:.0%} of its time{waits}: {help_text}.",
        task.info.id,
        busiest.subtask,
        figures,
    )


def _are_others_busy(task: TaskView) -> bool:
    """Whether the subtasks beside the busiest have no time left either: more rows for them would not help."""
    others = task.subtasks.rate("busy") - task.subtasks.highest("busy")
    return others >= _BUSY * (len(task.subtasks) - 1)


def _skewed(view: JobView, task: TaskView, waits: str, figures: tuple[tuple[str, float], ...]) -> Reason:
    most, groups = task.subtasks.fullest(), ""
    if any(one.partitioner.startswith("hash") for one in task.info.inputs):
        owned = key_group_range(most.subtask, len(task.subtasks), view.info.max_parallelism)
        groups = f" (key groups {owned.start} to {owned.stop - 1})"
        figures = (*figures, ("first_key_group", owned.start), ("last_key_group", owned.stop - 1))
    times = task.subtasks.unevenness()
    more = "all rows" if times == math.inf else f"{times:.1f} times as many rows as the others on average"
    cause, keys = _cause_of_skew(task, most.subtask, times)
    return Reason(
        "skew",
        f"Subtask {most.subtask} of {task.info.name!r}{groups} gets {more}, "
        f"and is busy {most.rates.busy:.0%} of its time{waits}: {cause}.",
        task.info.id,
        most.subtask,
        (*figures, *keys),
    )


def _cause_of_skew(task: TaskView, fullest: int, times: float) -> tuple[str, tuple[tuple[str, float], ...]]:
    """Why a subtask gets so many times as many rows as the others on average, and how many keys it and all have.

    Where its keys have less than twice as many rows each as those of the others, it is that it has more of them.
    """
    hot = "a few keys have most of the rows"
    held = _keys_held(task)
    if held is None:
        return f"{hot}, or few keys fall to subtasks unevenly", ()
    own, total = held[fullest], sum(held.values())
    figures = (("keys", own), ("keys_of_all", total))
    others = (total - own) / (len(held) - 1)
    if times * others / own >= _SKEWED:
        return hot, figures
    return (
        f"it has {own:,} of {total:,} keys, as these fall to subtasks by their hashes; more keys, or another "
        "parallelism, would spread the rows"
    ), figures


def _keys_held(task: TaskView) -> Mapping[int, int] | None:
    """Of how many keys each subtask holds something in state; None where some hold nothing, or do not know."""
    known = {
        one.subtask: [
            gauge.value for _, counters in one.operators for gauge in counters.keys.values() if gauge.value > 0
        ]
        for one in task.subtasks.metrics
    }
    return {subtask: int(max(counts)) for subtask, counts in known.items()} if all(known.values()) else None


def _lagging_split(tasks: Sequence[TaskView]) -> Reason | None:
    """A split of a source that is far behind the others, in event time; the one furthest behind."""
    found = [(task, *behind) for task in tasks if not task.info.inputs and (behind := task.subtasks.furthest_behind())]
    task, behind_ms, subtask = max(found, key=lambda one: one[1], default=(None, 0, None))
    if task is None or subtask is None or behind_ms < _LAGGING_MS:
        return None
    splits = ", ".join(subtask.metrics.gate.slowest[:3])
    return Reason(
        "lagging-split",
        f"Split {splits} of {task.info.name!r} is {behind_ms / 1000:,.0f} s of event time behind the "
        "others: windows and timers wait for it. Spread its rows over more splits; `with_watermark_alignment` has the "
        "others wait, so that less lies in state meanwhile.",
        task.info.id,
        subtask.subtask,
        (("behind_ms", float(behind_ms)), ("watermark", float(subtask.watermark or 0))),
    )


def _unhindered(view: JobView, tasks: Sequence[TaskView]) -> Reason:
    recent = _Checkpoints(view)
    if recent.working_share(tasks) >= _LONG_CHECKPOINT_SHARE:
        return recent.to_blame()
    if (lagging := _lagging_split(tasks)) is not None:
        return lagging
    if view.info.event_time:
        wait = view.info.event_time[0]
        kind = "lagging-split" if wait.splits else "event-time"
        return Reason(kind, f"Windows do not fire: {wait.text(view.seen_ms)}.", None, wait.subtask)
    busiest = max(tasks, key=lambda task: task.subtasks.highest("busy"))
    share = busiest.subtasks.highest("busy")
    figures = (("busiest", round(share, 3)),)
    if all(task.subtasks.rate("rows_out") + task.subtasks.rate("rows_in") < 1 for task in tasks):
        return _without_rows(view, tasks, figures)
    return Reason(
        "fine",
        f"Nothing holds it up: it keeps pace with its sources, and its busiest task, {busiest.info.name!r}, is busy "
        f"{share:.0%} of its time.",
        busiest.info.id,
        None,
        figures,
    )


def _without_rows(view: JobView, tasks: Sequence[TaskView], figures: tuple[tuple[str, float], ...]) -> Reason:
    begun = "restarted" if view.info.restart_history else "started"
    if _is_young(view, tasks):
        return Reason("starting", f"The job has just {begun}: no rows have come yet.", None, None, figures)
    if not view.rates_seconds:
        return Reason("starting", "There are no figures yet: rates take a second reading, some seconds from now.")
    return Reason("idle", "No rows come: the sources have none to give.", None, None, figures)


def _is_young(view: JobView, tasks: Sequence[TaskView]) -> bool:
    """Whether the job runs since a moment ago, by its clock and by the time that its subtasks have accounted for."""
    ran = max(sum(task.subtasks.most(name) for name in ("busy", "blocked", "idle")) for task in tasks)
    return ran < _YOUNG_SECONDS and view.seen_ms - view.info.since_ms < 1000 * _YOUNG_SECONDS


class _Checkpoints:
    """The last checkpoints of a job, and what they cost; nothing where there are too few."""

    def __init__(self, view: JobView) -> None:
        history = view.info.checkpoints.history if view.info.checkpoints is not None else ()
        self._recent = history[-_RECENT:] if len(history) >= _ENOUGH else ()
        self._span_ms = 0.0
        if self._recent:
            self._span_ms = history[-1].triggered_ms + history[-1].duration_ms - self._recent[0].triggered_ms
        self._took_ms = sum(one.duration_ms for one in self._recent)

    @property
    def share(self) -> float:
        """How much of the time between the triggers one was under way."""
        return min(1.0, self._took_ms / self._span_ms) if self._span_ms > 0 else 0.0

    def working_share(self, tasks: Sequence[TaskView]) -> float:
        """The same without what their barriers waited, for tasks that were at work on rows."""
        if self._took_ms <= 0:
            return 0.0
        waited = max(task.subtasks.most("start_delay_ms") + task.subtasks.most("alignment_ms") for task in tasks)
        return self.share * max(0.0, 1 - waited * len(self._recent) / self._took_ms)

    def stop_rows(self, task: TaskView) -> bool:
        """Whether it is them that a busy task works for: its rows wait for captures most of the time."""
        captures_ms = task.subtasks.most("sync_ms") * len(self._recent)
        return self._span_ms > 0 and captures_ms >= _LONG_CHECKPOINT_SHARE * self._span_ms

    @property
    def write_much(self) -> bool:
        """Whether they encode so much state that it keeps who has it busy."""
        written = sum(one.bytes_written for one in self._recent)
        return self._span_ms > 0 and written * 1000 >= _MUCH_STATE * self._span_ms

    def to_blame(self, task: int | None = None, figures: Sequence[tuple[str, float]] = ()) -> Reason:
        """Say so."""
        return Reason(
            "checkpoint",
            f"A checkpoint is under way {self.share:.0%} of the time: make its interval longer, or its state smaller.",
            task,
            None,
            (*figures, ("checkpoint_share", round(self.share, 3))),
        )


def _names(tasks: Sequence[TaskView]) -> str:
    return " and ".join(repr(task.info.name) for task in tasks)
