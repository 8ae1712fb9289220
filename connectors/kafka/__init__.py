"""Kafka as a source.

Programs use `KafkaSource` and `KafkaOffsets`; the other modules are their parts. aiokafka is the extra `kafka` and is
imported where a broker is first asked.
"""

from penstock.connectors.kafka.connection import KafkaConnection
from penstock.connectors.kafka.offsets import KafkaOffsets, KafkaSplit
from penstock.connectors.kafka.source import KafkaSource

__all__ = ["KafkaConnection", "KafkaOffsets", "KafkaSource", "KafkaSplit"]
