"""Holds the columns of a stream where its rows meet, so that what does not fit together is an error in every order.

A task's input from exchanges (`task/guarded_entry.py`), the head of a loop and the rows for the client go through one.
Types that were not declared are held per subtask: only here can they be compared.
"""

from __future__ import annotations

import pyarrow as pa

from penstock.engine.elements import Batch, join_schemas


class SchemaGuard:
    """Checks that all batches of one stream have the same columns; a column of nulls may get its type later.

    Args:
        where: who takes the rows, for messages.
    """

    def __init__(self, where: str) -> None:
        self._where = where
        self._held: pa.Schema | None = None

    def check(self, batch: Batch) -> None:
        """Compare the batch with those before it.

        Raises:
            RecordError: its columns have other names, another order or other types.
        """
        schema = batch.data.schema
        if self._held is None:
            self._held = schema
        elif not schema.equals(self._held):
            self._held = join_schemas(self._held, schema, self._where)
