"""What a peer is to run: the same rows as ours, the same question, and the digest of the right answer.

A program of `perf/` builds a `PeerTask`; `perf/peers/session.py` writes it into a folder, where programs in any
language find it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa

from perf.peers.digest import Digest

ANY_INPUT: Final[Mapping[str, int | str]] = {}

Column: TypeAlias = Callable[[], pa.Array]
"""Makes a prepared column: int64, float64, or texts of one length."""


@dataclass(frozen=True, slots=True)
class PeerInput:
    """The rows of one job.

    Args:
        settings: what the program needs to know; `rows`, the number of rows, where the input ends.
        columns: prepared columns by name; row i has value i modulo their size.
    """

    settings: Mapping[str, int | str] = field(default_factory=lambda: ANY_INPUT)
    columns: Mapping[str, Column] = field(default_factory=dict)

    def write(self, program: str, folder: Path) -> None:
        """Write `job.properties`, and `NAME.bin` with the little-endian values of each column."""
        folder.mkdir(parents=True)
        lines = [f"program={program}"]
        for name, make in self.columns.items():
            column = make()
            (folder / f"{name}.bin").write_bytes(_bytes_of(column))
            if pa.types.is_string(column.type):
                lines.append(f"{name}_bytes={len(column[0].as_py())}")
        # A backslash begins an escape in a properties file.
        lines += [f"{name}={value}".replace("\\", "\\\\") for name, value in self.settings.items()]
        (folder / "job.properties").write_text("\n".join(lines) + "\n")


@dataclass(frozen=True, slots=True)
class PeerTask:
    """One variant, as a peer runs it.

    Args:
        program: its name among the programs of the peers.
        run: the input without end that is measured.
        check: a bounded input; None for one whose rows are only counted.
        expected: the digest of the rows that `check` must give.
    """

    program: str
    run: PeerInput
    check: PeerInput | None = None
    expected: Callable[[], Digest] | None = None

    def write(self, folder: Path) -> None:
        """Write both inputs, into `check` and `run`."""
        if self.check is not None:
            self.check.write(self.program, folder / "check")
        self.run.write(self.program, folder / "run")


def _bytes_of(column: pa.Array) -> bytes:
    if pa.types.is_string(column.type):
        texts = column.to_pylist()
        if len({len(text) for text in texts}) != 1:
            raise ValueError("a column of texts for peers needs texts of one length")
        return "".join(texts).encode("ascii")
    return np.ascontiguousarray(column.to_numpy()).astype(column.to_numpy().dtype.newbyteorder("<")).tobytes()
