"""Records go where a Java producer would send them."""

from __future__ import annotations

import subprocess
import sys

import pyarrow as pa
import pytest
from aiokafka.partitioner import DefaultPartitioner
from hypothesis import given
from hypothesis import strategies as st

from penstock.connectors.kafka.partitioner import Partitioner, murmur2

BINARY = pa.large_binary()


# Kafka's own UtilsTest.testMurmur2.
@pytest.mark.parametrize(
    ("key", "hashed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_hashes_equal_those_of_kafka(key: bytes, hashed: int) -> None:
    assert murmur2(pa.array([key], BINARY)).view("int32").tolist() == [hashed]


# The first call compiles.
@given(st.lists(st.binary(max_size=70), max_size=30), st.integers(1, 200), st.integers(0, 30), st.integers(0, 30))
def test_partitions_equal_those_of_the_clients(keys: list[bytes], count: int, begin: int, length: int) -> None:
    some = keys[begin : begin + length]
    given_keys = pa.array(keys, BINARY).slice(begin, length)
    theirs = [DefaultPartitioner()(key, list(range(count)), []) for key in some]
    assert Partitioner("murmur2", 0).partitions(given_keys, count).tolist() == theirs


def test_records_without_a_key_go_by_batches_in_turn() -> None:
    partitioner = Partitioner("murmur2", 1)
    keys = pa.array([None, b"21", None], BINARY)
    keyed = int(Partitioner("murmur2", 0).partitions(keys.slice(1, 1), 3)[0])
    assert [partitioner.partitions(keys, 3).tolist() for _ in range(3)] == [
        [1, keyed, 1],
        [2, keyed, 2],
        [0, keyed, 0],
    ]
    nothing = pa.nulls(2, BINARY)
    assert [partitioner.partitions(nothing, 3).tolist() for _ in range(2)] == [[1, 1], [2, 2]]


def test_round_robin_and_fixed_do_not_look_at_keys() -> None:
    keys = pa.array([b"a", b"a", b"a"], BINARY)
    round_robin = Partitioner("round-robin", 1)
    assert [round_robin.partitions(keys, 2).tolist() for _ in range(2)] == [[1, 0, 1], [0, 1, 0]]
    assert Partitioner("fixed", 5).partitions(keys, 3).tolist() == [2, 2, 2]


def test_numba_is_imported_with_the_first_key_alone() -> None:
    program = (
        "import sys, penstock.connectors.kafka.sink; sys.exit('numba' in sys.modules or 'aiokafka' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
