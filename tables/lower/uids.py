"""Gives the operators of a statement uids that hold as long as what they compute does (`plan/fingerprints.py`).

`Lowering` asks for each node of a plan. An operator with state is known by its fingerprint. What is between it and the
tables that it reads, the positions in these tables included, is known by that fingerprint as well: where the operator
changes, the table is read anew for it, and where it does not, it resumes where its state ends.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from penstock.engine.graph.logical import GraphBuilder
from penstock.engine.graph.shared_uids import numbered
from penstock.tables.plan.changelog import state_bound
from penstock.tables.plan.explain import described
from penstock.tables.plan.fingerprints import FORMAT, digest, fingerprint
from penstock.tables.plan.nodes import PlanNode, Scan, SinkPlan

_PREFIX: Final = f"sql{FORMAT}"


@dataclass(frozen=True, slots=True)
class Placed:
    """A node of a plan that keeps something from one run to the next.

    Args:
        shown: the node as EXPLAIN shows it.
        uids: of its operators.
        is_table: whether these keep positions in a table, or what is written to it; else state of rows.
    """

    shown: str
    uids: tuple[str, ...]
    is_table: bool


@dataclass
class StatementUids:
    """The uids of one statement.

    Args:
        graph: the program that operators are added to.
        root: what is above the plan: the table that is written to, or nothing.
    """

    graph: GraphBuilder
    root: str = ""
    placed: list[Placed] = field(default_factory=list)
    _anchors: list[str] = field(default_factory=list)
    _shared: int = 0

    @contextlib.contextmanager
    def of_shared(self) -> Iterator[None]:
        """Gives what is added meanwhile the uids of what is computed once for several places."""
        self._shared += 1
        yield
        self._shared -= 1

    @contextlib.contextmanager
    def of(self, node: PlanNode) -> Iterator[None]:
        """Gives the operators that are added meanwhile, but for those of nodes below, the uids of a node."""
        first, own = self.graph.next_id, fingerprint(node)
        keeps = state_bound(node) is not None
        anchor = self._anchors[-1] if self._anchors else self.root
        if keeps:
            self._anchors.append(own)
        yield
        if keeps:
            self._anchors.pop()
        is_table = isinstance(node, Scan)
        # A normalized table's rows belong to its positions.
        within = digest("table", node.table, anchor) if isinstance(node, Scan) else digest(own, anchor)
        mark = own if keeps and not is_table else within
        uids = self._give(first, f"{_PREFIX}-{type(node).__name__.lower()}-{mark}")
        if uids and (keeps or is_table):
            self.placed.append(Placed(described(node), uids, is_table))

    @contextlib.contextmanager
    def of_sink(self, plan: SinkPlan) -> Iterator[None]:
        """Gives the operators between the plan and its sink, and the sink, their uids."""
        first = self.graph.next_id
        yield
        sink = self.graph.next_id - 1
        uid = self._free(f"{_PREFIX}-sink-{plan.table}")
        self.graph.uid(sink, uid)
        kept = () if plan.on_conflict == "DEDUPLICATE" else (plan.on_conflict,)
        uids = self._give(first, f"{_PREFIX}-into-{digest(plan.table, fingerprint(plan.input), *kept)}")
        self.placed.append(Placed(f"Sink({plan.table})", (uid,), True))
        if plan.keys:
            self.placed.append(Placed(f"OneRowEach({', '.join(plan.keys)}, {plan.on_conflict})", uids, False))

    def _give(self, first: int, base: str) -> tuple[str, ...]:
        given: list[str] = []
        for node in range(first, self.graph.next_id):
            if self.graph[node].uid is None:
                uid = self._free(numbered(base, len(given), self._shared > 0))
                self.graph.uid(node, uid)
                given.append(uid)
        return tuple(given)

    def _free(self, uid: str) -> str:
        """The uid, with a number behind it where the program has it: where a thing is read or computed twice."""
        taken = {self.graph[node].uid for node in range(1, self.graph.next_id)}
        number, found = 2, uid
        while found in taken:
            number, found = number + 1, f"{uid}.{number}"
        return found
