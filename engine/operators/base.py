"""What an operator is: a state machine that takes elements and emits elements.

The chain (`task/chain.py`) calls it; it never sees a channel, a thread or a cluster. An `OperatorSpec` (`spec.py`) is
the picklable description that the job graph holds; each subtask creates its own operator from it.
"""

from __future__ import annotations

import traceback
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Final, Protocol, TypeAlias

import pyarrow as pa

from penstock.engine.cached_files import copy_called
from penstock.engine.clock import Clock
from penstock.engine.config import DEFAULTS, JobConfig
from penstock.engine.elements import Batch, Control, EndOfInput, IterationBarrier, Watermark, WatermarkStatus
from penstock.engine.errors import CallTimeoutError, LifeCycleError, PenstockError, UserCodeError, named
from penstock.engine.interruption import pass_interruption
from penstock.engine.metrics import OperatorMetrics
from penstock.engine.redaction import quoted
from penstock.engine.state.capture import CaptureRequest, CaptureScope, OperatorCapture, TableCapture
from penstock.engine.state.keys.groups import key_group_range
from penstock.engine.state.request import StateRequest
from penstock.engine.state.snapshot import OperatorSnapshot

USER_FAILURES: Final = BaseException
"""What a call of a user's function fails with: `sys.exit` in it fails the subtask, and does not end its process.

What an interruption raises there is passed on by `user_code_error` and `life_cycle_error`.
"""
_SHOWN_CHARACTERS = 500


def _is_ours(filename: str) -> bool:
    """Ours, or code that was made at run time, such as the `__init__` of a dataclass: no line that anybody can read."""
    from penstock.engine.tracebacks import PACKAGE

    return filename.startswith((PACKAGE, "<"))


def user_traceback(error: BaseException) -> str:
    """The traceback of what a call of the user's code raised, as text: the frames from their own first one on."""
    return "".join(traceback.format_exception(type(error), error, _from_the_user(error)))


def _from_the_user(error: BaseException) -> TracebackType | None:
    """The traceback from the first frame of the user on; without the first one where none is, for it is a call."""
    # What a job that does not fail does without is not loaded.
    from penstock.engine.tracebacks import calls_the_user

    called = error.__traceback__.tb_next if error.__traceback__ else None
    frames = called
    while frames is not None and calls_the_user(frames.tb_frame.f_code.co_filename):
        frames = frames.tb_next
    return frames or called


def _shown(given: object) -> str:
    text = quoted(given)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}... ({len(text)} characters)"


class Collector(Protocol):
    """Where an operator emits: the next operator of the chain, or the router. Both look alike."""

    def collect(self, batch: Batch) -> None:
        """Emit rows."""
        ...

    def broadcast(self, element: Control) -> None:
        """Emit a control element to every consumer, behind the rows emitted so far."""
        ...


@dataclass(frozen=True, slots=True)
class OperatorContext:
    """What an operator may know about where it runs.

    Args:
        operator: the operator's name, for messages.
        subtask: index of the subtask, from 0.
        parallelism: how many subtasks the operator has.
        clock: the only source of time.
        metrics: the operator's counters.
        config: the job's settings: max parallelism, state backend.
        sides: the consumers of each side output, by the name of its tag.
        side_schemas: the columns of side outputs that their readers declared, by the name of the tag.
        restored: None at a fresh start; else the snapshot that the operator resumes from, of which `open` may need the
            state without keys (all of it comes by `Operator.restore`; keyed tables are left out, not to be held twice).
        identity: as in `ConnectorContext`.
        replaced: the operator's identities in the runs that the job replaces.
    """

    operator: str
    subtask: int
    parallelism: int
    clock: Clock
    metrics: OperatorMetrics = field(default_factory=OperatorMetrics)
    config: JobConfig = DEFAULTS
    sides: Mapping[str, Collector] = field(default_factory=dict)
    side_schemas: Mapping[str, pa.Schema] = field(default_factory=dict)
    restored: OperatorSnapshot | None = None
    identity: str = ""
    replaced: tuple[str, ...] = ()

    @property
    def where(self) -> str:
        """How messages name the place."""
        return f"operator {self.operator!r}, subtask {self.subtask}"

    @property
    def key_groups(self) -> range:
        """The key groups whose state belongs to this subtask."""
        return key_group_range(self.subtask, self.parallelism, self.config.max_parallelism)

    def cached_file(self, name: str) -> Path:
        """The copy on this machine of a file or folder that was registered under that name.

        Raises:
            ConfigurationError: none was, or it cannot be had.
        """
        return copy_called(name, self.config.cached_files, self.config.state_directory, self.where)

    def _placed(self, message: str, shown: str, error: BaseException) -> str:
        """The message with its place, but for what it says itself."""
        named = message if repr(self.operator) in message else f"{self.where}: {message}"
        told = named if shown in named else f"{named}\n  called with: {shown}"
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not _is_ours(frame.filename)]
        return f"{told}\n  at {frames[-1].filename}:{frames[-1].lineno}: {frames[-1].line}" if frames else told

    def emit_side(self, tag: str, batch: Batch) -> None:
        """Emit rows to a side output; dropped where nobody reads it."""
        consumer = self.sides.get(tag)
        if consumer is not None and batch.num_rows:
            consumer.collect(batch)

    def user_code_error(self, error: BaseException, given: object) -> Exception:
        """What to raise when the user's function raised `error` on being called with `given`.

        A `PenstockError` stays of its class, and is told where it arose: operator, row, and the user's line.

        Raises:
            BaseException: `error` itself, where it is an interruption.
        """
        return self._located(error, _shown(given), UserCodeError)

    def life_cycle_error(self, error: BaseException, call: str) -> Exception:
        """What to raise when the user's function raised in `call`, such as `open(context)`, where no row was; raises
        as `user_code_error`.
        """
        return self._located(error, call, LifeCycleError)

    def call_timeout_error(self, timeout: str, given: object) -> CallTimeoutError:
        """What to raise when an asynchronous function of the user takes longer for `given` than `timeout`."""
        took = f"the function of map_async took longer for a row than its timeout of {timeout}"
        return CallTimeoutError(self.operator, self.subtask, _shown(given), took, "")

    def _located(self, error: BaseException, shown: str, kind: type[UserCodeError]) -> Exception:
        pass_interruption(error)
        if isinstance(error, UserCodeError):
            return error
        if isinstance(error, PenstockError):
            return type(error)(self._placed(str(error), shown, error))
        return kind(self.operator, self.subtask, shown, named(error), user_traceback(error))


