"""A submitted job as its user sees it: status, metrics, waiting, and the rows that come back.

Each runtime subclasses `JobHandle`. The handle works when it is called and has no thread of its own: rows for the
client move while someone waits or iterates, and stay in the job, held back by credits, while nobody does.
"""

from __future__ import annotations

import re
import secrets
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import pyarrow as pa

from penstock.engine.elements import Batch, SchemaGuard, concat_record_batches
from penstock.engine.errors import JobCancelledError, JobFailedError, PenstockError
from penstock.engine.graph.scale import ParallelismRequest
from penstock.engine.job.info import JobInfo
from penstock.engine.job.status import JobStatus
from penstock.engine.job.termination import Termination, termination
from penstock.engine.metrics import JobMetrics
from penstock.engine.rows import batch_rows

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True)
class StageProgress:
    """How far one stage of a batch job has come.

    Args:
        tasks: how many the stage has.
        done: how many of them have ended.
        active: how many are at work.
    """

    tasks: int
    done: int
    active: int


DEFAULT_NAME: Final = "penstock job"
"""The name of jobs whose user gave none: any number of them may run at once."""
_Taken = TypeVar("_Taken")
_TOKEN_BYTES: Final = 4
_SHOWN: Final = 20
"""Rows of a `collect()` that a notebook shows."""


def new_job_id(name: str) -> str:
    """A new id for a job: its name, as far as a folder's name can have it, and something that no other job has.

    Example:
        >>> new_job_id("Word count")  # doctest: +SKIP
        'word-count-1f09a3c2'
    """
    return f"{_slug(name)}-{secrets.token_hex(_TOKEN_BYTES)}"


def may_be_id_of(job_id: str, name: str) -> bool:
    """Whether `new_job_id` may have given the id to a job of that name.

    Example:
        >>> may_be_id_of("word-count-1f09a3c2", "Word count"), may_be_id_of("words-1f09a3c2", "Word count")
        (True, False)
    """
    return re.fullmatch(rf"{re.escape(_slug(name))}-[0-9a-f]{{{2 * _TOKEN_BYTES}}}", job_id) is not None


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40] or "job"


class ResultConsumer(Protocol):
    """Takes the rows of one results node, on the client."""

    def accept(self, batch: Batch) -> None:
        """Take rows, in the order in which they arrive."""
        ...


