"""The splits of one subtask of a source: which are still to be opened, and how far those are that are not being read.

The head of a source task (`source_head.py`) asks it what to open, and it says what belongs into a capture beside the
open readers. A planned split belongs to the subtask that the plan gave it to; one that was discovered to the subtask
that the hash of its id says, at any parallelism, so that no two subtasks read it.
"""

from __future__ import annotations

import math
import zlib
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from penstock.engine.connectors import ConnectorContext, Source, Split, SplitDiscovery

_LOOK_SECONDS: Final = 1.0
"""How often the source is asked for more splits."""


class SubtaskSplits:
    """See the module.

    Args:
        source: whose splits they are.
        planned: those that the plan gave to this subtask.
        all_planned: the ids of those that it gave to any.
        context: of the subtask.

    Attributes:
        pending: to be opened, in this order.
        positions: where to resume (JSON text) in splits that were begun and are not open, by id.
        finished: the ids of those that are at their end.
    """

    def __init__(
        self, source: Source, planned: Sequence[Split], all_planned: Collection[str], context: ConnectorContext
    ) -> None:
        self.pending = deque(planned)
        self.positions: dict[str, str] = {}
        self.finished: set[str] = set()
        self._source = source
        self._planned = planned
        self._known = set(all_planned)
        self._context = context
        self._discovery: SplitDiscovery | None = None if source.bounded else source.discover(context)
        self._next_look = -math.inf

    @property
    def may_grow(self) -> bool:
        """Whether there may be more splits some time."""
        return self._discovery is not None

    @property
    def next_look(self) -> float:
        """When `look` may find some (seconds, monotonic)."""
        return self._next_look if self.may_grow else math.inf

    def restore(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Resume where the splits were.

        Args:
            rows: of all splits that any subtask had begun or was to open, as `SPLITS_SCHEMA` has them.
        """
        saved = {row["split_id"]: row for row in rows}
        planned = {split.split_id: split for split in self._planned}
        if self.may_grow:
            # What came between the look before the checkpoint and the new plan is new: it is left to the next look.
            planned = {split_id: split for split_id, split in planned.items() if split_id in saved}
            others = sorted(saved.keys() - self._known)
            self._known &= saved.keys()
            self._known.update(others)
            planned |= {split_id: self._source.split(split_id) for split_id in others if self._is_mine(split_id)}
        mine = [saved[split_id] for split_id in planned if split_id in saved]
        self.positions = {row["split_id"]: row["position"] for row in mine if row["position"] is not None}
        self.finished = {row["split_id"] for row in mine if row["finished"]}
        self.pending = deque(split for split_id, split in planned.items() if split_id not in self.finished)

    def look(self, now: float) -> None:
        """Take in the splits that have come, once it is time to look.

        Args:
            now: seconds, monotonic.
        """
        if self._discovery is None or now < self._next_look:
            return
        self._next_look = now + _LOOK_SECONDS
        for split in self._discovery.poll():
            if split.split_id not in self._known:
                self._known.add(split.split_id)
                if self._is_mine(split.split_id):
                    self.pending.append(split)

    def unopened(self) -> list[tuple[str, str | None, bool]]:
        """Rows of a capture: of splits at their end, and of those that were begun or found but are not open."""
        rows: list[tuple[str, str | None, bool]]
        rows = [(split_id, position, False) for split_id, position in self.positions.items()]
        if self.may_grow:
            waiting = [split.split_id for split in self.pending if split.split_id not in self.positions]
            rows += [(split_id, None, False) for split_id in waiting]
        return [*rows, *((split_id, None, True) for split_id in sorted(self.finished))]

    def end(self) -> None:
        """Nothing more is opened."""
        self.pending.clear()
        self.close()

    def close(self) -> None:
        """Look no more."""
        discovery, self._discovery = self._discovery, None
        if discovery is not None:
            discovery.close()

    def _is_mine(self, split_id: str) -> bool:
        return zlib.crc32(split_id.encode()) % self._context.parallelism == self._context.subtask
