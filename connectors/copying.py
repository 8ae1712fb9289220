"""`copy`, for compiled functions: bytes from one address to another, as the C library copies them.

The compiled loops of connectors call it, which move pieces of buffers: of bytes that numba moves one by one, each is
tested and counted. Imported where numba is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, cast

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic


def _copy(context: Any, target: Any, source: Any, size: Any) -> Any:
    def build(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        to, begin = (builder.inttoptr(value, ir.IntType(8).as_pointer()) for value in values[:2])
        memcpy: Any = cgutils.raw_memcpy
        memcpy(builder, to, begin, values[2], 1)
        return context.get_dummy_value()

    return types.none(types.uint64, types.uint64, types.uint64), build


copy: Final[Callable[[np.uint64, np.uint64, np.uint64], None]] = cast("Any", intrinsic(_copy))
"""`copy(target, source, size)`: so many bytes; the two must not overlap."""
