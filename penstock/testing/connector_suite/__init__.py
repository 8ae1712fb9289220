"""The conformance kit of the connector API: what every source, sink and lookup table must keep, as test classes.

Authors of connectors subclass a suite and say what to test; pytest runs its checks, or `violations` does without
pytest. Each failure names the rule of `penstock.engine.connectors` that is broken, and what to do about it.
"""

from penstock.testing.connector_suite.live_sources import LiveSourceSuite
from penstock.testing.connector_suite.lookups import LookupTableSuite
from penstock.testing.connector_suite.plain_sinks import SinkSuite
from penstock.testing.connector_suite.repeating_sinks import AtLeastOnceSinkSuite
from penstock.testing.connector_suite.rows import Rows
from penstock.testing.connector_suite.rules import ConformanceError, Rule
from penstock.testing.connector_suite.running import violations
from penstock.testing.connector_suite.sinks import TransactionalSinkSuite
from penstock.testing.connector_suite.sources import SourceSuite

__all__ = [
    "AtLeastOnceSinkSuite",
    "ConformanceError",
    "LiveSourceSuite",
    "LookupTableSuite",
    "Rows",
    "Rule",
    "SinkSuite",
    "SourceSuite",
    "TransactionalSinkSuite",
    "violations",
]
