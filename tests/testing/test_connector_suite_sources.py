"""The conformance kit objects to sources that break one rule each, and not to one that keeps them all."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

from penstock.engine.clock import Clock, ManualClock
from penstock.engine.connectors import ConnectorContext, Position, Source, SourceReader, Split, SplitDiscovery, Wait
from penstock.testing.connector_suite import SourceSuite, violations

SCHEMA = pa.schema([("n", pa.int64())])
COUNT = 60


@dataclass(frozen=True)
class Range:
    first: int
    last: int

    @property
    def split_id(self) -> str:
        return f"{self.first}-{self.last}"


class NumberReader(SourceReader):
    def __init__(self, split: Range, row: int, context: ConnectorContext) -> None:
        self.split, self.row, self.context = split, row, context
        self.opened_at = row

    def next_batch(self, max_rows: int) -> pa.RecordBatch | Wait | None:
        numbers = range(self.split.first + self.row, self.split.last)[:max_rows]
        if not numbers:
            return None
        self.row += len(numbers)
        return pa.record_batch({"n": pa.array(numbers, pa.int64())})

    def position(self) -> Position:
        return {"row": self.row}


class Numbers(Source):
    """Numbers in three ranges."""

    reader: type[NumberReader] = NumberReader
    schema = SCHEMA

    def splits(self, parallelism: int) -> Sequence[Split]:
        return [Range(first, first + COUNT // 3) for first in range(0, COUNT, COUNT // 3)]

    def open(self, split: Split, context: ConnectorContext) -> SourceReader:
        assert isinstance(split, Range)
        return self.reader(split, 0, context)

    def open_at(self, split: Split, position: Position, context: ConnectorContext) -> SourceReader:
        assert isinstance(split, Range)
        row = position["row"]
        assert isinstance(row, int)
        return self.reader(split, row, context)

    def describe(self) -> str:
        return "numbers"


class AheadByOne(NumberReader):
    def position(self) -> Position:
        return {"row": self.row + 1}


class BehindByOne(NumberReader):
    def position(self) -> Position:
        return {"row": max(0, self.row - 1)}


class CountsWhatItFetched(NumberReader):
    fetched: Sequence[int] = ()

    def next_batch(self, max_rows: int) -> pa.RecordBatch | None:
        if not self.fetched:
            self.fetched = range(self.split.first + self.row, self.split.last)[:8]
            self.row += len(self.fetched)
        given, self.fetched = self.fetched[:max_rows], self.fetched[max_rows:]
        return pa.record_batch({"n": pa.array(given, pa.int64())}) if given else None


class CountsFromWhereItWasOpened(NumberReader):
    def position(self) -> Position:
        return {"row": self.row - self.opened_at}


class ForgetsOtherSubtasks(Numbers):
    def open_at(self, split: Split, position: Position, context: ConnectorContext) -> SourceReader:
        assert isinstance(split, Range)
        belongs = split.first // 20 % 2 == context.subtask
        return super().open_at(split, position, context) if belongs else self.open(split, context)


class CannotRewind(Numbers):
    open_at = Source.open_at


class PositionOfBytes(NumberReader):
    def position(self) -> Any:
        return {"row": b"%d" % self.row}


class PositionByNumber(NumberReader):
    def position(self) -> Any:
        return {0: self.row}


class ReadsForItsPosition(NumberReader):
    def position(self) -> Position:
        self.next_batch(1)
        return super().position()


class CostlyPosition(NumberReader):
    def position(self) -> Position:
        sum(range(2_000_000))
        return super().position()


class IgnoresMaxRows(NumberReader):
    def next_batch(self, max_rows: int) -> pa.RecordBatch | Wait | None:
        return super().next_batch(10)


class DropsLastRowOfSmallBatches(NumberReader):
    def next_batch(self, max_rows: int) -> pa.RecordBatch | Wait | None:
        batch = super().next_batch(max_rows)
        return batch.slice(0, batch.num_rows - 1) if isinstance(batch, pa.RecordBatch) and max_rows == 7 else batch


class OtherTypes(NumberReader):
    def next_batch(self, max_rows: int) -> pa.RecordBatch | Wait | None:
        batch = super().next_batch(max_rows)
        return batch.cast(pa.schema([("n", pa.int32())])) if isinstance(batch, pa.RecordBatch) else batch


class NeverEnds(NumberReader):
    def next_batch(self, max_rows: int) -> pa.RecordBatch | Wait | None:
        return super().next_batch(max_rows) or Wait(self.context.clock.monotonic() + 0.5)


class ClosesOnce(NumberReader):
    open_files = 1

    def close(self) -> None:
        self.open_files -= 1
        assert self.open_files == 0


class ClosesOnlyWhatIsWhole(NumberReader):
    busy = False

    def next_batch(self, max_rows: int) -> pa.RecordBatch | Wait | None:
        self.busy = True
        batch = super().next_batch(max_rows)
        self.busy = False
        return batch

    def close(self) -> None:
        assert not self.busy


class Renamed(Numbers):
    def name(self, split: Range) -> str:
        raise NotImplementedError

    def splits(self, parallelism: int) -> Sequence[Split]:
        return [Named(self.name(split), split) for split in super().splits(parallelism) if isinstance(split, Range)]

    def open(self, split: Any, context: ConnectorContext) -> SourceReader:
        return super().open(split.range, context)

    def open_at(self, split: Any, position: Position, context: ConnectorContext) -> SourceReader:
        return super().open_at(split.range, position, context)


@dataclass(frozen=True)
class Named:
    split_id: str
    range: Range


class CountedIds(Renamed):
    counter = itertools.count()

    def name(self, split: Range) -> str:
        return f"split {next(self.counter)}"


class HashedIds(Renamed):
    def name(self, split: Range) -> str:
        return str(hash(split.split_id))


class EqualIds(Renamed):
    def name(self, split: Range) -> str:
        return "numbers"


class LosesTheRemainder(Numbers):
    def splits(self, parallelism: int) -> Sequence[Split]:
        size = COUNT // parallelism
        return [Range(size * i, size * (i + 1)) for i in range(parallelism)]


class HoldsALock(Numbers):
    def __init__(self) -> None:
        self.lock = threading.Lock()


class Overlaps(Numbers):
    def splits(self, parallelism: int) -> Sequence[Split]:
        return [Range(0, 31), Range(30, COUNT)]


class Growing(Numbers):
    """Numbers whose ranges are discovered."""

    bounded = False

    def discover(self, context: ConnectorContext) -> SplitDiscovery | None:
        return Ranges()

    def split(self, split_id: str) -> Split:
        first, last = map(int, split_id.split("-"))
        return Range(first, last)


class Ranges(SplitDiscovery):
    def poll(self) -> Sequence[Split]:
        return Numbers().splits(1)


class TakesIdsForOthers(Growing):
    def split(self, split_id: str) -> Split:
        return Range(0, 20)


class NumbersSuite(SourceSuite):
    patience = 1.0

    def __init__(self, kind: type[Source] = Numbers) -> None:
        self.kind = kind

    def source(self) -> Source:
        return self.kind()

    def expected(self) -> list[dict[str, Any]]:
        return [{"n": number} for number in range(COUNT)]

    def clock(self) -> Clock:
        return ManualClock()


def reading_by(reader: type[NumberReader]) -> type[Source]:
    return type(reader.__name__, (Numbers,), {"reader": reader, "__module__": __name__})


SOURCES: Mapping[type[Source], Sequence[str]] = {
    reading_by(AheadByOne): ["a_reader_goes_on_at_every_position", "a_job_that_crashes_counts_every_row_once"],
    reading_by(BehindByOne): ["a_reader_goes_on_at_every_position", "splits_go_on_in_other_subtasks"],
    reading_by(CountsWhatItFetched): ["a_reader_goes_on_at_every_position"],
    reading_by(CountsFromWhereItWasOpened): ["a_reader_at_a_position_has_a_position"],
    ForgetsOtherSubtasks: ["splits_go_on_in_other_subtasks"],
    CannotRewind: ["a_reader_goes_on_at_every_position"],
    reading_by(PositionOfBytes): ["positions_are_json_and_cost_nothing"],
    reading_by(PositionByNumber): ["positions_are_json_and_cost_nothing"],
    reading_by(ReadsForItsPosition): ["positions_are_json_and_cost_nothing"],
    reading_by(CostlyPosition): ["positions_are_json_and_cost_nothing"],
    reading_by(IgnoresMaxRows): ["the_rows_do_not_depend_on_how_many_are_asked_for"],
    reading_by(DropsLastRowOfSmallBatches): ["the_rows_do_not_depend_on_how_many_are_asked_for"],
    reading_by(OtherTypes): ["every_row_comes_once_with_the_declared_columns"],
    reading_by(NeverEnds): ["a_bounded_source_ends"],
    reading_by(ClosesOnce): ["readers_can_be_closed_at_any_time"],
    reading_by(ClosesOnlyWhatIsWhole): ["readers_can_be_closed_after_an_error"],
    CountedIds: ["split_ids_are_unique_and_stable"],
    HashedIds: ["split_ids_are_unique_and_stable"],
    EqualIds: ["split_ids_are_unique_and_stable"],
    LosesTheRemainder: ["the_rows_do_not_depend_on_the_parallelism"],
    HoldsALock: ["descriptions_are_picklable"],
    TakesIdsForOthers: ["discovered_splits_are_known_by_their_ids"],
    Overlaps: ["every_row_comes_once_with_the_declared_columns"],
}


@pytest.mark.parametrize("source", [Numbers, Growing])
def test_a_good_source_passes(source: type[Source]) -> None:
    assert violations(NumbersSuite(source)) == {}


@pytest.mark.parametrize("mutant", SOURCES, ids=lambda mutant: mutant.__name__)
def test_a_bad_source_is_caught(mutant: type[Source]) -> None:
    checks = [f"test_{name}" for name in SOURCES[mutant]]
    found = violations(NumbersSuite(mutant), checks)
    assert sorted(found) == sorted(checks)
    assert all("the rule: " in message and "what to do: " in message for message in found.values()), found
