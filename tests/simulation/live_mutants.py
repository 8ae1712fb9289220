"""Safeguards of live rescales, and how each is switched off; beside `mutants.py`, which has those of all else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow.compute as pc
import pytest

from penstock.engine.cells.slot_accumulators import CombinedAccumulators, DenseAccumulators
from penstock.engine.checkpointing import coordinator
from penstock.engine.checkpointing.preload import Preloaded
from penstock.engine.job.life import Life
from penstock.engine.job.live_rescale import LiveRescale
from penstock.engine.job.recovery import Recovery
from penstock.engine.state.capture import DELETED
from penstock.engine.task.barriers import BarrierAligner
from penstock.engine.task.router import Router, RouterEdge
from penstock.engine.task.source_head import SourceHead
from penstock.savepoints import restore
from tests.simulation.mutants import CALM, EXACT, MANY_KEYS, Mutant

Patch = pytest.MonkeyPatch
RESCALES = replace(CALM, budget=60, rescale=0.02, passing=0.05)
"""Rows come while tasks are replaced."""
OFTEN = replace(CALM, budget=60, rescale=0.05)
OFTEN_AND_KILLS = replace(OFTEN, kill_subtask=0.01)
AMID_RESCALES = replace(OFTEN, rescale=0.01, amid_rescale=0.02)
"""Processes die in the middle of rescales, and at no other time."""
RESCALES_AND_DEATHS = replace(RESCALES, amid_rescale=0.01)
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


def _tell_no_end(patch: Patch) -> None:
    original = RouterEdge.connect

    def connect(self: Any, other: Any) -> None:
        self._end = None
        original(self, other)

    patch.setattr(RouterEdge, "connect", connect)


def _send_in_another_order(patch: Patch) -> None:
    original = RouterEdge.resume

    def resume(self: Any) -> None:
        self._held = None if self._held is None else self._held[::-1]
        original(self)

    patch.setattr(RouterEdge, "resume", resume)


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


def _keep_what_was_taken_in(patch: Patch) -> None:
    patch.setattr(restore, "changes_since", lambda before, now: ())


def _begin_nothing_anew(patch: Patch) -> None:
    original = restore.changes_since

    def changes_since(before: Any, now: Any) -> Any:
        changes = original(before, now)
        return now.segments if changes is None else changes

    patch.setattr(restore, "changes_since", changes_since)


def _keep_what_is_gone(patch: Patch) -> None:
    original = restore._read_groups

    def read_groups(*arguments: Any) -> Any:
        parts = original(*arguments)
        return [part.filter(pc.invert(part[DELETED])) if DELETED in part.column_names else part for part in parts]

    patch.setattr(restore, "_read_groups", read_groups)


def _add_to_what_was_taken_in(patch: Patch) -> None:
    for accumulators in (DenseAccumulators, CombinedAccumulators):
        patch.setattr(accumulators, "replace", accumulators.merge)


def _let_barriers_overtake(patch: Patch) -> None:
    original = coordinator.barrier_of

    def barrier_of(request: Any, *how: Any) -> Any:
        usual = original(replace(request, replaced=frozenset()), *how)
        return replace(usual, replaced=request.replaced)

    patch.setattr(coordinator, "barrier_of", barrier_of)


def _replace_what_has_failed(patch: Patch) -> None:
    original = LiveRescale.on_checkpoint

    def on_checkpoint(self: Any, outcome: Any) -> None:
        if isinstance(outcome, str) and self._life.attempts.pending is not None:
            self._replace(self._life.checkpoints)
        else:
            original(self, outcome)

    patch.setattr(LiveRescale, "on_checkpoint", on_checkpoint)


def _replace_who_has_ended(patch: Patch) -> None:
    patch.setattr(LiveRescale, "_leaves_an_end", lambda self, latest: False)


def _take_what_was_abandoned(patch: Patch) -> None:
    patch.setattr(Preloaded, "usable", lambda self, whose, now: self.operators)


LIVE_MUTANTS = (
    Mutant("the barrier behind which tasks stop overtakes no rows", _let_barriers_overtake, EXACT, RESCALES),
    Mutant("a job that has failed on the way restarts", _replace_what_has_failed, EXACT, RESCALES_AND_DEATHS, 64),
    Mutant(
        "of what an attempt has abandoned nothing is used", _take_what_was_abandoned, EXACT, RESCALES_AND_DEATHS, 24
    ),
    Mutant(
        "a source that is replaced gives nothing behind the barrier", _read_on_behind_the_barrier, EXACT, RESCALES, 3
    ),
    Mutant("who sends to tasks that are replaced keeps its rows back", _keep_nothing_back, EXACT, RESCALES, 20),
    Mutant("what was kept back is sent to the new subtasks", _forget_what_was_kept_back, EXACT, RESCALES, 20),
    Mutant("new subtasks learn that a sender has ended", _tell_no_end, EXACT, RESCALES, 505),
    Mutant("what was kept back is sent in its order", _send_in_another_order, EXACT, RESCALES, 32),
    Mutant("barriers are awaited on new channels", _align_without_new_channels, ("exchanges",), OFTEN_AND_KILLS, 74),
    Mutant(
        "a checkpoint that was given up replaces nobody", _count_before_it_is_stored, EXACT, RESCALES_AND_STORAGE, 16
    ),
    Mutant("behind the checkpoint there is only the new layout", _restart_the_old_layout, EXACT, AMID_RESCALES, 259),
    Mutant(
        "who has ended is not replaced beside those that know it", _replace_who_has_ended, ("neighbours",), OFTEN, 6
    ),
    Mutant("before the first checkpoint, too, splits are those that are read", _plan_splits_anew, EXACT, OFTEN, 16),
    Mutant("what was taken in is changed as it has changed since", _keep_what_was_taken_in, MANY_KEYS, OFTEN, 39),
    Mutant("a new base is not mixed with what was taken in", _begin_nothing_anew, ("forgotten",), OFTEN, 36),
    Mutant("what is gone since it was taken in does not come back", _keep_what_is_gone, ("forgotten",), OFTEN, 48),
    Mutant("changes replace what was taken in", _add_to_what_was_taken_in, ("many_keys",), OFTEN, 39),
)
"""The steps of docs/adr/0052 and 0070 that a seed can object to; of others the job is only late, as it restarts."""
