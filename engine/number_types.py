"""The numpy types of Arrow's numbers.

`DataType.to_pandas_dtype` says the same, but some versions of Arrow load pandas for it, which need not be installed.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

_TYPES: Final[dict[pa.DataType, str]] = {
    **{
        getattr(pa, name)(): name for name in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
    },
    **{getattr(pa, name)(): name for name in ("float16", "float32", "float64")},
    pa.bool_(): "bool",
}


def numpy_type(kind: pa.DataType) -> np.dtype[Any]:
    """The numpy type of an integer, floating or boolean type.

    Raises:
        KeyError: the type is none of these.

    Example:
        >>> numpy_type(pa.float32())
        dtype('float32')
    """
    return np.dtype(_TYPES[kind])
