"""The checks of a source that cannot be rewound: `LiveSourceSuite`, which its author subclasses.

For sources whose server sends each row once, when it likes, such as sockets: at most once. pytest runs its methods; it
raises `ConformanceError`, which names the rule that is broken.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import pyarrow as pa

from penstock.engine.clock import Clock, SystemClock
from penstock.engine.connectors import Source
from penstock.testing.connector_suite.jobs import check_live_source_job
from penstock.testing.connector_suite.reading import SourceDriver
from penstock.testing.connector_suite.rows import Rows, as_table, order_difference
from penstock.testing.connector_suite.rules import AT_MOST_ONCE, ROWS, obeying, require
from penstock.testing.connector_suite.sources import SourceSuite


class LiveSourceSuite:
    """What every source must keep whose rows cannot be asked for again. Subclass it, and give `source` and `expected`.

    Attributes:
        patience: seconds without a row, after which a reader is given up.
        seeds: of the jobs that are run with crashes.

    Example:
        >>> class TestTicker(LiveSourceSuite):
        ...     def source(self):
        ...         return Ticker(self.port)
        ...     def expected(self):
        ...         return [{"tick": tick} for tick in range(100)]
    """

    patience: float = 10.0
    seeds: Sequence[int] = (1, 2, 3)

    def source(self) -> Source:
        """Build the source, as a program does: the same one each time."""
        raise NotImplementedError(f"{type(self).__name__}.source() must build the source")

    def expected(self) -> Rows:
        """What the server sends to each connection before it ends it, in order, as dicts or a table."""
        raise NotImplementedError(f"{type(self).__name__}.expected() must give the source's rows")

    def clock(self) -> Clock:
        """What readers wait by."""
        return SystemClock()

    def test_descriptions_are_picklable(self) -> None:
        self._checks().test_descriptions_are_picklable()

    def test_it_describes_itself(self) -> None:
        self._checks().test_it_describes_itself()

    def test_split_ids_are_unique_and_stable(self) -> None:
        self._checks().test_split_ids_are_unique_and_stable()

    def test_every_row_comes_once_with_the_declared_columns(self) -> None:
        self._checks().test_every_row_comes_once_with_the_declared_columns()

    def test_the_rows_do_not_depend_on_how_many_are_asked_for(self) -> None:
        self._checks().test_the_rows_do_not_depend_on_how_many_are_asked_for()

    def test_a_new_connection_gives_what_the_server_sends(self) -> None:
        driver, expected = SourceDriver(self.source(), self.clock(), self.patience), self._expected()
        for split in driver.splits(1):
            for rows in (0, 3, expected.num_rows):
                with contextlib.closing(driver.open(split)) as reader:
                    position = driver.read(reader, 3, rows).positions[-1]
                found = driver.read_split(split, 5, None, position).table()
                wrong = order_difference(found, expected)
                require(not wrong, AT_MOST_ONCE, f"a new connection behind {rows} rows: {wrong}")

    def test_readers_can_be_closed_at_any_time(self) -> None:
        self._checks().test_readers_can_be_closed_at_any_time()

    def test_readers_can_be_closed_after_an_error(self) -> None:
        self._checks().test_readers_can_be_closed_after_an_error()

    def test_a_job_that_crashes_makes_up_no_row(self) -> None:
        if not self.source().rewindable:
            return
        for seed in self.seeds:
            check_live_source_job(self.source(), self._expected(), self.clock(), seed)

    def _expected(self) -> pa.Table:
        with obeying(ROWS, "bringing expected() to the columns of `schema`"):
            return as_table(self.expected(), self.source().schema)

    def _checks(self) -> SourceSuite:
        return _Checks(self)


class _Checks(SourceSuite):
    """The checks of any source, of the author's."""

    def __init__(self, suite: LiveSourceSuite) -> None:
        self._suite = suite
        self.patience = suite.patience

    def source(self) -> Source:
        return self._suite.source()

    def expected(self) -> Rows:
        return self._suite.expected()

    def clock(self) -> Clock:
        return self._suite.clock()
