"""How many warm processes each node is to have, and which are asked for next: pure, so that it is tested without any.

`WarmProcesses` tells it what happens and asks for what it says. One at a time while jobs run, whose CPUs these are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, TypeAlias

AT_ONCE: Final = 2
"""As many are started at once when the job has ended: a node starts no more than it has cores, whatever it is told."""
START_SECONDS: Final = 30.0
"""A process that has not come by then does not count as one that is on its way."""


@dataclass(frozen=True, slots=True)
class Made:
    """The job has made a process on a node, and taken a warm one for it if there was any."""

    node: str


@dataclass(frozen=True, slots=True)
class Counted:
    """So many warm processes wait on a node.

    Args:
        node: which.
        idle: how many; None: it does not answer.
    """

    node: str
    idle: int | None


@dataclass(frozen=True, slots=True)
class Leaving:
    """These nodes are about to leave: nothing is started there any more."""

    nodes: Collection[str]


@dataclass(frozen=True, slots=True)
class Ended:
    """The job has ended, and needs its CPUs no longer."""


Event: TypeAlias = Made | Counted | Leaving | Ended


@dataclass(frozen=True, slots=True)
class Ask:
    """Have a node start so many processes."""

    node: str
    count: int


class WarmPool:
    """The warm processes that one job leaves for the next: as many as it has made, on the same nodes.

    Args:
        size: the most for each node; 0: none.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._made: Counter[str] = Counter()
        self._asked: dict[str, tuple[int, float]] = {}
        self._ended = False

    @property
    def short(self) -> Collection[str]:
        """The nodes that may have fewer than they are to have: whoever counts there says so by `Counted`."""
        return list(self._made)

    def handle(self, event: Event, now: float) -> Ask | None:
        """Take an event; what is to be asked for.

        Args:
            event: what has happened.
            now: seconds, of a clock that never goes back.
        """
        match event:
            case Made(node):
                if self._size:
                    self._made[node] += 1
            case Leaving(nodes):
                for node in nodes:
                    self._forget(node)
            case Ended():
                self._ended = True
            case Counted(node, None):
                self._forget(node)
            case Counted(node, int(idle)):
                return self._ask(node, idle, now)
        return None

    def _ask(self, node: str, idle: int, now: float) -> Ask | None:
        missing = min(self._made[node], self._size) - idle
        if missing <= 0:
            self._forget(node)
            return None
        least, until = self._asked.get(node, (0, now))
        if idle < least and now < until:
            return None
        count = min(missing, AT_ONCE) if self._ended else 1
        self._asked[node] = idle + count, now + START_SECONDS
        return Ask(node, count)

    def _forget(self, node: str) -> None:
        self._made.pop(node, None)
        self._asked.pop(node, None)
