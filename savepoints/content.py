"""The content of a blob: bytes, or pieces of memory one behind the other.

Writers of state give it, and blob stores take it. A table is written from the memory that it lies in: a copy of all of
it would cost a running job more than the rest of the write.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Pieces:
    """Pieces of memory that make one content, in this order. They must not change before it has been written.

    Args:
        parts: any number of them, of any length.
    """

    parts: tuple[bytes | pa.Buffer, ...]


Data: TypeAlias = bytes | pa.Buffer | Pieces
"""The content of a blob."""


def parts_of(data: Data) -> Sequence[memoryview]:
    """The pieces of a content, as bytes."""
    parts = data.parts if isinstance(data, Pieces) else (data,)
    return [memoryview(part).cast("B") for part in parts]


def whole(data: Data) -> memoryview:
    """A content in one piece; copied if there are several."""
    parts = parts_of(data)
    return parts[0] if len(parts) == 1 else memoryview(joined(data))


def joined(data: Data) -> bytes:
    """A content as bytes of its own."""
    return b"".join(parts_of(data))


def length_of(data: Data) -> int:
    """How many bytes it has."""
    return sum(part.nbytes for part in parts_of(data))


def sha256_of(data: Data) -> str:
    """Its SHA-256, hexadecimal."""
    digest = hashlib.sha256()
    for part in parts_of(data):
        digest.update(part)
    return digest.hexdigest()
