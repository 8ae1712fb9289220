"""Which restart of a job answers which fault: made of what the job's `info` says again and again.

The harness shows it every `info` that it gets. A job manager that is killed takes the times in its record of
restarts with it, so what has been seen of it stays here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.engine.job.info import JobInfo, RestartInfo
from penstock.engine.job.status import JobStatus
from penstock.testing.chaos.report import HARMLESS, NOT_RECOVERED, RECOVERED, FaultRecord


@dataclass(slots=True)
class _Manager:
    """A job manager that was seen.

    Args:
        started_ms: civil time, ms UTC.
        running_ms: when it first said that the job runs; None: not yet.
        restarts: by the moment at which the cause was noticed, monotonic seconds.
    """

    started_ms: float
    running_ms: float | None
    restarts: dict[float, RestartInfo]


class Recoveries:
    """The recoveries of one job."""

    def __init__(self) -> None:
        self._managers: dict[float, _Manager] = {}

    def see(self, info: JobInfo, now: float) -> None:
        """Learn from an `info`, which came at `now`, monotonic seconds."""
        started = float(info.started_ms)
        manager = self._managers.setdefault(started, _Manager(started, None, {}))
        if manager.running_ms is None and info.status is JobStatus.RUNNING:
            manager.running_ms = float(info.since_ms)
        for restart in info.restart_history:
            # Those of managers before have none: their own info has told of them.
            if restart.detected_monotonic is not None:
                manager.restarts[restart.detected_monotonic] = restart

    @property
    def restarts(self) -> int:
        """How many restarts there were behind failures, without those of job managers."""
        restarts = [restart for manager in self._managers.values() for restart in manager.restarts.values()]
        return sum(1 for restart in restarts if restart.kind == "failure")

    @property
    def managers(self) -> int:
        """How many job managers there were."""
        return len(self._managers)

    @property
    def has_output(self) -> bool:
        """Whether rows have come to an end of the job behind its last restart."""
        newest = max(self._managers, default=None)
        restarts = self._managers[newest].restarts if newest is not None else {}
        return not restarts or restarts[max(restarts)].first_output_ms is not None

    def explain(self, faults: Sequence[FaultRecord]) -> None:
        """Note in each fault that has been fired how the job got over it, as far as it has."""
        for record in faults:
            if record.at_s is not None and record.outcome in (NOT_RECOVERED, HARMLESS, RECOVERED):
                self._explain(record)

    def _explain(self, record: FaultRecord) -> None:
        successors = self._successors(record)
        restart = self._restart(record)
        if restart is not None and restart.detected_monotonic is not None:
            record.outcome = RECOVERED
            record.detect_ms = max(0.0, round((restart.detected_monotonic - record.fired) * 1000, 1))
            record.restore_ms = restart.restore_ms
            record.first_output_ms = restart.first_output_ms
            return
        running_ms = next((one.running_ms for one in successors if one.running_ms is not None), None)
        if running_ms is not None and record.outcome != HARMLESS:
            record.outcome = RECOVERED
            record.detect_ms = max(0.0, round(successors[0].started_ms - record.fired_ms, 1))
            record.restore_ms = round(running_ms - successors[0].started_ms, 1)

    def _successors(self, record: FaultRecord) -> Sequence[_Manager]:
        """The managers that began behind the fault. Each restarts everything; one may be killed before all runs."""
        return [self._managers[started] for started in sorted(self._managers) if started >= record.fired_ms]

    def _restart(self, record: FaultRecord) -> RestartInfo | None:
        """The first restart that was complete behind the fault, and which it can have caused.

        A fault that hits a job in the middle of a restart is part of that.
        """
        before = [started for started in self._managers if started < record.fired_ms]
        if record.on_manager or not before:
            return None
        candidates = [
            (detected, restart)
            for detected, restart in self._managers[max(before)].restarts.items()
            if restart.restore_ms is not None
            and detected + restart.restore_ms / 1000 >= record.fired
            and detected <= record.until
        ]
        return min(candidates, key=lambda candidate: candidate[0])[1] if candidates else None
