"""The records of a Kafka batch (message format 2) found and gathered by compiled loops.

Imported by `columnar` with the first records, because numba takes longer to import than a small job runs. Positions are
checked against the body, so a damaged batch gives an error code and never reads outside.
Format: https://kafka.apache.org/documentation/#recordbatch
"""

from __future__ import annotations

from typing import Final

import numba
import numpy as np
import numpy.typing as npt

from penstock.connectors.copying import copy
from penstock.engine.state.keys.xxh64_kernel import compile_cached

Bytes = npt.NDArray[np.uint8]
Numbers = npt.NDArray[np.int64]

OFFSET: Final = 0
TIMESTAMP: Final = 1
KEY_AT: Final = 2
KEY_LENGTH: Final = 3
VALUE_AT: Final = 4
VALUE_LENGTH: Final = 5
HEADERS_AT: Final = 6
HEADERS: Final = 7
HEADERS_END: Final = 8
PLACES: Final = 9
"""Rows of `places`, a column for each record; the length of a null is -1."""

HEADER_KEY_AT: Final = 0
HEADER_KEY_LENGTH: Final = 1
HEADER_VALUE_AT: Final = 2
HEADER_VALUE_LENGTH: Final = 3
HEADER_PLACES: Final = 4

BROKEN: Final = -1
"""What is returned for a body that is not what it should be."""


@numba.njit(nogil=True)
def _varint(body: Bytes, at: int) -> tuple[int, int]:
    """A zigzag number and the place behind it, which is -1 if it does not end in the body."""
    word = np.uint64(0)
    shift = np.uint64(0)
    while 0 <= at < len(body) and shift < np.uint64(64):
        byte = np.uint64(body[at])
        at += 1
        word |= (byte & np.uint64(0x7F)) << shift
        if byte < np.uint64(0x80):
            return np.int64(word >> np.uint64(1)) ^ -np.int64(word & np.uint64(1)), at
        shift += np.uint64(7)
    return 0, -1


@numba.njit(nogil=True)
def _bytes(body: Bytes, at: int) -> tuple[int, int, int]:
    """Place and length of bytes behind their length, and the place behind them, which is -1 if they do not fit."""
    length, at = _varint(body, at)
    if at < 0 or length > len(body) - at:
        return 0, 0, -1
    if length < 0:
        return at, -1, at
    return at, length, at + length


@compile_cached
def scan_records(
    body: Bytes,
    count: int,
    base_offset: int,
    base_timestamp: int,
    append_timestamp: int,
    least_offset: int,
    places: Numbers,
    row: int,
) -> int:
    """Where the parts of the records lie.

    Args:
        body: the records of one batch, not compressed.
        count: how many there are.
        base_offset, base_timestamp: what the records' own differ from.
        append_timestamp: the time of all records where the broker gives it, or -1.
        least_offset: records before it are left out.
        places: filled from column `row` on.

    Returns:
        The column behind the last record, or `BROKEN`.
    """
    at = 0
    for _ in range(count):
        length, at = _varint(body, at)
        if at < 0 or length < 1 or length > len(body) - at:
            return BROKEN
        end = at + length
        _, at = _varint(body, at)  # attributes; read as aiokafka reads them
        timestamp, at = _varint(body, at)
        offset, at = _varint(body, at)
        key_at, key_length, at = _bytes(body, at)
        value_at, value_length, at = _bytes(body, at)
        headers, at = _varint(body, at)
        if at < 0 or at > end or headers < 0 or headers > end - at:
            return BROKEN
        if base_offset + offset >= least_offset:
            places[OFFSET, row] = base_offset + offset
            places[TIMESTAMP, row] = append_timestamp if append_timestamp >= 0 else base_timestamp + timestamp
            places[KEY_AT, row] = key_at
            places[KEY_LENGTH, row] = key_length
            places[VALUE_AT, row] = value_at
            places[VALUE_LENGTH, row] = value_length
            places[HEADERS_AT, row] = at
            places[HEADERS, row] = headers
            places[HEADERS_END, row] = end
            row += 1
            least_offset = base_offset + offset + 1
        if headers == 0 and at != end:
            return BROKEN
        at = end
    return row if at == len(body) else BROKEN


@compile_cached
def scan_headers(body: Bytes, begins: Numbers, counts: Numbers, ends: Numbers, places: Numbers, header: int) -> int:
    """Where the keys and values of headers lie.

    Args:
        body: the records of one batch.
        begins, counts, ends: for each record, where its headers begin, how many there are, and where it must end.
        places: filled from column `header` on.

    Returns:
        The column behind the last header, or `BROKEN`.
    """
    for record in range(len(begins)):
        at = begins[record]
        for _ in range(counts[record]):
            key_at, key_length, at = _bytes(body, at)
            value_at, value_length, at = _bytes(body, at)
            if at < 0 or key_length < 0:
                return BROKEN
            places[HEADER_KEY_AT, header] = key_at
            places[HEADER_KEY_LENGTH, header] = key_length
            places[HEADER_VALUE_AT, header] = value_at
            places[HEADER_VALUE_LENGTH, header] = value_length
            header += 1
        if at != ends[record]:
            return BROKEN
    return header


@compile_cached
def gather(body: Bytes, begins: Numbers, lengths: Numbers, data: Bytes, ends: Numbers) -> None:
    """Copy pieces of the body behind one another, as Arrow keeps binary columns.

    Args:
        body: the records of one batch.
        begins, lengths: of each piece; a negative length is nothing.
        data: filled from `ends[0]` on.
        ends: one more than there are pieces; the first is given, the others are filled.
    """
    to = ends[0]
    target, source = np.uint64(data.ctypes.data), np.uint64(body.ctypes.data)
    for piece in range(len(begins)):
        length = max(lengths[piece], 0)
        if length:
            copy(target + np.uint64(to), source + np.uint64(begins[piece]), np.uint64(length))
        to += length
        ends[piece + 1] = to
