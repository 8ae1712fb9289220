"""The command `init`: writes the project of the template into a new folder."""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path
from typing import Annotated, Final

import typer

from penstock.console.options import Json, Traceback, output_of
from penstock.engine.errors import ConfigurationError

_FILES: Final = {
    "README.md": "README.md",
    "flow.py": "flow.py",
    "test_flow.py.template": "test_flow.py",
    "penstock.yaml": "penstock.yaml",
    "pyproject.toml": "pyproject.toml",
    "Dockerfile": "Dockerfile",
    "ci.yml": ".github/workflows/ci.yml",
    "gitignore": ".gitignore",
}
"""Where each file of the template goes."""
_PLACEHOLDER: Final = "PROJECT_NAME"
_NAME: Final = re.compile(r"[a-z][a-z0-9]*([-_][a-z0-9]+)*")


def init_command(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Of the project and its folder, which must be new.")],
    as_json: Json = False,
    tracebacks: Traceback = False,
) -> None:
    """Make a project: a flow, tests with simulated crashes, settings, Dockerfile, CI."""
    folder = Path(name)
    written = write_project(folder)
    steps = (f"cd {folder}", "pip install '.[test]'", "python -m pytest -q", "penstock run --local flow.py:flow")
    shown = "\n  ".join((f"project {folder.name} is in {folder}; next:", *steps))
    output_of(context).result({"folder": str(folder), "files": written}, shown)


def write_project(folder: Path) -> list[str]:
    """Write the project; the names of its files.

    Args:
        folder: a new one, which bears the project's name.

    Raises:
        ConfigurationError: the folder is there and not empty, or its name is no name of a project.
    """
    name = folder.name
    if not _NAME.fullmatch(name):
        raise ConfigurationError(f"init: {name!r} is no name of a project; use small letters, digits and single - or _")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigurationError(f"init: {folder} is there already; choose another name, or remove it")
    template = resources.files("penstock.console.init") / "template"
    for source, target in _FILES.items():
        path = folder / target
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text((template / source).read_text(encoding="utf-8").replace(_PLACEHOLDER, name), encoding="utf-8")
    return sorted(_FILES.values())
