"""Files of state: what comes back is what was written, or an error that names the file."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.checkpointing.handles import FileHandle
from penstock.engine.elements import Batch, Partials, Slices
from penstock.engine.errors import CheckpointCorruptError, CheckpointError
from penstock.savepoints.content import Pieces, digest_of, joined, length_of, whole
from penstock.savepoints.segments import (
    Compression,
    decode_batches,
    decode_table,
    encode_batches,
    encode_table,
    read_file,
    write_file,
)
from penstock.savepoints.storage import BlobStore, open_blobs

_TABLE = pa.table({"__key_group": pa.array([0, 1, 1], pa.int32()), "name": ["a", None, "é"], "sum": [1.5, 2.5, 3.5]})
_FILE = FileHandle("shared/x.arrow", 0, "")
_WHERE = "s3://bucket/job"


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
def test_a_table_comes_back(compression: Compression | None) -> None:
    back = decode_table(encode_table(_TABLE, compression), _FILE, _WHERE)
    assert back.equals(_TABLE)
    assert back.schema.equals(_TABLE.schema, check_metadata=True)


@pytest.mark.parametrize("rows", [1, 2_000, 2_100])
def test_a_table_is_the_same_whether_its_memory_is_copied_or_written_as_it_lies(rows: int) -> None:
    """Small ones are copied together."""
    table = pa.table({"n": pa.array(range(rows), pa.int64())})
    data = encode_table(table)
    assert isinstance(data, Pieces) == (table.nbytes > 16_384)
    assert decode_table(data, _FILE, _WHERE).equals(table)


@pytest.mark.parametrize("metadata", [None, {b"of": b"its own"}])
def test_where_columns_begin_at_a_page_the_table_is_still_as_it_was(metadata: dict[bytes, bytes] | None) -> None:
    table = pa.table({"n": pa.array(range(200_000)), "text": ["x"] * 200_000}).replace_schema_metadata(metadata)
    back = decode_table(encode_table(table), _FILE, _WHERE)
    assert back.equals(table)
    assert back.schema.equals(table.schema, check_metadata=True)
    again = encode_table(table.take(pa.array(range(200_000))))
    assert digest_of(again) == digest_of(encode_table(table)), "wherever it lies, it is the same"


def test_values_lie_where_kernels_take_them_wherever_the_bytes_begin() -> None:
    odd = pa.py_buffer(b"." + joined(encode_table(_TABLE))).slice(1)
    assert odd.address % 8 == 1
    for table in (decode_table(odd, _FILE, _WHERE), decode_table(memoryview(odd), _FILE, _WHERE)):
        (sums,) = table["sum"].chunks
        assert sums.buffers()[1].address % 8 == 0
        assert table.equals(_TABLE)
    batch = Batch(pa.record_batch({"n": [1, 2, 3]}))
    odd = pa.py_buffer(b"." + encode_batches([batch])).slice(1)
    (back,) = decode_batches(odd, _FILE, _WHERE)
    assert back.data["n"].buffers()[1].address % 8 == 0


def test_only_the_rows_of_a_slice_are_written() -> None:
    long = pa.table({"n": pa.array(range(100_000))})
    assert length_of(encode_table(long.slice(50_000, 10))) < 2000


def test_types_that_arrow_has(blobs: BlobStore) -> None:
    table = pa.table(
        {
            "dictionary": pa.array(["a", "b", "a"]).dictionary_encode(),
            "list": pa.array([[1], None, []], pa.list_(pa.int64())),
            "null": pa.nulls(3),
            "struct": pa.array([{"a": 1}, None, {"a": None}]),
        }
    )
    file = write_file(blobs, "shared/types.arrow", encode_table(table))
    assert decode_table(read_file(blobs, file), file, blobs.url).equals(table)


def test_a_file_is_described_by_its_handle(blobs: BlobStore) -> None:
    file = write_file(blobs, "shared/a.arrow", b"12345")
    assert file == FileHandle("shared/a.arrow", 5, digest_of(b"12345"))
    assert read_file(blobs, file).to_pybytes() == b"12345"


@pytest.mark.parametrize(
    ("algorithm", "digits"),
    [
        ("blake3", "6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85"),
        ("sha256", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
    ],
)
def test_digests_are_those_that_others_compute(algorithm: str, digits: str) -> None:
    """The examples of the algorithms' authors, whatever pieces the content is in."""
    assert digest_of(b"abc", algorithm) == digest_of(Pieces((b"a", b"", b"bc")), algorithm) == f"{algorithm}:{digits}"


@pytest.mark.parametrize("algorithm", ["blake3", "sha256"])
def test_every_changed_byte_is_found(memory_folder: BlobStore, algorithm: str) -> None:
    """In the files of earlier versions, too, which have a SHA-256."""
    data = bytes(whole(encode_table(_TABLE)))
    file = write_file(memory_folder, "shared/a.arrow", data, digest_of(data, algorithm))
    assert read_file(memory_folder, file).to_pybytes() == data
    for place in range(len(data)):
        changed = bytearray(data)
        changed[place] ^= 1 << (place % 8)
        memory_folder.put("shared/a.arrow", bytes(changed))
        with pytest.raises(
            CheckpointCorruptError, match=rf"{memory_folder.url}/shared/a.arrow is not as it was written"
        ):
            read_file(memory_folder, file)


