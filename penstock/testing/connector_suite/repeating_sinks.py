"""The checks of a sink that writes at least once: `AtLeastOnceSinkSuite`, which its author subclasses.

For plain and for transactional sinks whose rows are there with each checkpoint, and again after a failure. pytest runs
its methods, each on targets of its own; it raises `ConformanceError`, which names the rule that is broken.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import pyarrow as pa

from penstock.engine.connectors import Sink, TransactionalSink
from penstock.engine.elements import Batch
from penstock.engine.operators.base import Operator, OperatorContext
from penstock.engine.operators.sink import SinkSpec
from penstock.engine.state.capture import CaptureRequest, CaptureScope
from penstock.testing.connector_suite.any_sinks import AnySinkSuite
from penstock.testing.connector_suite.copies import copied
from penstock.testing.connector_suite.crash_points import LineCounter, leaving_things_open, spread
from penstock.testing.connector_suite.jobs import check_repeating_sink_job
from penstock.testing.connector_suite.rows import as_table, difference, set_difference
from penstock.testing.connector_suite.rules import (
    AT_LEAST_ONCE,
    VISIBLE,
    WRITER_CLOSE,
    obeying,
    require,
)
from penstock.testing.connector_suite.writing import NOWHERE, WITH_CHECKPOINTS


class AtLeastOnceSinkSuite(AnySinkSuite[Sink]):
    """What every sink must keep that writes at least once. Subclass it, and give `sink` and `read_back`.

    Attributes:
        seeds: of the jobs that are run with crashes.
        most_crashes: at how many lines of write and checkpoint each the process dies.

    Example:
        >>> class TestAlerts(AtLeastOnceSinkSuite):
        ...     def sink(self):
        ...         return AlertSink(new_queue())
        ...     def read_back(self, sink):
        ...         return all_messages(sink.queue)
    """

    seeds: Sequence[int] = (1, 2, 3)
    most_crashes: int = 15

    def test_rows_are_seen_when_their_checkpoint_is_complete(self) -> None:
        sink, rows = self._prepared(), self.rows(0, 12)
        with self._subtask(sink) as one, self._subtask(sink) as other:
            for number, subtask in enumerate((one, other, one)):
                _write(subtask, rows.slice(4 * number, 4))
                _take_checkpoint(subtask, number + 1)
                wrong = difference(self._seen(sink), rows.slice(0, 4 * number + 4))
                require(not wrong, VISIBLE, f"checkpoint {number + 1} is complete, and nothing has failed: {wrong}")

    def test_writers_can_be_closed_at_any_time(self) -> None:
        sink = self._prepared()
        for count in (0, 9):
            with self._subtask(sink) as subtask:
                _write(subtask, self.rows(0, count))
                for time in ("first", "second"):
                    with obeying(WRITER_CLOSE, f"the {time} close() behind {count} rows"):
                        subtask.close()

    def test_a_crash_while_rows_are_written_loses_none(self) -> None:
        self._crash("write()", lambda subtask: _write(subtask, self.rows(4, 4))).require_lines("write()")

    def test_a_crash_while_a_checkpoint_is_taken_loses_none(self) -> None:
        counter = self._crash(
            "the checkpoint",
            lambda subtask: _take_checkpoint(subtask, 2),
            lambda subtask: _write(subtask, self.rows(4, 4)),
        )
        if isinstance(self.sink(), TransactionalSink):
            # Of a plain one nothing is asked.
            counter.require_lines("the checkpoint")

    def test_a_job_that_crashes_shows_every_row(self) -> None:
        for seed in self.seeds:
            sink = self.sink()
            check_repeating_sink_job(sink, partial(self.read_back, sink), self.rows(0, 60), self.clock(), seed)

    # Parts

    def _prepared(self) -> Sink:
        sink = self.sink()
        sink.check(self.rows(0, 0).schema)
        sink.prepare()
        return sink

    @contextlib.contextmanager
    def _subtask(self, sink: Sink) -> Iterator[Operator]:
        """One attempt of a subtask; whatever became of it, it is closed in the end."""
        operator, identity = SinkSpec(copied(sink)).create(), f"connector-suite/{secrets.token_hex(8)}"
        operator.open(OperatorContext("sink", 0, 1, self.clock(), config=WITH_CHECKPOINTS, identity=identity))
        try:
            yield operator
        finally:
            with contextlib.suppress(Exception):
                operator.close()

    def _seen(self, sink: Sink) -> pa.Table:
        schema = self.rows(0, 0).schema
        with obeying(VISIBLE, f"bringing read_back() to the columns {schema.names}"):
            return as_table(self.read_back(sink), schema)

    def _crash(
        self, what: str, step: Callable[[Operator], object], before: Callable[[Operator], object] = lambda _: None
    ) -> LineCounter:
        """Crash at each line of a step between checkpoints 1 and 2, and resume from checkpoint 1; gives these lines."""
        with leaving_things_open():
            counter = self._crash_at(None, what, step, before)
            for fatal in spread(counter.lines, self.most_crashes):
                self._crash_at(fatal, what, step, before)
        return counter

    def _crash_at(
        self, fatal: int | None, what: str, step: Callable[[Operator], object], before: Callable[[Operator], object]
    ) -> LineCounter:
        sink, rows = self._prepared(), self.rows(0, 12)
        where = f"the process died in line {fatal} of {what}: "
        with self._subtask(sink) as subtask:
            _write(subtask, rows.slice(0, 4))
            _take_checkpoint(subtask, 1)
            before(subtask)
            counter = LineCounter(sink, fatal)
            counter.run(lambda: step(subtask))
            with obeying(AT_LEAST_ONCE, f"{where}the next attempt"), self._subtask(sink) as again:
                _write(again, rows.slice(4))
                _take_checkpoint(again, 3)
            wrong = set_difference(self._seen(sink), rows)
            require(not wrong, AT_LEAST_ONCE, f"{where}after the next attempt: {wrong}")
        return counter


def _write(subtask: Operator, rows: pa.Table) -> None:
    for batch in rows.combine_chunks().to_batches():
        subtask.process_batch(Batch(batch), 0, NOWHERE)


def _take_checkpoint(subtask: Operator, checkpoint: int) -> None:
    subtask.capture(CaptureRequest(checkpoint, CaptureScope.COMPLETE))
    subtask.on_checkpoint_complete(checkpoint)
