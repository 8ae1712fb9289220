"""Whether this process has the compiled loops of keys already.

What keeps to plain Python while these loops would not pay for their import asks here: once another state has paid, they
cost nothing more.
"""

from __future__ import annotations

import sys
from typing import Final

_KERNELS: Final = "penstock.engine.state.keys.index_kernel"


def are_loaded() -> bool:
    """Whether an index of this process, of any job, has been compiled."""
    return _KERNELS in sys.modules
