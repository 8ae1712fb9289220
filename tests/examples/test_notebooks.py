"""The notebooks run from top to bottom, twice in one process as in one kernel, and show what they say."""

from __future__ import annotations

import json
import types
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "notebooks"


def run(name: str, monkeypatch: pytest.MonkeyPatch, names: dict[str, Any] | None = None) -> dict[str, Any]:
    """The variables after the last cell."""
    cells = json.loads((FOLDER / name).read_text())["cells"]
    module = types.ModuleType("notebook")
    monkeypatch.setitem(__import__("sys").modules, "notebook", module)
    module.__dict__.update(names or {})
    for number, cell in enumerate(cells):
        if cell["cell_type"] == "code":
            assert cell["outputs"] == [], "what a notebook shows depends on the machine: clear it before committing"
            exec(compile("".join(cell["source"]), f"{name}, cell {number}", "exec"), module.__dict__)
    return module.__dict__


def test_first_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    once = run("first_steps.ipynb", monkeypatch)
    found = run("first_steps.ipynb", monkeypatch, once)
    assert found["frame"].to_dict("index") == {"ann": {"n": 2, "spent": 24.5}, "bob": {"n": 1, "spent": 8.0}}
    assert sorted(found["windows"]["spent"].to_pylist()) == [3.5, 8.0, 21.0]
    assert sorted(found["dear"]["item"]) == ["cup", "pot"]
    assert sorted(found["taxes"]["tax"]) == pytest.approx([0.7, 1.6, 4.2])


def test_a_running_job_is_stopped_and_run_again(monkeypatch: pytest.MonkeyPatch) -> None:
    found = run("a_running_job.ipynb", monkeypatch)
    assert len(found["state"]) == 5
    before = dict(zip(found["state"]["sensor"], found["state"].iloc[:, -1], strict=True))
    assert set(before) == set(range(5))
    last = found["counted"].to_pandas().groupby("sensor").last()
    assert found["again"].ended
    assert last["n"].sum() > found["newest"]["n"].sum()
