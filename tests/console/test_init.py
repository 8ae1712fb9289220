"""A new project passes its own tests as it is, and `doctor` says what is missing and how to get it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock import StreamEnvironment, checkpoints
from penstock.console.command_line import run_command
from penstock.console.doctor import findings
from penstock.console.doctor.findings import Finding, Level, examined, memory_mb
from penstock.engine.clock import ManualClock
from tests.console.conftest import Penstock


def test_the_tests_of_a_new_project_pass(penstock: Penstock, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = penstock("init", "late-orders", "--json")
    assert made.code == 0, made.err
    files = [path for path in (folder / "late-orders").rglob("*") if path.is_file()]
    assert sorted(str(path.relative_to(folder / "late-orders")) for path in files) == made.document["files"]
    assert "PROJECT_NAME" not in "".join(path.read_text() for path in files)
    monkeypatch.chdir("late-orders")
    monkeypatch.syspath_prepend(str(folder / "late-orders"))
    content: dict[str, Any] = {"__name__": "test_flow"}
    exec(compile(Path("test_flow.py").read_text(), "test_flow.py", "exec"), content)
    tests = [value for name, value in content.items() if name.startswith("test_")]
    assert len(tests) == 4
    for test in tests:
        assert callable(test)
        test()
    shows_results_within_half_a_minute(content["flow"])
    settings = {row["key"]: row["value"] for row in penstock("config", "--json").document}
    assert settings["pipeline.name"] == "late-orders"


def shows_results_within_half_a_minute(flow: Callable[[StreamEnvironment], None]) -> None:
    """By the clock of the job: who tries the project looks for its files."""
    clock = ManualClock()
    env = StreamEnvironment(runtime="local", parallelism=2, clock=clock, checkpoints=checkpoints("10s", "checkpoints"))
    flow(env)
    job = env.submit("orders")
    while not list(Path("out").glob("*.parquet")):
        job.pump(0.1)
        assert clock.monotonic() < 30
    job.cancel()


def test_nothing_that_is_there_is_overwritten(penstock: Penstock, folder: Path) -> None:
    (folder / "orders").mkdir()
    (folder / "orders" / "notes.txt").write_text("mine")
    done = penstock("init", "orders")
    assert (done.code, [path.name for path in (folder / "orders").iterdir()]) == (2, ["notes.txt"])
    assert "orders is there already; choose another name" in done.err
    assert "is no name of a project" in penstock("init", "My Orders").err


@pytest.mark.parametrize(("mode", "level"), [(0o600, Level.GOOD), (0o644, Level.WARNING)])
def test_the_doctor_looks_who_may_read_the_token_of_clusters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int, level: Level
) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "token"))
    assert list(findings.token()) == []
    (tmp_path / "token").write_text("f" * 64)
    (tmp_path / "token").chmod(mode)
    [found] = findings.token()
    assert (found.level, bool(found.remedy)) == (level, level is Level.WARNING)


def test_the_doctor_says_what_is_there_and_what_is_missing(penstock: Penstock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(findings, "_is_there", lambda name: name != "aiokafka")
    monkeypatch.setattr(findings, "CHECKS", (findings.versions, findings.extras, findings.machine))
    found = {one["subject"]: one for one in penstock("doctor", "--json").document}
    assert found["ray"]["level"] == "ok"
    assert found["extra kafka"] == {
        "subject": "extra kafka",
        "level": "-",
        "fact": "not installed (Kafka)",
        "remedy": "pip install 'penstock[kafka]'",
    }
    monkeypatch.setattr(findings, "_version", lambda name: None if name == "pyarrow" else "1")
    done = penstock("doctor")
    assert done.code == 1
    assert "pip install pyarrow" in done.out


def test_java_that_is_too_old_or_missing_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    (missing,) = findings.java()
    assert "apt install openjdk-17-jre-headless" in missing.remedy
    old = tmp_path / "java"
    old.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_392\"' >&2\n")
    old.chmod(0o755)
    assert list(findings.java()) == [
        Finding("java", Level.WARNING, f"8 ({old})", "Spark and Kafka need Java 17 or newer")
    ]


def test_memory_is_that_of_the_container_where_that_is_less(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text("MemTotal:  9000000 kB\nMemAvailable:    4096000 kB\n")
    assert memory_mb(tmp_path / "meminfo", tmp_path) == 4_000
    (tmp_path / "memory.max").write_text(f"{900 << 20}\n")
    (tmp_path / "memory.current").write_text(f"{100 << 20}\n")
    assert memory_mb(tmp_path / "meminfo", tmp_path) == 800
    (tmp_path / "memory.max").write_text("max\n")
    assert memory_mb(tmp_path / "meminfo", tmp_path) == 4_000
    assert memory_mb(tmp_path / "none", tmp_path) is None


def test_every_check_answers_on_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    subjects = {finding.subject for finding in examined()}
    assert {"penstock", "python", "java", "memory", "cpus", "port 6379"} <= subjects


def test_commands_are_completed_in_the_shell(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("_PENSTOCK_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "penstock do")
    monkeypatch.setenv("COMP_CWORD", "1")
    with contextlib.suppress(SystemExit):
        run_command([])
    assert "doctor" in capsys.readouterr().out
