"""Large memory that is used again has larger pages, where the system has them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from penstock.engine.large_pages import in_large_pages
from penstock.engine.state.keys.codec import pooled_copies, pooled_copy

_LARGER = Path("/sys/kernel/mm/transparent_hugepage/enabled")


def _flags(address: int) -> list[str]:
    """What the kernel has noted of the memory at an address."""
    holds = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        first, *flags = line.split()
        if "-" in first and not first.endswith(":"):
            begin, end = (int(bound, 16) for bound in first.split("-"))
            holds = begin <= address < end
        elif holds and first == "VmFlags:":
            return flags
    raise AssertionError("nothing is mapped there")


@pytest.mark.skipif(not _LARGER.exists(), reason="this kernel has no larger pages")
def test_what_is_captured_of_large_state_lies_in_larger_pages() -> None:
    values = np.arange(1 << 20)
    for copy in (*pooled_copies([values, values[1:]]), pooled_copy(values)):
        assert "hg" in _flags(copy.ctypes.data + copy.nbytes // 2)


def test_memory_keeps_what_is_in_it() -> None:
    memory = pa.allocate_buffer((4 << 20) + 7)
    np.frombuffer(memory, np.uint8)[:] = 7
    assert in_large_pages(memory) is memory
    assert set(memory.to_pybytes()) == {7}
    assert in_large_pages(pa.allocate_buffer(0)).size == 0
