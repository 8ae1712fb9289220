"""Sinks around the Kafka sink that crash or stop their process at a certain point, once; and two that are wrong.

The tests give them to the job of `penstock.testing.chaos.kafka_job`. A point is within a commit or a prepare, where no
schedule of faults hits for sure.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

from aiokafka import AIOKafkaProducer

from penstock.connectors.kafka import committer
from penstock.engine.connectors import Committable, ConnectorContext, Sink, TransactionalSink, TransactionalWriter
from penstock.engine.elements import Batch

FIRST = 3
"""The first checkpoint that something happens at: one before it is complete."""


@dataclass(frozen=True)
class Once:
    """Something that happens once, whatever processes come and go: to the process that first gets there.

    Args:
        note: a file that is there when it has happened.
    """

    note: Path

    def due(self) -> bool:
        try:
            self.note.touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def crash(self) -> None:
        """`kill -9`, to oneself."""
        if self.due():
            os.kill(os.getpid(), signal.SIGKILL)

    def stop(self, seconds: float) -> None:
        """SIGSTOP to oneself, and SIGCONT so many seconds later."""
        if self.due():
            waking = f"sleep {seconds}; kill -CONT {os.getpid()}"
            subprocess.Popen(["/bin/sh", "-c", waking], start_new_session=True)
            os.kill(os.getpid(), signal.SIGSTOP)


@dataclass(frozen=True)
class Around(TransactionalSink):
    """A sink that does what another does."""

    sink: TransactionalSink
    once: Once

    def check(self, schema: Any) -> None:
        self.sink.check(schema)

    def prepare(self) -> None:
        self.sink.prepare()

    def resumed(self) -> Sink:
        sink = self.sink.resumed()
        assert isinstance(sink, TransactionalSink)
        return replace(self, sink=sink)

    def open(self, context: ConnectorContext) -> TransactionalWriter:
        return self.sink.open(context)

    def commit(self, committables: Sequence[Committable], context: ConnectorContext) -> None:
        self.sink.commit(committables, context)

    def describe(self) -> str:
        return self.sink.describe()


class CrashesBetweenPrepareAndCompletion(Around):
    """Its process dies when its rows are prepared, so that their checkpoint is never complete."""

    def open(self, context: ConnectorContext) -> TransactionalWriter:
        return _Writer(self.sink.open(context), self, context)

    def prepared(self, committables: Sequence[Committable], context: ConnectorContext) -> None:
        if any(one.checkpoint >= FIRST for one in committables):
            self.once.crash()


class CommitsTooEarly(CrashesBetweenPrepareAndCompletion):
    """Wrong: commits what it has prepared without waiting for the checkpoint."""

    def prepared(self, committables: Sequence[Committable], context: ConnectorContext) -> None:
        if committables:
            self.sink.commit(committables, context)
        super().prepared(committables, context)


class _Writer(TransactionalWriter):
    def __init__(
        self, writer: TransactionalWriter, sink: CrashesBetweenPrepareAndCompletion, context: ConnectorContext
    ) -> None:
        self._writer, self._sink, self._context = writer, sink, context

    def write(self, batch: Batch) -> None:
        self._writer.write(batch)

    def prepare(self, checkpoint: int) -> Sequence[Committable]:
        committables = self._writer.prepare(checkpoint)
        self._sink.prepared(committables, self._context)
        return committables

    def close(self) -> None:
        self._writer.close()


class CrashesBehindCommit(Around):
    """Its process dies when rows are committed, and before anybody knows that they are."""

    def commit(self, committables: Sequence[Committable], context: ConnectorContext) -> None:
        super().commit(committables, context)
        if any(one.checkpoint >= FIRST for one in committables):
            self.once.crash()


class IgnoresMarkers(CrashesBehindCommit):
    """Wrong: commits without asking whether that was done."""

    def commit(self, committables: Sequence[Committable], context: ConnectorContext) -> None:
        with mock.patch.object(committer, "newest_markers", return_value={}):
            super().commit(committables, context)


@dataclass(frozen=True)
class StopsWithinTransaction(Around):
    """Its process is stopped between the rows of a transaction and the commit, for longer than that may take.

    Args:
        seconds: for how long.
    """

    seconds: float = 4.0

    def commit(self, committables: Sequence[Committable], context: ConnectorContext) -> None:
        original = AIOKafkaProducer.commit_transaction

        async def commit_transaction(producer: AIOKafkaProducer) -> None:
            if any(one.checkpoint >= FIRST for one in committables):
                self.once.stop(self.seconds)
            await original(producer)

        with mock.patch.object(AIOKafkaProducer, "commit_transaction", commit_transaction):
            super().commit(committables, context)
