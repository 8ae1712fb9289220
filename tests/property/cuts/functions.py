"""Random functions of rows, keyed or not: states of all kinds, timers, time to live, side outputs, calls elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any, Final

import pyarrow as pa

import penstock as ps
from penstock import DataStream, col
from penstock.engine.schemas import parse_schema
from tests.parity.rows import Row, schema_of
from tests.parity.windows import aggregates, random_keys, some_aggregates
from tests.property.cuts.runs import Fewer, Given, Operators

SEEN: Final = ps.OutputTag("seen", {"k": "string", "what": "string"})
TOLD: Final = {"k": "string", "j": "int64", "x": "string", "what": "string"}
RULES: Final = ps.MapStateDescriptor("rules", "int64", key_type="string")
_STATES: Final = ("value", "list", "map", "sum", "folded")


def _value(text: Any) -> str:
    return repr(text)


class _Sum(ps.AggregateFunction):
    """Numbers in the order in which they came, as digits."""

    def create_accumulator(self) -> int:
        return 7

    def add(self, value: int, accumulator: int) -> int:
        return (accumulator * 11 + value) % 10_007

    def get_result(self, accumulator: int) -> int:
        return accumulator


def _chained(one: int, other: int) -> int:
    return (one * 13 + other) % 10_009


class _States:
    """States of all kinds, in which the numbers of rows are kept."""

    def __init__(self, context: Any, names: Sequence[str], ttl: ps.StateTtl | None) -> None:
        kinds: dict[str, Any] = {
            "value": lambda: context.get_state(ps.ValueStateDescriptor("value", "int64", default=0, ttl=ttl)),
            "list": lambda: context.get_list_state(ps.ListStateDescriptor("list", "int64", ttl=ttl)),
            "map": lambda: context.get_map_state(ps.MapStateDescriptor("map", "int64", key_type="string", ttl=ttl)),
            "sum": lambda: context.get_reducing_state(
                ps.ReducingStateDescriptor("sum", "int64", function=_chained, ttl=ttl)
            ),
            "folded": lambda: context.get_aggregating_state(
                ps.AggregatingStateDescriptor("folded", "int64", function=_Sum(), ttl=ttl)
            ),
        }
        self.states = {name: kinds[name]() for name in names}

    def add(self, number: int) -> None:
        for name, state in self.states.items():
            match name:
                case "value":
                    state.update((state.value() * 3 + number) % 10_007)
                case "map":
                    key = "ä" * (number % 3)
                    state.put(key, (state.get(key) or 0) + number)
                    if number == 5:
                        state.remove("ä")
                case _:
                    state.add(number)

    def told(self) -> str:
        parts = []
        for name, state in self.states.items():
            match name:
                case "value":
                    held: Any = state.value()
                case "map":
                    held = sorted(state.items())
                case "list":
                    held = list(state.get())
                case _:
                    held = state.get()
            parts.append(f"{name} {held}")
        return ", ".join(parts)

    def clear(self) -> None:
        for state in self.states.values():
            state.clear()


class Kept(ps.KeyedProcessFunction):
    """Keeps numbers, tells what it keeps, and does something by timers of both times."""

    def __init__(self, names: Sequence[str], ttl: ps.StateTtl | None, timers: str, told_at: int) -> None:
        self.names, self.ttl, self.timers, self.told_at = names, ttl, timers, told_at

    def open(self, context: Any) -> None:
        self.kept = _States(context, self.names, self.ttl)

    def _row(self, ctx: Any, what: str) -> Row:
        key = ctx.current_key
        return {"k": repr(key), "j": 0, "x": "", "what": what}

    def process_element(self, row: Row, ctx: Any) -> Any:
        number, timers = row["v"] or 0, ctx.timer_service
        self.kept.add(number)
        if "event" in self.timers:
            timers.register_event_time_timer(row["t"] + 10 * number)
        if "clock" in self.timers:
            timers.register_processing_time_timer(timers.current_processing_time() + 5 * abs(number) + 1)
        if "delete" in self.timers and number == 3:
            timers.delete_event_time_timer(row["t"] + 30)
            timers.delete_event_time_timer(row["t"] - 10)
        if number == 4:
            ctx.output(SEEN, {"k": row["k"], "what": f"{ctx.timestamp} {timers.current_watermark()}"})
        if number == 6:
            self.kept.clear()
        if number >= self.told_at:
            yield self._row(ctx, f"row {number} at {row['t']}: {self.kept.told()}")

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield self._row(
            ctx, f"{timestamp} {ctx.is_event_time} {ctx.timer_service.current_watermark()}: {self.kept.told()}"
        )
        if timestamp % 3 == 0:
            ctx.timer_service.register_event_time_timer(timestamp + 40)
        if timestamp % 5 == 0:
            self.kept.clear()


def keyed_process(random: Random, kind: str) -> Operators:
    """A keyed function with states and timers."""
    keys = random_keys(random, kind)
    names = random.sample(_STATES, random.randint(1, 3))
    timers = random.choice(("", "event", "event", "event delete", "clock", "event clock"))
    ttl = random.choice((None, None, ps.ttl("60ms"), ps.ttl("60ms", update=ps.TtlUpdate.ON_READ_AND_WRITE)))
    told_at = random.choice((-9, 2, 9))
    return Operators(
        f"keyed process by {keys}: {', '.join(names)}; timers {timers}; {ttl}; tells at {told_at}",
        lambda stream: stream.key_by(*keys).process(Kept(names, ttl, timers, told_at), returns=TOLD),
        keys=keys,
        sides=("seen",),
        is_in_order=True,
    )


class Numbered(ps.KeyedProcessFunction):
    """Numbers the rows of each key, a batch at a time."""

    def open(self, context: Any) -> None:
        self.count = context.get_state(ps.ValueStateDescriptor("count", "int64", default=0))

    def process_batch(self, batch: Any, ctx: Any) -> Any:
        counts = self.count.values().to_numpy(zero_copy_only=False).astype("int64").copy()
        numbers = []
        for group in batch.groups:
            counts[group] += 1
            numbers.append(int(counts[group]))
        self.count.update_values(pa.array(counts))
        place = batch.data.schema.get_field_index("v")
        return batch.data.set_column(place, batch.data.schema.field(place), pa.array(numbers, pa.int64()))


class NumberedByRow(ps.KeyedProcessFunction):
    """The same, a row at a time."""

    def open(self, context: Any) -> None:
        self.count = context.get_state(ps.ValueStateDescriptor("count", "int64", default=0))

    def process_element(self, row: Row, ctx: Any) -> Any:
        self.count.update(self.count.value() + 1)
        yield {**row, "v": self.count.value()}


def numbered(random: Random, kind: str) -> Operators:
    """A keyed function of batches."""
    keys, schema = random_keys(random, kind), schema_of(kind)
    return Operators(
        f"process_batch by {keys}",
        lambda stream: stream.key_by(*keys).process(Numbered(), returns=schema),
        keys=keys,
        is_normal=True,
        is_in_order=True,
        twin=lambda stream: stream.key_by(*keys).process(NumberedByRow(), returns=schema),
    )


def _reduced(one: Row, other: Row) -> Row:
    return {**other, "v": ((one["v"] or 0) * 3 + (other["v"] or 0)) % 1009}


def reduced(random: Random, kind: str) -> Operators:
    """Rows of each key made one as they come."""
    keys = random_keys(random, kind)
    return Operators(
        f"reduce by {keys}",
        lambda stream: stream.key_by(*keys).reduce(_reduced),
        keys=keys,
        is_normal=True,
        is_in_order=True,
    )


def _last_of_keys(keys: Sequence[str]) -> Fewer:
    """The last row of each key, with the latest time of all of them."""

    def last(one: Given) -> Given:
        found: dict[tuple[Any, ...], tuple[Row, int]] = {}
        for row, time in one.rows:
            key = tuple(row[key] for key in keys)
            found[key] = (row, max(time or 0, found[key][1] if key in found else time or 0))
        return Given(list(found.values()), one.sides)

    return lambda given: [last(one) for one in given]


def running(random: Random, kind: str) -> Operators:
    """Running aggregates, or those of all rows in the end."""
    keys, names, is_grouped = random_keys(random, kind), some_aggregates(random, kind), random.random() < 0.3

    def build(stream: DataStream) -> DataStream:
        some = stream.group_by(*keys) if is_grouped else stream.key_by(*keys)
        return some.aggregate(**aggregates(names, kind))

    text = f"{'grouped' if is_grouped else 'running'} {', '.join(names)} by {keys}"
    return Operators(text, build, keys=keys, fewer=_last_of_keys(keys))


class Told(ps.ProcessFunction):
    """Tells of each row, gives some aside, and keeps how many there were in state of the subtask."""

    def open(self, context: Any) -> None:
        self.seen = context.get_operator_list_state(ps.ListStateDescriptor("seen", "int64"))

    def process_element(self, row: Row, ctx: Any) -> Any:
        self.seen.add(row["v"] or 0)
        if row["v"] == 4:
            ctx.output(SEEN, {"k": row["k"], "what": f"{ctx.timestamp}"})
        elif row["v"] != 3:
            yield {**row, "v": sum(self.seen.get())}


async def _asked(row: Row) -> Any:
    return [row] * (abs(row["v"] or 0) % 3)


def _copies(row: Row) -> Any:
    return [{**row, "v": n} for n in range(abs(row["v"] or 0) % 3)]


def _doubled(batch: pa.RecordBatch) -> Any:
    columns = {name: batch.column(name) for name in batch.schema.names}
    return {**columns, "v": [None if value is None else 2 * value for value in batch.column("v").to_pylist()]}


def row_wise(random: Random, kind: str) -> Operators:
    """Verbs of single rows, without keys."""
    schema = schema_of(kind)
    choices: dict[str, Any] = {
        "process": lambda stream: stream.process(Told(), returns=schema),
        "map_async": lambda stream: stream.map_async(_asked, returns=schema, capacity=3),
        "flat_map": lambda stream: stream.flat_map(_copies, returns=schema),
        "map_batches": lambda stream: stream.map_batches(_doubled, returns=schema),
        "filter": lambda stream: stream.filter((col("v") > 1) | (col("f") < 0.0)),
        "with_columns": lambda stream: stream.with_columns(v=ps.when(col("v") > 2).then(col("v") * 2).otherwise(1)),
        "assign_timestamps": lambda stream: stream.assign_timestamps("t", _PUNCTUATED).process(Told(), returns=schema),
        "sort": lambda stream: stream.sort("t", "k", "j", "v"),
    }
    text = random.choice(list(choices))
    return Operators(
        text,
        choices[text],
        sides=("seen",) if text in ("process", "assign_timestamps") else (),
        is_normal=text != "sort",
        is_in_order=True,
    )


def _marked(row: Row, timestamp: int) -> int | None:
    return timestamp - 30 if row["v"] == 2 else None


_PUNCTUATED: Final = ps.WatermarkStrategy.for_punctuated(_marked)


def punctuated(random: Random, kind: str) -> Operators:
    """Timestamps and watermarks of its own, where rows say so, before windows."""
    keys = random_keys(random, kind)
    size, lateness = random.choice((50, 300)), random.choice((0, 100))

    def build(stream: DataStream) -> DataStream:
        timed = stream.assign_timestamps("t", _PUNCTUATED).key_by(*keys).window(ps.tumbling(f"{size}ms"))
        late = timed.allowed_lateness(f"{lateness}ms").side_output_late_data(ps.OutputTag("late"))
        return late.trigger(ps.EventTimeTrigger(early_count=2**40)).aggregate(n=ps.count(), total=ps.sum("v"))

    return Operators(f"punctuated, tumbling {size}ms by {keys}, lateness {lateness}", build, keys=(), sides=("late",))


# Two inputs


class Both(ps.KeyedCoProcessFunction):
    """Keeps numbers of both streams in common, and tells what it keeps."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names

    def open(self, context: Any) -> None:
        self.kept = _States(context, self.names, None)

    def _row(self, ctx: Any, what: str) -> Row:
        return {"k": repr(ctx.current_key), "j": 0, "x": "", "what": what}

    def process_element1(self, row: Row, ctx: Any) -> Any:
        self.kept.add(row["v"] or 0)
        yield self._row(ctx, f"one: {self.kept.told()}")

    def process_element2(self, row: Row, ctx: Any) -> Any:
        self.kept.add(-(row["v"] or 0))
        ctx.timer_service.register_event_time_timer(row["t"] + 50)
        if row["v"] == 4:
            ctx.output(SEEN, {"k": row["k"], "what": f"{ctx.timestamp} {ctx.timer_service.current_watermark()}"})

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield self._row(ctx, f"{timestamp} {ctx.timer_service.current_watermark()}: {self.kept.told()}")


