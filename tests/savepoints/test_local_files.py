"""Large files go past the page cache where that is possible, and are the same where it is not."""

from __future__ import annotations

import fcntl
import io
import os
from pathlib import Path
from typing import Any

import pytest

from penstock.savepoints import local_files
from penstock.savepoints.content import Pieces
from penstock.savepoints.local_files import write_synced

_DATA = os.urandom((6 << 20) + 5)
_PIECES = Pieces((_DATA[:3], _DATA[3 : 2 << 20], _DATA[2 << 20 :]))


@pytest.mark.skipif(not hasattr(os, "O_DIRECT"), reason="only Linux can")
def test_a_file_system_without_direct_writes_is_written_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(file: io.FileIO, command: int, argument: int = 0) -> int:
        if command == fcntl.F_SETFL and argument & os.O_DIRECT:
            raise OSError(22, "Invalid argument")
        return 0

    monkeypatch.setattr(fcntl, "fcntl", refuses)
    write_synced(str(tmp_path / "a"), _PIECES)
    assert (tmp_path / "a").read_bytes() == _DATA


def test_what_was_written_in_part_is_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write, calls = local_files._write_all, []

    def breaks_off(out: io.FileIO, part: Any) -> None:
        calls.append(len(part))
        if len(calls) == 2:
            out.write(part[:512])
            raise OSError(22, "Invalid argument")
        write(out, part)

    monkeypatch.setattr(local_files, "_write_all", breaks_off)
    write_synced(str(tmp_path / "a"), _PIECES)
    assert (tmp_path / "a").read_bytes() == _DATA


def test_a_full_disk_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(out: io.FileIO, part: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(local_files, "_write_all", full)
    with pytest.raises(OSError, match="No space left"):
        write_synced(str(tmp_path / "a"), _PIECES)
