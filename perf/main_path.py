"""Which files, functions and lines a batch and a barrier pass: a measure of how much has to be read to follow them.

A keyed job runs some times in this process: with few batches and with many, then with few checkpoints and with many
over the same batches. What is called once more at least for each batch more lies on the way of a batch; what is called
once more at least for each checkpoint more, and no more often for more batches, on the way of a barrier. So what a job
does when it starts or ends lies on neither, nor does waiting for a thread that writes, which is a matter of how busy
the machine is. A line counts where it belongs to such a function, its docstring included.
The clock counts its readings, so that each run is the same, and belongs to the measure. `python -m perf.main_path
--files` names the files.
"""

from __future__ import annotations

import argparse
import inspect
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

import pyarrow as pa

import penstock
from penstock import StreamEnvironment, col, count
from penstock.engine.checkpoint_config import CheckpointConfig
from penstock.engine.checkpointing.coordinator import CheckpointCoordinator
from penstock.engine.local.manager import LocalManager
from perf.harness import CountingSink

_ROOT: Final = Path(penstock.__file__).resolve().parents[1]
_BATCH_ROWS: Final = 1_000
_FEW, _MANY = 10, 30
_CHECKPOINTED: Final = 90
"""Batches of the runs with checkpoints."""
_SELDOM_MS, _OFTEN_MS = 1_000, 50
"""Between checkpoints in these."""
_TIMEOUT: Final = "50ms"
"""Of rows in buffers: no longer than between two checkpoints, or who waits for whom is another matter each time."""
_WAITS: Final = LocalManager._wait.__code__
_OF_WAITS: Final = "engine/local/interrupts.py"


class _CountingClock:
    """A `Clock` each of whose readings takes a millisecond."""

    def __init__(self) -> None:
        self._seconds = 0.0

    def monotonic(self) -> float:
        self._seconds += 0.001
        return self._seconds

    def now_ms(self) -> int:
        return round(self._seconds * 1000)

    def wait_until(self, deadline: float) -> None:
        self._seconds = max(self._seconds, deadline)


def _calls(batches: int, interval_ms: int = 0) -> Counter[CodeType]:
    """How often each function of Penstock is called by the job; `interval_ms`: between checkpoints, 0 for none."""
    if not interval_ms:
        return _profiled(batches, None)
    with tempfile.TemporaryDirectory() as folder:
        return _profiled(batches, CheckpointConfig(interval_ms=interval_ms, storage=Path(folder).as_uri()))


def _profiled(batches: int, checkpoints: CheckpointConfig | None) -> Counter[CodeType]:
    calls: Counter[CodeType] = Counter()

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            calls[frame.f_code] += 1

    env = StreamEnvironment(
        runtime="local",
        parallelism=2,
        max_batch_rows=_BATCH_ROWS,
        buffer_timeout=_TIMEOUT,
        checkpoints=checkpoints,
        clock=_CountingClock(),
    )
    numbers = list(range(batches * _BATCH_ROWS))
    rows = env.from_collection(pa.table({"k": [number % 100 for number in numbers], "v": numbers}))
    kept = rows.rebalance().filter(col("v") >= 0)
    kept.key_by("k").aggregate(n=count()).sink_to(CountingSink())
    before = sys.getprofile()
    sys.setprofile(note)
    try:
        env.execute("main path")
    finally:
        sys.setprofile(before)
    return Counter(
        {code: n for code, n in calls.items() if _file(code) not in (None, _OF_WAITS) and code is not _WAITS}
    )


def _file(code: CodeType) -> str | None:
    path = Path(code.co_filename).resolve()
    if path.suffix != ".py" or not path.is_relative_to(_ROOT) or path.is_relative_to(_ROOT / "perf"):
        return None
    return path.relative_to(_ROOT).as_posix() if ".venv" not in path.parts else None


def _lines(codes: Iterable[CodeType]) -> dict[str, int]:
    """The lines of these functions, by file."""
    lines: dict[str, set[int]] = {}
    for code in codes:
        source, first = inspect.getsourcelines(code)
        lines.setdefault(str(_file(code)), set()).update(range(first, first + len(source)))
    return {file: len(lines[file]) for file in sorted(lines)}


def main_path() -> tuple[Mapping[str, int], Mapping[str, int]]:
    """The lines that a batch passes, and those that a barrier passes beside them, by file."""
    # What is imported by then is imported by nobody later.
    _calls(_FEW, _OFTEN_MS)
    # Of two runs the fewer calls: collecting garbage, or waiting for a thread, adds some to one.
    few, many = _calls(_FEW), _calls(_MANY) & _calls(_MANY)
    seldom = _calls(_CHECKPOINTED, _SELDOM_MS)
    often = _calls(_CHECKPOINTED, _OFTEN_MS) & _calls(_CHECKPOINTED, _OFTEN_MS)
    complete = CheckpointCoordinator.on_stored.__code__
    checkpoints = often[complete] - seldom[complete]
    of_batches = {code: calls - few[code] for code, calls in many.items()}
    batch = {code for code, calls in of_batches.items() if calls >= _MANY - _FEW}
    barrier = {
        code for code, calls in often.items() if calls - seldom[code] >= checkpoints and not of_batches.get(code)
    }
    return _lines(batch), _lines(barrier)


def _run() -> None:
    parser = argparse.ArgumentParser(description="What a batch and a barrier pass.")
    parser.add_argument("--files", action="store_true", help="name the files")
    options = parser.parse_args()
    for name, lines in zip(("batch", "barrier"), main_path(), strict=True):
        sys.stdout.write(f"{name}: {len(lines)} files, {sum(lines.values()):,} lines\n")
        if options.files:
            sys.stdout.writelines(f"  {lines[file]:4} {file}\n" for file in lines)


if __name__ == "__main__":
    _run()
