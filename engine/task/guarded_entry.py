"""The entry of a task behind exchanges, which holds the columns of each of its inputs.

`task/build.py` puts it before the first operator; what does not fit together is an error in every order of arrival.
"""

from __future__ import annotations

from collections import defaultdict

from penstock.engine.elements import Batch, Element
from penstock.engine.schema_guard import SchemaGuard
from penstock.engine.task.loop import Entry


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
