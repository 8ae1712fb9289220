"""Simulated nodes: the processes of a job live in slots on them, and are lost with them; nodes come back after a while.

The world makes the nodes of a run, and for each manager the room that it has on them. They draw from a source of chance
of their own, so that a run in which no node is lost is what it would be without them.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

from penstock.engine.checkpointing.instructions import Place
from penstock.engine.errors import NoRoomError, WorkerLostError
from penstock.engine.job.layout import Layout
from penstock.testing.simulation.faults import Dice

_NODES: Final = (3, 4)
_SLOTS: Final = (1, 2)
_STANDBYS: Final = (0, 1, 2)
_LEAST: Final = (None, 1)
_TWO: Final = 0.25
"""How often a second node is lost with one."""
_LOST_STEPS: Final = (50, 1500)
_LOOK_STEPS: Final = 100
"""How much later it is looked for room, as on Ray: a job that cannot use it now asks again at once."""


class Nodes:
    """The machines of a run.

    Args:
        chosen: of all that happens to them.
        dice: knows the step and the budget, and keeps the schedule.

    Attributes:
        standbys: how many warm processes each manager keeps.
        min_parallelism: how small a job may become where there is no room for all of it; None: it may not.
    """

    def __init__(self, chosen: random.Random, dice: Dice) -> None:
        self._chosen = chosen
        self._dice = dice
        self._slots = dict.fromkeys(range(chosen.choice(_NODES)), chosen.choice(_SLOTS))
        self._back: dict[int, int] = {}
        self.standbys = chosen.choice(_STANDBYS)
        self.min_parallelism = chosen.choice(_LEAST)

    @property
    def step(self) -> int:
        """The number of the step that is being taken."""
        return self._dice.step

    @property
    def alive(self) -> list[int]:
        """The numbers of the nodes that are there."""
        return [node for node in self._slots if node not in self._back]

    def slots(self, node: int) -> int:
        """How many slots a node has; 0: it is lost."""
        return 0 if node in self._back else self._slots[node]

    def choose(self) -> int | None:
        """Any node that is there; None: there is none."""
        alive = self.alive
        return self._chosen.choice(alive) if alive else None

    def some(self) -> list[int]:
        """A node that is there, or two at once, if there are any."""
        alive = self.alive
        return self._chosen.sample(alive, min(len(alive), 2 if self._chosen.random() < _TWO else 1))

    def lose(self, node: int) -> None:
        """A node is gone; some time later it, or another in its place, is there."""
        self._back[node] = self._dice.step + self._chosen.randint(*_LOST_STEPS)

    def return_due(self) -> None:
        """Nodes whose time has come are there again."""
        if self._back:
            self._back = {node: step for node, step in self._back.items() if step > self._dice.step}

    def return_all(self) -> None:
        """All nodes are there again."""
        self._back.clear()

    def strikes(self, rate: float, what: str) -> bool:
        """Whether a fault happens now that only nodes have."""
        dice = self._dice
        if len(dice.schedule) >= dice.rates.budget or self._chosen.random() >= rate:
            return False
        dice.note(what)
        return True

    @property
    def standby_rate(self) -> float:
        """How likely a standby dies in the moment in which it is taken."""
        return self._dice.rates.standby


class NodeRoom:
    """The room of one manager: slot n has the processes of subtasks n, as on Ray. Implements `Room`.

    Args:
        nodes: where it is.
        node: on which the manager itself runs.
    """

    def __init__(self, nodes: Nodes, node: int | None) -> None:
        self.node = node
        self._nodes = nodes
        self._slots: dict[int, int] = {}
        self._processes: set[Place] = set()
        self._standbys: list[int] = []
        self._awaited: tuple[int, int, Callable[[], None]] | None = None

    def provide(self, layout: Layout) -> None:
        self._awaited = None
        self._place(layout)
        self._processes &= set(layout.places)
        for place in layout.places:
            if place not in self._processes:
                self._start(place)

    def prepare(self, layout: Layout) -> None:
        before = dict(self._slots)
        try:
            self._place(layout)
        except NoRoomError:
            self._slots = before
            raise

    def fill_standbys(self) -> None:
        while self._nodes.alive and len(self._standbys) < self._nodes.standbys:
            node = self._nodes.choose()
            assert node is not None
            self._standbys.append(node)

    def await_room(self, layout: Layout, found: Callable[[], None]) -> None:
        self._awaited = self._nodes.step + _LOOK_STEPS, _width(layout), found

    def look(self) -> None:
        """Tell who waits for room if there is enough."""
        if self._awaited is None or self._nodes.step < self._awaited[0]:
            return
        _, wanted, found = self._awaited
        if sum(map(self._nodes.slots, self._nodes.alive)) >= wanted:
            self._awaited = None
            found()

    def lose_process(self, place: Place) -> None:
        """The process of a subtask has died."""
        self._processes.discard(place)

    def lose_node(self, node: int) -> list[Place]:
        """A node is gone; whose processes were on it."""
        slots = {slot for slot, at in self._slots.items() if at == node}
        for slot in slots:
            del self._slots[slot]
        self._standbys = [at for at in self._standbys if at != node]
        lost = sorted(place for place in self._processes if place[1] in slots)
        self._processes -= set(lost)
        return lost

    def _place(self, layout: Layout) -> None:
        """Have a slot for each number of a subtask; all that are there stay where they are."""
        wanted = _width(layout)
        self._slots = {slot: node for slot, node in self._slots.items() if slot < wanted}
        self._processes = {place for place in self._processes if place[1] < wanted}
        used = list(self._slots.values())
        nodes = self._nodes
        # One slot of each node before the second of any.
        turns = range(max(map(nodes.slots, nodes.alive), default=0))
        free = [node for turn in turns for node in nodes.alive if used.count(node) <= turn < nodes.slots(node)]
        missing = [slot for slot in range(wanted) if slot not in self._slots]
        if len(free) < len(missing):
            raise NoRoomError(f"simulated: no room for {wanted} slots", len(self._slots) + len(free))
        self._slots |= zip(missing, free, strict=False)

    def _start(self, place: Place) -> None:
        """Start a process, or take a warm one."""
        if self._standbys:
            self._standbys.pop(0)
            if self._nodes.strikes(self._nodes.standby_rate, "a standby dies as it is taken"):
                raise WorkerLostError(f"killed: the standby for subtask {place}")
        self._processes.add(place)


def _width(layout: Layout) -> int:
    return max(layout.parallelisms.values())
