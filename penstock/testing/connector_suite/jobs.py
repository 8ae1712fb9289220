"""Whole jobs on the local runtime that crash by a seed: subtasks and managers die, commits stop half way, it rescales.

The suites call it with the connector at one end and a trusted one at the other. It drives the manager step by step;
checkpoints are taken at seeded moments, so that nothing depends on how fast the machine is.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable, Sequence
from typing import Final

import pyarrow as pa

from penstock.engine.checkpointing.store import JobFolder
from penstock.engine.clock import Clock
from penstock.engine.connectors import (
    Committable,
    ConnectorContext,
    Sink,
    Source,
    TransactionalSink,
    TransactionalWriter,
)
from penstock.engine.elements import Batch
from penstock.engine.errors import WorkerLostError
from penstock.engine.graph.physical import JobProgram
from penstock.engine.job.events import RescaleJob, TakeCheckpoint
from penstock.engine.job.status import JobStatus
from penstock.engine.local.manager import LocalManager
from penstock.environment import StreamEnvironment
from penstock.recovery import checkpoints, fixed_delay
from penstock.savepoints.store import FolderJobStore
from penstock.testing.connector_suite.crash_points import LineCounter, leaving_things_open
from penstock.testing.connector_suite.rows import Rows, as_table, difference, set_difference, surplus
from penstock.testing.connector_suite.rules import AT_LEAST_ONCE, AT_MOST_ONCE, JOB, require

_BATCH_ROWS: Final = 4
_CRASHES: Final = 5
_CHECKPOINT: Final = 0.1
_KILL: Final = 0.02
_CUT: Final = 0.3
_FIRST_GUESS: Final = 10
_MOST_STEPS: Final = 50_000
_PATIENCE: Final = 0.05


def check_source_job(source: Source, expected: pa.Table, clock: Clock, seed: int) -> None:
    """Read the source in a job that crashes; each row must be there once.

    Args:
        source: a bounded one to its end, another until all expected rows are there.
        expected: its rows.
        clock: what readers wait by.
        seed: chooses what happens and when.

    Raises:
        ConformanceError: rows are missing or too many, or the job fails.
    """
    sink = _TrustedSink(source.schema)
    enough = None if source.bounded else (lambda: sink.table.num_rows >= expected.num_rows)
    chosen = random.Random(seed)
    run = _Run(lambda env: env.from_source(source).rebalance().sink_to(sink), clock, chosen, _Luck(chosen))
    run.to_its_end(f"seed {seed}", enough)
    wrong = difference(sink.table, expected)
    require(not wrong, JOB, f"seed {seed}: {wrong}after {run.told}")


def check_live_source_job(source: Source, sent: pa.Table, clock: Clock, seed: int) -> None:
    """Read a source that cannot be rewound in a job that crashes: rows may be missing, but none may be made up.

    Args:
        source: one whose server sends the rows to each connection, and then ends it.
        sent: what it sends.
        clock: what readers wait by.
        seed: chooses what happens and when.

    Raises:
        ConformanceError: there are rows that the connections cannot have given, or those of the last one are missing,
            or the job fails.
    """
    sink = _TrustedSink(source.schema)
    chosen = random.Random(seed)
    luck = _Luck(chosen)
    run = _Run(lambda env: env.from_source(source).rebalance().sink_to(sink), clock, chosen, luck)
    run.to_its_end(f"seed {seed}", None)
    connections = len(luck.crashes) + 1
    wrong = surplus(sink.table, pa.concat_tables([sent] * connections))
    wrong += surplus(sent, sink.table).replace("too many", "missing")
    require(not wrong, AT_MOST_ONCE, f"seed {seed}, at most {connections} connections: {wrong}after {run.told}")


def check_sink_job(
    sink: TransactionalSink, read_back: Callable[[], Rows], rows: pa.Table, clock: Clock, seed: int
) -> None:
    """Write the rows by a job that crashes, also within commits; each must be visible once.

    Args:
        sink: into an empty target.
        read_back: gives what is visible in it.
        rows: what to write.
        clock: of the job.
        seed: chooses what happens and when.

    Raises:
        ConformanceError: rows are missing or too many, or the job fails.
    """
    chosen = random.Random(seed)
    luck = _Luck(chosen)
    mortal = _MortalSink(sink, luck)
    run = _Run(lambda env: env.from_collection(rows).rebalance().sink_to(mortal), clock, chosen, luck)
    run.to_its_end(f"seed {seed}", None)
    wrong = difference(as_table(read_back(), rows.schema), rows)
    require(not wrong, JOB, f"seed {seed}: {wrong}after {run.told}")


def check_repeating_sink_job(
    sink: Sink, read_back: Callable[[], Rows], rows: pa.Table, clock: Clock, seed: int
) -> None:
    """Write the rows by a job that crashes; each must be visible once or more often, and no others.

    Args:
        sink, read_back, rows, clock, seed: as of `check_sink_job`; the sink is of any kind.

    Raises:
        ConformanceError: rows are missing or of nobody, or the job fails.
    """
    chosen = random.Random(seed)
    run = _Run(lambda env: env.from_collection(rows).rebalance().sink_to(sink), clock, chosen, _Luck(chosen))
    run.to_its_end(f"seed {seed}", None)
    wrong = set_difference(as_table(read_back(), rows.schema), rows)
    require(not wrong, AT_LEAST_ONCE, f"seed {seed}: {wrong}after {run.told}")


class _Luck:
    """Decides what crashes, and remembers it."""

    def __init__(self, chosen: random.Random) -> None:
        self.chosen = chosen
        self.crashes: list[str] = []

    def strikes(self, rate: float, what: str) -> bool:
        """Whether it happens now; only so many things happen, so that the job comes to its end."""
        if len(self.crashes) >= _CRASHES or self.chosen.random() >= rate:
            return False
        self.crashes.append(what)
        return True


class _Run:
    """A job, its managers one after the other, and the end of it."""

    def __init__(
        self, build: Callable[[StreamEnvironment], object], clock: Clock, chosen: random.Random, luck: _Luck
    ) -> None:
        environment = StreamEnvironment(
            runtime="local",
            clock=clock,
            parallelism=chosen.choice([1, 2, 3]),
            max_batch_rows=_BATCH_ROWS,
            buffer_timeout="0ms",
            # Checkpoints are asked for; the interval only says that there are any.
            checkpoints=checkpoints("5m", "memory://connector-suite", tolerable_failures=None),
            restart=fixed_delay(1_000_000, "1ms"),
        )
        build(environment)
        self._program: JobProgram = environment.program("connector-suite")
        # Blobs in memory are those of the process: each run has a folder of its own.
        job_id = secrets.token_hex(8)
        self._folder = JobFolder(FolderJobStore("memory://connector-suite", job_id, job_id), job_id)
        self._clock, self._chosen, self._luck = clock, chosen, luck
        self._managers: list[LocalManager] = []
        self._asked: int | None = None

    @property
    def told(self) -> str:
        """What happened."""
        return ", ".join(self._luck.crashes) or "no crash"

    def to_its_end(self, where: str, enough: Callable[[], bool] | None) -> None:
        """Run the job until it has finished, or there is enough."""
        with leaving_things_open():
            self._run(where, enough)

    def _run(self, where: str, enough: Callable[[], bool] | None) -> None:
        manager = self._start()
        try:
            for _ in range(_MOST_STEPS):
                if manager.brain.ended or (enough is not None and enough()):
                    break
                if manager.brain.status is JobStatus.RUNNING:
                    manager = self._strike(manager)
                manager.step(_PATIENCE)
            else:
                require(False, JOB, f"{where}: the job had not ended after {_MOST_STEPS} steps and {self.told}")
            failed = manager.brain.status is JobStatus.FAILED
            require(not failed, JOB, f"{where}: the job failed after {self.told}: {manager.brain.error}")
        finally:
            for one in self._managers:
                # The generator closes them as it is iterated.
                list(one.execution.close(one.execution.places))
            self._managers.clear()

    def _start(self) -> LocalManager:
        manager = LocalManager(self._program, self._clock, self._chosen, self._folder)
        self._managers.append(manager)
        self._asked = None
        return manager

    def _strike(self, manager: LocalManager) -> LocalManager:
        """What happens before the next step: the manager that takes over."""
        # One at a time, as the coordinator takes them.
        is_due = self._asked in (None, *manager.answers)
        if is_due and self._chosen.random() < _CHECKPOINT:
            self._asked = manager.ask(TakeCheckpoint())
        places = manager.execution.places
        if places and self._luck.strikes(_KILL, "a subtask was killed"):
            place = self._chosen.choice(places)
            manager.lose(place, WorkerLostError(f"killed: subtask {place}"))
        elif self._luck.strikes(_KILL / 2, "the manager was killed, and nothing was closed"):
            return self._start()
        elif self._luck.strikes(_KILL / 2, "the job was rescaled"):
            manager.ask(RescaleJob(self._chosen.choice([1, 2, 3])))
        return manager


class _MortalSink(TransactionalSink):
    """The author's sink; its commits may be cut off before any line, and behind the last."""

    def __init__(self, sink: TransactionalSink, luck: _Luck) -> None:
        self._sink = sink
        self._luck = luck
        self._lines = _FIRST_GUESS

    def check(self, schema: pa.Schema | None) -> None:
        self._sink.check(schema)

    def prepare(self) -> None:
        self._sink.prepare()

    def open(self, context: ConnectorContext) -> TransactionalWriter:
        return self._sink.open(context)

    def commit(self, committables: Sequence[Committable], context: ConnectorContext) -> None:
        # One number more than there are lines: behind the last.
        cut = self._luck.strikes(_CUT, "a commit was cut off")
        fatal = self._luck.chosen.randrange(self._lines + 1) if cut else None
        counter = LineCounter(self._sink, fatal)
        if not counter.run(lambda: self._sink.commit(committables, context)):
            raise WorkerLostError("killed within a commit")
        self._lines = counter.lines
        if fatal is not None:
            raise WorkerLostError("killed behind a commit")

    def describe(self) -> str:
        return self._sink.describe()


class _TrustedSink(TransactionalSink):
    """Keeps rows in this process, each epoch of a writer once."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._epochs: dict[tuple[str, int], pa.Table] = {}

    @property
    def table(self) -> pa.Table:
        """What was committed."""
        return pa.concat_tables([self._schema.empty_table(), *self._epochs.values()])

    def open(self, context: ConnectorContext) -> TransactionalWriter:
        return _TrustedWriter()

    def commit(self, committables: Sequence[Committable], context: ConnectorContext) -> None:
        for committable in committables:
            self._epochs.setdefault((committable.writer, committable.checkpoint), committable.data)

    def describe(self) -> str:
        return "trusted"


class _TrustedWriter(TransactionalWriter):
    def __init__(self) -> None:
        self._name = secrets.token_hex(8)
        self._batches: list[pa.RecordBatch] = []

    def write(self, batch: Batch) -> None:
        self._batches.append(batch.data)

    def prepare(self, checkpoint: int) -> Sequence[Committable]:
        batches, self._batches = self._batches, []
        return [Committable(self._name, checkpoint, pa.Table.from_batches(batches))] if batches else []
