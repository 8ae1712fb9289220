"""Safeguards of live rescales, and how each is switched off; beside `mutants.py`, which has those of all else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from penstock.engine.job.life import Life
from penstock.engine.job.live_rescale import LiveRescale
from penstock.engine.job.recovery import Recovery
from penstock.engine.task.barriers import BarrierAligner
from penstock.engine.task.router import Router, RouterEdge
from penstock.engine.task.source_head import SourceHead
from tests.simulation.mutants import CALM, EXACT, Mutant

Patch = pytest.MonkeyPatch
RESCALES = replace(CALM, budget=60, rescale=0.05)
RESCALES_AND_KILLS = replace(RESCALES, kill_subtask=0.01)
RESCALES_AND_STORAGE = replace(RESCALES, storage=0.1, lose=0.02)


def _read_on_behind_the_barrier(patch: Patch) -> None:
    patch.setattr(SourceHead, "suspend", lambda self, checkpoint: None)


def _keep_nothing_back(patch: Patch) -> None:
    patch.setattr(Router, "hold", lambda self, tasks: None)


def _forget_what_was_kept_back(patch: Patch) -> None:
    original = RouterEdge.connect

    def connect(self: Any, other: Any) -> None:
        self._held = []
        original(self, other)

    patch.setattr(RouterEdge, "connect", connect)


def _align_without_new_channels(patch: Patch) -> None:
    def replace_channels(self: Any, retired: Any, added: Any, may: Any) -> None:
        self._open.difference_update(retired)

    patch.setattr(BarrierAligner, "replace", replace_channels)


def _count_before_it_is_stored(patch: Patch) -> None:
    original = LiveRescale.on_checkpoint

    def on_checkpoint(self: Any, outcome: Any) -> None:
        checkpoints = self._life.checkpoints
        aborted = isinstance(outcome, Exception) and checkpoints.latest is not None
        if aborted and self._life.attempts.pending is None:
            self._replace(checkpoints)
        else:
            original(self, outcome)

    patch.setattr(LiveRescale, "on_checkpoint", on_checkpoint)


def _restart_the_old_layout(patch: Patch) -> None:
    original = Recovery.recover

    def recover(self: Any, place: Any, error: Any, unexplained: Any = None) -> None:
        before = self._rescaling._rescale and self._rescaling._rescale.before
        if before is not None and self._rescaling.goes_live:
            self._life.layout = before
        original(self, place, error, unexplained)

    patch.setattr(Recovery, "recover", recover)


def _plan_splits_anew(patch: Patch) -> None:
    def plan(self: Any, scale: Any) -> Any:
        latest = None if self.checkpoints is None else self.checkpoints.latest
        if latest is None and self.storage is not None:
            latest = self.storage.start
        return self._planner.plan(scale, {} if latest is None else latest.split_parallelism)

    patch.setattr(Life, "plan", plan)


LIVE_MUTANTS = (
    Mutant(
        "a source that is replaced gives nothing behind the barrier", _read_on_behind_the_barrier, EXACT, RESCALES, 31
    ),
    Mutant("who sends to tasks that are replaced keeps its rows back", _keep_nothing_back, EXACT, RESCALES, 1),
    Mutant("what was kept back is sent to the new subtasks", _forget_what_was_kept_back, EXACT, RESCALES, 1),
    Mutant("barriers are awaited on new channels", _align_without_new_channels, ("exchanges",), RESCALES_AND_KILLS, 18),
    Mutant(
        "a checkpoint that was given up replaces nobody", _count_before_it_is_stored, EXACT, RESCALES_AND_STORAGE, 8
    ),
    Mutant(
        "behind the checkpoint there is only the new layout", _restart_the_old_layout, EXACT, RESCALES_AND_KILLS, 36
    ),
    Mutant("before the first checkpoint, too, splits are those that are read", _plan_splits_anew, EXACT, RESCALES, 3),
)
"""The steps of docs/adr/0052 that a seed can object to; of others the job is only late, as it restarts."""
