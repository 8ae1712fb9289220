"""The rules of `session_rules`, compiled by numba.

Imported by `SessionCells` only for many rows, because the import takes longer than a small job. Gives the same results.
"""

from __future__ import annotations

from penstock.engine.cells import session_rules
from penstock.engine.state.keys.xxh64_kernel import compile_cached

place_rows = compile_cached(session_rules.place_rows)
take_out = compile_cached(session_rules.take_out)
