"""The rules of `machine_rules`, compiled by numba.

Imported by the machine only for many rows, because the import takes longer than a small job. Gives the same results.
"""

from __future__ import annotations

from typing import Final

from penstock.engine.patterns import machine_rules
from penstock.engine.patterns.compiled_rules import compiled_rules

_MADE: Final = compiled_rules(
    machine_rules,
    (
        *("copies", "with_room", "puts", "sets", "precedes", "swaps", "rises", "settles", "keeps", "drops", "begun"),
        *("bounded", "skips", "adds", "has_old", "advances", "takes", "emits", "run", "paths", "compacted", "owners"),
    ),
)
run: Final = _MADE["run"]
paths: Final = _MADE["paths"]
compacted: Final = _MADE["compacted"]
owners: Final = _MADE["owners"]
