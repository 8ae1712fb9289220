"""Functions of modules that only the driver's import path has run on Ray as they do here."""

from __future__ import annotations

import importlib
import pickle
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock import StreamEnvironment
from penstock.actors.import_path import Imported, own_import_path


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a module, on the import path of this process alone."""
    (tmp_path / "far_away.py").write_text("def double(row):\n    return {'n': 2 * row['n']}\n")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    yield tmp_path
    sys.modules.pop("far_away", None)


def test_the_path_is_there_before_what_needs_it(elsewhere: Path) -> None:
    double = importlib.import_module("far_away").double
    data = pickle.dumps(Imported({"f": double}))
    assert str(elsewhere) in own_import_path()
    assert not [path for path in own_import_path() if path.startswith(sys.prefix)]
    sys.path.remove(str(elsewhere))
    del sys.modules["far_away"]
    assert pickle.loads(data)["f"]({"n": 4}) == {"n": 8}
    assert sys.path.count(str(elsewhere)) == 1


@pytest.mark.long("test_jobs.py: a function of such a module runs, and fails")
@pytest.mark.ray
@pytest.mark.usefixtures("ray_cluster", "no_leak")
def test_a_module_outside_the_script_s_folder_is_found_on_ray(elsewhere: Path) -> None:
    double = importlib.import_module("far_away").double
    env = StreamEnvironment(parallelism=1)
    rows = env.from_collection([{"n": 4}]).map(double, returns={"n": "int64"}).collect()
    assert rows.to_arrow().to_pylist() == [{"n": 8}]
