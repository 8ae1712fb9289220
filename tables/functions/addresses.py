"""Addresses of the internet, version 4, as numbers and texts.

Source: what Flink 2.3 answers; MySQL has the same functions.
"""

from __future__ import annotations

import re
from typing import Final

from penstock.tables import types as t
from penstock.tables.functions import signatures as s
from penstock.tables.functions.signatures import ScalarFunction, always, by_row

_PARTS: Final = re.compile(r"[0-9]+(?:\.[0-9]+){0,3}")
_END: Final = 2**32


def _number(address: str) -> int | None:
    """Of `a.b.c.d`; of fewer parts the last is the last byte: `127.1` is `127.0.0.1`. None: it is no address."""
    if _PARTS.fullmatch(address) is None:
        return None
    *first, last = (int(part) for part in address.split("."))
    if max(*first, last, 0) > 255:
        return None
    return sum(part << (24 - 8 * place) for place, part in enumerate(first)) + last


def _address(number: int) -> str | None:
    return ".".join(map(str, number.to_bytes(4, "big"))) if 0 <= number < _END else None


FUNCTIONS: Final = (
    ScalarFunction("INET_ATON", (s.TEXT,), always(t.BIGINT), by_row(_number), nullable=True),
    ScalarFunction("INET_NTOA", (s.INTEGER,), always(t.STRING), by_row(_address), nullable=True),
)
