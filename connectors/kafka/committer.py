"""Commits the epochs of exactly-once writers: rows and marker in one transaction, once, however often it is asked.

A subtask's sink calls it, for its own writer and, after a restore, for any other. Why nothing is lost or repeated:
a writer's transactional id is initialised first, so whoever used it before can commit nothing any more and what it left
open has ended; what its marker says is then final, and holds until somebody else initialises the id, which fails our
next transaction.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Final

import pyarrow as pa
import tenacity

from penstock.connectors.kafka.connection import KafkaConnection
from penstock.connectors.kafka.markers import MarkerPlace, marker_value, newest_markers
from penstock.connectors.kafka.outgoing import RECORDS
from penstock.connectors.kafka.producer import Delivery, MarkerRecord, RecordProducer, is_foreseen, may_pass, problem
from penstock.connectors.kafka.topics import TopicCatalog
from penstock.engine.connectors import Committable
from penstock.engine.errors import ConfigurationError

_TRIES: Final = 3
"""At the least: a transaction that was fenced or timed out is tried again, also if that took longer than allowed."""
_NEVER: Final = -1


def pack(records: Sequence[pa.RecordBatch], place: MarkerPlace) -> pa.Table:
    """The data of a committable: a row that tells the place of the marker (its topic is null), then the records."""
    told = {"value": json.dumps(asdict(place)).encode()}
    return pa.Table.from_batches([pa.RecordBatch.from_pylist([told], RECORDS), *records])


@dataclass(frozen=True, slots=True)
class _Epoch:
    """A committable, unpacked."""

    writer: str
    checkpoint: int
    place: MarkerPlace
    records: pa.Table


def _unpack(committable: Committable) -> _Epoch:
    place = MarkerPlace(**json.loads(committable.data["value"][0].as_py()))
    return _Epoch(committable.writer, committable.checkpoint, place, committable.data.slice(1))


class Committer:
    """Commits epochs, and keeps each writer's producer for its next one.

    Args:
        connection: of the cluster.
        catalog: the topics.
        delivery: how long things may take.
        where: operator and subtask, for messages.
    """

    def __init__(self, connection: KafkaConnection, catalog: TopicCatalog, delivery: Delivery, where: str) -> None:
        self._connection = connection
        self._catalog = catalog
        self._delivery = delivery
        self._where = where
        self._producers: dict[str, RecordProducer] = {}
        self._committed: dict[str, int] = {}
        self._places: dict[str, MarkerPlace] = {}

    def place_behind(self, writer: str) -> MarkerPlace | None:
        """Behind the newest marker that was written here, or None."""
        return self._places.get(writer)

    def commit(self, committables: Sequence[Committable]) -> None:
        """Make the rows visible, checkpoint after checkpoint.

        Raises:
            ConnectionError: it could not be done now.
            ConfigurationError: it cannot be done before somebody changes the cluster, such as a permission.
        """
        epochs = sorted(map(_unpack, committables), key=lambda epoch: (epoch.writer, epoch.checkpoint))
        tries = tenacity.Retrying(
            retry=tenacity.retry_if_exception(may_pass),
            wait=tenacity.wait_exponential(0.05, max=1.0),
            stop=tenacity.stop_all(
                tenacity.stop_after_delay(self._delivery.stall_seconds), tenacity.stop_after_attempt(_TRIES)
            ),
            reraise=True,
        )
        try:
            tries(self._try, epochs)
        except Exception as error:
            if not is_foreseen(error):
                raise
            kind = ConnectionError if may_pass(error) else ConfigurationError
            raise kind(self._message(epochs, error)) from error

    def close(self) -> None:
        """End all producers."""
        while self._producers:
            self._producers.popitem()[1].close()

    def _try(self, epochs: Sequence[_Epoch]) -> None:
        try:
            self._take_over(epochs)
            for epoch in epochs:
                if epoch.checkpoint > self._committed[epoch.writer]:
                    self._transact(epoch)
        except BaseException:
            # Whether it was committed is not known: the next try asks the brokers, by new producers.
            self.close()
            raise

    def _take_over(self, epochs: Sequence[_Epoch]) -> None:
        """Initialise the writers' ids, all before the first marker is read: what they left open hides markers."""
        places: dict[str, MarkerPlace] = {}
        for epoch in epochs:
            if epoch.writer not in self._producers:
                self._producers[epoch.writer] = RecordProducer(self._connection, self._delivery, epoch.writer)
                places[epoch.writer] = epoch.place
        if places:
            found = newest_markers(self._connection, places, self._delivery.stall_seconds)
            self._committed |= {writer: found.get(writer, _NEVER) for writer in places}

    def _transact(self, epoch: _Epoch) -> None:
        place = epoch.place
        topics = epoch.records["topic"].unique().to_pylist()
        facts = {topic: self._catalog.facts(topic) for topic in topics}
        marker = MarkerRecord(place.topic, place.partition, epoch.writer.encode(), marker_value(epoch.checkpoint))
        offset = self._producers[epoch.writer].commit(epoch.records, facts, marker)
        self._committed[epoch.writer] = epoch.checkpoint
        self._places[epoch.writer] = MarkerPlace(place.topic, place.partition, offset + 1)

    def _message(self, epochs: Sequence[_Epoch], error: Exception) -> str:
        rows = sum(epoch.records.num_rows for epoch in epochs)
        checkpoints = ", ".join(map(str, sorted({epoch.checkpoint for epoch in epochs})))
        return (
            f"{self._where}: kafka sink: the {rows:,} rows of checkpoint {checkpoints} are not written yet: "
            f"{problem(error, epochs[0].writer)}. The checkpoint keeps them; they are written when the job resumes"
        )
