"""The loops of `chain_loops.py`, compiled by numba; imported when there are enough slots to pay for it."""

from __future__ import annotations

from typing import Final

from penstock.engine.operators.changelog import chain_loops
from penstock.engine.state.keys.xxh64_kernel import compile_cached

link: Final = compile_cached(chain_loops.link)
unlink: Final = compile_cached(chain_loops.unlink)
walk: Final = compile_cached(chain_loops.walk)
