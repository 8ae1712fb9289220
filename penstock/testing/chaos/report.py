"""What a chaos run did to a job, how the job got over it, and what the checkers say: for people and as JSON.

The harness fills a `ChaosRun`; the command line and `make demo-chaos` print one or many as a `ChaosReport`.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from penstock.testing.chaos.checkers import Verdict
from penstock.testing.chaos.schedule import ChaosSchedule

RECOVERED: Final = "recovered"
HARMLESS: Final = "no restart needed"
NOT_FIRED: Final = "not fired"
DONE: Final = "done"
REFUSED: Final = "refused"
UNDER_WAY: Final = "not answered"
NOT_RECOVERED: Final = "not recovered"


@dataclass(slots=True, eq=False)
class FaultRecord:
    """A fault that was due.

    Args:
        fault: in words.
        target: which process it hit; on_manager: whether that was the job manager's.
        at_s: when, seconds from the beginning of the run; None: it was not fired.
        fired: the same, monotonic seconds of this machine; `fired_ms`: civil time, ms UTC.
        amid: the rescale that was under way when it fired, and for how long; empty: none was.
        until: monotonic seconds; what the job notices later has another cause.
        outcome: one of the words of this module.
        detect_ms: from the fault until the job noticed.
        restore_ms: from there until all subtasks ran again.
        first_output_ms: from when the job noticed until the first rows came to an end of it.
        note: what else there is to say.
        optional: whether it need not be fired.
    """

    fault: str
    target: str = ""
    on_manager: bool = False
    at_s: float | None = None
    fired: float = 0.0
    fired_ms: float = 0.0
    amid: str = ""
    until: float = math.inf
    outcome: str = NOT_FIRED
    detect_ms: float | None = None
    restore_ms: float | None = None
    first_output_ms: float | None = None
    note: str = ""
    optional: bool = False

    def __str__(self) -> str:
        hit = f" ({self.target})" if self.target else ""
        note = f": {self.note}" if self.note else ""
        amid = f", amid {self.amid}" if self.amid else ""
        return f"{self.fault}{hit}{amid}, {self.outcome}{note}"

    def to_dict(self) -> Mapping[str, Any]:
        """As JSON has it."""
        names = ("fault", "target", "at_s", "amid", "outcome", "detect_ms", "restore_ms", "first_output_ms", "note")
        return {name: getattr(self, name) for name in names}


@dataclass(slots=True, eq=False)
class ChaosRun:
    """One schedule against one job.

    Args:
        job: its name.
        schedule: what was to happen.
        faults: what happened.
        status: of the job at the end of the run.
        seconds: how long the run took.
        restarts: how often the job, or a part of it, failed and restarted; managers: how many job managers it had.
        checkpoints: how many were completed.
        verdicts: of the checkers.
        problems: what the harness itself objects to.
        log: where the stimulus log of the job is, for `penstock job replay`; None: the job had taken no checkpoint.
    """

    job: str
    schedule: ChaosSchedule
    faults: list[FaultRecord] = field(default_factory=list)
    status: str = ""
    seconds: float = 0.0
    restarts: int = 0
    managers: int = 1
    checkpoints: int = 0
    verdicts: list[Verdict] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    log: str | None = None

    @property
    def violations(self) -> Sequence[str]:
        """All that must not be: what the job did wrong, and what was not tested."""
        return [*self.wrong, *self.missed]

    @property
    def wrong(self) -> Sequence[str]:
        """What the harness and the checkers object to in the job."""
        return [*self.problems, *(text for verdict in self.verdicts for text in verdict.violations)]

    @property
    def fired(self) -> Sequence[FaultRecord]:
        """The faults that were fired."""
        return [record for record in self.faults if record.at_s is not None]

    @property
    def amid_rescales(self) -> int:
        """How many of them were while a rescale was under way."""
        return sum(1 for record in self.fired if record.amid)

    @property
    def missed(self) -> Sequence[str]:
        """The faults that were not fired and had to be; and of a random schedule, that none was."""
        missed = [record for record in self.faults if record.at_s is None]
        if self.schedule.seed is None or self.fired:
            return [_why_missed(record) for record in missed if not record.optional]
        why = "; ".join(map(_why_missed, missed)) or "the schedule has none"
        return [f"no fault hit anything, so nothing was tested: {why}; {_TO_HIT}"]

    @property
    def outcome(self) -> str:
        """How it went, in one line."""
        amid = f", {self.amid_rescales} of {len(self.fired)} faults amid rescales" if self.amid_rescales else ""
        hit = "" if self.fired else ", no fault hit anything"
        return f"job {self.job!r}, {self.status} after {self.seconds:.1f} s, {self.restarts} restarts{amid}{hit}"

    def __str__(self) -> str:
        """The story of the run, for the message of an assertion: `assert not run.violations, run`."""
        lines = [f"{self.outcome}:"]
        lines += [f"  {record}" for record in self.faults]
        lines += [f"  VIOLATION: {text}" for text in self.wrong]
        lines += [f"  NOT TESTED: {text}" for text in self.missed]
        return "\n".join([*lines, *([f"  stimulus log: {self.log}"] if self.wrong and self.log else ())])

    def to_dict(self) -> Mapping[str, Any]:
        """As JSON has it."""
        return {
            "job": self.job,
            "seed": self.schedule.seed,
            "schedule": [str(fault) for fault in self.schedule.faults],
            "status": self.status,
            "seconds": round(self.seconds, 3),
            "restarts": self.restarts,
            "managers": self.managers,
            "checkpoints": self.checkpoints,
            "faults_amid_rescales": self.amid_rescales,
            "faults": [record.to_dict() for record in self.faults],
            "checkers": [verdict.to_dict() for verdict in self.verdicts],
            "violations": list(self.violations),
            "verdict": _verdict([self]),
            "log": self.log,
        }


@dataclass(frozen=True, slots=True)
class ChaosReport:
    """Several runs.

    Args:
        runs: in order.
        ended_by: the signal that ended them before all schedules were over; None: they are.
    """

    runs: Sequence[ChaosRun]
    ended_by: str | None = None

    @property
    def violations(self) -> Sequence[str]:
        """All that must not be, with the seed of its run."""
        return [text for run in self.runs for text in _with_seed(run, run.violations)]

    def to_dict(self) -> Mapping[str, Any]:
        """As JSON has it."""
        return {
            "runs": [run.to_dict() for run in self.runs],
            "faults_fired": sum(len(run.fired) for run in self.runs),
            "faults_amid_rescales": self._amid_rescales,
            "recovered": self._outcomes[RECOVERED],
            "checked": dict(self._counts),
            "times_ms": {name: _spread(self._times(name)) for name in _TIMES},
            "violations": list(self.violations),
            "verdict": _verdict(self.runs, self.ended_by is not None),
            "ended_by": self.ended_by,
        }

    @property
    def _outcomes(self) -> Counter[str]:
        return Counter(record.outcome for run in self.runs for record in run.faults)

    @property
    def _amid_rescales(self) -> int:
        return sum(run.amid_rescales for run in self.runs)

    @property
    def _counts(self) -> Counter[str]:
        counts: Counter[str] = Counter()
        for run in self.runs:
            for verdict in run.verdicts:
                counts.update({"rows checked": verdict.rows, **verdict.counts})
        return counts

    def _times(self, name: str) -> Sequence[float]:
        found = [getattr(record, name) for run in self.runs for record in run.faults]
        return [time for time in found if time is not None]

    def __rich__(self) -> RenderableType:
        return Group(self._faults(), Text(), *self._summary())

    def _faults(self) -> Table:
        # What is long stands in one column, which breaks its lines; what is short then fits into 80 columns.
        table = Table(box=None, title="Chaos", title_justify="left", padding=(0, 2, 0, 0))
        for heading in ("seed", "at"):
            table.add_column(heading, no_wrap=True)
        table.add_column("fault, what it hit, outcome", overflow="fold")
        for heading in ("detected", "restored", "output"):
            table.add_column(heading, justify="right", no_wrap=True)
        for run in self.runs:
            for record in run.faults:
                table.add_row(
                    "" if run.schedule.seed is None else str(run.schedule.seed),
                    "" if record.at_s is None else f"{record.at_s:.2f} s",
                    Text(str(record)),
                    *(_ms_text(getattr(record, name)) for name in _TIMES),
                )
        return table

    def _summary(self) -> Sequence[Text]:
        outcomes = ", ".join(f"{count} {outcome}" for outcome, count in sorted(self._outcomes.items()))
        fired = sum(len(run.fired) for run in self.runs)
        lines = [f"{_counted(len(self.runs), 'schedule')}, {_counted(fired, 'fault')} fired: {outcomes}"]
        if self._amid_rescales:
            lines.append(f"amid rescales that were under way: {_counted(self._amid_rescales, 'fault')}")
        for name, words in _TIMES.items():
            if times := self._times(name):
                median, worst = _ms_text(statistics.median(times)), _ms_text(max(times))
                lines.append(f"{words}: median {median}, longest {worst} ({len(times)} measured)")
        lines += [f"{name}: {count}" for name, count in self._counts.items()]
        texts = [Text(line) for line in lines]
        wrong = [text for run in self.runs for text in _with_seed(run, run.wrong)]
        missed = [text for run in self.runs for text in _with_seed(run, run.missed)]
        if self.ended_by is not None:
            missed.append(f"{self.ended_by} came before all schedules were over")
        if wrong:
            texts.append(Text(_counted(len(wrong), "VIOLATION"), style="bold red"))
            texts += [Text(violation, style="red") for violation in wrong]
        elif not missed:
            texts.append(Text("no violations", style="bold green"))
        if missed:
            texts.append(Text(f"{'NOT ALL' if fired else 'NOTHING'} TESTED", style="bold red"))
            texts += [Text(text, style="red") for text in missed]
        logs = [run.log for run in self.runs if run.wrong and run.log]
        texts += [Text(f"stimulus log: penstock job replay {log}") for log in logs]
        return texts


_TIMES: Final[Mapping[str, str]] = {
    "detect_ms": "detected after the fault",
    "restore_ms": "restored after it was detected",
    "first_output_ms": "first output after it was detected",
}


_TO_HIT: Final = "choose other faults (--kind, --seed), or a job that runs for longer than --duration"


def _why_missed(record: FaultRecord) -> str:
    return f"{record.fault} was not fired: {record.note or 'the job had ended before its moment came'}"


def _with_seed(run: ChaosRun, texts: Sequence[str]) -> Sequence[str]:
    return [text if run.schedule.seed is None else f"seed {run.schedule.seed}: {text}" for text in texts]


def _verdict(runs: Sequence[ChaosRun], is_cut: bool = False) -> str:
    """What came of them, in a word or two, where others may be missing; only "held" is a success."""
    if any(run.wrong for run in runs):
        return "violated"
    if is_cut or any(run.missed for run in runs):
        return "not all tested" if any(run.fired for run in runs) else "nothing tested"
    return "held"


def _ms_text(milliseconds: float | None) -> str:
    if milliseconds is None:
        return ""
    return f"{milliseconds:.0f} ms" if milliseconds < 1000 else f"{milliseconds / 1000:.2f} s"


def _spread(times: Sequence[float]) -> Mapping[str, float] | None:
    if not times:
        return None
    return {"median": round(statistics.median(times), 1), "longest": round(max(times), 1), "measured": len(times)}


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
