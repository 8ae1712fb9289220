"""Kafka as a source and as a sink.

Programs use `KafkaSource`, `KafkaOffsets` and `KafkaSink`; the other modules are their parts. aiokafka is the extra
`kafka` and is imported where a broker is first asked.
"""

from penstock.connectors.kafka.connection import KafkaConnection
from penstock.connectors.kafka.offsets import KafkaOffsets, KafkaSplit
from penstock.connectors.kafka.sink import KafkaSink
from penstock.connectors.kafka.source import KafkaSource

__all__ = ["KafkaConnection", "KafkaOffsets", "KafkaSink", "KafkaSource", "KafkaSplit"]
