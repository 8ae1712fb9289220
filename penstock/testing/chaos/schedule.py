"""What goes wrong when: the schedule of a chaos run, as plain values that print and compare.

Users write one by hand or have `ChaosSchedule.random` draw one; the harness carries it out. Everything is decided here:
the same seed gives the same schedule, and a schedule fires the same faults at a job that has got equally far.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from penstock.engine.durations import Duration, parse_duration
from penstock.engine.errors import ConfigurationError, nearest

_DRAWS: Final = 2**31
_SHORTEST_PAUSE_S: Final = 0.2
_FIRST_S: Final = 0.5
"""When the first fault may fire: the job runs by then."""
_INTO_RESCALE_S: Final = 1.0
"""About what a rescale takes where new processes have to start."""
_STORM: Final = 6
"""How many rescales a storm has."""


@dataclass(frozen=True, slots=True)
class AfterSeconds:
    """So many seconds after the job was first seen running."""

    seconds: float

    def __str__(self) -> str:
        return f"{self.seconds:.2f} s"


@dataclass(frozen=True, slots=True)
class AfterCheckpoints:
    """When so many more checkpoints have been completed than there were at the beginning."""

    completed: int

    def __str__(self) -> str:
        return f"checkpoint +{self.completed}"


@dataclass(frozen=True, slots=True)
class AfterFault:
    """So many seconds after the fault before it in the schedule has fired: to hit a job that is recovering."""

    seconds: float

    def __str__(self) -> str:
        return f"{self.seconds:.2f} s later"


@dataclass(frozen=True, slots=True)
class AmidRescale:
    """So many seconds after a rescale has begun, or after the fault before hit it, and before that rescale is over.

    Of a rescale that is over sooner, the next one is meant, and half the time. It fires anyway once nobody asks for
    rescales any more.
    """

    seconds: float

    def __str__(self) -> str:
        return f"{self.seconds:.2f} s into a rescale"


Moment: TypeAlias = AfterSeconds | AfterCheckpoints | AfterFault | AmidRescale


@dataclass(frozen=True, slots=True)
class SubtaskChoice:
    """Which subtask is meant.

    Args:
        operator: uid or name of an operator in its task, or a part of the task's name; None: any task.
        subtask: its index; None: any.
        draw: where several are meant, number `draw` of them, counted round and round.

    Example:
        >>> str(SubtaskChoice("count", 1))
        "subtask 1 of 'count'"
    """

    operator: str | None = None
    subtask: int | None = None
    draw: int = 0

    def __str__(self) -> str:
        index = "a subtask" if self.subtask is None else f"subtask {self.subtask}"
        return index if self.operator is None else f"{index} of {self.operator!r}"


ANY: Final = SubtaskChoice()


@dataclass(frozen=True, slots=True)
class KillSubtask:
    """`kill -9` of the process of a subtask, or of several at once.

    Args:
        choices: which.
    """

    choices: Sequence[SubtaskChoice] = (ANY,)

    def __str__(self) -> str:
        return f"kill {' and '.join(map(str, self.choices))}"


@dataclass(frozen=True, slots=True)
class PauseSubtask:
    """SIGSTOP to the process of a subtask, and SIGCONT so many seconds later, whether it was replaced or not."""

    seconds: float
    choice: SubtaskChoice = ANY

    def __str__(self) -> str:
        return f"stop {self.choice} for {self.seconds:.2f} s"


@dataclass(frozen=True, slots=True)
class KillManager:
    """`kill -9` of the job manager."""

    def __str__(self) -> str:
        return "kill the job manager"


@dataclass(frozen=True, slots=True)
class PauseManager:
    """SIGSTOP to the process of the job manager, and SIGCONT so many seconds later."""

    seconds: float

    def __str__(self) -> str:
        return f"stop the job manager for {self.seconds:.2f} s"


@dataclass(frozen=True, slots=True)
class KillStandby:
    """`kill -9` of a warm process that no subtask runs in."""

    draw: int = 0

    def __str__(self) -> str:
        return "kill a standby"


@dataclass(frozen=True, slots=True)
class KillNode:
    """`kill -9` of the raylet of a node that is not the head; only in a `ray.cluster_utils.Cluster`."""

    draw: int = 0

    def __str__(self) -> str:
        return "kill a node"


@dataclass(frozen=True, slots=True)
class DrainNode:
    """A node that is not the head is told to leave, as `penstock drain` does, and stays.

    Args:
        seconds: of the notice that it gets.
        draw: which one, of those that live.
    """

    seconds: float = 120.0
    draw: int = 0

    def __str__(self) -> str:
        return f"drain a node, with {self.seconds:.2f} s of notice"


@dataclass(frozen=True, slots=True)
class TakeNode:
    """A spot node is taken away: told to leave, and killed when its notice is over; as `KillNode` does.

    Args:
        seconds: of the notice: 120 on AWS, 30 on Google Cloud.
        draw: which one.
    """

    seconds: float = 30.0
    draw: int = 0

    def __str__(self) -> str:
        return f"take a node away behind {self.seconds:.2f} s of notice"


@dataclass(frozen=True, slots=True)
class Rescale:
    """The job continues at another parallelism."""

    parallelism: int

    def __str__(self) -> str:
        return f"rescale to {self.parallelism}"


@dataclass(frozen=True, slots=True)
class RescaleStorm:
    """An autoscaler that cannot make up its mind: single operators are rescaled one after the other, without a pause.

    Args:
        parallelisms: what they get, in turn.
        draw: which operator is the first; the others follow as they stand in the job.
    """

    parallelisms: Sequence[int]
    draw: int = 0

    def __str__(self) -> str:
        return f"rescale one operator after the other to {', '.join(map(str, self.parallelisms))}"


@dataclass(frozen=True, slots=True)
class TakeSavepoint:
    """A savepoint is taken; `directory` as in `JobHandle.savepoint`."""

    directory: str | None = None

    def __str__(self) -> str:
        return "take a savepoint"


@dataclass(frozen=True, slots=True)
class KillServer:
    """`kill -9` of a server that the job uses, which is started again with its data so many seconds later.

    Args:
        server: the name that the harness knows it by.
        seconds: how long it is away, beside the time that it takes to start.
    """

    server: str
    seconds: float = 0.0

    def __str__(self) -> str:
        return f"kill {self.server}, and start it {self.seconds:.2f} s later"


@dataclass(frozen=True, slots=True)
class RestartServer:
    """A server is shut down in good order, and started again."""

    server: str

    def __str__(self) -> str:
        return f"restart {self.server}"


@dataclass(frozen=True, slots=True)
class PauseServer:
    """SIGSTOP to a server, and SIGCONT so many seconds later: to its clients, a network that carries nothing."""

    server: str
    seconds: float

    def __str__(self) -> str:
        return f"stop {self.server} for {self.seconds:.2f} s"


ServerFault: TypeAlias = KillServer | RestartServer | PauseServer
Fault: TypeAlias = (
    KillSubtask
    | PauseSubtask
    | KillManager
    | PauseManager
    | KillStandby
    | KillNode
    | DrainNode
    | TakeNode
    | Rescale
    | RescaleStorm
    | TakeSavepoint
    | ServerFault
)


@dataclass(frozen=True, slots=True)
class ScheduledFault:
    """A fault and its moment.

    Args:
        at: when.
        fault: what goes wrong.
        optional: whether the run is as good where there was nothing to hit, or the job had ended before.
    """

    at: Moment
    fault: Fault
    optional: bool = False

    def __str__(self) -> str:
        return f"at {self.at}: {self.fault}" if not isinstance(self.at, AfterFault) else f"{self.at}: {self.fault}"


DEFAULT_WEIGHTS: Final[Mapping[str, float]] = {"subtask": 6, "two": 1, "manager": 1, "pause": 1, "standby": 1}
"""How likely each kind of fault is in a random schedule: mostly what happens most."""
SERVER_KINDS: Final = ("kill-server", "restart-server", "pause-server")
NODE_KINDS: Final = ("node", "drain", "spot")
RESCALE_KINDS: Final = ("rescale", "rescale-one", "storm")
KINDS: Final = (
    *DEFAULT_WEIGHTS,
    "pause-manager",
    *RESCALE_KINDS,
    "savepoint",
    *NODE_KINDS,
    *SERVER_KINDS,
)


@dataclass(frozen=True, slots=True)
class ChaosSchedule:
    """Faults, in the order in which they fire.

    Args:
        faults: what goes wrong when.
        seed: what it was drawn from; None for one that was written by hand.

    Example:
        >>> print(ChaosSchedule([ScheduledFault(AfterSeconds(2), KillSubtask()),
        ...                      ScheduledFault(AfterFault(0.1), KillManager())]))
        at 2.00 s: kill a subtask
        0.10 s later: kill the job manager
    """

    faults: Sequence[ScheduledFault]
    seed: int | None = None

    @classmethod
    def random(
        cls,
        seed: int,
        duration: Duration = "10s",
        faults: int = 3,
        weights: Mapping[str, float] = DEFAULT_WEIGHTS,
        parallelisms: Sequence[int] = (1, 2, 3),
        servers: Sequence[str] = (),
        longest_pause: Duration = "2s",
        during: str | None = None,
    ) -> ChaosSchedule:
        """A schedule that the seed decides; its faults are optional, as the seed knows nothing of the job.

        Args:
            seed: of the random numbers.
            duration: the faults fire between 0.5 s and this time, some of them while the job still recovers.
            faults: how many.
            weights: how likely each kind is: `subtask` (kill one), `two` (at once), `manager`, `pause` and
                `pause-manager` (SIGSTOP, then SIGCONT), `standby`, `rescale`, `rescale-one` (operator), `storm` (of
                such), `savepoint`, `node` (killed), `drain`, `spot` (drained, and killed a moment later);
                `kill-server`, `restart-server` and `pause-server`.
            parallelisms: what rescales choose from.
            servers: names of those that the last three kinds choose from.
            longest_pause: of what is stopped, of a server that was killed, and of the notice of a `spot` node.
            during: a kind of which one more fires at 0.5 s: the others hit a job that deals with it. Behind `storm`,
                `rescale` and `rescale-one` they fire while a rescale is under way, up to a second after it has begun.

        Raises:
            ConfigurationError: no such kind, no faults, no server for the kinds, or a duration that is none.
        """
        _check(faults, weights, servers, during)
        longest = parse_duration(longest_pause, "longest_pause") / 1000
        seconds = max(_FIRST_S + 0.1, parse_duration(duration, "duration") / 1000)
        rng = random.Random(f"chaos {seed}")
        kinds = rng.choices(list(weights), list(weights.values()), k=faults)
        moments = sorted(round(rng.uniform(_FIRST_S, seconds), 2) for _ in kinds)
        drawn = [*zip(moments, kinds, strict=True), *([] if during is None else [(_FIRST_S, during)])]
        planned = [
            ScheduledFault(
                AfterSeconds(moment), _draw(rng, kind, parallelisms, servers or ("",), longest), optional=True
            )
            for moment, kind in drawn
        ]
        # What is to be disturbed is drawn last, and fires first.
        disturbed, others = planned[len(kinds) :], planned[: len(kinds)]
        if during in RESCALE_KINDS:
            others = [replace(one, at=AmidRescale(round(rng.uniform(0, _INTO_RESCALE_S), 2))) for one in others]
        return cls((*disturbed, *others), seed)

    def __str__(self) -> str:
        return "\n".join(map(str, self.faults))


def _check(faults: int, weights: Mapping[str, float], servers: Sequence[str], during: str | None) -> None:
    wanted = [*weights, *([] if during is None else [during])]
    for kind in wanted:
        if kind not in KINDS:
            raise ConfigurationError(
                f"chaos: no kind of fault {kind!r}{nearest(kind, KINDS)}; there are {', '.join(KINDS)}"
            )
    if faults < 1 or not any(weight > 0 for weight in weights.values()) or min(weights.values()) < 0:
        raise ConfigurationError("chaos: a schedule has at least one fault, and one kind with a weight over 0")
    if not servers and (served := [kind for kind in SERVER_KINDS if weights.get(kind) or kind == during]):
        raise ConfigurationError(f"chaos: {', '.join(served)} needs a server: give servers=[...]")


def _draw(
    rng: random.Random, kind: str, parallelisms: Sequence[int], servers: Sequence[str], longest_pause: float
) -> Fault:
    # Every kind takes the same numbers, so that one fault more or less likely leaves the others as they are.
    first, second = rng.randrange(_DRAWS), rng.randrange(_DRAWS)
    pause = round(rng.uniform(_SHORTEST_PAUSE_S, longest_pause), 2)
    parallelism = rng.choice(parallelisms)
    server = servers[first % len(servers)]
    made: Mapping[str, Fault] = {
        "subtask": KillSubtask((SubtaskChoice(draw=first),)),
        "two": KillSubtask((SubtaskChoice(draw=first), SubtaskChoice(draw=second))),
        "manager": KillManager(),
        "pause": PauseSubtask(pause, SubtaskChoice(draw=first)),
        "pause-manager": PauseManager(pause),
        "standby": KillStandby(first),
        "rescale": Rescale(parallelism),
        "rescale-one": RescaleStorm((parallelism,), first),
        "storm": RescaleStorm(
            tuple(parallelisms[(first + turn) % len(parallelisms)] for turn in range(_STORM)), second
        ),
        "savepoint": TakeSavepoint(),
        "node": KillNode(first),
        "drain": DrainNode(draw=first),
        "spot": TakeNode(pause, first),
        "kill-server": KillServer(server, pause),
        "restart-server": RestartServer(server),
        "pause-server": PauseServer(server, pause),
    }
    return made[kind]
