"""The verbs that set something about the operator just added, shared by streams and sinks."""

from __future__ import annotations

from penstock.engine.api.program import Program
from penstock.engine.config import LARGEST_MAX_PARALLELISM, check_parallelism, check_text
from penstock.engine.errors import GraphError
from penstock.engine.graph.logical import Results


class OperatorSettings:
    """Knows the program, and the node that was just added (None where the last verb added none)."""

    _program: Program
    _node: int | None

    def _own_node(self, verb: str) -> int:
        self._program.check_open()
        if self._node is None:
            raise GraphError(f"{verb}() sets something of an operator; call it right behind the verb that adds one")
        return self._node

    def _set_name(self, name: str) -> None:
        node = self._own_node("name")
        self._program.graph.name(node, check_text(name, f"{self._program.graph[node].where}: name()"))

    def _set_uid(self, uid: str) -> None:
        node = self._own_node("uid")
        self._program.graph.uid(node, check_text(uid, f"{self._program.graph[node].where}: uid()"))

    def _set_parallelism(self, parallelism: int) -> None:
        node = self._own_node("set_parallelism")
        where = self._program.graph[node].where
        if isinstance(self._program.graph[node].role, Results):
            raise GraphError(f"{where}: rows for the client are read by one process; set the parallelism before it")
        if node in self._program.one_subtask and parallelism != 1:
            raise GraphError(
                "set_parallelism: windows over all rows are computed by one subtask; for more, divide the stream with "
                "key_by(...) and window(...)"
            )
        check_parallelism(parallelism, LARGEST_MAX_PARALLELISM, where)
        self._program.graph.parallelism(node, parallelism)
