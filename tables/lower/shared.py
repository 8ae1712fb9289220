"""Finds what is in a plan several times (a view that is joined with itself), so that its stream is made once.

`Lowering` asks it for each node. What is shared ends in an operator with state, and gives the same rows each time: so
its tables are read once, and its state is kept once. A table itself is not shared, though its rows may be kept: its
positions belong to what is above it. Source: Flink's option `table.optimizer.reuse-sub-plan-enabled`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass

from penstock.engine.api.streams import DataStream
from penstock.tables.expressions import Expression
from penstock.tables.plan.changelog import state_bound
from penstock.tables.plan.expression_traits import is_deterministic
from penstock.tables.plan.fingerprints import fingerprint
from penstock.tables.plan.nodes import PlanNode, Scan, inputs_of


@dataclass
class SharedPart:
    """A part of a plan.

    Args:
        node: the top of it.
        is_repeated: whether it stands at another place, too.
        stream: its rows, once they are made.
    """

    node: PlanNode
    is_repeated: bool = False
    stream: DataStream | None = None


class SharedParts:
    """The parts of one statement that are computed once for several places.

    Args:
        plan: of the statement.
    """

    def __init__(self, plan: PlanNode) -> None:
        # A fingerprint says nothing of the options of a table, nor of the code of a function.
        self._parts: dict[str, list[SharedPart]] = {}
        self._enter(plan)

    def find(self, node: PlanNode) -> SharedPart | None:
        """The part that ends in a node; None where it is to be made for itself."""
        part = self._part(node) if _keeps_state(node) else None
        return part if part is not None and part.is_repeated else None

    def _enter(self, node: PlanNode) -> None:
        if _keeps_state(node):
            part = self._part(node)
            if part is not None:
                # What is below is made with the first one.
                part.is_repeated = True
                return
            if all(map(is_deterministic, _expressions(node))):
                self._parts.setdefault(fingerprint(node), []).append(SharedPart(node))
        for below in inputs_of(node):
            self._enter(below)

    def _part(self, node: PlanNode) -> SharedPart | None:
        return next((part for part in self._parts.get(fingerprint(node), ()) if part.node == node), None)


def _keeps_state(node: PlanNode) -> bool:
    return state_bound(node) is not None and not isinstance(node, Scan)


def _expressions(value: object) -> Iterator[Expression]:
    """All expressions in a node, and in those below it."""
    if isinstance(value, Expression):
        yield value
    if isinstance(value, Mapping):
        value = tuple(value.values())
    if isinstance(value, tuple | list | frozenset):
        parts = list(value)
    elif is_dataclass(value) and not isinstance(value, type):
        parts = [getattr(value, field.name) for field in fields(value)]
    else:
        return
    for part in parts:
        yield from _expressions(part)
