"""Holds the columns of a stream where its rows meet, so that what does not fit together is an error in every order.

A task's input from exchanges goes through `GuardedEntry`, the rows for the client through a `SchemaGuard`. Types that
were not declared are held per subtask: only here can they be compared.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.engine.elements import Batch, Element, join_schemas

if TYPE_CHECKING:
    from penstock.engine.task.loop import Entry


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


class GuardedEntry:
    """The entry of a task behind exchanges: checks each input, and hands the elements on.

    Args:
        entry: the first operator.
        where: its name and subtask, for messages.
    """

    def __init__(self, entry: Entry, where: str) -> None:
        self._entry = entry
        self._guards: defaultdict[int, SchemaGuard] = defaultdict(lambda: SchemaGuard(where))

    def process(self, input_index: int, element: Element) -> None:
        if isinstance(element, Batch) and element.num_rows:
            self._guards[input_index].check(element)
        self._entry.process(input_index, element)
