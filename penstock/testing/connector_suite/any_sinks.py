"""What the suites of all kinds of sinks begin with: what an author gives, and the checks of descriptions."""

from __future__ import annotations

from typing import Generic, TypeVar

import pyarrow as pa

from penstock.engine.clock import Clock, SystemClock
from penstock.engine.connectors import Sink
from penstock.testing.connector_suite.copies import copied
from penstock.testing.connector_suite.rows import Rows, numbered_rows
from penstock.testing.connector_suite.rules import DESCRIBE, PICKLE, require

_AnySink = TypeVar("_AnySink", bound=Sink)


class AnySinkSuite(Generic[_AnySink]):
    """What every sink must keep. Its subclasses are what authors subclass, and give `sink` and `read_back`."""

    def sink(self) -> _AnySink:
        """A sink that writes to an empty target, outside of this process's memory; a new target each time."""
        raise NotImplementedError(f"{type(self).__name__}.sink() must build a sink with a target of its own")

    def read_back(self, sink: _AnySink) -> Rows:
        """All rows that readers of the target can see, as dicts or a table; committed ones, where there are commits."""
        raise NotImplementedError(f"{type(self).__name__}.read_back() must read the target")

    def rows(self, first: int, count: int) -> pa.Table:
        """Rows to write, `count` from number `first` on: no two alike, nor with one key if the sink has keys."""
        return numbered_rows(first, count)

    def clock(self) -> Clock:
        """The clock of the jobs."""
        return SystemClock()

    def test_descriptions_are_picklable(self) -> None:
        sink = self.sink()
        require(type(copied(sink)) is type(sink), PICKLE, f"the copy of {type(sink).__name__} is another sink")
        told = sink.describe()
        require(isinstance(told, str) and told != "" and "\n" not in told, DESCRIBE, f"describe() gave {told!r}")
