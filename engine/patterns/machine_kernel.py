"""The rules of `machine_rules`, `memory_rules` and `row_order`, compiled by numba.

Imported by the machine only for many rows, because the import takes longer than a small job. Gives the same results.
"""

from __future__ import annotations

from typing import Final

from penstock.engine.patterns import machine_rules, memory_rules, row_order
from penstock.engine.patterns.compiled_rules import compiled_rules

_CALLED: Final = (
    *("with_room", "with_room_in_queues", "puts", "sets", "moves", "precedes", "swaps", "adds", "settles", "keeps"),
    *("drops", "begun", "stands_before", "sinks", "in_order", "bounded", "skips", "has_old", "advances", "makes"),
    *("takes", "emits"),
)
_RUN: Final = compiled_rules(machine_rules, ("run",), _CALLED)
_MEMORY: Final = compiled_rules(memory_rules, ("paths", "compacted", "owners"), ("renumbered",))
run: Final = _RUN["run"]
paths: Final = _MEMORY["paths"]
compacted: Final = _MEMORY["compacted"]
owners: Final = _MEMORY["owners"]
by_digits: Final = compiled_rules(row_order, ("by_digits",))["by_digits"]
