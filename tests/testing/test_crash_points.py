"""A connector that dies before any of its lines leaves the process that tests it as it was."""

from __future__ import annotations

import queue
import sys

from penstock.testing.connector_suite.crash_points import LineCounter


class Connector:
    def take(self) -> None:
        while True:
            try:
                queue.Queue[int]().get_nowait()
            except queue.Empty:
                break


def test_no_exception_is_handled_for_ever_behind_a_crash() -> None:
    counter = LineCounter(Connector())
    assert counter.run(Connector().take)
    assert counter.lines >= 4
    for fatal in range(counter.lines):
        assert not LineCounter(Connector(), fatal).run(Connector().take)
        assert sys.exc_info() == (None, None, None), f"line {fatal}"
