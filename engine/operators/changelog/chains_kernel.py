"""The loops of `chains.py`, compiled by numba; imported when there are enough slots to pay for it."""

from __future__ import annotations

from typing import Final

from penstock.engine.operators.changelog import chains
from penstock.engine.state.keys.xxh64_kernel import compile_cached

link: Final = compile_cached(chains.link)
unlink: Final = compile_cached(chains.unlink)
walk: Final = compile_cached(chains.walk)
