"""The checks of a source: `SourceSuite`, which the author of a source subclasses, or calls method by method.

pytest runs its methods, each on a source of its own; it raises `ConformanceError`, which names the rule that is broken.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa

from penstock.engine.clock import Clock, SystemClock
from penstock.engine.connectors import Source, SourceReader, Split, SplitOrder
from penstock.testing.connector_suite.copies import copied, split_ids_elsewhere
from penstock.testing.connector_suite.crash_points import LineCounter, leaving_things_open, spread
from penstock.testing.connector_suite.jobs import check_source_job
from penstock.testing.connector_suite.reading import Reading, SourceDriver, Subtask, position_text
from penstock.testing.connector_suite.rows import Rows, as_table, difference, order_difference
from penstock.testing.connector_suite.rules import (
    DESCRIBE,
    DISCOVERY,
    ENDS,
    MAX_ROWS,
    PARALLELISM,
    PICKLE,
    POSITION,
    READER_CLOSE,
    REASSIGN,
    REWIND,
    ROWS,
    SCHEMA,
    SPLIT_IDS,
    obeying,
    require,
)

_PARALLELISMS: Final = (1, 2, 3, 7)
_MANY: Final = 65_536
_COSTLY_POSITION: Final = 0.01
"""Seconds: the cheapest of several calls takes less, on any machine."""


class SourceSuite:
    """What every source must keep. Subclass it, and give `source` and `expected`.

    Attributes:
        patience: seconds without a row, after which a reader is given up.
        seeds: of the jobs that are run with crashes.
        most_positions: how many positions of each split are gone back to.

    Example:
        >>> class TestTicks(SourceSuite):
        ...     def source(self):
        ...         return Ticks(rows=100)
        ...     def expected(self):
        ...         return [{"tick": tick} for tick in range(100)]
    """

    patience: float = 10.0
    seeds: Sequence[int] = (1, 2, 3)
    most_positions: int = 25

    def source(self) -> Source:
        """Build the source, as a program does: the same one each time. Some ten to some thousand rows are best."""
        raise NotImplementedError(f"{type(self).__name__}.source() must build the source")

    def expected(self) -> Rows:
        """All its rows, in any order, as dicts or a table; of an unbounded source all that are there now."""
        raise NotImplementedError(f"{type(self).__name__}.expected() must give the source's rows")

    def clock(self) -> Clock:
        """What readers wait by; a `ManualClock` waits for nothing, where only the clock makes a source wait."""
        return SystemClock()

    # Descriptions

    def test_descriptions_are_picklable(self) -> None:
        source = self.source()
        copy = copied(source)
        same = type(copy) is type(source) and copy.schema.equals(source.schema) and copy.bounded == source.bounded
        require(same, PICKLE, f"the copy of {type(source).__name__} is another source")
        for split in source.splits(1):
            require(
                copied(split).split_id == split.split_id, PICKLE, f"the copy of split {split.split_id!r} is another"
            )

    def test_it_describes_itself(self) -> None:
        source = self.source()
        told = source.describe()
        require(isinstance(told, str) and told != "" and "\n" not in told, DESCRIBE, f"describe() gave {told!r}")
        require(isinstance(source.schema, pa.Schema), SCHEMA, f"schema is {source.schema!r}, not a pyarrow.Schema")
        require(isinstance(source.split_order, SplitOrder), SCHEMA, f"split_order is {source.split_order!r}")

    def test_split_ids_are_unique_and_stable(self) -> None:
        source, again = self.source(), self.source()
        ids = [[split.split_id for split in source.splits(p)] for p in _PARALLELISMS]
        for parallelism, here in zip(_PARALLELISMS, ids, strict=True):
            texts = all(isinstance(split_id, str) and split_id for split_id in here)
            require(texts and len(set(here)) == len(here), SPLIT_IDS, f"the ids are {here[:10]}")
            rebuilt = [split.split_id for split in again.splits(parallelism)]
            require(rebuilt == here, SPLIT_IDS, f"built twice, the source has the ids {here[:5]} and {rebuilt[:5]}")
        elsewhere = split_ids_elsewhere(source, _PARALLELISMS)
        require(elsewhere == ids, SPLIT_IDS, f"{ids[0][:5]} are {elsewhere[0][:5]} in another process")

    def test_discovered_splits_are_known_by_their_ids(self) -> None:
        driver = self._driver()
        discovery = None if driver.source.bounded else driver.source.discover(driver.context())
        if discovery is None:
            return
        with obeying(READER_CLOSE, "poll() or close() of a discovery"):
            found = [split.split_id for split in discovery.poll()]
            discovery.close()
            discovery.close()
        require(all(isinstance(one, str) and one for one in found), SPLIT_IDS, f"discovery found the ids {found[:10]}")
        for planned, whole in self._whole():
            split = copied(driver.source.split(planned.split_id))
            named = None if split is None else split.split_id
            require(named == planned.split_id, DISCOVERY, f"split({planned.split_id!r}) is {named!r}")
            assert split is not None
            rows = driver.read_split(split, _MANY, self._limit(whole), whole.positions[0]).table()
            wrong = order_difference(rows, whole.table())
            require(not wrong, DISCOVERY, f"split({planned.split_id!r}) at {whole.positions[0]}: {wrong}")

    # Rows

    def test_every_row_comes_once_with_the_declared_columns(self) -> None:
        wrong = difference(self._together(self._driver(), 1), self._expected())
        require(not wrong, ROWS, wrong)

    def test_the_rows_do_not_depend_on_the_parallelism(self) -> None:
        for parallelism in _PARALLELISMS:
            wrong = difference(self._together(self._driver(), parallelism), self._expected())
            require(not wrong, PARALLELISM, f"at parallelism {parallelism}: {wrong}")

    def test_the_rows_do_not_depend_on_how_many_are_asked_for(self) -> None:
        for split, whole in self._whole():
            for max_rows in (1, 2, 7):
                rows = self._driver().read_split(split, max_rows, self._limit(whole)).table()
                wrong = order_difference(rows, whole.table())
                require(not wrong, MAX_ROWS, f"split {split.split_id!r}, {max_rows} at a time: {wrong}")

    def test_a_bounded_source_ends(self) -> None:
        if not self.source().bounded:
            return
        for split, whole in self._whole():
            require(whole.ended, ENDS, f"split {split.split_id!r} did not end")

    # Positions

    def test_positions_are_json_and_cost_nothing(self) -> None:
        for split, whole in self._whole():
            driver = self._driver()
            with contextlib.closing(driver.open(split)) as reader:
                before = position_text(reader)
                driver.read(reader, 3, min(3, whole.num_rows))
                behind = position_text(reader)
                cheapest = min(_seconds_of(reader.position) for _ in range(10))
                require(cheapest < _COSTLY_POSITION, POSITION, f"position() took {cheapest * 1000:.0f} ms")
                require(position_text(reader) == behind, POSITION, f"asked again, {behind} became another position")
                require(whole.num_rows == 0 or before != behind, POSITION, f"rows were read, and it stays at {before}")
                rest = driver.read(reader, _MANY, self._rest(whole, min(3, whole.num_rows)))
            wrong = order_difference(rest.table(), whole.table().slice(min(3, whole.num_rows)))
            require(not wrong, POSITION, f"split {split.split_id!r}, when its position was asked for: {wrong}")

    def test_a_reader_goes_on_at_every_position(self) -> None:
        for split, whole in self._whole():
            reading = self._read_for_positions(split, whole)
            for number in spread(len(reading.positions), self.most_positions):
                position, follows = reading.positions[number], reading.table(number)
                rows = self._driver().read_split(split, 5, self._limit(reading, follows), position).table()
                wrong = order_difference(rows, follows)
                require(not wrong, REWIND, f"split {split.split_id!r} at {position}: {wrong}")

    def test_a_reader_at_a_position_has_a_position(self) -> None:
        for split, whole in self._whole():
            reading = self._read_for_positions(split, whole)
            for number in spread(len(reading.positions), 5):
                with contextlib.closing(self._driver().open(split, reading.positions[number])) as reader:
                    again = position_text(reader)
                follows = reading.table(number)
                rows = self._driver().read_split(split, 5, self._limit(reading, follows), again).table()
                wrong = order_difference(rows, follows)
                require(not wrong, REWIND, f"split {split.split_id!r} at {again}, opened and asked there: {wrong}")

    def test_splits_go_on_in_other_subtasks(self) -> None:
        for before, behind in ((2, 3), (3, 1), (1, 7)):
            wrong = difference(self._rescaled(before, behind), self._expected())
            require(not wrong, REASSIGN, f"half read at parallelism {before}, the rest at {behind}: {wrong}")

    # Ends and failures

    def test_readers_can_be_closed_at_any_time(self) -> None:
        for split, whole in self._whole():
            for rows in (0, min(3, whole.num_rows), whole.num_rows):
                driver = self._driver()
                reader = driver.open(split)
                if rows:
                    driver.read(reader, 3, rows)
                for time_of in ("first", "second"):
                    with obeying(READER_CLOSE, f"the {time_of} close() behind {rows} rows"):
                        reader.close()

    def test_readers_can_be_closed_after_an_error(self) -> None:
        split, whole = max(self._whole(), key=lambda one: one[1].num_rows)
        driver = self._driver()
        counter = LineCounter(driver.source)
        with contextlib.closing(driver.open(split)) as reader:
            counter.run(lambda: reader.next_batch(3))
        counter.require_lines("next_batch()")
        with leaving_things_open():
            for fatal in spread(counter.lines, self.most_positions):
                self._fail_and_close(driver.open(split), driver.source, fatal)
                rows = self._driver().read_split(split, 5, self._limit(whole)).table()
                wrong = order_difference(rows, whole.table())
                require(not wrong, REWIND, f"split {split.split_id!r} behind an error of its reader: {wrong}")

    @staticmethod
    def _fail_and_close(reader: SourceReader, source: Source, fatal: int) -> None:
        LineCounter(source, fatal).run(lambda: reader.next_batch(3))
        with obeying(READER_CLOSE, f"close() behind an error in line {fatal} of next_batch()"):
            reader.close()

    def test_a_job_that_crashes_counts_every_row_once(self) -> None:
        for seed in self.seeds:
            check_source_job(self.source(), self._expected(), self.clock(), seed)

    # Parts

    def _driver(self) -> SourceDriver:
        return SourceDriver(self.source(), self.clock(), self.patience)

    def _expected(self) -> pa.Table:
        with obeying(ROWS, "bringing expected() to the columns of `schema`"):
            return as_table(self.expected(), self.source().schema)

    def _whole(self) -> list[tuple[Split, Reading]]:
        """The splits for two subtasks, and all rows of each."""
        driver = self._driver()
        splits = driver.splits(2)
        return list(zip(splits, self._readings(driver, splits), strict=True))

    def _readings(self, driver: SourceDriver, splits: Sequence[Split]) -> list[Reading]:
        if driver.source.bounded:
            return [driver.read_split(split, _MANY) for split in splits]
        return driver.read_together(splits, _MANY, self._expected().num_rows)

    def _together(self, driver: SourceDriver, parallelism: int) -> pa.Table:
        readings = self._readings(driver, driver.splits(parallelism))
        return pa.concat_tables([driver.source.schema.empty_table(), *(reading.table() for reading in readings)])

    def _limit(self, whole: Reading, rows: pa.Table | None = None) -> int | None:
        """How many rows to read: all up to the end, or those of an unbounded split that there are."""
        return None if whole.ended else (whole.num_rows if rows is None else rows.num_rows)

    def _rest(self, whole: Reading, read: int) -> int | None:
        return None if whole.ended else whole.num_rows - read

    def _read_for_positions(self, split: Split, whole: Reading) -> Reading:
        """The rows of a split in small batches, so that there are many positions."""
        driver = self._driver()
        small = max(1, min(3, whole.num_rows // 8))
        with contextlib.closing(driver.open(split)) as reader:
            return driver.read(reader, small, self._limit(whole))

    def _rescaled(self, before: int, behind: int) -> pa.Table:
        """The rows of a source that was half read when the splits were shared out to other subtasks."""
        driver = self._driver()
        splits = driver.splits(before)
        sizes = [reading.num_rows for reading in self._readings(driver, splits)]
        halves = {
            split.split_id: self._half(driver, split, size, Subtask(i % before, before))
            for i, (split, size) in enumerate(zip(splits, sizes, strict=True))
        }
        later = self._driver()
        rests = []
        for number, split in enumerate(later.splits(before)):
            half = halves[split.split_id]
            if half.ended:
                continue
            subtask = Subtask(number % behind, behind)
            with contextlib.closing(later.open(split, half.positions[-1], subtask)) as reader:
                rests.append(later.read(reader, 4, None if later.source.bounded else sizes[number] - half.num_rows))
        tables = [reading.table() for reading in (*halves.values(), *rests)]
        return pa.concat_tables([driver.source.schema.empty_table(), *tables])

    @staticmethod
    def _half(driver: SourceDriver, split: Split, size: int, subtask: Subtask) -> Reading:
        with contextlib.closing(driver.open(split, subtask=subtask)) as reader:
            return driver.read(reader, 4, size // 2)


def _seconds_of(call: Any) -> float:
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun
