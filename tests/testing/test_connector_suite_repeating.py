"""The conformance kit objects to sinks that lose rows over a failure, and not to those that write rows again."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from penstock.engine.clock import Clock, ManualClock
from penstock.engine.connectors import (
    Committable,
    ConnectorContext,
    Sink,
    SinkWriter,
    TransactionalSink,
    TransactionalWriter,
)
from penstock.engine.elements import Batch
from penstock.testing.connector_suite import AtLeastOnceSinkSuite, violations


class Lines(Sink):
    """Appends each batch to a file at once."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def open(self, context: ConnectorContext) -> SinkWriter:
        return LinesWriter(self.path)

    def describe(self) -> str:
        return "lines"


class LinesWriter(SinkWriter):
    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, batch: Batch) -> None:
        self.append(batch.data.to_pylist())

    def append(self, rows: Sequence[Mapping[str, Any]]) -> None:
        with self.path.open("a") as file:
            file.write("".join(f"{json.dumps(row)}\n" for row in rows))


class FlushedLines(TransactionalSink):
    """The same, but a checkpoint waits for what is on its way."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def open(self, context: ConnectorContext) -> TransactionalWriter:
        return FlushedWriter(self.path)

    def commit(self, committables: Sequence[Committable], context: ConnectorContext) -> None:
        raise AssertionError("there is nothing to commit")

    def describe(self) -> str:
        return "flushed lines"


class FlushedWriter(TransactionalWriter):
    def __init__(self, path: Path) -> None:
        self.lines, self.rows = LinesWriter(path), list[Mapping[str, Any]]()

    def write(self, batch: Batch) -> None:
        self.rows += batch.data.to_pylist()

    def prepare(self, checkpoint: int) -> Sequence[Committable]:
        self.lines.append(self.rows)
        self.rows = []
        return []


class KeepsRowsToTheEnd(Lines):
    def open(self, context: ConnectorContext) -> SinkWriter:
        class Writer(LinesWriter):
            rows: tuple[Mapping[str, Any], ...] = ()

            def write(self, batch: Batch) -> None:
                self.rows += tuple(batch.data.to_pylist())

            def finish(self) -> None:
                self.append(self.rows)

        return Writer(self.path)


class FlushesTooLate(FlushedLines):
    def open(self, context: ConnectorContext) -> TransactionalWriter:
        class Writer(FlushedWriter):
            kept: tuple[Mapping[str, Any], ...] = ()

            def prepare(self, checkpoint: int) -> Sequence[Committable]:
                self.lines.append(self.kept)
                self.kept, self.rows = tuple(self.rows), []
                return []

        return Writer(self.path)


class TruncatesWhenItOpens(Lines):
    def open(self, context: ConnectorContext) -> SinkWriter:
        self.path.write_text("")
        return super().open(context)


class WritesItsOwnRows(Lines):
    def open(self, context: ConnectorContext) -> SinkWriter:
        writer = LinesWriter(self.path)
        writer.append([{"id": -1, "name": "begin"}])
        return writer


class ClosesOnce(Lines):
    def open(self, context: ConnectorContext) -> SinkWriter:
        class Writer(LinesWriter):
            def close(self) -> None:
                del self.path

        return Writer(self.path)


class LinesSuite(AtLeastOnceSinkSuite):
    def __init__(self, root: Path, kind: Any) -> None:
        self.root, self.kind = root, kind

    def sink(self) -> Sink:
        sink: Sink = self.kind(self.root / secrets.token_hex(8))
        return sink

    def read_back(self, sink: Any) -> list[dict[str, Any]]:
        return [json.loads(line) for line in sink.path.read_text().splitlines()] if sink.path.exists() else []

    def clock(self) -> Clock:
        return ManualClock()


SINKS: Mapping[type[Sink], Sequence[str]] = {
    KeepsRowsToTheEnd: ["rows_are_seen_when_their_checkpoint_is_complete", "a_job_that_crashes_shows_every_row"],
    FlushesTooLate: ["rows_are_seen_when_their_checkpoint_is_complete", "a_crash_while_rows_are_written_loses_none"],
    TruncatesWhenItOpens: [
        "a_crash_while_rows_are_written_loses_none",
        "a_crash_while_a_checkpoint_is_taken_loses_none",
        "a_job_that_crashes_shows_every_row",
    ],
    WritesItsOwnRows: ["rows_are_seen_when_their_checkpoint_is_complete", "a_job_that_crashes_shows_every_row"],
    ClosesOnce: ["writers_can_be_closed_at_any_time"],
}


@pytest.mark.parametrize("sink", [Lines, FlushedLines])
def test_a_good_sink_passes(sink: type[Sink], tmp_path: Path) -> None:
    assert violations(LinesSuite(tmp_path, sink)) == {}


@pytest.mark.parametrize("mutant", SINKS, ids=lambda mutant: mutant.__name__)
def test_a_bad_sink_is_caught(mutant: type[Sink], tmp_path: Path) -> None:
    checks = [f"test_{name}" for name in SINKS[mutant]]
    found = violations(LinesSuite(tmp_path, mutant), checks)
    assert sorted(found) == sorted(checks)
    assert all("the rule: " in message and "what to do: " in message for message in found.values()), found
