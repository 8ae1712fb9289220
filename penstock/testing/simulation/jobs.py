"""The jobs of a simulated run, and the processes that manage them: values.

The world makes them; what happens to them is the affair of the world and its misfortunes.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.engine.checkpointing.instructions import Place
from penstock.engine.checkpointing.store import RestorePlan
from penstock.engine.errors import WorkerLostError
from penstock.engine.graph.physical import JobProgram
from penstock.engine.local.manager import LocalManager
from penstock.testing.simulation.mail import SimulatedMailbox
from penstock.testing.simulation.nodes import NodeRoom
from penstock.testing.simulation.scenario import Case
from penstock.testing.simulation.warehouse import Warehouse


@dataclass(slots=True)
class ManagerProcess:
    """A manager, its mailbox, and its room on the nodes.

    Attributes:
        learned: how much its brain had heard when the world looked last at what it says; None: it has not looked.
    """

    manager: LocalManager
    mail: SimulatedMailbox
    room: NodeRoom
    learned: int | None = None

    def lose(self, place: Place, error: WorkerLostError) -> None:
        """The process of a subtask dies."""
        self.room.lose_process(place)
        self.manager.lose(place, error)


@dataclass(slots=True)
class Job:
    """A job of a run.

    Args:
        number: counts the jobs of the run.
        job_id: names its folder.
        case, program: what runs; the program as it was rescaled last.
        warehouse: where its rows go.
        start_url, start: the savepoint or checkpoint that it resumes from.
    """

    number: int
    job_id: str
    case: Case
    program: JobProgram
    warehouse: Warehouse
    start_url: str | None = None
    start: RestorePlan | None = None
    real: ManagerProcess | None = None
    zombies: list[ManagerProcess] = field(default_factory=list)
    savepoint: str | None = None
    """The URL of the savepoint that a second job is to start from."""
    branch: Warehouse | None = None
    """What had been written when it was complete."""
    suspended: str | None = None
    """The URL of the savepoint that the job was stopped with."""
    draining: ManagerProcess | None = None
    """Who was asked to drain it, and has neither refused nor been replaced: it may be at its end because of that."""
    ends_early: bool = False
    """Whether it resumes from a savepoint behind which there is nothing to do."""
    cancelled: tuple[ManagerProcess, bool] | None = None
    """Who was asked last to cancel it, and whether its checkpoints were to stay."""
    corrupted: str | None = None
    """The URL of the file that was damaged."""
