"""Tables of Apache Iceberg and Delta Lake as sinks, exactly once with checkpoints.

Programs use `IcebergSink` and `DeltaSink`; each imports its library where it opens the table.
"""

from penstock.connectors.lakes.delta import DeltaSink
from penstock.connectors.lakes.iceberg import IcebergSink

__all__ = ["DeltaSink", "IcebergSink"]
