"""The writers of the Kafka sink: one keeps rows for the checkpoint, the other hands them to the brokers at once.

`KafkaSink` opens one in each subtask. What a subtask holds of Kafka is a `Session`, which lives as long as its writer,
so that the commits of its checkpoints find producers that are ready.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import pyarrow as pa

from penstock.connectors.kafka.committer import Committer, pack
from penstock.connectors.kafka.connection import KafkaConnection
from penstock.connectors.kafka.markers import MarkerPlace
from penstock.connectors.kafka.outgoing import RecordLayout, place
from penstock.connectors.kafka.partitioner import Partitioner
from penstock.connectors.kafka.producer import Delivery, RecordProducer, is_foreseen, may_pass, problem
from penstock.connectors.kafka.topics import TopicCatalog, TopicFacts
from penstock.engine.connectors import Committable, ConnectorContext, TransactionalWriter
from penstock.engine.elements import Batch
from penstock.engine.errors import ConfigurationError, RecordError

_NO_CHECKPOINT: Final = 0
"""The number that stands for the end of the input of a job without checkpoints."""


class Session:
    """What one subtask holds of Kafka.

    Args:
        connection: of the cluster.
        delivery: how long things may take.
        context: the subtask.

    Attributes:
        where: operator and subtask, for messages.
        catalog, committer: of the subtask.
    """

    def __init__(self, connection: KafkaConnection, delivery: Delivery, context: ConnectorContext) -> None:
        self.where: Final = f"operator {context.operator!r}, subtask {context.subtask}"
        self.catalog: Final = TopicCatalog(connection)
        self.committer: Final = Committer(connection, self.catalog, delivery, self.where)


class Sessions:
    """The sessions of the subtasks whose writers are open in this process. Travels without them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: list[tuple[ConnectorContext, Session]] = []

    def __reduce__(self) -> tuple[type[Sessions], tuple[()]]:
        return Sessions, ()

    def add(self, context: ConnectorContext, session: Session) -> None:
        """From now on, `of` gives this session."""
        with self._lock:
            self._open.append((context, session))

    def remove(self, session: Session) -> None:
        """The opposite of `add`."""
        with self._lock:
            self._open = [one for one in self._open if one[1] is not session]

    @contextmanager
    def of(self, context: ConnectorContext, connection: KafkaConnection, delivery: Delivery) -> Iterator[Session]:
        """The session of the subtask's writer, or one for this once: after a restore, commits come before a writer."""
        with self._lock:
            # By identity: an attempt before this one has an equal context, and its writer may not be closed yet.
            found = next((session for one, session in self._open if one is context), None)
        if found is not None:
            yield found
            return
        session = Session(connection, delivery, context)
        try:
            yield session
        finally:
            session.committer.close()


class RowsToRecords:
    """Makes the records of one writer.

    Args:
        layout: which columns become what.
        partitioner: chooses partitions.
        catalog: the topics.
        context: the subtask.
    """

    def __init__(
        self, layout: RecordLayout, partitioner: Partitioner, catalog: TopicCatalog, context: ConnectorContext
    ) -> None:
        self._layout = layout
        self._partitioner = partitioner
        self._catalog = catalog
        self._clock = context.clock
        self._where = f"operator {context.operator!r}, subtask {context.subtask}"

    def __call__(self, batch: Batch) -> pa.RecordBatch:
        """`RECORDS` for the rows.

        Raises:
            RecordError: a row cannot be written; names operator, subtask and row.
        """
        now_ms = self._clock.now_ms()
        try:
            return place(self._layout.encode(batch, now_ms), self._facts, self._partitioner, now_ms)
        except RecordError as error:
            raise error.at(self._where) from error

    def _facts(self, topic: str) -> TopicFacts:
        try:
            return self._catalog.facts(topic)
        except ConfigurationError as error:
            raise RecordError(str(error)) from error


def writer_name(prefix: str, context: ConnectorContext) -> str:
    """The name of a subtask's writer, which is its transactional id too: the same in all attempts of the job."""
    identity = context.identity
    # Without an identity nobody knows who else has the name, so it is one that nobody had.
    lineage = hashlib.sha256(identity.encode()).hexdigest()[:16] if identity else secrets.token_hex(8)
    return f"{prefix}-{lineage}-{context.subtask}"


class EpochWriter(TransactionalWriter):
    """Keeps the records for the checkpoint; `Committer` writes them when that is complete.

    Args:
        records: makes them.
        name: of the writer.
        start: where markers of the writer can be from now on.
        session: of the subtask.
        sessions: where commits look for it.
        context: the subtask.
    """

    def __init__(
        self,
        records: RowsToRecords,
        name: str,
        start: MarkerPlace,
        session: Session,
        sessions: Sessions,
        context: ConnectorContext,
    ) -> None:
        self._records = records
        self._name = name
        self._start = start
        self._session = session
        self._sessions = sessions
        self._epoch: list[pa.RecordBatch] = []
        sessions.add(context, session)

    def write(self, batch: Batch) -> None:
        if batch.num_rows:
            self._epoch.append(self._records(batch))

    def prepare(self, checkpoint: int) -> Sequence[Committable]:
        if not self._epoch:
            return []
        # Without checkpoints each attempt writes all of its rows: what another one has written says nothing of them.
        name = self._name if checkpoint != _NO_CHECKPOINT else f"{self._name}-{secrets.token_hex(4)}"
        start = self._session.committer.place_behind(self._name) or self._start
        data = pack(self._epoch, start)
        self._epoch = []
        return [Committable(name, checkpoint, data)]

    def close(self) -> None:
        self._sessions.remove(self._session)
        self._session.committer.close()


class EagerWriter(TransactionalWriter):
    """Hands records to the brokers as they come; a checkpoint waits until all are written.

    Args:
        records: makes them.
        producer: sends them; closed with the writer.
        session: of the subtask.
    """

    def __init__(self, records: RowsToRecords, producer: RecordProducer, session: Session) -> None:
        self._records = records
        self._producer = producer
        self._session = session

    def write(self, batch: Batch) -> None:
        if not batch.num_rows:
            return
        records = self._records(batch)
        facts = {topic: self._session.catalog.facts(topic) for topic in records["topic"].unique().to_pylist()}
        with self._clear_errors():
            self._producer.send(records, facts)

    def prepare(self, checkpoint: int) -> Sequence[Committable]:
        with self._clear_errors():
            self._producer.flush()
        return []

    @contextmanager
    def _clear_errors(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            if not is_foreseen(error):
                raise
            kind = ConnectionError if may_pass(error) else ConfigurationError
            raise kind(f"{self._session.where}: kafka sink: {problem(error, None)}") from error

    def close(self) -> None:
        self._producer.close()
