"""Compiled functions, keyed and of windows, beside the same as plain Python."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any, Final

import penstock as ps
from penstock import DataStream
from tests.parity.rows import schema_of
from tests.parity.windows import random_keys
from tests.property.cuts.runs import Build, Operators

ASIDE: Final = ps.OutputTag("aside", {"k": "string", "n": "int64"})
LATE: Final = ps.OutputTag("late")
_ROWS: Final = {"k": "string", "n": "int64", "x": "float64", "what": "string"}
_ACCUMULATOR: Final = {"n": "int64", "total": "float64", "key": "string"}
_REPORT: Final = {"k": "string", "n": "int64", "from": "int64", "to": "int64", "late": "bool"}


class Plain(ps.KeyedProcessFunction):
    """Counts rows until a timer fires."""

    def open(self, context: Any) -> None:
        self.count = context.get_state(ps.ValueStateDescriptor("count", "int64", default=0))
        self.mean = context.get_state(ps.ValueStateDescriptor("mean", "float64", default=0.5))

    def process_element(self, row: Any, ctx: Any) -> Any:
        if ctx.timestamp <= ctx.timer_service.current_watermark():
            ctx.output(ASIDE, {"k": row["k"], "n": row["t"]})
            return
        v = row["v"]
        self.count.update(self.count.value() + 1)
        if v is not None:
            self.mean.update((self.mean.value() + v) / 2)
            if v == 0:
                ctx.timer_service.delete_event_time_timer((ctx.timestamp // 50 + 1) * 50)
            else:
                ctx.timer_service.register_event_time_timer((ctx.timestamp // 50 + 1) * 50)
            if v > 3:
                yield {"k": row["k"], "n": self.count.value(), "x": self.mean.value(), "what": "row"}

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield {"k": "timer", "n": self.count.value(), "x": self.mean.value(), "what": "end"}
        self.mean.clear()
        if self.count.value() > 1:
            self.count.update(self.count.value() // 2)
            ctx.timer_service.register_event_time_timer(timestamp + 50)
        else:
            self.count.clear()


def later(one: Any, other: Any) -> Any:
    return {**other, "j": one["j"] if other["v"] == 3 else other["j"], "t": one["t"]}


class Spread(ps.AggregateFunction):
    """A number, a sum and a text."""

    def create_accumulator(self) -> Any:
        return {"n": 0, "total": 0.5, "key": ""}

    def add(self, row: Any, accumulator: Any) -> Any:
        accumulator["n"] += 2
        accumulator["total"] = accumulator["total"] / 2 + row["t"] % 64
        accumulator["key"] = row["k"]
        return accumulator

    def get_result(self, accumulator: Any) -> Any:
        return accumulator

    def merge(self, one: Any, other: Any) -> Any:
        return {"n": one["n"] + other["n"], "total": one["total"] - other["total"], "key": "m"}


class Report(ps.ProcessWindowFunction):
    """What may be asked of a window and of its rows."""

    def process(self, key: Any, context: Any, elements: Any) -> Any:
        total = 0
        last = elements[-1]
        for row in elements:
            if row["k"] == last["k"] and row["j"] == 1:
                last = row
            total += row["t"] % 7
        if total > 9:
            context.output(ASIDE, {"k": last["k"], "n": total})
        yield {
            "k": last["k"],
            "n": total,
            "from": context.window.start,
            "to": context.window.end,
            "late": context.current_watermark >= context.window.end,
        }


def compiled(random: Random, kind: str) -> Operators:
    """A compiled function, and the same as plain Python."""
    keys, verb = random_keys(random, kind), random.choice(("process", "reduce", "aggregate", "window reduce", "report"))
    windows = random.choice(
        (ps.tumbling("50ms"), ps.sliding("90ms", "60ms"), ps.session("50ms"), ps.cumulative("300ms", "100ms"))
    )
    lateness = random.choice((0, 0, 100))

    def windowed(stream: DataStream) -> Any:
        made = stream.key_by(*keys).window(windows).side_output_late_data(LATE)
        return made.allowed_lateness(f"{lateness}ms") if lateness else made

    def by(mark: Any) -> Build:
        builds: Mapping[str, Build] = {
            "process": lambda stream: stream.key_by(*keys).process(mark(Plain), returns=_ROWS),
            "reduce": lambda stream: stream.key_by(*keys).reduce(mark(later), returns=schema_of(kind)),
            "aggregate": lambda stream: windowed(stream).aggregate(
                mark(Spread)(), accumulator=_ACCUMULATOR, returns=_ACCUMULATOR
            ),
            "window reduce": lambda stream: windowed(stream).reduce(mark(later)),
            "report": lambda stream: windowed(stream).process(mark(Report), returns=_REPORT),
        }
        return builds[verb]

    sides = {"process": ("aside",), "reduce": (), "report": ("late", "aside")}.get(verb, ("late",))
    of_windows = "" if verb in ("process", "reduce") else f", {windows.describe()}, lateness {lateness}"
    text = f"compiled {verb} by {keys}{of_windows}"
    return Operators(text, by(ps.compiled(fallback=True)), keys=keys, sides=sides, twin=by(lambda function: function))
