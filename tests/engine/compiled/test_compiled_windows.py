"""Compiled folds of windows give the rows of plain Python, late ones among them, and say what they do not compile."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock import CountTrigger, cumulative, session, sliding, tumbling
from penstock.engine.errors import GraphError, RecordError, UserCodeError
from penstock.engine.operators.windows.merging_windows import MERGING_WINDOWS
from penstock.engine.operators.windows.window import WindowOperator
from tests.draws import drawn
from tests.engine.window_driver import OperatorDriver, spec_of

BATCHES = st.lists(
    st.tuples(
        st.lists(
            st.tuples(st.sampled_from("abc"), st.integers(0, 60), st.integers(-9, 9) | st.just(2**62)),
            min_size=1,
            max_size=8,
        ),
        st.integers(0, 70),
    ),
    max_size=5,
)
WINDOWS = st.sampled_from(
    [
        tumbling("10ms"),
        tumbling("7ms", offset="3ms"),
        sliding("20ms", "10ms"),
        sliding("9ms", "6ms"),
        sliding("6ms", "9ms"),
        cumulative("20ms", "5ms"),
        session("5ms"),
        session("1ms"),
        tumbling("10ms", time="processing"),
        cumulative("20ms", "5ms", offset="3ms", time="processing"),
        session("15ms", time="processing"),
    ]
)


def later(one: Any, other: Any) -> Any:
    return {**other, "v": one["v"] + other["v"] if other["v"] != 3 else one["v"]}


class Spread(ps.AggregateFunction):
    """The largest and the sum, counted."""

    def __init__(self) -> None:
        self.unit = 2

    def create_accumulator(self) -> Any:
        return {"n": 0, "total": 0.5, "largest": -5, "key": ""}

    def add(self, row: Any, accumulator: Any) -> Any:
        accumulator["n"] += self.unit
        accumulator["total"] += row["v"] / 2
        if row["v"] > accumulator["largest"]:
            accumulator["largest"] = row["v"]
        accumulator["key"] = row["k"]
        return accumulator

    def get_result(self, accumulator: Any) -> Any:
        return accumulator

    def merge(self, one: Any, other: Any) -> Any:
        largest = max(one["largest"], other["largest"])
        return {"n": one["n"] + other["n"], "total": one["total"] - other["total"], "largest": largest, "key": "m"}


class Total(Spread):
    """A single number."""

    def create_accumulator(self) -> Any:
        return 0

    def add(self, row: Any, accumulator: Any) -> Any:
        return accumulator + row["v"] * self.unit

    def get_result(self, accumulator: Any) -> Any:
        return {"total": accumulator}

    def merge(self, one: Any, other: Any) -> Any:
        return one + other


class Bounds(ps.ProcessWindowFunction):
    """The single result, with its window."""

    def process(self, key: Any, context: Any, elements: Any) -> Any:
        yield {"v": elements[0]["v"], "of": str(key), "end": context.window.end}


EXTREMES = ps.OutputTag("extremes", {"k": "string", "lowest": "int64"})
REPORTED = {
    "k": "string",
    "n": "int64",
    "from": "int64",
    "to": "int64",
    "total": "int64",
    "late": "bool",
    "x": "float64",
}


class Report(ps.ProcessWindowFunction):
    """What may be asked of a window and of its rows."""

    def process(self, key: Any, context: Any, elements: Any) -> Any:
        total = 0
        last = elements[-1]
        for row in elements:
            if row["k"] == last["k"] and row["v"] > 2:
                last = row
            total += row["v"]
        lowest = min(row["v"] for row in elements)
        if lowest < 0:
            context.output(EXTREMES, {"k": last["k"], "lowest": lowest})
        yield {
            "k": last["k"],
            "n": len(elements),
            "from": context.window.start,
            "to": context.window.max_timestamp,
            "total": total + sum(row["v"] for row in elements if row["at"] > context.current_watermark),
            "late": any(row["v"] == 3 for row in elements) or all(other["v"] > 0 for other in elements),
            "x": sum(row["v"] / 3 for row in elements) + max(row["v"] for row in elements if row["v"] != -1),
        }


class Singles(ps.ProcessWindowFunction):
    """Some rows of a window."""

    def __init__(self, over: int) -> None:
        self.over = over

    def process(self, key: Any, context: Any, elements: Any) -> Any:
        for number in range(len(elements)):
            if elements[number]["v"] > self.over:
                yield {"k": elements[number]["k"], "n": elements[number]["v"], "over": context.window.end - self.over}


class Held(Singles):
    """Declares state."""

    def __init__(self) -> None:
        """It needs nothing."""

    def open(self, context: Any) -> None:
        self.count = context.get_state(ps.ValueStateDescriptor("count", "int64"))


class Sorted(Held):
    """Uses what is not compiled."""

    def open(self, context: Any) -> None:
        """It has no state."""

    def process(self, key: Any, context: Any, elements: Any) -> Any:
        yield {"n": len(sorted(elements))}


class Cleared(Sorted):
    """Is told when a window goes."""

    def process(self, key: Any, context: Any, elements: Any) -> Any:
        yield {"n": len(elements)}

    def clear(self, context: Any) -> None:
        """It has nothing."""


class Unknown(Sorted):
    """Names a column that is not there."""

    def process(self, key: Any, context: Any, elements: Any) -> Any:
        yield {"n": elements[0]["w"]}


PARTS = {"n": "int64", "total": "float64", "largest": "int64", "key": "string"}
FOLDS: dict[str, Callable[[Any, Callable[[Any], Any]], Any]] = {
    "reduce": lambda windows, mark: windows.reduce(mark(later)),
    "aggregate": lambda windows, mark: windows.aggregate(mark(Spread)(), accumulator=PARTS, returns=PARTS),
    "total": lambda windows, mark: windows.aggregate(mark(Total)(), accumulator="int64", returns={"total": "int64"}),
    "before process": lambda windows, mark: windows.reduce(
        mark(later), process=Bounds, returns={"v": "int64", "of": "string", "end": "int64"}
    ),
    "process": lambda windows, mark: windows.process(mark(Report), returns=REPORTED),
    "single rows": lambda windows, mark: windows.process(
        mark(Singles)(3), returns={"k": "string", "n": "int64", "over": "int64"}
    ),
}


def plain(function: Any) -> Any:
    return function


def _program(fold: str, mark: Callable[[Any], Any], windows: Any, lateness: int, keyed: bool) -> Callable[[Any], Any]:
    def results(stream: Any) -> Any:
        windowed = stream.window(windows) if keyed else stream.window_all(windows)
        return FOLDS[fold](windowed.allowed_lateness(f"{lateness}ms") if windows.is_event_time else windowed, mark)

    return results


def outcome(
    fold: str,
    marks: Any,
    windows: Any,
    batches: list[Any],
    lateness: int = 0,
    backend: str = "heap",
    keyed: bool = True,
) -> tuple[list[Any], Any]:
    """What comes out, and the state behind each batch; a batch is handled by each of the functions in turn."""
    specs = [spec_of(_program(fold, mark, windows, lateness, keyed), keyed=keyed) for mark in marks]
    seen: list[Any] = []
    job = OperatorDriver(specs[0], backend=backend, sides=[EXTREMES.name])
    for number, (rows, watermark) in enumerate(batches):
        if number and len(specs) > 1:
            snapshot = job.snapshot()
            job.operator.close()
            job = OperatorDriver(specs[number % len(specs)], backend=backend, sides=[EXTREMES.name])
            job.operator.restore(snapshot)
        before = max((earlier for _, earlier in batches[:number]), default=0)
        top = max(watermark, before)
        try:
            job.add(*rows)
            job.advance(top)
            job.come_to(top)
            state = job.snapshot()
        except (RecordError, UserCodeError) as error:  # more than 64 bits, or max() of nothing
            return seen, str(error)
        tables = {name: shown(name, table.data) for name, table in state.tables.items()}
        emitted = zip(job.out.timestamps, job.out.rows, strict=True)
        made = [(time or 0, repr(row)) for time, row in emitted]
        if windows.is_merging:
            # Sessions of several keys that end together come in any order.
            made.sort(key=lambda row: row if row[0] > before else (before, ""))
        seen.append((made, job.metrics.late_rows, tables, sorted(map(repr, job.take_side(EXTREMES.name)))))
        job.out.elements.clear()
        job.metrics.late_rows = 0
    return seen, ""


def shown(name: str, table: pa.Table) -> list[str]:
    """The rows of a state, without what has the order in which sessions were opened."""
    names = [column for column in table.column_names if column != "__number"]
    rows = table.select(names).to_pylist()
    if name == MERGING_WINDOWS.name:
        rows = [{**row, "value": sorted(row["value"])} for row in rows]
    return sorted(map(repr, rows))


@settings(max_examples=drawn(15))
@given(
    st.sampled_from(list(FOLDS)),
    WINDOWS,
    BATCHES,
    st.sampled_from([0, 15]),
    st.sampled_from([(ps.compiled,), (ps.compiled, plain), (plain, ps.compiled)]),
    st.booleans(),
)
def test_random_batches_come_to_the_same(
    fold: str, windows: Any, batches: Any, lateness: int, marks: Any, keyed: bool
) -> None:
    found = outcome(fold, marks, windows, batches, lateness, keyed=keyed)
    assert found == outcome(fold, (plain,) * len(marks), windows, batches, lateness, keyed=keyed)


@pytest.mark.parametrize("backend", ["heap", "rocksdb"])
@pytest.mark.parametrize("fold", FOLDS)
def test_rows_are_not_added_one_by_one(fold: str, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    batches = [([("ab"[i % 2], i * 7 % 30, i) for i in range(40)], 9), ([("a", 12, 1), ("c", 25, 4)], 100)]
    wanted = outcome(fold, (plain,), sliding("20ms", "10ms"), batches[:1], backend=backend)
    monkeypatch.setattr(WindowOperator, "process_batch", lambda *_: pytest.fail("rows were added one by one"))
    assert outcome(fold, (ps.compiled,), sliding("20ms", "10ms"), batches[:1], backend=backend) == wanted


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (
            lambda k: k.window(session(gap=lambda row: row["v"])).reduce(ps.compiled(later)),
            "functions of session.* windows are compiled for",
        ),
        (lambda k: k.window(tumbling("5ms")).trigger(CountTrigger(2)).reduce(ps.compiled(later)), "without a trigger"),
        (
            lambda k: k.window(tumbling("5ms")).trigger(CountTrigger(2)).process(ps.compiled(Report), returns=REPORTED),
            "without a trigger",
        ),
        (lambda k: k.window(tumbling("5ms")).process(ps.compiled(Report)), "needs `returns`"),
        (
            lambda k: k.window(tumbling("5ms")).process(ps.compiled(Report), returns={"k": "string"}),
            "gives k, n, from",
        ),
        (
            lambda k: k.window(tumbling("5ms")).process(ps.compiled(Held), returns={"n": "int64"}),
            r"open\(\) uses get_state; compiled window functions have no state",
        ),
        (
            lambda k: k.window(tumbling("5ms")).process(ps.compiled(Cleared)(), returns={"n": "int64"}),
            "Cleared has a `clear`, which would be called before `process`",
        ),
        (
            lambda k: k.window(tumbling("5ms")).process(ps.compiled(Sorted), returns={"n": "int64"}),
            r"line \d+: `len\(sorted\(elements\)\)` is not compiled",
        ),
        (
            lambda k: k.window(tumbling("5ms")).process(ps.compiled(Unknown), returns={"n": "int64"}),
            r"line \d+: there is no column 'w'",
        ),
        (
            lambda k: k.window(tumbling("5ms")).reduce(later, process=ps.compiled(Bounds), returns=REPORTED),
            "is called once a window",
        ),
        (
            lambda k: k.window(tumbling("5ms")).aggregate(
                ps.compiled(Spread)(), accumulator={"n": "int64"}, returns={"n": "int64"}
            ),
            r"line \d+: the accumulator has no 'total'",
        ),
    ],
)
def test_what_is_not_compiled_is_refused_when_the_graph_is_built(program: Any, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        spec_of(program)


def test_it_runs_plain_with_a_message_where_that_is_allowed(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        spec_of(lambda k: k.window(tumbling("5ms")).trigger(CountTrigger(2)).reduce(ps.compiled(later, fallback=True)))
    assert "it runs as plain Python" in caplog.text
