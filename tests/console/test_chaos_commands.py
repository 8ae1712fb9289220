"""`penstock chaos run` that a signal ends: what was found until then is told, as one document where that is wanted."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.console import chaos_commands
from penstock.console.chaos_commands import _Target
from penstock.console.command_line import run_command
from penstock.testing.chaos import ChaosRun, ChaosSchedule
from penstock.testing.chaos.report import FaultRecord


def ctrl_c() -> None:
    raise KeyboardInterrupt


def sigterm() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def sigterm_as_ray_takes_it() -> None:
    raise SystemExit(signal.SIGTERM)


@pytest.mark.parametrize(
    ("end", "name", "code"),
    [(ctrl_c, "SIGINT", 130), (sigterm, "SIGTERM", 143), (sigterm_as_ray_takes_it, "SIGTERM", 143)],
)
@pytest.mark.parametrize(("before", "verdict"), [(0, "nothing tested"), (1, "not all tested")])
@pytest.mark.usefixtures("as_a_process_of_its_own")
def test_what_was_found_before_a_signal_is_one_document(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    end: Callable[[], None],
    name: str,
    code: int,
    before: int,
    verdict: str,
) -> None:
    seen: list[ChaosSchedule] = []
    handler = signal.getsignal(signal.SIGTERM)

    def shake(plan: ChaosSchedule) -> ChaosRun:
        if len(seen) == before:
            end()
        seen.append(plan)
        return ChaosRun("sequence", plan, [FaultRecord("kill a subtask", at_s=1.0)], "finished")

    @contextmanager
    def target(*_: Any) -> Iterator[_Target]:
        yield _Target(ChaosSchedule.random, shake)

    monkeypatch.setattr(chaos_commands, "_target", target)
    with pytest.raises(SystemExit) as ended:
        run_command(["chaos", "run", "--schedules", "3", "--json"])
    assert ended.value.code == code
    document = json.loads(capsys.readouterr().out)
    assert (document["ended_by"], document["verdict"], len(document["runs"])) == (name, verdict, before)
    assert signal.getsignal(signal.SIGTERM) is handler
