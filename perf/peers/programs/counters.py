"""What the programs of Python peers share: the job's folder, the file of counters, the digest.

Runs in the peers' environments, which have neither Penstock nor, all of them, NumPy: the standard library only.
"""

from __future__ import annotations

import array
import mmap
import os
import signal
import sys
import threading
from pathlib import Path

SLOT_BYTES = 64
_MASK = 2**64 - 1
_GOLDEN = 0x9E3779B97F4A7C15


class Job:
    """A job as perf/peers/task.py wrote it into a folder."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)
        lines = (self.folder / "job.properties").read_text().splitlines()
        self.settings = dict(line.split("=", 1) for line in lines)

    @property
    def program(self) -> str:
        return self.settings["program"]

    @property
    def rows(self) -> int | None:
        """How many rows; None: no end."""
        return int(self.settings["rows"]) if "rows" in self.settings else None

    def int64s(self, column: str) -> array.array[int]:
        return self._values(column, "q")

    def float64s(self, column: str) -> array.array[float]:
        return self._values(column, "d")

    def _values(self, column: str, kind: str) -> array.array:
        values = array.array(kind, (self.folder / f"{column}.bin").read_bytes())
        if sys.byteorder == "big":
            values.byteswap()
        return values


class Counters:
    """The rows that each subtask has taken so far, in a file that the measuring process maps too."""

    def __init__(self, file: str) -> None:
        with open(file, "r+b") as opened:
            self._slots = memoryview(mmap.mmap(opened.fileno(), 0)).cast("q")

    def set(self, slot: int, rows: int) -> None:
        self._slots[slot * SLOT_BYTES // 8] = rows

    def get(self, slot: int) -> int:
        return self._slots[slot * SLOT_BYTES // 8]


def row_hash(*columns: int) -> int:
    """A row's share of the digest; perf/peers/digest.py says how it is made."""
    value = 0
    for column in columns:
        value = (value + _GOLDEN & _MASK) ^ (column & _MASK)
        value = (value ^ value >> 33) * 0xFF51AFD7ED558CCD & _MASK
        value = (value ^ value >> 33) * 0xC4CEB9FE1A85EC53 & _MASK
        value ^= value >> 33
    return value


def print_digest(rows: int, total: int) -> None:
    """Print the digest of so many rows, whose hashes have this sum."""
    print(f"digest {rows} {total & _MASK}", flush=True)


def end_with_standard_input() -> None:
    """End this process, and those that it has started, when the one that started it closes its standard input.

    It does so by ending too, however it does.
    """

    def wait() -> None:
        while os.read(0, 1):
            pass
        if os.getpgrp() == os.getpid():
            os.killpg(0, signal.SIGKILL)
        os._exit(0)

    threading.Thread(target=wait, daemon=True).start()
