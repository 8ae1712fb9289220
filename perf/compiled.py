"""What does a row cost a function that is compiled, and one that is not, and from which size of batches on does it pay?

One operator in this process, without a job around it: CPU time of this process, so that what else runs on the machine
disturbs little. The plain and the compiled operator take the same batches in turns. `python -m perf.compiled`.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, Final
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import penstock as ps
from penstock.engine.clock import SystemClock
from penstock.engine.config import DEFAULTS
from penstock.engine.elements import Batch, Control, Watermark
from penstock.engine.operators import compiled as compiled_operators
from penstock.engine.operators.base import Operator, OperatorContext
from penstock.engine.operators.compiled import CompiledMapSpec
from penstock.engine.operators.functions import compiled_process, compiled_reduce
from penstock.engine.operators.functions.compiled_process import CompiledProcessSpec
from penstock.engine.operators.functions.compiled_reduce import CompiledReduceSpec
from penstock.engine.operators.functions.keyed_process import KeyedProcessSpec
from penstock.engine.operators.functions.keyed_reduce import KeyedReduceSpec
from penstock.engine.operators.rows import RowMapSpec
from penstock.engine.operators.spec import OperatorSpec
from penstock.engine.operators.windows import compiled_window, compiled_window_process
from penstock.engine.operators.windows.compiled_window import CompiledWindowSpec
from penstock.engine.operators.windows.compiled_window_process import CompiledWindowProcessSpec
from penstock.engine.operators.windows.window import WindowOperatorSpec
from penstock.engine.operators.windows.window_folds import Reduce

_GIVEN: Final = pa.schema([("k", pa.int64()), ("n", pa.int64()), ("x", pa.float64()), ("what", pa.string())])
_MADE: Final = pa.schema([("k", pa.int64()), ("count", pa.int64()), ("mean", pa.float64()), ("what", pa.string())])
_KEYS: Final = 1000
_MINUTE: Final = 60_000
_MODULES: Final = (compiled_operators, compiled_process, compiled_reduce, compiled_window, compiled_window_process)
_TURNS: Final = 5


def rounded(row: Any) -> dict[str, Any]:
    """A function for `map`."""
    count = row["n"] // 5 * 5
    if row["what"] == "late":
        count = 0
    return {"k": row["k"], "count": count, "mean": row["x"] / 2, "what": row["what"]}


class WithDefaults(ps.KeyedProcessFunction):
    """Two states of numbers."""

    def open(self, context: Any) -> None:
        self.count = context.get_state(ps.ValueStateDescriptor("count", "int64", default=0))
        self.mean = context.get_state(ps.ValueStateDescriptor("mean", "float64", default=0.5))

    def process_element(self, row: Any, ctx: Any) -> Iterator[dict[str, Any]]:
        self.count.update(self.count.value() + 1)
        self.mean.update((self.mean.value() + row["x"]) / 2)
        yield {"k": row["k"], "count": self.count.value(), "mean": self.mean.value(), "what": row["what"]}


class WithoutDefaults(WithDefaults):
    """The same, without defaults."""

    def open(self, context: Any) -> None:
        self.count = context.get_state(ps.ValueStateDescriptor("count", "int64"))
        self.mean = context.get_state(ps.ValueStateDescriptor("mean", "float64"))

    def process_element(self, row: Any, ctx: Any) -> Iterator[dict[str, Any]]:
        count = self.count.value()
        if count is None:
            count = 0
        mean = (self.mean.value() or 0.5) + row["x"]
        self.count.update(count + 1)
        self.mean.update(mean / 2)
        yield {"k": row["k"], "count": count + 1, "mean": mean / 2, "what": row["what"]}


class WithText(WithDefaults):
    """A state of text beside them."""

    def open(self, context: Any) -> None:
        super().open(context)
        self.last = context.get_state(ps.ValueStateDescriptor("last", "string", default="none"))

    def process_element(self, row: Any, ctx: Any) -> Iterator[dict[str, Any]]:
        before = self.last.value()
        if before != row["what"]:
            self.last.update(row["what"])
            self.count.update(self.count.value() + 1)
        self.mean.update((self.mean.value() + row["x"]) / 2)
        yield {"k": row["k"], "count": self.count.value(), "mean": self.mean.value(), "what": before}


class WithList(WithDefaults):
    """The mean of the last eight numbers."""

    def open(self, context: Any) -> None:
        self.recent = context.get_list_state(ps.ListStateDescriptor("recent", "float64"))

    def process_element(self, row: Any, ctx: Any) -> Iterator[dict[str, Any]]:
        self.recent.add(row["x"])
        total = 0.0
        for each in self.recent.get():
            total += each
        count = len(self.recent.get())
        if count == 8:
            self.recent.clear()
        yield {"k": row["k"], "count": count, "mean": total / count, "what": row["what"]}


class WithMap(WithDefaults):
    """Counts of each of a hundred numbers."""

    def open(self, context: Any) -> None:
        self.counts = context.get_map_state(ps.MapStateDescriptor("counts", "int64", key_type="int64"))

    def process_element(self, row: Any, ctx: Any) -> Iterator[dict[str, Any]]:
        count = (self.counts.get(row["n"]) or 0) + 1
        self.counts.put(row["n"], count)
        yield {"k": row["k"], "count": count, "mean": row["x"], "what": row["what"]}


class OfWindow(ps.ProcessWindowFunction):
    """How many rows a window has, the mean of some, and the largest."""

    def process(self, key: Any, context: Any, elements: Any) -> Iterator[dict[str, Any]]:
        total = 0.0
        late = 0
        for row in elements:
            if row["what"] == "late":
                late += 1
            total += row["x"]
        largest = max(row["n"] for row in elements)
        yield {"k": key, "count": late + largest, "mean": total / len(elements), "what": elements[0]["what"]}


_FUNCTIONS: Final = {
    "states": WithDefaults,
    "states without defaults": WithoutDefaults,
    "a state of text": WithText,
    "list state": WithList,
    "map state": WithMap,
}


class _Discarded:
    """Takes what comes out."""

    def collect(self, batch: Batch) -> None:
        """Rows go nowhere."""

    def broadcast(self, element: Control) -> None:
        """So do watermarks."""


def main(arguments: Sequence[str] | None = None) -> int:
    """A line for each function and size of batches."""
    parser = argparse.ArgumentParser(description="Measure compiled functions.")
    parser.add_argument("--sizes", type=int, nargs="+", default=[32, 64, 128, 256, 1024, 65_536], help="of batches")
    parser.add_argument("--rows", type=int, default=65_536, help="of each measurement; at least one batch")
    parser.add_argument("--functions", nargs="+", choices=list(_specs()), default=list(_specs()))
    given = parser.parse_args(arguments)
    print(f"{'function':>26}{'batch':>8}{'plain ns':>10}{'compiled ns':>13}   least to largest of {_TURNS}")
    for name in given.functions:
        plain, compiled = _specs()[name]
        for size in given.sizes:
            with ExitStack() as patches:
                for module in _MODULES:
                    patches.enter_context(patch.object(module, "FEW_ROWS", 0))
                patches.enter_context(patch.object(compiled_process, "FEW_ROWS_OF_MANY", 0))
                _measure(name, [_opened(plain), _opened(compiled)], size, max(given.rows, size))
    return 0


def later(one: Any, other: Any) -> Any:
    """A function for `reduce`."""
    return {**other, "n": one["n"] + other["n"], "x": max(one["x"], other["x"])}


def _specs() -> dict[str, tuple[OperatorSpec, OperatorSpec]]:
    keyed = {
        name: (
            KeyedProcessSpec(function, ("k",), _MADE),
            CompiledProcessSpec(ps.compiled(function), ("k",), _MADE),
        )
        for name, function in _FUNCTIONS.items()
    }
    reduce = KeyedReduceSpec(later, ("k",), _GIVEN)
    window = WindowOperatorSpec(ps.tumbling("1m"), ("k",), Reduce(later, True), None, _GIVEN, _GIVEN, True)
    sessions = replace(window, windows=ps.session("1m"))
    rows = replace(window, fold=None, function=ps.compiled(OfWindow), result=_MADE)
    return {
        "map": (RowMapSpec(rounded, _MADE), CompiledMapSpec(ps.compiled(rounded), _MADE)),
        **keyed,
        "reduce": (reduce, CompiledReduceSpec(ps.compiled(later), reduce)),
        "reduce of windows": (window, CompiledWindowSpec(window, False)),
        "reduce of sessions": (sessions, CompiledWindowSpec(sessions, False)),
        "process of windows": (rows, CompiledWindowProcessSpec(rows)),
    }


def _opened(spec: OperatorSpec) -> Operator:
    operator = spec.create()
    operator.open(OperatorContext("measured", 0, 1, SystemClock(), config=replace(DEFAULTS, max_parallelism=128)))
    return operator


def _measure(name: str, operators: Sequence[Operator], size: int, rows: int) -> None:
    numbers = np.random.default_rng(0)
    batches = [
        Batch(
            pa.record_batch(
                {
                    "k": numbers.integers(0, _KEYS, size),
                    "n": numbers.integers(0, 100, size),
                    "x": numbers.random(size),
                    "what": numbers.choice(np.array(["early", "late", "other"]), size).tolist(),
                },
                schema=_GIVEN,
            ),
            pa.array(numbers.integers(0, _MINUTE, size)),
        )
        for _ in range(max(1, rows // size))
    ]
    seconds: list[list[float]] = [[], []]
    for turn in range(_TURNS + 1):
        # The windows of a turn fire at its end; those of folds go on.
        fires = name == "process of windows"
        given = [Batch(batch.data, pc.add(batch.timestamps, turn * _MINUTE)) if fires else batch for batch in batches]
        for operator, taken in zip(operators, seconds, strict=True):
            begin = time.process_time()
            for batch in given:
                operator.process_batch(batch, 0, _Discarded())
            if fires:
                operator.on_watermark(Watermark((turn + 1) * _MINUTE), _Discarded())
            if turn:
                taken.append((time.process_time() - begin) / size / len(batches) * 1e9)
    plain, compiled = (statistics.median(taken) for taken in seconds)
    spread = ", ".join(f"{min(taken):,.0f} to {max(taken):,.0f}" for taken in seconds)
    print(f"{name:>26}{size:>8,}{plain:>10,.0f}{compiled:>13,.0f}   {spread}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
