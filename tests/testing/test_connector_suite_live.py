"""The conformance kit objects to sources that make up rows or lose those of a new connection, and to no others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest

from penstock.engine.clock import Clock, ManualClock
from penstock.engine.connectors import ConnectorContext, Position, Source, SourceReader, Split, Wait
from penstock.testing.connector_suite import LiveSourceSuite, violations
from tests.testing.test_connector_suite_sources import Range

COUNT = 30


class FeedReader(SourceReader):
    def __init__(self, first: int) -> None:
        self.row = first

    def next_batch(self, max_rows: int) -> pa.RecordBatch | Wait | None:
        rows = range(self.row, min(COUNT, self.row + max_rows))
        self.row += len(rows)
        return pa.record_batch({"n": pa.array(rows, pa.int64())}) if rows else None

    def position(self) -> Position:
        return {}


class Feed(Source):
    """Thirty numbers for each connection."""

    schema = pa.schema([("n", pa.int64())])
    bounded = False
    max_parallelism = 1

    def splits(self, parallelism: int) -> Sequence[Split]:
        return [Range(0, COUNT)]

    def open(self, split: Split, context: ConnectorContext) -> SourceReader:
        return FeedReader(0)

    def open_at(self, split: Split, position: Position, context: ConnectorContext) -> SourceReader:
        return self.open(split, context)

    def describe(self) -> str:
        return "feed"


class SkipsAfterAFailure(Feed):
    def open_at(self, split: Split, position: Position, context: ConnectorContext) -> SourceReader:
        return FeedReader(5)


class RepeatsAfterAFailure(Feed):
    def open_at(self, split: Split, position: Position, context: ConnectorContext) -> SourceReader:
        class Twice(FeedReader):
            again = True

            def next_batch(self, max_rows: int) -> pa.RecordBatch | Wait | None:
                if self.row >= COUNT and self.again:
                    self.row, self.again = 0, False
                return super().next_batch(max_rows)

        return Twice(0)


class MakesUpARow(Feed):
    def open_at(self, split: Split, position: Position, context: ConnectorContext) -> SourceReader:
        return FeedReader(-1)


class LosesRowsOfSmallBatches(Feed):
    def open(self, split: Split, context: ConnectorContext) -> SourceReader:
        class Reader(FeedReader):
            def next_batch(self, max_rows: int) -> pa.RecordBatch | Wait | None:
                self.row += max_rows == 7
                return super().next_batch(max_rows)

        return Reader(0)


class ClosesOnce(Feed):
    def open(self, split: Split, context: ConnectorContext) -> SourceReader:
        class Reader(FeedReader):
            def close(self) -> None:
                del self.row

        return Reader(0)


class FeedSuite(LiveSourceSuite):
    patience = 1.0

    def __init__(self, kind: type[Source] = Feed) -> None:
        self.kind = kind

    def source(self) -> Source:
        return self.kind()

    def expected(self) -> list[dict[str, Any]]:
        return [{"n": number} for number in range(COUNT)]

    def clock(self) -> Clock:
        return ManualClock()


SOURCES: Mapping[type[Source], str] = {
    SkipsAfterAFailure: "test_a_new_connection_gives_what_the_server_sends",
    RepeatsAfterAFailure: "test_a_new_connection_gives_what_the_server_sends",
    MakesUpARow: "test_a_job_that_crashes_makes_up_no_row",
    LosesRowsOfSmallBatches: "test_the_rows_do_not_depend_on_how_many_are_asked_for",
    ClosesOnce: "test_readers_can_be_closed_at_any_time",
}


def test_a_good_source_passes() -> None:
    assert violations(FeedSuite()) == {}


@pytest.mark.parametrize("mutant", SOURCES, ids=lambda mutant: mutant.__name__)
def test_a_bad_source_is_caught(mutant: type[Source]) -> None:
    assert "the rule: " in violations(FeedSuite(mutant), [SOURCES[mutant]])[SOURCES[mutant]]