class Operator(ABC):
    """One operator in one subtask. Only `process_batch` must be implemented.

    Life cycle: `open`, then `restore` where there is state to resume from, then any number of `process_batch`,
    `on_watermark`, `on_processing_time` and `capture`, then `finish` where the input ended, then `close` in
    every case. All calls come from one thread.
    """

    def open(self, context: OperatorContext) -> None:  # noqa: B027 - optional hook
        """Get ready to work; load models, open clients."""

    @abstractmethod
    def process_batch(self, batch: Batch, input_index: int, out: Collector) -> None:
        """Handle rows of input `input_index` (0 unless the operator has several inputs). Never called with no rows."""

    def on_watermark(self, watermark: Watermark, out: Collector) -> Watermark | None:
        """Event time has come to `watermark`; it advances strictly. Returns the watermark to pass on, or None."""
        return watermark

    def on_watermark_status(self, status: WatermarkStatus, out: Collector) -> WatermarkStatus | None:
        """The inputs have become idle, or active again. Returns the status to pass on, or None."""
        return status

    def on_iteration_barrier(self, barrier: IterationBarrier, out: Collector) -> IterationBarrier | EndOfInput | None:
        """A superstep of a loop is over here. Returns what to pass on; only the head of a loop ends its output so."""
        return barrier

    @property
    def next_processing_time(self) -> int | None:
        """When to call `on_processing_time` next (int64 ms, civil time of the clock), or None."""
        return None

    def on_processing_time(self, now_ms: int, out: Collector) -> None:  # noqa: B027 - optional hook
        """The clock has reached `next_processing_time`; called between elements, never from `wait`ing code."""

    def capture(self, request: CaptureRequest) -> OperatorCapture:
        """The operator's state at a barrier, by reference: what costs time is left to another thread. None by default.

        What comes later does not change what was captured.

        Args:
            request: for what, and whether what has changed since the capture before is enough.
        """
        return OperatorCapture()

    @property
    def shows_state(self) -> bool:
        """Whether somebody outside may ask for its state; not where it has none."""
        return type(self).capture is not Operator.capture

    def read_state(self, request: StateRequest) -> Mapping[str, TableCapture]:
        """State as of now, by reference, for somebody outside who asks for it; nothing changes by it.

        Args:
            request: what must be in it; other states and keys may be too. All of it, unless an operator knows better.
        """
        return self.capture(CaptureRequest(0, CaptureScope.COMPLETE)).tables

    def on_checkpoint_complete(self, checkpoint: int) -> None:  # noqa: B027 - optional hook
        """Checkpoint `checkpoint`, and so each one before it, counts from now on: sinks commit what it held.

        Comes only to tasks in which something waits for it: a transactional sink, or rows for the client. Comes at
        least once for the checkpoint that ends the job, else at most once; may be missed for one that a later one
        follows, or that is restored.
        """

    def before_suspend(self, out: Collector) -> None:  # noqa: B027 - optional hook
        """A barrier has come behind which the job ends with its state: emit what is not kept for the job that resumes.

        Comes before the barrier is passed on, and before `capture`.
        """

    def restore(self, snapshot: OperatorSnapshot) -> None:  # noqa: B027 - optional hook
        """Resume from `snapshot`, which holds this subtask's share and no more (see `state/snapshot.py`).

        Called right behind `open`, whose context had what belongs to no key as `restored`.
        """

    def finish(self, out: Collector) -> None:  # noqa: B027 - optional hook
        """All inputs ended: emit what is left. Event time has reached MAX_TIMESTAMP if the sources say so."""

    def close(self) -> None:  # noqa: B027 - optional hook
        """Release resources. Called once, also after an error."""


SchemaOrUnknown: TypeAlias = pa.Schema | None
"""The columns of a stream, or None behind a Python function whose result was not declared."""
