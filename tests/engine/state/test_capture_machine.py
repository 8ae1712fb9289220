"""Captures of changes add up to the snapshot of the same moment, whatever happens before their rows are made."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule, run_state_machine_as_test

from penstock.engine.state import changes, heap, timers
from penstock.engine.state.capture import CaptureRequest, CaptureScope
from penstock.engine.state.snapshot import share
from tests.draws import drawn
from tests.engine.state.backends import GROUPS, KEYS, TTL_MS, Subtask
from tests.engine.state.saved import Saved, captured_snapshot, contents, snapshot_of
from tests.engine.state.test_backend_machine import Machine

SCOPES = [CaptureScope.CHANGES] * 3 + [CaptureScope.SWITCH, CaptureScope.BASE, CaptureScope.COMPLETE]


class CapturingMachine(Machine):
    """Takes captures in between, and resumes from them; the machine itself makes sure that nothing is lost."""

    @initialize(keys=st.sampled_from(KEYS), subtasks=st.integers(1, 3))
    def begin(self, keys: Any, subtasks: int) -> None:
        super().begin(keys, subtasks)
        self.saved = [Saved() for _ in self.subtasks]
        self.expected: list[Any] = [{} for _ in self.subtasks]

    @rule(scope=st.sampled_from(SCOPES))
    def capture(self, scope: CaptureScope) -> None:
        now = self.clock.now_ms()
        for index, subtask in enumerate(self.subtasks):
            capture = subtask.capture(CaptureRequest(1, scope))
            held = contents(snapshot_of(subtask))
            if scope is CaptureScope.COMPLETE:
                assert contents(captured_snapshot(capture)) == held
            else:
                self.saved[index].take(capture)
                self.expected[index] = (held, now)

    @rule()
    def make_rows(self) -> None:
        for saved, expected in zip(self.saved, self.expected, strict=True):
            if expected:
                held, now = expected
                assert contents(saved.snapshot(), lambda touched, now=now: touched + TTL_MS > now) == held

    @rule(subtasks=st.integers(1, 3))
    def rescale(self, subtasks: int) -> None:
        self.capture(CaptureScope.CHANGES)
        self.make_rows()
        snapshots = [saved.snapshot() for saved in self.saved]
        is_failover = subtasks == len(self.subtasks)
        for subtask in self.subtasks:
            subtask.backend.close()
        self.subtasks = [Subtask(self.kind, self.schema, self.clock) for _ in range(subtasks)]
        for index, subtask in enumerate(self.subtasks):
            subtask.restore(snapshots[index] if is_failover else share(snapshots, index, subtasks, GROUPS))
        if not is_failover:
            self.saved, self.expected = [Saved() for _ in self.subtasks], [{} for _ in self.subtasks]
            self.capture(CaptureScope.BASE)

    @invariant()
    def entries_are_those_of_the_model(self) -> None:
        super().entries_are_those_of_the_model()


@pytest.mark.parametrize("kind", ["heap", "columnar"])
def test_captures_add_up_to_snapshots(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # There are few keys, most of which change: without this nearly all captures would be complete.
    for module in (changes, heap, timers):
        monkeypatch.setattr(module, "are_most", lambda changed, entries: False)
    machine = type("MachineOfKind", (CapturingMachine,), {"kind": kind})
    relaxed = settings(max_examples=drawn(6), stateful_step_count=50, suppress_health_check=list(HealthCheck))
    run_state_machine_as_test(machine, settings=relaxed)


def test_captures_add_up_where_most_of_the_state_changes() -> None:
    relaxed = settings(max_examples=drawn(4), stateful_step_count=50, suppress_health_check=list(HealthCheck))
    run_state_machine_as_test(CapturingMachine, settings=relaxed)