def keyed_both(random: Random, kind: str) -> Operators:
    """A keyed function of two streams."""
    keys, names = random_keys(random, kind), random.sample(_STATES, random.randint(1, 3))

    def build(one: DataStream, other: DataStream) -> DataStream:
        if len(names) % 2:
            return one.connect(other).key_by(keys, keys).process(Both(names), returns=TOLD)
        return one.key_by(*keys).connect(other.key_by(*keys)).process(Both(names), returns=TOLD)

    return Operators(f"co-process by {keys}: {', '.join(names)}", build, 2, keys, sides=("seen",), is_in_order=True)


def both(random: Random, kind: str) -> Operators:
    """Two streams, each with a function of its rows, or as one."""
    schema = schema_of(kind)
    choices: dict[str, Any] = {
        "map": lambda one, other: one.connect(other).map(dict, lambda row: {**row, "v": 9}, returns=schema),
        "flat_map": lambda one, other: one.connect(other).flat_map(_copies, lambda row: [row, row], returns=schema),
        "union": lambda one, other: one.union(other).process(Told(), returns=schema),
    }
    if random.random() < 0.4:
        return _union_in_windows(random, kind)
    text = random.choice(list(choices))
    return Operators(f"two: {text}", choices[text], 2, sides=("seen",) if text == "union" else (), is_normal=True)


