"""How a run of compiled code over the rows of a batch ended: what machine code returns.

`machine_code` writes it, and the programs look at it. It stands apart, so that who only compares it does not load LLVM.
"""

from __future__ import annotations

from enum import IntEnum


class Outcome(IntEnum):
    """How a run over rows ended.

    Attributes:
        DONE: all rows are computed.
        NO_ROOM: an output is full.
        NO_RESULT: plain Python must run: an error, or a number beyond 64 bits.
    """

    DONE = 0
    NO_ROOM = 1
    NO_RESULT = 2
