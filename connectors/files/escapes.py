"""Bytes that are no UTF-8, as characters that nobody uses, and back: what reads text alone can read any file so.

CSV files are read so where their bad rows are kept, as Arrow hands rows with too many fields on as texts.
"""

from __future__ import annotations

import codecs
import io
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

_FIRST: Final = 0x10FE00
"""The character of byte 0; one is no UTF-8 from 0x80 on. These are the last but one of the private ones."""
_BYTES: Final = range(0x80, 0x100)
_SURROGATE: Final = 0xDC00
_TO_PRIVATE: Final = {_SURROGATE + byte: _FIRST + byte for byte in _BYTES}
_TO_SURROGATE: Final = {private: surrogate for surrogate, private in _TO_PRIVATE.items()}
_PREFIXES: Final = tuple(chr(_FIRST + byte).encode()[:3] for byte in (0x80, 0xC0))
"""With which each of these characters begins in UTF-8."""


class EscapedStream(io.RawIOBase):
    """The bytes of `stream` as UTF-8, those that are none as such characters.

    Example:
        >>> EscapedStream(io.BytesIO(b"J\\xf6rg")).read().decode()
        'J\\U0010fef6rg'
    """

    def __init__(self, stream: io.RawIOBase | pa.NativeFile) -> None:
        super().__init__()
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        self._held = b""

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        while size < 0 or len(self._held) < size:
            data: bytes = self._stream.read(size) if size >= 0 else self._stream.read()
            self._held += self._decoder.decode(data, final=not data).translate(_TO_PRIVATE).encode()
            if not data:
                break
        end = size if size >= 0 else len(self._held)
        given, self._held = self._held[:end], self._held[end:]
        return given


def unescaped(text: str) -> bytes:
    """The bytes that a text was.

    Example:
        >>> unescaped("J\\U0010fef6rg")
        b'J\\xf6rg'
    """
    return text.translate(_TO_SURROGATE).encode("utf-8", "surrogateescape")


def unescaped_column(values: pa.LargeBinaryArray) -> pa.LargeBinaryArray:
    """The bytes that values were."""
    has = [pc.any(pc.match_substring(values, pattern=prefix)).as_py() for prefix in _PREFIXES]
    if not any(has):
        return values
    return pa.array([None if value is None else unescaped(value.decode()) for value in values.to_pylist()], values.type)
