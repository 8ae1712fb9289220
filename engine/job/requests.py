"""What users have asked of a job and have not been answered: each request gets exactly one answer.

The brain adds requests and answers them; what is left when the job ends is answered by how it ended.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.engine.errors import CheckpointError, JobError, PenstockError
from penstock.engine.job.events import CancelJob, Command, RescaleJob
from penstock.engine.job.instructions import Answer, Instruction
from penstock.engine.job.status import JobStatus


@dataclass(slots=True)
class _Open:
    """A request.

    Args:
        command: what was asked for.
        promised: the URL that is the answer once the job has ended as it should.
        is_first: of a cancellation: whether it is what ends the job.
    """

    command: Command
    promised: str | None = None
    is_first: bool = True


class Requests:
    """The open requests of one job.

    Args:
        said: takes the answers.
    """

    def __init__(self, said: list[Instruction]) -> None:
        self._said = said
        self._open: dict[int, _Open] = {}

    def add(self, request: int, command: Command) -> None:
        """Somebody asks for something."""
        self._open[request] = _Open(command)

    def command(self, request: int) -> Command | None:
        """What was asked for; None: it has been answered."""
        found = self._open.get(request)
        return None if found is None else found.command

    def answer(self, request: int, outcome: str | float | bool | PenstockError) -> None:
        """Answer a request, unless it has been."""
        if self._open.pop(request, None) is not None:
            self._said.append(Answer(request, outcome))

    def promise(self, request: int, url: str) -> None:
        """The savepoint that ends the job is there; the answer waits for the end."""
        if request in self._open:
            self._open[request].promised = url

    def downgrade(self, request: int) -> None:
        """This cancellation changes nothing, as the job was ending already."""
        self._open[request].is_first = False

    def answer_all(self, name: str, status: JobStatus, error: PenstockError | None) -> None:
        """The job has ended: answer what is left."""
        for request, left in list(self._open.items()):
            self.answer(request, _at_end(left, name, status, error))


def _at_end(left: _Open, name: str, status: JobStatus, error: PenstockError | None) -> str | bool | PenstockError:
    match left.command:
        case CancelJob():
            return left.is_first
        case RescaleJob():
            return JobError(f"job {name!r} ended before it was rescaled")
        case _ if left.promised is not None and status is JobStatus.FINISHED:
            return left.promised
        case _ if error is not None:
            return CheckpointError(f"job {name!r} has ended: it is {status.value}: {error}")
        case _:
            return CheckpointError(f"job {name!r} has ended: it is {status.value}")
