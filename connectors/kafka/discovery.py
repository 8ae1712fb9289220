"""Looks for partitions and topics that come while a job reads Kafka; a thread asks the brokers now and then.

`KafkaSource` gives one to each subtask. A partition that is new is read from its oldest record, whatever the source's
`start` says of those that were there when the job began.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence

from penstock.connectors.kafka.connection import KafkaConnection
from penstock.connectors.kafka.offsets import Chosen, KafkaOffsets, KafkaSplit, plan_splits
from penstock.engine.connectors import SplitDiscovery
from penstock.engine.errors import summary

_LOG = logging.getLogger(__name__)


class PartitionDiscovery(SplitDiscovery):
    """See the module.

    Args:
        connection: to the brokers.
        chosen: what the source reads.
        interval_s: seconds between two questions; the first is asked at once.
    """

    def __init__(self, connection: KafkaConnection, chosen: Chosen, interval_s: float) -> None:
        self._connection = connection
        self._chosen = chosen
        self._interval_s = interval_s
        self._found: Sequence[KafkaSplit] = ()
        self._closed = threading.Event()
        threading.Thread(target=self._look, name="kafka-discovery", daemon=True).start()

    def poll(self) -> Sequence[KafkaSplit]:
        return self._found

    def close(self) -> None:
        self._closed.set()

    def _look(self) -> None:
        while not self._closed.is_set():
            try:
                self._found = plan_splits(self._connection, self._chosen, KafkaOffsets.earliest(), None)
            except Exception as error:
                # Partitions that are read continue or fail by themselves; new ones can wait for the next time.
                _LOG.warning("kafka: no new partitions could be looked for: %s", summary(error))
            self._closed.wait(self._interval_s)
