"""The checks of a plain sink: `SinkSuite`, which its author subclasses, or calls method by method.

pytest runs its methods, each on targets of its own; it raises `ConformanceError`, which names the rule that is broken.
"""

from __future__ import annotations

import secrets

import pyarrow as pa

from penstock.engine.clock import Clock
from penstock.engine.connectors import ConnectorContext, Sink, SinkWriter
from penstock.engine.elements import Batch
from penstock.testing.connector_suite.any_sinks import AnySinkSuite
from penstock.testing.connector_suite.copies import copied
from penstock.testing.connector_suite.crash_points import LineCounter, leaving_things_open, spread
from penstock.testing.connector_suite.rows import as_table, difference, every
from penstock.testing.connector_suite.rules import FINISH, WRITER_CLOSE, obeying, require


class SinkSuite(AnySinkSuite[Sink]):
    """What every plain sink must keep where nothing fails. Subclass it, and give `sink` and `read_back`.

    Example:
        >>> class TestBulk(SinkSuite):
        ...     def sink(self):
        ...         return BulkSink(new_index())
        ...     def read_back(self, sink):
        ...         return all_documents(sink.index)
    """

    def test_rows_are_seen_when_their_input_has_ended(self) -> None:
        rows, sink = self.rows(0, 12), self._prepared()
        writers = [_write(sink, every(rows, index, 3), self.clock()) for index in range(3)]
        for writer in writers:
            writer.finish()
            writer.close()
        self._expect(sink, rows, "3 writers finished")

    def test_writers_can_be_closed_at_any_time(self) -> None:
        sink = self._prepared()
        for count in (0, 9):
            writer = _write(sink, self.rows(0, count), self.clock())
            for time in ("first", "second"):
                with obeying(WRITER_CLOSE, f"the {time} close() behind {count} rows"):
                    writer.close()

    def test_writers_can_be_closed_after_an_error(self) -> None:
        rows = self.rows(0, 9)
        writer = _write(self._prepared(), rows, self.clock())
        counter = LineCounter(self.sink())
        counter.run(writer.finish)
        writer.close()
        if type(writer).finish is not SinkWriter.finish:
            counter.require_lines("finish()")
        with leaving_things_open():
            for fatal in spread(counter.lines, 15):
                sink = self._prepared()
                writer = _write(sink, rows, self.clock())
                LineCounter(sink, fatal).run(writer.finish)
                with obeying(WRITER_CLOSE, f"close() behind an error in line {fatal} of finish()"):
                    writer.close()

    def test_a_writer_without_rows_writes_nothing(self) -> None:
        sink = self._prepared()
        writer = _write(sink, self.rows(0, 0), self.clock())
        writer.finish()
        writer.close()
        self._expect(sink, self.rows(0, 0), "a writer without rows finished")

    def _prepared(self) -> Sink:
        sink = self.sink()
        sink.check(self.rows(0, 0).schema)
        sink.prepare()
        return sink

    def _expect(self, sink: Sink, rows: pa.Table, when: str) -> None:
        with obeying(FINISH, f"bringing read_back() to the columns {rows.column_names}"):
            seen = as_table(self.read_back(sink), rows.schema)
        wrong = difference(seen, rows)
        require(not wrong, FINISH, f"{when}: {wrong}")


def _write(sink: Sink, rows: pa.Table, clock: Clock) -> SinkWriter:
    """A writer of a plain sink that was given the rows."""
    writer = copied(sink).open(ConnectorContext("sink", 0, 1, clock, f"connector-suite/{secrets.token_hex(8)}"))
    for batch in rows.combine_chunks().to_batches():
        writer.write(Batch(batch))
    return writer
