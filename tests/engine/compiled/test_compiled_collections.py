"""List and map states of compiled functions: entries keep their order, what is refused is said."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import penstock as ps
from penstock.engine.elements import Batch
from penstock.engine.errors import GraphError
from penstock.engine.operators.functions.compiled_process import CompiledProcessSpec, process_spec
from penstock.engine.operators.functions.keyed_process import KeyedProcessOperator, KeyedProcessSpec
from tests.engine.operators.functions.functions import Running
from tests.engine.state.saved import snapshot_of

GIVEN = pa.schema([("k", pa.string()), ("n", pa.int64())])
MADE = pa.schema([("n", pa.int64())])


class Touched(ps.KeyedProcessFunction):
    """Puts and removes entries of a map, and clears it."""

    def open(self, context: Any) -> None:
        self.seen = context.get_map_state(ps.MapStateDescriptor("seen", "int64", key_type="int64"))

    def process_element(self, row: Any, ctx: Any) -> Iterator[dict[str, Any]]:
        if row["n"] == 9:
            self.seen.clear()
        elif self.seen.contains(row["n"]) and row["n"] % 2 == 0:
            self.seen.remove(row["n"])
            self.seen.put(row["n"], 0)
        else:
            self.seen.put(row["n"], (self.seen.get(row["n"]) or 0) + 1)
        yield {"n": self.seen.get(row["n"], -1)}


def entries(spec: Any, backend: str = "heap") -> tuple[list[Any], list[Any]]:
    """The rows that come out, and what the map holds, in its order."""
    job, rows = Running(spec, backend=backend), []
    for numbers in ([4, 3, 5, 1, 3], [3, 4, 2, 4, 4, 1], [7, 9, 5, 6, 5, 2, 6]):
        data = pa.RecordBatch.from_pylist([{"k": "a", "n": n} for n in numbers], GIVEN)
        rows += job.process(Batch(data))
    return rows, snapshot_of(job.operator).tables["seen"].data.to_pylist()


class Walked(Touched):
    """Goes over all entries while they come and go."""

    def process_element(self, row: Any, ctx: Any) -> Iterator[dict[str, Any]]:
        if row["n"] == 9:
            self.seen.clear()
        elif row["n"] % 2 == 0:
            self.seen.remove(row["n"])
        self.seen.put(row["n"], 1)
        shown = 0
        for key, count in self.seen.items():
            if key == 7:
                continue
            shown = shown * 10 + key * count
        if row["n"] == 4:
            self.seen.remove(5)
            self.seen.remove(1)
        yield {"n": -1 if self.seen.is_empty() else shown}


@pytest.mark.parametrize("function", [Touched, Walked])
def test_entries_of_maps_keep_the_order_of_plain_python(function: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = entries(KeyedProcessSpec(function, ("k",), MADE))
    monkeypatch.setattr(KeyedProcessOperator, "process_batch", lambda *_: pytest.fail("rows were made"))
    assert entries(CompiledProcessSpec(ps.compiled(function), ("k",), MADE)) == wanted


def test_entries_that_come_in_the_order_of_bytes_are_gone_over_row_by_row(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        found = entries(CompiledProcessSpec(ps.compiled(Walked), ("k",), MADE), "rocksdb")
    assert found == entries(KeyedProcessSpec(Walked, ("k",), MADE), "rocksdb")
    assert "whose order on rocksdb is that of bytes; it runs as plain Python" in caplog.text


class Refused(ps.KeyedProcessFunction):
    """Opens what the methods below use."""

    def open(self, context: Any) -> None:
        self.numbers = context.get_list_state(ps.ListStateDescriptor("numbers", "int64"))
        self.seen = context.get_map_state(ps.MapStateDescriptor("seen", "int64", key_type="int64"))


class Changing(Refused):
    def process_element(self, row: Any, ctx: Any) -> Iterator[dict[str, Any]]:
        for key, count in self.seen.items():
            self.seen.put(key, count + 1)
        yield {"n": 1}


class OneOfTwo(Refused):
    def process_element(self, row: Any, ctx: Any) -> Iterator[dict[str, Any]]:
        for entry in self.seen.items():
            yield {"n": entry[0]}


class WithoutTest(Refused):
    def process_element(self, row: Any, ctx: Any) -> Iterator[dict[str, Any]]:
        yield {"n": self.seen.get(row["n"]) + 1}


class InWhile(Refused):
    def process_element(self, row: Any, ctx: Any) -> Iterator[dict[str, Any]]:
        n = 0
        while self.seen.contains(n):
            n += 1
        yield {"n": n}


class AsNumber(Refused):
    def process_element(self, row: Any, ctx: Any) -> Iterator[dict[str, Any]]:
        yield {"n": self.numbers.get() + 1}


class OfDates(Refused):
    def open(self, context: Any) -> None:
        self.seen = context.get_map_state(ps.MapStateDescriptor("seen", "int64", key_type="date32"))

    def process_element(self, row: Any, ctx: Any) -> Iterator[dict[str, Any]]:
        yield {"n": row["n"]}


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (Changing, r"line \d+: the map changes while the loop goes over it; note the changes in a list"),
        (OneOfTwo, r"line \d+: `entry` takes no entry; write `for key, value in`"),
        (WithoutTest, r"line \d+: `self.seen.get\(row\['n'\]\)` may be None; write `.* or 0`"),
        (InWhile, r"line \d+: a map is looked up for each round; do so within the loop"),
        (AsNumber, r"line \d+: `self.numbers.get\(\)` is not compiled"),
        (OfDates, r"state 'seen' has keys of date32\[day\]; declare string, int64 or bool"),
    ],
)
def test_what_is_not_compiled_is_refused_when_the_graph_is_built(function: Any, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        process_spec(ps.compiled(function), ("k",), GIVEN, MADE, False)
