"""The rules of `column_rules`, compiled by numba.

Imported by `ColumnSearch` only for many rows, because the import takes longer than a small job. Gives the same results.
"""

from __future__ import annotations

from typing import Final

from penstock.engine.patterns.compiled_rules import compiled_rules
from penstock.engine.patterns.rows import column_rules

_MADE: Final = compiled_rules(
    column_rules,
    ("run", "held", "compacted"),
    ("with_room", "resumes", "begins_at", "goes_on", "appends", "takes"),
)
run: Final = _MADE["run"]
held: Final = _MADE["held"]
compacted: Final = _MADE["compacted"]