@pytest.mark.parametrize("data", [b"", b"1234", b"123456"])
def test_a_file_of_another_length_is_named(memory_folder: BlobStore, data: bytes) -> None:
    file = write_file(memory_folder, "shared/a.arrow", b"12345")
    memory_folder.put("shared/a.arrow", data)
    with pytest.raises(CheckpointCorruptError, match=rf"shared/a.arrow has {len(data)} bytes instead of 5"):
        read_file(memory_folder, file)


def test_a_missing_file_is_named(memory_folder: BlobStore) -> None:
    with pytest.raises(CheckpointCorruptError, match=r"shared/x.arrow is missing"):
        read_file(memory_folder, _FILE)


def test_a_handle_cannot_point_out_of_the_folder(memory_folder: BlobStore) -> None:
    with pytest.raises(CheckpointError, match="is no path"):
        read_file(memory_folder, FileHandle("../other/secret", 1, "0" * 64))


@pytest.mark.parametrize("data", [b"", b"no arrow", bytes(whole(encode_table(_TABLE)))[:-20]])
def test_what_is_no_arrow_is_named(data: bytes) -> None:
    with pytest.raises(CheckpointCorruptError, match=r"s3://bucket/job/shared/x.arrow is no Arrow file"):
        decode_table(data, _FILE, _WHERE)


def test_rows_on_their_way_that_are_cut_off_are_named() -> None:
    data = encode_batches([Batch(pa.record_batch({"a": [1, 2]}))]).to_pybytes()
    for broken in (data[:40], data + b"more", b"no arrow at all"):
        with pytest.raises(CheckpointCorruptError, match=r"s3://bucket/job/shared/x.arrow is no Arrow file"):
            decode_batches(broken, _FILE, _WHERE)


_COLUMNS = st.sampled_from(
    [
        pa.schema({"a": pa.int64()}),
        pa.schema({"a": pa.string(), "b": pa.float64()}),
        pa.schema({"timestamps": pa.int64(), "kinds": pa.int8()}, {"made": "by the user"}),
        pa.schema({"a": pa.null()}),
    ]
)


@st.composite
def _batches(draw: st.DrawFn) -> Batch:
    schema, rows = draw(_COLUMNS), draw(st.integers(0, 3))
    values = {"int64": 7, "string": "x", "double": 0.5, "int8": 1, "null": None}
    arrays = [pa.array([values[str(kind)]] * rows, kind) for kind in schema.types]
    timestamps = pa.array(range(rows), pa.int64()) if draw(st.booleans()) else None
    kinds = pa.array([3] * rows, pa.int8()) if draw(st.booleans()) else None
    partials = draw(st.sampled_from([None, Partials("a"), Partials("a,b", Slices(10, 3))]))
    return Batch(pa.RecordBatch.from_arrays(arrays, schema=schema), timestamps, kinds, partials)


@given(st.lists(_batches(), max_size=6))
def test_batches_come_back_one_by_one(batches: list[Batch]) -> None:
    back = decode_batches(encode_batches(batches), _FILE, _WHERE)
    assert len(back) == len(batches)
    for one, other in zip(batches, back, strict=True):
        assert other == one
        assert other.data.schema.equals(one.data.schema, check_metadata=True)


@pytest.mark.parametrize(
    ("name", "mark"),
    [
        ("__partial rows", Partials("__partial rows")),
        ("__partial rows(10 ms from 3)", Partials("__partial rows", Slices(10, 3))),
        ("partial rows", None),
    ],
)
def test_partial_aggregates_of_older_checkpoints_are_told_by_a_name(name: str, mark: Partials | None) -> None:
    [back] = decode_batches(encode_batches([Batch(pa.record_batch({"k": [1], name: [2], "s": [3]}))]), _FILE, _WHERE)
    assert back == Batch(pa.record_batch({"k": [1], mark.counts if mark else name: [2], "s": [3]}), partials=mark)


def test_rows_without_columns_keep_their_number() -> None:
    rows = pa.record_batch({"a": [1, 2, 3]}).select([])
    [back] = decode_batches(encode_batches([Batch(rows)]), _FILE, _WHERE)
    assert back.num_rows == 3
    [back] = decode_batches(encode_batches([Batch(rows, pa.array([1, 2, 3]))]), _FILE, _WHERE)
    assert (back.num_rows, back.timestamps) == (3, pa.array([1, 2, 3]))


def test_pandas_reads_a_segment() -> None:
    assert pa.ipc.open_file(whole(encode_table(_TABLE))).read_pandas()["sum"].sum() == 7.5


@pytest.fixture
def memory_folder() -> BlobStore:
    """A folder in memory, empty."""
    blobs = open_blobs("memory://test-segments/job")
    blobs.delete([path for path, _ in blobs.list()])
    return blobs
