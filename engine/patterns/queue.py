"""The queue in which a key's partial matches stand: a binary heap by first event, whose order among equals is exact.

The matcher uses it in place of `heapq`: which of two matches with one first event comes first decides what a skip
strategy drops, and so is part of the semantics. It follows `java.util.PriorityQueue`, as Flink's answers hang on it.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol, TypeVar


class Ordered(Protocol):
    """What stands in a queue."""

    @property
    def order(self) -> tuple[int, int]:
        """Time and number of the first event."""
        ...


Item = TypeVar("Item", bound=Ordered)


def offer(queue: list[Item], item: Item) -> None:
    """Add an item: it rises above those behind which it does not belong, and above no equal one."""
    queue.append(item)
    order, place = item.order, len(queue) - 1
    while place:
        parent = (place - 1) >> 1
        above = queue[parent]
        if order >= above.order:
            break
        queue[place] = above
        place = parent
    queue[place] = item


def poll(queue: list[Item]) -> Item:
    """Take the first item; the queue is not empty."""
    first, last = queue[0], queue.pop()
    if queue:
        _sink(queue, 0, last)
    return first


def drop(queue: list[Item], gone: Collection[Item]) -> None:
    """Take out items wherever they stand, and put the others in order again."""
    if not gone:
        return
    lost = {id(item) for item in gone}
    queue[:] = [item for item in queue if id(item) not in lost]
    for place in range((len(queue) >> 1) - 1, -1, -1):
        _sink(queue, place, queue[place])


def _sink(queue: list[Item], place: int, item: Item) -> None:
    order, size = item.order, len(queue)
    half = size >> 1
    while place < half:
        child = 2 * place + 1
        below = queue[child]
        if child + 1 < size and below.order > queue[child + 1].order:
            child += 1
            below = queue[child]
        if order <= below.order:
            break
        queue[place] = below
        place = child
    queue[place] = item
