"""The names that users import: all are there, and nobody pays for those that are not used."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import penstock


def test_every_public_name_is_there() -> None:
    stub = ast.parse(Path(penstock.__file__).with_suffix(".pyi").read_text("utf-8"))
    listed = next(node.value for node in stub.body if isinstance(node, ast.Assign))
    assert sorted(ast.literal_eval(listed)) == sorted(penstock.__all__)
    for name in penstock.__all__:
        assert hasattr(penstock, name), name


def test_a_name_that_is_nearly_one_of_them_is_told() -> None:
    with pytest.raises(AttributeError, match=r"penstock has no 'sun' \(did you mean 'sum'\?\)"):
        _ = penstock.sun


def test_a_process_that_runs_a_subtask_does_not_load_what_programs_are_written_with() -> None:
    code = "import sys, penstock.actors.subtask; print(*(name for name in sys.modules if name.startswith('penstock')))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "penstock.engine.task.loop" in loaded
    assert not {"penstock.environment", "penstock.engine.api.streams", "penstock.savepoints.editor"} & set(loaded)
