"""What sinks have prepared is committed as they prepared it, and again when that fails."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
import tenacity

from penstock.actors.spark import terminals
from penstock.actors.spark.outbox import Outbox
from penstock.actors.spark.parcels import unpack
from penstock.actors.spark.terminals import PendingSink, commit, discard
from penstock.engine.connectors import Committable, ConnectorContext, TransactionalSink, TransactionalWriter
from penstock.engine.elements import Batch, table_to_record_batch
from penstock.engine.errors import JobFailedError
from penstock.engine.operators.sink import committables_table


class Memory(TransactionalSink):
    """Remembers what is committed, behind `failures` failed attempts."""

    def __init__(self, failures: int = 0) -> None:
        self.failures = failures
        self.committed: list[Committable] = []

    def open(self, context: ConnectorContext) -> TransactionalWriter:
        raise AssertionError("nothing is written here")

    def commit(self, committables: Sequence[Committable], context: ConnectorContext) -> None:
        if self.failures:
            self.failures -= 1
            raise OSError("the server is restarting")
        self.committed += committables

    def describe(self) -> str:
        return "memory"


def prepared(*writers: str, rows: int = 3) -> list[Batch]:
    """What one writer after another has prepared, in parcels of some rows."""
    outbox = Outbox(0, parcel_bytes=100)
    lane = outbox.lane(0, 0, is_timed=False)
    for writer in writers:
        data = table_to_record_batch(committables_table([Committable(writer, 0, pa.table({"n": range(rows)}))]))
        lane.send((Batch(data),))
    return [unpack(parcel.rows) for parcel in outbox.finish()]


def test_what_a_writer_prepared_is_one_committable_in_however_many_parcels_it_came() -> None:
    parcels = prepared("a", "b", rows=1000)
    assert len(parcels) > 10
    sink = Memory()
    commit({-1: PendingSink(sink, "out", 2, "job/out")}, {-1: parcels})
    assert [(one.writer, one.data["n"].to_pylist()) for one in sink.committed] == [
        ("a", list(range(1000))),
        ("b", list(range(1000))),
    ]


def test_a_commit_that_fails_is_tried_again_and_told_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tenacity.nap.time, "sleep", lambda seconds: None)
    sink = Memory(failures=3)
    with caplog.at_level(logging.WARNING):
        commit({-1: PendingSink(sink, "out", 2, "job/out")}, {-1: prepared("a")})
    assert len(sink.committed) == 1
    assert [record.getMessage() for record in caplog.records] == [
        "operator 'out' could not commit, and tries again for 60 s: the server is restarting"
    ]


def test_a_commit_that_fails_for_good_tells_which_sinks_had_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminals, "_COMMIT_SECONDS", 0.0)
    pending = {
        -1: PendingSink(Memory(), "first", 1, "job/first"),
        -2: PendingSink(Memory(failures=9), "second", 1, "job/second"),
    }
    with pytest.raises(JobFailedError, match=r"operator 'second' \(memory\) could not commit .*'first' had committed"):
        commit(pending, {-1: prepared("a"), -2: prepared("b")})


class Exits(Memory):
    """Ends its process, as it thinks."""

    def commit(self, committables: Any, context: ConnectorContext) -> None:
        sys.exit("gone")

    def discard(self, context: ConnectorContext) -> None:
        sys.exit("gone")


def test_a_sink_that_exits_ends_no_thread_but_the_job(caplog: pytest.LogCaptureFixture) -> None:
    pending = {-1: PendingSink(Exits(), "first", 1, "job/first")}
    with pytest.raises(JobFailedError, match=r"operator 'first' \(memory\) could not commit .*SystemExit: gone"):
        commit(pending, {-1: prepared("a")})
    discard(pending.values())
    assert "leaves behind what was not committed: gone" in caplog.text


class Leaving(Memory):
    """Has something to remove; `failures` times it cannot."""

    def discard(self, context: ConnectorContext) -> None:
        if self.failures:
            raise OSError("the server is gone")
        self.committed.clear()
        assert context.identity == "job/second"


def test_what_one_sink_cannot_remove_is_told_and_the_others_do(caplog: pytest.LogCaptureFixture) -> None:
    sinks = [Leaving(failures=1), Leaving(), Memory()]
    sinks[1].committed.append(Committable("a", 0, pa.table({"n": [1]})))
    names = ("first", "second", "third")
    pending = [PendingSink(sink, name, 1, f"job/{name}") for sink, name in zip(sinks, names, strict=True)]
    with caplog.at_level(logging.WARNING):
        discard(pending)
    assert not sinks[1].committed
    assert [record.getMessage() for record in caplog.records] == [
        "operator 'first' (memory) leaves behind what was not committed: the server is gone"
    ]