def _union_in_windows(random: Random, kind: str) -> Operators:
    keys, size = random_keys(random, kind), random.choice((50, 300))

    def build(one: DataStream, other: DataStream) -> DataStream:
        windows = one.union(other).key_by(*keys).window(ps.tumbling(f"{size}ms"))
        late = windows.side_output_late_data(ps.OutputTag("late"))
        return late.aggregate(n=ps.count(), total=ps.sum("v"), last=ps.last("v"))

    return Operators(f"two: union, tumbling {size}ms by {keys}", build, 2, keys, sides=("late",))


class Ruled(ps.KeyedBroadcastProcessFunction):
    """Rows with the rule of their name, and all rules when event time has come; rules may change what is kept."""

    LAST = ps.ValueStateDescriptor("last", "int64", default=0)

    def open(self, context: Any) -> None:
        self.last = context.get_state(self.LAST)

    def _row(self, ctx: Any, what: str) -> Row:
        return {"k": repr(ctx.current_key), "j": 0, "x": "", "what": what}

    def process_element(self, row: Row, ctx: Any) -> Any:
        rule = ctx.get_broadcast_state(RULES).get(row["k"])
        self.last.update((self.last.value() * 3 + (row["v"] or 0)) % 1009)
        ctx.timer_service.register_event_time_timer(row["t"] + 20)
        yield self._row(ctx, f"{rule} {self.last.value()}")

    def process_broadcast_element(self, row: Row, ctx: Any) -> None:
        ctx.get_broadcast_state(RULES).put(row["k"], row["v"] or 0)
        if row["v"] == 5:
            ctx.apply_to_keyed_state(self.LAST, lambda key, state: state.update(state.value() + 1000))

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        rules = sorted(ctx.get_broadcast_state(RULES).items())
        yield self._row(ctx, f"{timestamp} {rules} {self.last.value()}")


class RuledRows(ps.BroadcastProcessFunction):
    """Rows with the rule of their name."""

    def process_element(self, row: Row, ctx: Any) -> Any:
        yield {**row, "v": ctx.get_broadcast_state(RULES).get(row["k"])}

    def process_broadcast_element(self, row: Row, ctx: Any) -> Any:
        ctx.get_broadcast_state(RULES).put(row["k"], row["v"] or 0)
        if row["v"] == 3:
            yield row


def ruled(random: Random, kind: str) -> Operators:
    """A stream and a broadcast one."""
    if random.random() < 0.4:
        return Operators(
            "broadcast",
            lambda one, other: one.connect(other.broadcast(RULES)).process(RuledRows(), returns=schema_of(kind)),
            2,
            is_in_order=True,
        )
    keys = random_keys(random, kind)

    def build(one: DataStream, other: DataStream) -> DataStream:
        return one.key_by(*keys).connect(other.broadcast(RULES)).process(Ruled(), returns=TOLD)

    return Operators(f"broadcast, by {keys}", build, 2, keys, everywhere=1, is_in_order=True)


def struct_of(kind: str) -> pa.DataType:
    """The type of a row."""
    return pa.struct(list(parse_schema(schema_of(kind), "state")))
