from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from aiokafka import codec
from aiokafka.errors import CorruptRecordException, UnsupportedCodecError
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.connectors.kafka import crc32c_kernel
from penstock.connectors.kafka.fetched import Records, records_of
from penstock.connectors.kafka.record_batches import FetchedBatches
from tests.connectors.kafka.batches import ATTRIBUTES_AT, LOG_APPEND_TIME, batch, marker, unread
from tests.draws import drawn

CODECS = {0: True, 1: codec.has_gzip(), 2: codec.has_snappy(), 3: codec.has_lz4(), 4: codec.has_zstd()}

maybe_bytes = st.none() | st.binary(max_size=300)
headers = st.lists(st.tuples(st.text(max_size=5), maybe_bytes), max_size=3)
times = st.integers(-1, 2**45)
batches = st.lists(
    st.tuples(
        st.lists(st.tuples(times, maybe_bytes, maybe_bytes, headers), min_size=1, max_size=8),
        st.sampled_from([number for number, there in CODECS.items() if there]),
        st.sampled_from([-1, -1, 7, 8]),
        st.sampled_from([0, LOG_APPEND_TIME]),
        st.integers(0, 3),
    ),
    min_size=1,
    max_size=5,
)


def columnar(raw: bytes, first: int = 0, aborted: list[tuple[int, int]] | None = None) -> Records:
    records = FetchedBatches(unread(raw, first, aborted or []), raw).records()
    for column in (records.offsets, records.timestamps, records.keys, records.values, records.headers):
        column.validate(full=True)
    return records


def row_by_row(raw: bytes, first: int = 0, aborted: list[tuple[int, int]] | None = None) -> Records:
    library = unread(raw, first, aborted or [])
    rows = list(library)
    return records_of(rows, library.next_fetch_offset)


@settings(max_examples=drawn(40))
@given(batches, st.integers(0, 10), st.integers(0, 60))
def test_gives_what_the_library_gives(parts: list[tuple], first: int, cut: int) -> None:
    raw, offset, aborted = b"", 0, []
    # A broker answers with the batch that the asked offset is in, and not with one before.
    first = min(first, parts[0][-1] + len(parts[0][0]) - 1)
    for records, number, producer, attributes, gap in parts:
        offset += gap
        raw += batch(records, offset, number, producer, attributes)
        if producer >= 0:
            kind = len(records) % 2
            aborted += [] if kind else [(producer, offset)]
            raw += marker(offset + len(records), producer, kind)
        offset += len(records) + (producer >= 0)
    # The broker cuts an answer off where it is large enough.
    raw += batch([(0, None, b"x" * 100, [])], offset)[:cut]
    found, expected = columnar(raw, first, aborted), row_by_row(raw, first, aborted)
    assert found == expected


def test_tombstones_and_empty_values_differ() -> None:
    records = columnar(batch([(1, None, None, []), (2, b"", b"", [("h", None), ("h", b"")])], 10))
    assert records.values.to_pylist() == [None, b""]
    assert records.keys.to_pylist() == [None, b""]
    assert records.headers.to_pylist() == [[], [{"key": "h", "value": None}, {"key": "h", "value": b""}]]
    assert records.offsets.to_pylist() == [10, 11]
    assert records.timestamps.cast(pa.int64()).to_pylist() == [1, 2]
    assert records.next_offset == 12


def test_an_aborted_transaction_gives_nothing_but_moves_on() -> None:
    raw = batch([(1, None, b"a", [])], 0, producer=7) + marker(1, 7, 0)
    records = columnar(raw, 0, [(7, 0)])
    assert len(records.values) == 0
    assert records.next_offset == 2


def test_records_of_the_same_producer_behind_an_abort_are_given() -> None:
    raw = batch([(1, None, b"a", [])], 0, producer=7) + marker(1, 7, 0) + batch([(1, None, b"b", [])], 2, producer=7)
    assert columnar(raw, 0, [(7, 0)]).values.to_pylist() == [b"b"]


@given(st.binary(max_size=200), st.integers(0, 9))
def test_the_checksum_is_the_librarys(data: bytes, begin: int) -> None:
    from aiokafka.record.util import calc_crc32c

    part = data[begin:]
    if crc32c_kernel.HAS_INSTRUCTION:
        assert crc32c_kernel.crc32c(np.frombuffer(data, np.uint8)[begin:]) == calc_crc32c(part)


@pytest.mark.parametrize("by_instruction", [crc32c_kernel.HAS_INSTRUCTION, False])
def test_a_flipped_bit_is_found(by_instruction: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crc32c_kernel, "HAS_INSTRUCTION", by_instruction)
    raw = bytearray(batch([(1, None, b"abc", [])], 4))
    raw[-2] ^= 1
    with pytest.raises(CorruptRecordException, match="checksum of the batch at offset 4"):
        columnar(bytes(raw))


@given(st.data())
def test_a_batch_that_lies_with_a_right_checksum_never_reads_outside(data: st.DataObject) -> None:
    from aiokafka.record.util import calc_crc32c

    raw = bytearray(batch([(1, b"key", b"value", [("h", b"x")])] * 3))
    place = data.draw(st.integers(57, len(raw) - 1))
    raw[place] = data.draw(st.integers(0, 255))
    raw[17:21] = calc_crc32c(bytes(raw[ATTRIBUTES_AT:])).to_bytes(4, "big")
    try:
        expected: Records | None = row_by_row(bytes(raw))
    except (CorruptRecordException, UnicodeDecodeError, MemoryError, OverflowError):
        expected = None
    try:
        found: Records | None = columnar(bytes(raw))
    except (CorruptRecordException, pa.ArrowInvalid):
        found = None
    assert found == expected


@pytest.mark.parametrize("number", [number for number, there in CODECS.items() if not there])
def test_a_codec_that_is_not_installed_is_named(number: int) -> None:
    raw = bytearray(batch([(1, None, b"abc", [])]))
    raw[ATTRIBUTES_AT + 1] |= number
    fetched = FetchedBatches(unread(bytes(raw)), bytes(raw))
    fetched._unread._check_crcs = False
    with pytest.raises(UnsupportedCodecError, match=r"snappy|lz4|zstd"):
        fetched.records()
