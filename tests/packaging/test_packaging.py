"""What a user installs: the wheel built straight from the checkout and the one built from the sdist.

The package folder holds symlinks to the top-level folders; both wheels must carry their content as real
files.
"""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

IMPORT_ALL = """
import importlib, sys
root, *modules = sys.argv[1:]
for module in modules:
    found = importlib.import_module(module).__file__
    assert found and found.startswith(root), f"{module} comes from {found}"
"""


def run(*command: str, cwd: Path, **environment: str) -> None:
    done = subprocess.run(
        command, cwd=cwd, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{' '.join(command[:6])} failed:\n{done.stdout}\n{done.stderr}"


def build(output: Path, *what: str) -> Path:
    """Build into `output` and return the wheel."""
    command = (sys.executable, "-m", "build", "--no-isolation", "--outdir", str(output), *what, str(ROOT))
    run(*command, cwd=output)
    (wheel,) = output.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {
        "from the checkout": build(tmp_path_factory.mktemp("direct"), "--wheel"),
        "from the sdist": build(tmp_path_factory.mktemp("sdist")),
    }


def source_files() -> set[str]:
    """Every file of the package as a wheel names it, symlinked folders included."""
    return {
        Path(folder, name).relative_to(ROOT).as_posix()
        for folder, _, names in os.walk(ROOT / "penstock", followlinks=True)
        for name in names
        if Path(folder).name != "__pycache__"
    }


def module_name(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


@pytest.mark.parametrize("origin", ["from the checkout", "from the sdist"])
def test_the_wheel_holds_every_module_as_a_real_file(wheels: dict[str, Path], origin: str) -> None:
    with zipfile.ZipFile(wheels[origin]) as archive:
        members = {
            member.filename: member
            for member in archive.infolist()
            if not member.filename.split("/")[0].endswith(".dist-info")
        }
    assert {"penstock/__init__.pyi", "penstock/py.typed", "penstock/engine/__init__.py"} <= set(members)
    assert set(members) == source_files()
    assert not [name for name, member in members.items() if stat.S_ISLNK(member.external_attr >> 16)]


@pytest.mark.long("the test above: it holds the files which all other tests import")
def test_every_module_of_the_wheel_from_the_sdist_imports(wheels: dict[str, Path], tmp_path: Path) -> None:
    unpacked = tmp_path / "site"
    with zipfile.ZipFile(wheels["from the sdist"]) as archive:
        archive.extractall(unpacked)
    modules = sorted(module_name(name) for name in source_files() if name.endswith(".py"))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    run(sys.executable, "-c", IMPORT_ALL, str(unpacked), *modules, cwd=elsewhere, PYTHONPATH=str(unpacked))
