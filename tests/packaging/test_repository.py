"""Rules on the checkout itself that no other tool enforces."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import penstock

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("engine", "actors", "connectors", "savepoints", "console", "tables")
CHECK_TREE = ROOT / "scripts" / "check-tree"


def read_project() -> dict[str, Any]:
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return project


def read_lock(name: str) -> list[Requirement]:
    lines = (ROOT / "requirements" / name).read_text().splitlines()
    return [Requirement(line.rstrip(" \\")) for line in lines if re.match(r"[a-z0-9]", line)]


@pytest.mark.parametrize("package", PACKAGES)
def test_the_package_links_to_its_folder_by_a_relative_path(package: str) -> None:
    link = ROOT / "penstock" / package
    assert link.is_symlink()
    assert os.readlink(link) == f"../{package}"
    assert (link / "__init__.py").is_file()


@pytest.mark.parametrize("package", PACKAGES)
def test_every_module_says_what_it_is_for(package: str) -> None:
    silent = [
        path.relative_to(ROOT).as_posix()
        for path in sorted((ROOT / package).rglob("*.py"))
        if not ast.get_docstring(ast.parse(path.read_text()))
    ]
    assert not silent, f"modules without a docstring: {silent}"


def test_the_version_is_that_of_the_project() -> None:
    assert penstock.__version__ == read_project()["version"]


def test_the_lock_holds_what_the_project_declares() -> None:
    project = read_project()
    extras = project["optional-dependencies"]
    chosen = project["dependencies"] + extras["examples"] + extras["rocksdb"] + extras["dev"]
    declared = [Requirement(text) for text in chosen]
    locked = read_lock("dev.txt")
    for requirement in declared:
        if requirement.name == "penstock":
            continue
        name = canonicalize_name(requirement.name)
        pins = [pin for pin in locked if canonicalize_name(pin.name) == name]
        versions = [next(iter(pin.specifier)).version for pin in pins]
        assert versions, f"{requirement} is not in requirements/dev.txt: run make lock"
        assert all(requirement.specifier.contains(version, prereleases=True) for version in versions), (
            f"requirements/dev.txt locks {name} at {versions}, declared is {requirement}: run make lock"
        )


def test_the_demo_installs_what_the_examples_need_and_at_the_versions_that_are_tested() -> None:
    project = read_project()
    needed = {canonicalize_name(Requirement(text).name) for text in project["dependencies"]}
    needed |= {canonicalize_name(Requirement(text).name) for text in project["optional-dependencies"]["examples"]}
    demo, dev = read_lock("demo.txt"), read_lock("dev.txt")
    assert needed <= {canonicalize_name(pin.name) for pin in demo}
    assert {(pin.name, str(pin.specifier)) for pin in demo} <= {(pin.name, str(pin.specifier)) for pin in dev}
    assert 3 * len(demo) < len(dev)


@pytest.mark.parametrize("name", ["build.txt", "demo.txt", "dev.txt"])
def test_every_locked_version_has_a_hash_and_no_index_address(name: str) -> None:
    text = (ROOT / "requirements" / name).read_text()
    blocks = re.split(r"\n(?=[a-z0-9])", text)
    assert len(blocks) == len(read_lock(name))
    assert not [block.splitlines()[0] for block in blocks if "--hash=sha256:" not in block]
    assert "://" not in text
    assert not re.search(r"^--?[a-z]", text, flags=re.MULTILINE)


def check_tree(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the tree rules on `folder` as a repository in which every file is tracked."""
    # Inside a git hook GIT_DIR and its like name the outer repository, which must not be touched.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    for command in (["git", "init", "--quiet"], ["git", "add", "--all"]):
        subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)
    return subprocess.run([str(CHECK_TREE)], cwd=folder, env=environment, check=False, capture_output=True, text=True)


# The lines are put together here so that this file passes the rule it tests.
REFUSED = [
    "see " + "https://" + "pypi" + ".org/project/ray",
    "https://files." + "pythonhosted" + ".org/packages/x",
    "--index-url" + " https://example.com/packages",
    "--find-links=" + "wheels",
    "https://" + "mirror.example.com/python",
    "https://example.com" + "/simple" + "/ray",
    'path = "/' + 'root/data.csv"',
    "cd /" + "tmp/w",
    "docker pull " + "ghcr" + ".io/example/x",
]


def test_check_tree_finds_addresses_and_machine_paths(tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("\n".join(["fine", *REFUSED, "fine"]))
    done = check_tree(tmp_path)
    assert done.returncode == 1
    lines = range(1, len(REFUSED) + 3)
    assert [line for line in lines if f"notes.md:{line}:" in done.stderr] == list(lines[1:-1])


def test_check_tree_lets_ordinary_text_pass(tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text(
        """https://docs.ray.io/en/latest/
https://example.com/a
FileSource("file:///data/in.csv")
tests/work/x.py and perf/tmp/y
a simple/plain choice
http://www.apache.org/licenses/
"""
    )
    done = check_tree(tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("lines", "code"), [(600, 0), (601, 1)])
def test_check_tree_limits_the_length_of_a_file(tmp_path: Path, lines: int, code: int) -> None:
    module = tmp_path / "engine" / "task" / "loop.py"
    module.parent.mkdir(parents=True)
    module.write_text("x = 1\n" * lines)
    done = check_tree(tmp_path)
    assert done.returncode == code
    assert ("engine/task/loop.py: 601 lines" in done.stderr) == bool(code)
