"""`pip install` of the wheel alone, in a clean environment of each Python that is supported: jobs run, also on Ray.

Part of `make test-all`: it installs some 650 MB for each Python from the package index. Interpreters that are not
there are skipped, and said so.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LARGEST_WHEEL = 2_500_000
"""Bytes."""

RAY = """
import penstock as ps

env = ps.StreamEnvironment(parallelism=1)
rows = env.from_collection([{"k": n % 3, "n": n} for n in range(90)])
totals = {row["k"]: row["total"] for row in rows.key_by("k").aggregate(total=ps.sum("n")).collect()}
assert totals == {k: sum(range(k, 90, 3)) for k in range(3)}, totals
"""


def run(*command: str | Path, cwd: Path) -> str:
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(cwd), "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(map(str, command[:6]))} failed:\n{done.stdout}\n{done.stderr}"
    return done.stdout


def uv(*arguments: str | Path) -> str:
    command = [sys.executable, "-m", "uv", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def interpreter(version: str) -> str:
    """The path of a Python of that version, of this machine, among those of pyenv too."""
    of_pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions").glob(f"{version}.*/bin/python")
    for found in [shutil.which(f"python{version}"), *sorted(map(str, of_pyenv))]:
        # A shim of pyenv may stand for nothing.
        if found is not None and not subprocess.run([found, "-c", ""], capture_output=True, check=False).returncode:
            return found
    pytest.skip(f"no Python {version} is installed")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", str(folder), str(ROOT)]
    subprocess.run(command, cwd=folder, capture_output=True, check=True)
    (built,) = folder.glob("*.whl")
    assert built.stat().st_size < LARGEST_WHEEL
    return built


@pytest.mark.timeout(900)
@pytest.mark.long("test_bare.py, on one Python")
@pytest.mark.parametrize("version", ["3.10", "3.11", "3.12", "3.13"])
def test_a_clean_environment_with_the_wheel_runs_jobs(wheel: Path, tmp_path: Path, version: str) -> None:
    uv("venv", "--quiet", "--python", interpreter(version), tmp_path / "venv")
    python = tmp_path / "venv" / "bin" / "python"
    uv("pip", "install", "--quiet", "--python", python, wheel)
    run(python, ROOT / "tests" / "packaging" / "bare.py", cwd=tmp_path)
    run(python, "-c", RAY, cwd=tmp_path)
    assert "penstock" in run(tmp_path / "venv" / "bin" / "penstock", "--version", cwd=tmp_path)
    run(tmp_path / "venv" / "bin" / "penstock", "init", "orders", cwd=tmp_path)
