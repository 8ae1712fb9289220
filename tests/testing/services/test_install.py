"""install-services is silent where all is there and loud, but no failure, where something cannot be had."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from penstock.testing import services
from penstock.testing.services import Kafka, Redis
from penstock.testing.services.__main__ import main

SCRIPT = Path(services.__file__).with_name("install-services")
ALWAYS_THERE = ("sh", "sed", "dirname", "id", "cat", "mkdir", "mktemp", "rm", "mv")


def run_script(**environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(SCRIPT)], env={**os.environ, **environment}, capture_output=True, text=True, check=False, timeout=60
    )


@pytest.fixture
def bare_machine(tmp_path: Path) -> dict[str, str]:
    """An environment with no server, no Java, no Maven and no apt-get."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ALWAYS_THERE:
        found = shutil.which(name)
        assert found is not None
        (programs / name).symlink_to(found)
    return {"PATH": str(programs), "XDG_CACHE_HOME": str(tmp_path / "cache")}


def test_it_says_nothing_when_all_is_there(kafka: Kafka, redis: Redis) -> None:
    done = run_script()
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_it_names_what_is_missing_and_how_to_get_it(bare_machine: dict[str, str]) -> None:
    done = run_script(**bare_machine)
    assert done.returncode == 0
    assert "THEIR TESTS ARE SKIPPED" in done.stderr
    for package in ("redis-server", "default-jre-headless", "maven"):
        assert f"Debian calls it {package}" in done.stderr


def test_a_fetch_that_fails_shows_why_and_leaves_no_half(bare_machine: dict[str, str], tmp_path: Path) -> None:
    maven = tmp_path / "bin" / "mvn"
    maven.write_text("#!/bin/sh\necho no route to the repository\nexit 1\n")
    maven.chmod(0o755)
    done = run_script(**bare_machine)
    assert done.returncode == 0
    assert "no route to the repository" in done.stderr
    assert "Kafka: Maven could not fetch it" in done.stderr
    assert list((tmp_path / "cache" / "penstock").iterdir()) == []


def test_a_check_installs_nothing_and_says_what_would(bare_machine: dict[str, str], tmp_path: Path) -> None:
    for program in ("mvn", "apt-get"):
        (tmp_path / "bin" / program).write_text(f"#!/bin/sh\ntouch {tmp_path}/called\n")
        (tmp_path / "bin" / program).chmod(0o755)
    done = subprocess.run([str(SCRIPT), "--check"], env=bare_machine, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert "Redis: make install-services installs it (Debian package redis-server)" in done.stderr
    assert "Kafka: make install-services fetches it" in done.stderr
    assert not (tmp_path / "called").exists()


def test_whoever_has_the_wheel_alone_installs_them_by_the_module(
    monkeypatch: pytest.MonkeyPatch, bare_machine: dict[str, str], capfd: pytest.CaptureFixture[str]
) -> None:
    for name, value in bare_machine.items():
        monkeypatch.setenv(name, value)
    assert main(["--install"]) == 0
    assert "Debian calls it redis-server" in capfd.readouterr().err
