"""Gives memory that is free inside this process back to the operating system.

Window operators call it when they have let go of most of their state, so that a burst of keys does not stay in the process's
size; allocators keep such memory otherwise, for later use.
"""

from __future__ import annotations

import pyarrow as pa


def free_memory() -> None:
    """Let all allocators give back what they can; takes milliseconds, so do not call it often."""
    for pool in (pa.default_memory_pool(), pa.system_memory_pool()):
        # That of the system stands for malloc, from which NumPy takes its arrays.
        pool.release_unused()