class JobHandle(ABC):
    """A submitted job.

    Args:
        name: the job's name.
        consumers: takes the rows of each results node, by node id.

    Attributes:
        dropped_operators: uids of the operators whose state in the savepoint that the job began with was dropped, as
            the program does not have them.
        restored_from: URL of the savepoint, or of the folder of the retained checkpoint, that the job began with; None:
            it began without state.
    """

    def __init__(self, name: str, consumers: Mapping[int, ResultConsumer]) -> None:
        self.name = name
        self.dropped_operators: Sequence[str] = ()
        self.restored_from: str | None = None
        self._consumers = consumers

    def __repr__(self) -> str:
        return f"<job {self.name!r}: {'ended' if self.ended else 'not ended'}>"

    @abstractmethod
    def status(self) -> JobStatus:
        """Where the job is in its life."""

    @abstractmethod
    def metrics(self) -> JobMetrics:
        """Counters of all operators, as of now or of the job's end."""

    def info(self) -> JobInfo:
        """The job: status, error, and in streaming mode its tasks, attempts, restarts and checkpoints, as of now.

        Raises:
            JobError: on Ray, its manager does not answer, and nothing is known of how it ended.

        Example:
            >>> job.info().restarts  # doctest: +SKIP
            0
        """
        error = self._error
        return JobInfo("", self.name, self.status(), error=None if error is None else str(error))

    def progress(self) -> Sequence[StageProgress]:
        """How far the stages of the job have come, in order; none for a stream, which has no end to come to."""
        return ()

    @abstractmethod
    def cancel(self) -> None:
        """End the job now, and release all that it holds. Does nothing where the job has ended."""

    def suspend(self) -> None:
        """As `cancel`, but the newest checkpoint stays: `submit(name, resume="latest")` resumes from it.

        A job that has taken none is cancelled.
        """
        self.cancel()

    @contextmanager
    def attached(self) -> Iterator[None]:
        """What runs within ends the job where it ends by an error or by Ctrl-C; SIGTERM suspends the job."""
        with self._termination() as told:
            try:
                yield
            except BaseException:
                if told.received:
                    self.suspend()
                    # Ray makes its own of an exit that comes while it waits.
                    raise SystemExit(told.code) from None
                self.cancel()
                raise

    def _termination(self) -> AbstractContextManager[Termination]:
        """What SIGTERM does while somebody waits for the job."""
        return termination()

    @abstractmethod
    def checkpoint(self) -> str:
        """Take a checkpoint now; its URL. The job keeps running meanwhile, and rows go to their consumers.

        Raises:
            CheckpointError: it could not be taken, or the job has no storage for it.
        """

    @abstractmethod
    def savepoint(self, directory: str | None = None) -> str:
        """Take a savepoint while the job keeps running; its URL.

        Args:
            directory: path or URL of the folder for it; None: the configured one.

        Raises:
            CheckpointError: it could not be taken.
        """

    @abstractmethod
    def stop(self, directory: str | None = None) -> str:
        """Take a savepoint and end the job behind it; arguments and errors as for `savepoint`."""

    @abstractmethod
    def drain(self, directory: str | None = None) -> str:
        """End the sources as if their input had ended, and the job with a savepoint behind everything; its URL."""

    @abstractmethod
    def rescale(self, parallelism: ParallelismRequest) -> float:
        """Continue at another parallelism, behind a checkpoint taken now; the seconds that the job stood still.

        Where single operators change, the others run on, and the seconds are those of these operators; what restarts
        the whole job instead says why in its history. They are 0 where the job runs so already: nothing is done then.

        Args:
            parallelism: of all operators that set none themselves; or of single ones, by uid, by name or by the name
                of their task. Those that hand rows to each other one to one (`forward`) change together; the others
                stay as they are.

        Raises:
            CheckpointError: the checkpoint could not be taken; the job continues as it was.
            UnknownOperatorError: the job has no such operator, or several of that name.
            GraphError, ConfigurationError: the program cannot run so.

        Example:
            >>> job.rescale({"window": 3})  # doctest: +SKIP
            0.9
        """

    @abstractmethod
    def _poll(self, seconds: float) -> list[tuple[int, Batch]]:
        """Rows that came for results nodes; waits for them, or for the job to end, up to `seconds`."""

    @property
    @abstractmethod
    def _drained(self) -> bool:
        """Whether the job has ended and no more rows can come for the client."""

    @property
    @abstractmethod
    def _error(self) -> PenstockError | None:
        """Why the job failed, if it did."""

    @property
    def ended(self) -> bool:
        """Whether the job has ended, as far as this handle has seen; asks nobody."""
        return self._drained

    def pump(self, seconds: float = 1.0) -> bool:
        """Hand rows that came to their consumers; waits up to `seconds` for some. False once no more can come.

        A loop that waits for something ends with the job, whatever it waits for:

            while job.metrics().operators[-1].rows_out < 200 and job.pump(0.05):
                pass

        Raises:
            JobFailedError: the job has failed; rows that came before can still be taken.
        """
        more = self._pump(seconds)
        if not more and self.status() is JobStatus.FAILED:
            self.raise_if_ended_badly()
        return more

    def _pump(self, seconds: float) -> bool:
        """As `pump`, but the end of a job that has failed is no error."""
        try:
            for result, batch in self._poll(seconds):
                self._consumers[result].accept(batch)
        except PenstockError:
            # The client cannot take the rows, so the job that makes them has no use any more.
            self.cancel()
            raise
        return not self._drained

    def wait(self, timeout: float | None = None) -> None:
        """Return when the job has finished and every row for the client has arrived.

        Args:
            timeout: seconds to wait at the most; None waits for as long as it takes.

        Raises:
            JobFailedError: the job failed; its message has the whole story, `__cause__` the error.
            JobCancelledError: the job was cancelled.
            TimeoutError: the job still runs.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while self.pump(1.0 if deadline is None else max(0.0, min(1.0, deadline - time.monotonic()))):
            if deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError(f"job {self.name!r} still runs after {timeout} s; cancel() ends it")
        self.raise_if_ended_badly()

    def raise_if_ended_badly(self) -> None:
        """Raise what `wait` would raise, without waiting."""
        match self.status():
            case JobStatus.FAILED:
                raise JobFailedError(f"job {self.name!r} failed: {self._error}") from self._error
            case JobStatus.CANCELLED:
                raise JobCancelledError(f"job {self.name!r} was cancelled")
            case _:
                return

    def result(self) -> pa.Table:
        """Wait, and return the collected rows.

        Raises:
            PenstockError: the program does not have exactly one `collect()`.
            JobFailedError, JobCancelledError: as for `wait`.
        """
        collected = [consumer for consumer in self._consumers.values() if isinstance(consumer, CollectedRows)]
        if len(collected) != 1:
            raise PenstockError(
                f"result() needs one collect() in the program, and job {self.name!r} has {len(collected)}; "
                "use the object that each collect() returned"
            )
        self.wait()
        return collected[0].take_table()


class CollectedRows:
    """Rows that came back to the client and wait to be read."""

    def __init__(self, schema: pa.Schema | None) -> None:
        self._schema = schema
        self._batches: deque[Batch] = deque()
        self._guard = SchemaGuard("collect()")

    def accept(self, batch: Batch) -> None:
        """Keep the rows.

        Raises:
            RecordError: their columns are not those of the rows before.
        """
        self._guard.check(batch)
        self._batches.append(batch)

    def take_rows(self) -> Iterator[dict[str, Any]]:
        """Take the rows that are here, as dicts.

        Raises:
            RecordError: a time that Python cannot hold; `to_arrow` can.
        """
        while self._batches:
            yield from batch_rows(self._batches.popleft().data, "collect(), rows as dicts (to_arrow() takes any)")

    def look(self, most: int) -> tuple[pa.Schema | None, int, list[list[object]]]:
        """The columns, as far as they are known, how many rows are here, and the values of the first `most`."""
        from penstock.engine.job.display import first_rows

        batches = [batch.data for batch in self._batches]
        schema = batches[0].schema if batches else self._schema
        return schema, sum(batch.num_rows for batch in batches), first_rows(batches, most)

    def take_table(self) -> pa.Table:
        """Take the rows that are here, as one table."""
        if not self._batches:
            return (self._schema or pa.schema([])).empty_table()
        data = concat_record_batches([batch.data for batch in self._batches])
        self._batches.clear()
        return pa.Table.from_batches([data])


class CollectResult:
    """What `collect()` returns: the rows of a stream, on the client.

    Reading submits the program if nobody has; the rows can be read once, by one of the four ways. Iterating and
    `tables` give rows while the job runs and hold it back while the caller works; `to_arrow` and `to_pandas` wait for
    the end. As the last line of a notebook's cell it shows the rows that have come and wait to be read; looking runs
    nothing.

    Example:
        >>> for row in stream.collect():  # doctest: +SKIP
        ...     print(row)
    """

    def __init__(self, rows: CollectedRows, program: RunOnce) -> None:
        self._rows = rows
        self._program = program
        self._read = False

    def __repr__(self) -> str:
        # Few look at it: what draws it is no part of a start.
        from penstock.engine.job.display import columns_text

        columns, _, note = self._look(0)
        return f"<rows of collect() ({columns_text(columns)}): {note}>"

    def _repr_html_(self) -> str:
        from penstock.engine.job.display import columns_html

        return columns_html(*self._look(_SHOWN))

    def _look(self, most: int) -> tuple[dict[str, object], list[list[object]], str]:
        """Columns, rows that have come, and what is to be known of them."""
        schema, count, rows = self._rows.look(most)
        columns = {field.name: field.type for field in schema or ()}
        if count:
            return columns, rows, f"rows that have come: {count:,}; to_pandas(), to_arrow() or a loop takes them, once"
        if self._read:
            return columns, [], "they have been read; keep the list or table that the first reading gave"
        return (
            columns,
            [],
            "none has come so far; to_pandas(), to_arrow() or a loop runs the program and takes them, once",
        )

    def _job(self) -> JobHandle:
        """The job, for the one reading."""
        if self._read:
            raise PenstockError(
                "the rows of this collect() have been read; keep the list or table that the first reading gave"
            )
        self._read = True
        return self._program.submit_once()

    def take(self) -> pa.Table:
        """The rows that have come since the last call, at once: for those who move the job by `JobHandle.pump`.

        Where the job takes checkpoints, what comes together is what became final together.

        Raises:
            JobFailedError: the job failed, and all rows that came before have been taken.
        """
        table = self._rows.take_table()
        job = self._program.job
        # Who waits for rows would wait forever.
        if not table.num_rows and job is not None and job.ended and job.status() is JobStatus.FAILED:
            job.raise_if_ended_badly()
        return table

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """The rows as dicts.

        Raises:
            JobFailedError: the job failed.
            PenstockError: they have been read.
        """
        return self._taken(self._rows.take_rows)

    def tables(self) -> Iterator[pa.Table]:
        """The rows as tables, each of what has come since the one before; errors as of iterating."""
        return self._taken(lambda: (self._rows.take_table(),))

    def _taken(self, take: Callable[[], Iterable[_Taken]]) -> Iterator[_Taken]:
        job = self._job()
        # A caller who stops reading, or is interrupted, leaves nobody to take the rows.
        with job.attached():
            more = True
            while more:
                try:
                    more = job.pump()
                except JobFailedError:
                    # Its rows come first.
                    more = False
                yield from take()
        job.raise_if_ended_badly()

    def to_arrow(self) -> pa.Table:
        """All rows, in the order in which they arrived.

        Raises:
            JobFailedError: the job failed.
            PenstockError: they have been read.
        """
        self._job().wait()
        return self._rows.take_table()

    def to_pandas(self) -> pd.DataFrame:
        """All rows as a pandas DataFrame (needs the `pandas` extra)."""
        frame: pd.DataFrame = self.to_arrow().to_pandas()
        return frame


class RunOnce(Protocol):
    """A program that is submitted once."""

    @property
    def job(self) -> JobHandle | None:
        """Its job; None where it was not submitted."""
        ...

    def submit_once(self) -> JobHandle:
        """Its job; submits it where that has not happened."""
        ...
