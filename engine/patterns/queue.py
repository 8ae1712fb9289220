"""The queue in which a key's partial matches stand: a binary heap by first event, whose order among equals is exact.

The matcher uses it. Which of two matches with one first event comes first decides what a skip strategy drops, so it is
part of the semantics: an item rises above larger ones only, and where two below it are equal, the left one is less.
`heapq` promises the first, but takes the right one of equals when it pops; so only its push is used here.

Source: Cormen, Leiserson, Rivest, Stein, "Introduction to Algorithms", Heapsort (`_settle` is its MIN-HEAPIFY).
"""

from __future__ import annotations

from collections.abc import Collection
from heapq import heappush as offer

from penstock.engine.patterns.partial import PartialMatch

__all__ = ["drop", "offer", "poll"]


def poll(queue: list[PartialMatch]) -> PartialMatch:
    """Take the first item; the queue is not empty."""
    first = queue[0]
    queue[0] = queue[-1]
    queue.pop()
    _settle(queue, 0)
    return first


def drop(queue: list[PartialMatch], gone: Collection[PartialMatch]) -> None:
    """Take out items wherever they stand, and put the others in order again."""
    if not gone:
        return
    lost = {id(item) for item in gone}
    queue[:] = [item for item in queue if id(item) not in lost]
    for place in reversed(range(len(queue) // 2)):
        _settle(queue, place)


def _settle(queue: list[PartialMatch], place: int) -> None:
    """Exchange an item with the lesser one below it, for as long as there is one that is less than it."""
    while below := range(2 * place + 1, min(2 * place + 3, len(queue))):
        # Of equal ones `min` gives the first.
        least = min(below, key=lambda child: queue[child].order)
        if queue[place].order <= queue[least].order:
            return
        queue[place], queue[least] = queue[least], queue[place]
        place = least
