"""Folders of state go with their owner, also where that is killed, and never before."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from penstock.engine.state.rocksdb.folders import OwnedFolder

CHILD = """
import sys, time
from penstock.engine.state.rocksdb.folders import OwnedFolder
owned = OwnedFolder(sys.argv[1])
owned.path.mkdir()
(owned.path / "state").write_text("x")
print(owned.path, flush=True)
time.sleep(600)
"""


def made_by_another(directory: Path) -> tuple[subprocess.Popen[str], Path]:
    child = subprocess.Popen([sys.executable, "-c", CHILD, str(directory)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    return child, Path(child.stdout.readline().strip())


def test_a_folder_of_a_process_that_was_killed_goes_with_the_next(tmp_path: Path) -> None:
    child, path = made_by_another(tmp_path)
    try:
        OwnedFolder(str(tmp_path)).remove()
        assert (path / "state").read_text() == "x"
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        assert path.exists()
        mine = OwnedFolder(str(tmp_path))
        assert not path.exists()
        mine.remove()
        assert not list(tmp_path.iterdir())
    finally:
        child.kill()
        child.communicate()


def test_folders_of_one_process_leave_each_other_alone(tmp_path: Path) -> None:
    first, second = OwnedFolder(str(tmp_path)), OwnedFolder(str(tmp_path))
    first.path.mkdir()
    third = OwnedFolder(str(tmp_path))
    assert first.path.exists()
    assert (first.held, second.held) == (True, True)
    for owned in (first, first, second, third):
        owned.remove()
    assert not first.held
    assert not list(tmp_path.iterdir())


def test_what_somebody_else_has_left_there_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "penstock-state-mine").mkdir()
    (tmp_path / "other").mkdir()
    OwnedFolder(str(tmp_path)).remove()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other", "penstock-state-mine"]
