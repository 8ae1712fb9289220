"""How an operator describes itself: an `OperatorSpec` stands beside each operator, and the job graph holds it.

The graph, its rewrites, both runtimes and batch mode read its traits; nobody asks which class it is of. So a new
operator is one file: its spec says all that the rest of the engine must know of it.
"""

from __future__ import annotations

import enum
import math
from abc import ABC, abstractmethod
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from penstock.engine.aggregates.partials import PartialLayout
from penstock.engine.changelog import APPEND_ONLY, ChangelogMode
from penstock.engine.connectors import Sink
from penstock.engine.errors import ConfigurationError
from penstock.engine.exchange.partitioners import Partitioner
from penstock.engine.operators.base import Operator
from penstock.engine.operators.relational import Relational
from penstock.engine.state.snapshot import HeldState, OperatorSnapshot


@dataclass(frozen=True, slots=True)
class Resources:
    """What one subtask of an operator reserves on the cluster, beside its slot.

    Args:
        num_cpus, num_gpus: CPUs and GPUs; fractions are allowed.

    Raises:
        ConfigurationError: what is no number of 0 or more.
    """

    num_cpus: float = 0.0
    num_gpus: float = 0.0

    def __post_init__(self) -> None:
        for option, value in (("num_cpus", self.num_cpus), ("num_gpus", self.num_gpus)):
            if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < math.inf:
                raise ConfigurationError(f"{option} must be a number of 0 or more, not {value!r}")


class RowOrder(enum.Enum):
    """Which order of its rows an operator's results depend on."""

    NONE = "none"
    """None: each row is handled by itself."""
    WITHIN_INPUTS = "within inputs"
    """Rows of each input in the order of their timestamps are enough; how inputs are mixed does not matter."""
    ACROSS_INPUTS = "across inputs"
    """The order in which rows come, over all inputs."""


@dataclass(frozen=True, slots=True)
class Updates:
    """The operator emits updates, and where the input ends, the last update of each key is its result.

    Args:
        keys: the key columns.
        in_results: whether they are in the updates, too; if not, there is one update a row, in the same order.
        final: what the last updates are together, if that has a relational form.
    """

    keys: tuple[str, ...]
    in_results: bool
    final: Relational | None = None


@dataclass(frozen=True, slots=True)
class Feedback:
    """The operator ends the way back of a loop.

    Args:
        loop: number of the loop: the id of its head in the job graph.
        partitioner: how rows are spread over the subtasks of the head.
    """

    loop: int
    partitioner: Partitioner


@dataclass(frozen=True, slots=True)
class OperatorTraits:
    """What the engine must know of an operator. The defaults are right for an operator of which nothing is known.

    Args:
        keys: the key columns of each input whose state is by key; empty without keyed state.
        order: which order of rows the results depend on.
        accepts: the changelog modes that each input takes; the last entry holds for further inputs. The graph refuses
            others where it is built, so who counts a delete as a row says nothing here.
        emits: the changelog mode of the results; None: that of the inputs.
        checkpoint_obstacle: why no checkpoint can be taken of it, with a remedy; None: it can.
        emits_at_end: whether rows come only when all input has ended.
        waits_for_clock: whether it holds rows until the clock comes to a time, and gives none because input ends.
        updates: set if its results are updates by key.
        partial_layout: how rows may travel to it as partial aggregates; None: only one by one.
        relational: what it computes, if another engine could compute it as well.
        sink: where its rows leave the job.
        commits: whether it waits for each checkpoint to count.
        loop_head: number of the loop that it is the head of.
        feedback: set for the tail of a loop.
        resources: what each subtask reserves; it gets a task of its own.
    """

    keys: tuple[tuple[str, ...], ...] = ()
    order: RowOrder = RowOrder.ACROSS_INPUTS
    accepts: tuple[AbstractSet[ChangelogMode], ...] = (APPEND_ONLY,)
    emits: ChangelogMode | None = ChangelogMode.APPEND
    checkpoint_obstacle: str | None = None
    emits_at_end: bool = False
    waits_for_clock: bool = False
    updates: Updates | None = None
    partial_layout: PartialLayout | None = None
    relational: Relational | None = None
    sink: Sink | None = None
    commits: bool = False
    loop_head: int | None = None
    feedback: Feedback | None = None
    resources: Resources | None = None

    def accepted(self, input_index: int) -> AbstractSet[ChangelogMode]:
        """The changelog modes that an input takes."""
        return self.accepts[min(input_index, len(self.accepts) - 1)]


NOTHING_KNOWN = OperatorTraits()


class OperatorSpec(ABC):
    """The picklable description of an operator that the job graph holds; usually a frozen, slotted dataclass.

    Example:
        >>> @dataclass(frozen=True, slots=True)
        ... class LimitSpec(OperatorSpec):
        ...     rows: int
        ...     def create(self) -> Operator:
        ...         return Limit(self.rows)
        ...     def describe(self) -> str:
        ...         return f"limit({self.rows})"
        ...     @property
        ...     def traits(self) -> OperatorTraits:
        ...         return OperatorTraits(accepts=(WITH_BEFORE_IMAGES,), emits=None)
    """

    __slots__ = ()

    @abstractmethod
    def create(self) -> Operator:
        """The operator of one subtask; called in the subtask."""

    @abstractmethod
    def describe(self) -> str:
        """What it does, as `explain()` and messages name it where the user gave no name, such as `map(parse)`."""

    @property
    def traits(self) -> OperatorTraits:
        """What the engine must know of it."""
        return NOTHING_KNOWN

    def hold(self, snapshot: OperatorSnapshot) -> HeldState | None:
        """The keyed state of a snapshot as the operator will hold it, made before it is there; None: it cannot be.

        It comes back as `OperatorSnapshot.held` where the operator is restored, with what has changed since. Called in
        the process of the subtask, in any thread.
        """
        return None

    def warm(self, snapshot: OperatorSnapshot) -> None:
        """Have this process load and compile what the operator takes to restore such keyed state: called as `hold` is,
        where that gives nothing, so that rows which wait for the operator do not wait for that."""
        return

    def fused(self, before: OperatorSpec) -> OperatorSpec | None:
        """One operator that does the work of `before` and then of this one; None if there is none."""
        return None

    def resumed(self) -> OperatorSpec:
        """What takes its place where the program resumes from a savepoint."""
        return self
