"""The Dockerfile: what it copies and installs is there, at locked versions, and the image runs without rights."""

from __future__ import annotations

import re
import subprocess
import sys

from packaging.requirements import Requirement

from tests.deploy.manifests import DEPLOY, ROOT
from tests.packaging.test_repository import read_project

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

TEXT = (DEPLOY / "Dockerfile").read_text()
INSTRUCTIONS = [
    line.split(maxsplit=1) for line in re.sub(r"\\\n", " ", TEXT).splitlines() if line and not line.startswith("#")
]


def test_everything_that_the_image_is_built_from_is_copied() -> None:
    copies = [rest.split()[:-1] for kind, rest in INSTRUCTIONS if kind == "COPY" and "--from" not in rest]
    copied = {name for names in copies for name in names}
    assert all((ROOT / name).exists() for name in copied)
    sdist = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["sdist"]
    links = [path.name for path in (ROOT / "penstock").iterdir() if path.is_symlink()]
    assert {*sdist["only-include"], *links} <= copied


def test_the_extras_that_it_installs_are_the_projects() -> None:
    (found,) = re.findall(r"\.whl\)\[([^\]]+)\]", TEXT)
    extras = read_project()["optional-dependencies"]
    assert set(found.split(",")) == extras.keys() - {"dev", "examples", "ibis", "pandas", "spark", "sql"}


def test_the_constraints_are_the_locked_versions() -> None:
    commands = re.findall(r"-e '([^']+)'", TEXT)
    edited = subprocess.run(
        ["sed", *(argument for command in commands for argument in ("-e", command)), "requirements/dev.txt"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    pinned = [Requirement(line) for line in edited.splitlines() if line.strip()]
    assert len(pinned) > 100
    assert all(str(one.specifier).startswith("==") for one in pinned)


def test_the_image_runs_as_a_user_without_rights() -> None:
    users = [rest for kind, rest in INSTRUCTIONS if kind == "USER"]
    assert users[-1] == "1000"
    last = max(place for place, (kind, _) in enumerate(INSTRUCTIONS) if kind == "USER")
    assert all(kind in ("ENV", "CMD") for kind, _ in INSTRUCTIONS[last + 1 :])


def test_images_are_named_by_version_and_packages_leave_no_lists() -> None:
    assert all(":" in rest.split()[0] for kind, rest in INSTRUCTIONS if kind == "FROM")
    assert not any(kind == "ADD" for kind, _ in INSTRUCTIONS)
    for _, rest in INSTRUCTIONS:
        if "apt-get install" in rest:
            assert "--no-install-recommends" in rest
            assert "rm -rf /var/lib/apt/lists" in rest
