"""A text for what a column expression computes: the same in each process, and another one for another expression.

`tables/column_expressions.py` names the functions by it that expressions become, by which state is found. The repr of
an expression will not do: it abbreviates arrays, orders sets by the process's hash seed, and writes 1 and "1" alike.
"""

from __future__ import annotations

import datetime as dt
import decimal
import enum
from collections.abc import Iterable
from typing import Final

import numpy as np
import pyarrow as pa
from narwhals.dtypes import DType

from penstock.engine.errors import GraphError
from penstock.engine.expressions import Expr, operations

_PLAIN: Final = frozenset({type(None), bool, int, float, bytes, decimal.Decimal, range})
_FLAT_KINDS: Final = frozenset("biufcmMSU")
"""The kinds of numpy whose bytes are the values."""


def canonical(value: object) -> str:
    """The text of an expression, or of a value in it.

    Names of columns, and all other texts, are in it as `repr` writes them.

    Raises:
        GraphError: it holds an object that no such text is known for.

    Example:
        >>> from penstock.engine.expressions import col
        >>> canonical(col("a") + 1)
        "COL:col(names=list['a',],) ELEMENTWISE:__add__(int 1,)"
    """
    name = type(value).__name__
    if isinstance(value, str):
        return repr(str.__str__(value))
    if type(value) in _PLAIN:
        return f"{name} {value!r}"
    match value:
        case Expr():
            return _operations(value)
        case list() | tuple():
            return f"{name}[{_listed(map(canonical, value))}]"
        case set() | frozenset():
            return f"{name}[{_listed(sorted(map(canonical, value)))}]"
        case dict():
            return f"{name}[{_listed(f'{canonical(key)}:{canonical(one)}' for key, one in value.items())}]"
        case enum.Enum():
            return f"{name} {canonical(value.value)}"
        case DType():
            return repr(value)
        case type():
            return value.__qualname__
        case dt.datetime() if value == value:
            # NaT is not equal to itself, and has no type; the type of others has the name of the time zone.
            return f"{name} {value.isoformat()} {pa.scalar(value).type}"
        case dt.date() | dt.time():
            return f"{name} {value.isoformat()}"
        case dt.timedelta():
            return f"{name} {value!r}"
        case np.generic():
            return _array(name, np.asarray(value))
        case pa.Array() | pa.ChunkedArray():
            return _arrow_array(value)
        case pa.Scalar():
            return f"{name} {_arrow_array(pa.repeat(value, 1))}"
    if type(value) is np.ndarray:
        return _array(name, value)
    raise GraphError(
        f"an expression holds a {type(value).__module__}.{type(value).__qualname__}, which cannot be written the same "
        "way in each process, so that state would not be found again; give its values as a list, a numpy array or an "
        "Arrow array, or write the expression in SQL"
    )


def _operations(expression: Expr) -> str:
    found = operations(expression)
    if found is None:
        raise GraphError("this version of narwhals hides what an expression computes; write it in SQL")
    return " ".join(
        f"{node.kind.name}:{node.name}("
        f"{_listed([*map(canonical, node.exprs), *(f'{key}={canonical(node.kwargs[key])}' for key in node.kwargs)])})"
        for node in found
    )


def _listed(texts: Iterable[str]) -> str:
    return "".join(f"{text}," for text in texts)


def _array(name: str, values: np.ndarray) -> str:
    shown = values.tobytes().hex() if values.dtype.kind in _FLAT_KINDS else canonical(values.tolist())
    return f"{name} {values.dtype.str}{values.shape}{shown}"


def _arrow_array(values: pa.Array | pa.ChunkedArray) -> str:
    kind = values.type
    if pa.types.is_temporal(kind) and kind.bit_width == 64:
        # Nanoseconds are no values of Python.
        values = values.cast(pa.int64())
    return f"{kind}{canonical(values.to_pylist())}"
