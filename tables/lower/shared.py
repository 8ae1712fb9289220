"""Makes the stream of a part of a plan once, however often the part is in the plan (a view that is joined with itself).

`Lowering` asks it for each node. What is shared ends in an operator with state, and gives the same rows each time: so
its tables are read once, and its state is kept once. Source: Flink's option `table.optimizer.reuse-sub-plan-enabled`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass

from penstock.engine.api.streams import DataStream
from penstock.tables.expressions import Expression
from penstock.tables.plan.changelog import state_bound
from penstock.tables.plan.expression_traits import is_deterministic
from penstock.tables.plan.fingerprints import fingerprint
from penstock.tables.plan.nodes import PlanNode


class SharedStreams:
    """The streams of one statement that may be wanted again."""

    def __init__(self) -> None:
        self._made: dict[str, tuple[PlanNode, DataStream]] = {}

    def stream(self, node: PlanNode, make: Callable[[PlanNode], DataStream]) -> DataStream:
        """The stream of a node's rows: of an equal node's, where one was made; else `make` makes it."""
        if state_bound(node) is None or not all(map(is_deterministic, _expressions(node))):
            return make(node)
        key = fingerprint(node)
        known, stream = self._made.get(key, (None, None))
        # A fingerprint says nothing of the options of a table, nor of the code of a function.
        if stream is not None and known == node:
            return stream
        stream = make(node)
        self._made[key] = node, stream
        return stream


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
