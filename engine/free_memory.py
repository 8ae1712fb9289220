"""Gives memory that is free inside this process back to the operating system.

Window operators call it when they have let go of most of their state, and subtasks' processes before they restore
another attempt, so that what is gone does not stay in the size of the process; allocators keep such memory otherwise,
for later use.
"""

from __future__ import annotations

import ctypes

import pyarrow as pa


def free_memory() -> None:
    """Let Arrow's and NumPy's allocators give back what they can; takes milliseconds, so do not call it often."""
    pa.default_memory_pool().release_unused()
    # NumPy's is that of the C library; only GNU's keeps what others give back by themselves.
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
