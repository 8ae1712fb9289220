"""The background thread that makes files of a subtask's captures, so that data never waits for storage.

The running task hands it every capture, in order; it answers, from its thread, with the handle of the files or with
the reason why there is none.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from penstock.engine.checkpointing.handles import PartTimes, SubtaskHandle
from penstock.engine.checkpointing.instructions import AbortReason
from penstock.engine.checkpointing.store import SubtaskWriter
from penstock.engine.checkpointing.task_capture import TaskCapture
from penstock.engine.errors import CheckpointError, named


@dataclass(frozen=True, slots=True)
class Declined:
    """A subtask cannot take its part of a checkpoint.

    Args:
        message: why.
        reason: what that is to the coordinator.
    """

    message: str
    reason: AbortReason = AbortReason.DECLINED


HAS_ENDED: Final = Declined("the subtask has ended", AbortReason.SUBTASK_ENDED)
"""The answer of one that no barrier reaches any more."""
Answer: TypeAlias = SubtaskHandle | Declined


class CaptureWriter:
    """Writes the captures of one subtask in one attempt.

    Args:
        writer: makes the files; used by the thread alone.
        answer: told, from the thread, what became of the capture for a checkpoint.
    """

    def __init__(self, writer: SubtaskWriter, answer: Callable[[int, Answer], None]) -> None:
        self._writer = writer
        self._answer = answer
        self._captures: queue.SimpleQueue[TaskCapture | None] = queue.SimpleQueue()
        threading.Thread(target=self._run, name="checkpoint-writer", daemon=True).start()

    def put(self, capture: TaskCapture) -> None:
        """Write the capture behind those before it."""
        self._captures.put(capture)

    def close(self) -> None:
        """Write nothing more; returns at once."""
        self._captures.put(None)

    def _run(self) -> None:
        while (capture := self._captures.get()) is not None:
            self._answer(capture.barrier.checkpoint, self._write(capture))
        with contextlib.suppress(CheckpointError, OSError):
            self._writer.close()

    def _write(self, capture: TaskCapture) -> Answer:
        began = time.monotonic()
        try:
            handle = self._writer.write(capture)
        except BaseException as error:
            # Whatever it is, also what a serializer of the user raises, the data keeps flowing, and the coordinator
            # decides how many such failures are too many.
            return Declined(named(error))
        taken_ms = (time.monotonic() - began) * 1000
        return replace(handle, times=PartTimes(capture.alignment_ms, capture.sync_ms, taken_ms))
