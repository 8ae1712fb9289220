"""Random windows: of all kinds, with triggers, evictors, late rows, and whatever can be computed of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any, Final

import pyarrow as pa

import penstock as ps
from penstock import DataStream
from penstock.engine.schemas import parse_schema
from tests.parity.rows import Row, Rows, milliseconds, schema_of
from tests.parity.windows import (
    NORMAL,
    Folded,
    Windows,
    aggregates,
    normal_row,
    random_keys,
    random_windows,
    some_aggregates,
    summed,
)
from tests.property.cuts.models import windows_model
from tests.property.cuts.runs import Build, Fewer, Given, Operators, all_rows

LATE: Final = ps.OutputTag("late")
ASIDE: Final = ps.OutputTag("aside", {"n": "int64"})
NEVER_EARLY: Final = ps.EventTimeTrigger(early_count=2**40)
"""Does what the default trigger does, and is none: rows are taken one by one."""
REPORT: Final = {"k": "string", "j": "int64", "start": "int64", "items": "string", "mark": "int64", "fired": "int64"}
_FIRED: Final = ps.ValueStateDescriptor("fired", "int64", default=0)


def _difference(one: Row, other: Row) -> float:
    return abs((one["v"] or 0) - (other["v"] or 0))


def _gap(row: Row) -> int:
    return 30 + 40 * abs(row["v"] or 0)


def _trigger(random: Random) -> ps.Trigger:
    return random.choice(
        [
            ps.CountTrigger(random.choice((1, 2, 3))),
            ps.PurgingTrigger(ps.CountTrigger(2)),
            ps.ContinuousEventTimeTrigger(random.choice(("7ms", "100ms"))),
            ps.PurgingTrigger(ps.ContinuousEventTimeTrigger("100ms")),
            ps.ContinuousProcessingTimeTrigger("9ms"),
            ps.EventTimeTrigger().with_early_firings(count=2),
            ps.EventTimeTrigger().with_early_firings(every="5ms"),
            ps.EventTimeTrigger().with_late_firings(count=2),
            ps.EventTimeTrigger().with_early_firings(count=3).with_late_firings(count=2),
            ps.PurgingTrigger(ps.EventTimeTrigger()),
            ps.DeltaTrigger(2.0, _difference),
            ps.EndOfTimeTrigger(),
            NEVER_EARLY,
        ]
    )


def _evictor(random: Random) -> Any:
    when: Any = random.choice(("before", "after"))
    return random.choice(
        [ps.CountEvictor(2, when), ps.TimeEvictor("60ms", when), ps.DeltaEvictor(2.0, _difference, when)]
    )


class Report(ps.ProcessWindowFunction):
    """Tells all about a window: its rows in their order, where event time is, and how often it and its key fired."""

    def __init__(self, kept: str) -> None:
        self.kept = kept

    def open(self, context: Any) -> None:
        if self.kept:
            self._store(context).get_state(_FIRED)

    def _store(self, context: Any) -> Any:
        return context.window_state if self.kept == "window" else context.global_state

    def process(self, key: Any, context: Any, elements: list[Row]) -> Any:
        number = 0
        if self.kept:
            fired = self._store(context).get_state(_FIRED)
            number = fired.value() + 1
            fired.update(number)
        context.output(ASIDE, {"n": len(elements)})
        yield {
            "k": elements[0]["k"],
            "j": elements[0]["j"],
            "start": context.window.start,
            "items": ", ".join(f"{row['v']} at {row['t']}" for row in elements),
            "mark": context.current_watermark,
            "fired": number,
        }


class Normal(ps.ProcessWindowFunction):
    """One row a window, which any verb can follow."""

    def process(self, key: Any, context: Any, elements: list[Row]) -> Any:
        yield {**summed(elements), "j": min(row["j"] for row in elements), "t": max(row["t"] for row in elements)}


class Told(Folded):
    """All rows of a window, in their order, as a text."""

    def get_result(self, accumulator: Rows) -> Row:
        first = accumulator[0]
        return {
            "k": first["k"],
            "j": first["j"],
            "items": ", ".join(f"{row['v']} at {row['t']}" for row in accumulator),
        }


class Bounds(ps.ProcessWindowFunction):
    """The single result, with the bounds of its window."""

    def process(self, key: Any, context: Any, elements: list[Row]) -> Any:
        (row,) = elements
        yield {**row, "start": context.window.start, "end": context.window.end}


def _reduced(one: Row, other: Row) -> Row:
    """Goes by the order of rows."""
    return {**other, "v": ((one["v"] or 0) * 3 + (other["v"] or 0)) % 1009, "t": max(one["t"], other["t"])}


def _last_of_each(keys: Sequence[str], merges: bool) -> Fewer:
    """Without results of windows that came again later; of windows that merge, in larger ones."""

    def fewer(given: Sequence[Given]) -> Sequence[Given]:
        seen: dict[tuple[Any, ...], list[tuple[int, int]]] = {}
        found = []
        for one in reversed(given):
            if not merges:
                seen = {}
            rows = []
            for row, time in reversed(one.rows):
                later = seen.setdefault(tuple(row[key] for key in keys), [])
                start, end = (milliseconds(row[bound]) for bound in ("window_start", "window_end"))
                if not any(a <= start and end <= b if merges else (a, b) == (start, end) for a, b in later):
                    rows.append((row, time))
                later.append((start, end))
            found.append(Given(rows[::-1], one.sides))
        return found[::-1]

    return fewer


def _assigned(random: Random) -> Windows:
    """Windows of event time; often sessions, of which most can be got wrong."""
    wants_session = random.random() < 0.3
    while True:
        windows = replace(random_windows(random), more="")
        if windows.bounds is None or not wants_session:
            return windows


def window(random: Random, kind: str) -> Operators:
    """Windows of anything, by key or of all rows."""
    keys = random.choice([(), random_keys(random, kind), random_keys(random, kind), random_keys(random, kind)])
    assigned = _assigned(random)
    form = random.choice(["plain"] * 7 + ["count", "global", "gaps", "clock"])
    count, slide = random.choice((1, 2, 3)), random.choice((None, 1, 2))
    clock = random.choice([ps.tumbling("50ms", time="processing"), ps.session("60ms", time="processing")])
    windows: Any = {
        "plain": assigned.make,
        "count": ps.global_windows,
        "global": ps.global_windows,
        "gaps": lambda: ps.session(_gap),
        "clock": lambda: clock,
    }[form]()
    is_event_time = form in ("plain", "gaps")
    merges = form == "gaps" or "session" in windows.describe()
    lateness = random.choice((0, 0, 50, 400)) if is_event_time else 0
    is_late_read = is_event_time and random.random() < 0.6
    trigger = _trigger(random) if form == "global" or (form != "count" and random.random() < 0.25) else None
    if form == "clock" and trigger is not None and trigger.needs_timestamps:
        # From where rows are to where the clock is there may be any number of times to fire at.
        trigger = None
    evictor = _evictor(random) if random.random() < 0.15 else None
    verb = random.choice(["named"] * 6 + ["named, process", "aggregate", "reduce", "report", "normal"])
    names = some_aggregates(random, kind) if verb != "named, process" else NORMAL
    kept = random.choice(("", "global", "window")) if not merges else random.choice(("", "global"))

    def settled(stream: DataStream, given: Any) -> Any:
        keyed: Any = stream.key_by(*keys) if keys else None
        if form == "count":
            made = keyed.count_window(count, slide) if keys else stream.count_window_all(count, slide)
        else:
            made = keyed.window(windows) if keys else stream.window_all(windows)
        made = made.allowed_lateness(f"{lateness}ms") if lateness else made
        made = made.side_output_late_data(LATE) if is_late_read else made
        made = made.trigger(given) if given is not None else made
        return made.evictor(evictor) if evictor is not None else made

    def computed(made: Any) -> DataStream:
        result: DataStream
        match verb:
            case "named":
                result = made.aggregate(**aggregates(names, kind))
            case "named, process":
                result = made.aggregate(**aggregates(names, kind), process=Named, returns=schema_of(kind))
            case "aggregate":
                columns = parse_schema(schema_of(kind), "accumulator")
                accumulator = pa.list_(pa.struct(list(columns)))
                result = made.aggregate(Told(), accumulator=accumulator, process=Bounds)
            case "reduce":
                result = made.reduce(
                    _reduced, process=Bounds, returns={**schema_of(kind), "start": "int64", "end": "int64"}
                )
            case "report":
                result = made.process(Report(kept), returns=REPORT)
            case _:
                result = made.process(Normal, returns=schema_of(kind))
        return result

    is_fast = verb == "named" and form == "plain" and trigger is None and evictor is None
    is_fast = is_fast and "dynamic" not in assigned.text and "own" not in assigned.text
    twin: Build | None = (lambda stream: computed(settled(stream, NEVER_EARLY))) if is_fast else None
    parts = [f"{count} by {slide}" if form == "count" else windows.describe(), f"by {keys}", verb]
    parts += [", ".join(names)] if verb.startswith("named") else [kept] if verb == "report" else []
    parts += [f"lateness {lateness}"] if lateness else []
    parts += [trigger.describe()] if trigger is not None else []
    parts += [evictor.describe()] if evictor is not None else []
    has_model = form in ("plain", "gaps") and trigger is None and evictor is None and verb in ("named", "normal")
    gap = _gap if form == "gaps" else (lambda row: assigned.gap)
    bounds = None if merges else assigned.bounds
    return Operators(
        "window " + ", ".join(parts),
        lambda stream: computed(settled(stream, trigger)),
        keys=keys,
        sides=(*(["late"] if is_late_read else []), *(["aside"] if verb == "report" else [])),
        fewer=_last_of_each(keys, merges) if is_fast and lateness else all_rows,
        is_normal=verb == "normal",
        is_in_order=not is_fast,
        has_lists_in_order=not (is_fast and merges),
        twin=twin,
        model=windows_model(keys, bounds, gap, lateness, verb, names) if has_model else None,
    )


class Named(ps.ProcessWindowFunction):
    """The results of named aggregates, as a row that any verb can follow, but for its keys."""

    def process(self, key: Any, context: Any, elements: list[Row]) -> Any:
        (row,) = elements
        yield normal_row({**row, "window_end": min(context.window.end, 2**61)})
