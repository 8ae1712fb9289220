"""Asks the system for larger pages (2 MiB) under memory that is large and is used again.

What is captured for a checkpoint lies in such memory: it is filled, hashed and written page by page, each time anew,
and for pages of 4 KiB the kernel and the processor have 512 times as many to look up.
"""

from __future__ import annotations

import ctypes
import mmap

import pyarrow as pa


def in_large_pages(memory: pa.Buffer) -> pa.Buffer:
    """The same memory, of which the parts that nothing has touched yet get larger pages, where the system has them.

    Example:
        >>> in_large_pages(pa.allocate_buffer(1 << 23)).size
        8388608
    """
    if hasattr(mmap, "MADV_HUGEPAGE"):
        begin = -(-memory.address // mmap.PAGESIZE) * mmap.PAGESIZE
        length = ctypes.c_size_t(max(0, memory.address + memory.size - begin))
        # A kernel without them refuses, and all stays as it was.
        ctypes.CDLL(None).madvise(ctypes.c_void_p(begin), length, mmap.MADV_HUGEPAGE)
    return memory
