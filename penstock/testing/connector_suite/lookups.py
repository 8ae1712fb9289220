"""The checks of a lookup table: `LookupTableSuite`, which the author of a table subclasses, or calls method by method.

pytest runs its methods; it raises `ConformanceError`, which names the rule that is broken.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator

import pyarrow as pa

from penstock.engine.clock import Clock, SystemClock
from penstock.engine.connectors import ConnectorContext, LookupTable
from penstock.testing.connector_suite.copies import copied
from penstock.testing.connector_suite.rows import Rows, as_table, difference, order_difference
from penstock.testing.connector_suite.rules import LOOKUP, LOOKUP_COPY, PICKLE, READER_CLOSE, obeying, require


class LookupTableSuite:
    """What every lookup table must keep. Subclass it, and give `table`, `expected` and `absent`.

    Example:
        >>> class TestUsers(LookupTableSuite):
        ...     def table(self):
        ...         return Users(address)
        ...     def expected(self):
        ...         return [{"id": 1, "name": "Ann"}, {"id": 2, "name": "Bo"}]
        ...     def absent(self):
        ...         return [{"id": 3}]
    """

    def table(self) -> LookupTable:
        """Build the table, as a program does."""
        raise NotImplementedError(f"{type(self).__name__}.table() must build the table")

    def expected(self) -> Rows:
        """All its rows: two keys at least, best with several rows for one of them."""
        raise NotImplementedError(f"{type(self).__name__}.expected() must give the table's rows")

    def absent(self) -> Rows:
        """Keys without rows, one at least."""
        raise NotImplementedError(f"{type(self).__name__}.absent() must give keys that have no rows")

    def clock(self) -> Clock:
        """Of the job."""
        return SystemClock()

    def test_descriptions_are_picklable(self) -> None:
        table = self.table()
        same = copied(table)
        equal = same.schema.equals(table.schema) and list(same.keys) == list(table.keys)
        require(equal, PICKLE, f"the copy of {type(table).__name__} is another table")
        unknown = [key for key in table.keys if key not in table.schema.names]
        require(not unknown, LOOKUP, f"`schema` has no column for the keys {unknown}")

    def test_all_keys_together_give_all_rows(self) -> None:
        rows = self._expected()
        with self._opened(self.table()) as table:
            both = pa.concat_tables([self._keys(rows), as_table(self.absent(), self._keys(rows).schema)])
            wrong = difference(self._look_up(table, both), rows)
            require(not wrong, LOOKUP, wrong)

    def test_each_key_alone_gives_its_rows(self) -> None:
        rows = self._expected()
        with self._opened(self.table()) as table:
            together = self._look_up(table, self._keys(rows))
            for number in range(self._keys(rows).num_rows):
                key = self._keys(rows).slice(number, 1)
                wrong = order_difference(self._look_up(table, key), _with_key(together, key))
                require(not wrong, LOOKUP, f"key {key.to_pylist()[0]} alone, and among others: {wrong}")

    def test_absent_keys_give_no_rows(self) -> None:
        rows = self._expected()
        with self._opened(self.table()) as table:
            found = self._look_up(table, as_table(self.absent(), self._keys(rows).schema))
            require(found.num_rows == 0, LOOKUP, f"keys without rows gave {found.num_rows} rows")

    def test_copies_are_independent(self) -> None:
        rows, original = self._expected(), copied(self.table())
        with self._opened(original) as one:
            with self._opened(original) as other:
                self._look_up(other, self._keys(rows))
            with obeying(LOOKUP_COPY, "a lookup, when another copy was closed,"):
                wrong = difference(self._look_up(one, self._keys(rows)), rows)
            require(not wrong, LOOKUP_COPY, f"when another copy was closed: {wrong}")

    def test_tables_can_be_closed_at_any_time(self) -> None:
        for is_used in (False, True):
            table = copy.copy(copied(self.table()))
            table.open(self._context())
            if is_used:
                self._look_up(table, self._keys(self._expected()))
            for time in ("first", "second"):
                with obeying(READER_CLOSE, f"the {time} close()"):
                    table.close()

    def _context(self) -> ConnectorContext:
        return ConnectorContext("lookup", 0, 1, self.clock(), "connector-suite/lookup")

    @contextlib.contextmanager
    def _opened(self, description: LookupTable) -> Iterator[LookupTable]:
        table = copy.copy(description)
        table.open(self._context())
        try:
            yield table
        finally:
            table.close()

    def _expected(self) -> pa.Table:
        with obeying(LOOKUP, "bringing expected() to the columns of `schema`"):
            return as_table(self.expected(), self.table().schema)

    def _keys(self, rows: pa.Table) -> pa.Table:
        names = list(self.table().keys)
        return rows.select(names).group_by(names, use_threads=False).aggregate([]).select(names)

    def _look_up(self, table: LookupTable, keys: pa.Table) -> pa.Table:
        found = table.lookup(keys.combine_chunks().to_batches()[0])
        schema = table.schema
        require(found.schema.equals(schema), LOOKUP, f"lookup() gave\n{found.schema}\n  but `schema` is\n{schema}")
        return pa.Table.from_batches([found]) if isinstance(found, pa.RecordBatch) else found


def _with_key(rows: pa.Table, key: pa.Table) -> pa.Table:
    """The rows with one key, in their order."""
    (wanted,) = key.to_pylist()
    numbers = [i for i, row in enumerate(rows.to_pylist()) if all(row[name] == wanted[name] for name in wanted)]
    return rows.take(pa.array(numbers, pa.int64()))
