"""A connector that dies before any of its lines leaves the process that tests it as it was."""

from __future__ import annotations

import json
import queue
import sys
from functools import partial

import pytest

from penstock.engine.clock import ManualClock
from penstock.engine.connectors import ConnectorContext, Sink, SinkWriter
from penstock.testing.connector_suite.crash_points import LineCounter
from penstock.testing.connector_suite.rules import ConformanceError
from tests.engine.helpers import RecordingSink


class Connector:
    def take(self) -> None:
        while True:
            try:
                queue.Queue[int]().get_nowait()
            except queue.Empty:
                break


class WritesElsewhere(Sink):
    """Its writer is in another package."""

    def open(self, context: ConnectorContext) -> SinkWriter:
        return RecordingSink().open(context)

    def describe(self) -> str:
        return "writes elsewhere"


def test_no_exception_is_handled_for_ever_behind_a_crash() -> None:
    counter = LineCounter(Connector())
    assert counter.run(Connector().take)
    assert counter.lines >= 4
    for fatal in range(counter.lines):
        assert not LineCounter(Connector(), fatal).run(Connector().take)
        assert sys.exc_info() == (None, None, None), f"line {fatal}"


def test_lines_of_writers_in_other_packages_count() -> None:
    sink = WritesElsewhere()
    writer = sink.open(ConnectorContext("sink", 0, 1, ManualClock()))
    counter = LineCounter(sink)
    assert counter.run(writer.finish)
    assert counter.lines == 1
    assert not LineCounter(sink, 0).run(writer.finish)


def test_a_crash_that_has_no_line_to_be_in_is_no_proof() -> None:
    counter = LineCounter(Connector())
    assert counter.run(partial(json.dumps, {"a": [1]}, indent=1))
    with pytest.raises(ConformanceError, match=r"no line of tests\.testing ran in write\(\)\n  the rule: .* crashes"):
        counter.require_lines("write()")
