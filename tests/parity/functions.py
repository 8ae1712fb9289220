"""Keyed functions of random programs: with state and timers, and results that depend on event time alone."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

import penstock as ps
from penstock import DataStream
from penstock.engine.schemas import parse_schema
from tests.parity.rows import Row, Rows, schema_of, texts
from tests.parity.verbs import Verb
from tests.parity.windows import added, as_one, by_key, random_keys, summed

END: Final = 10**12
FACTORS: Final = ps.MapStateDescriptor("factors", "int64", key_type="string")


def _struct(kind: str) -> pa.DataType:
    return pa.struct(list(parse_schema(schema_of(kind), "state")))


def _in_order(rows: Rows) -> Rows:
    return sorted(rows, key=lambda row: (row["t"], texts([row])))


class Ranked(ps.KeyedProcessFunction):
    """Numbers the rows of each key in the order of their times, each when a timer says that no earlier one can come.

    With a tag, those with even numbers go aside.
    """

    def __init__(self, kind: str, even: ps.OutputTag | None) -> None:
        self.kind, self.even = kind, even

    def open(self, context: Any) -> None:
        self.rows = context.get_list_state(ps.ListStateDescriptor("rows", _struct(self.kind)))
        self.rank = context.get_state(ps.ValueStateDescriptor("rank", "int64", default=0))

    def process_element(self, row: Row, ctx: Any) -> None:
        self.rows.add(row)
        ctx.timer_service.register_event_time_timer(row["t"])

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        rows = list(self.rows.get())
        for row in _in_order([row for row in rows if row["t"] == timestamp]):
            self.rank.update(self.rank.value() + 1)
            ranked = {**row, "j": self.rank.value()}
            if self.even is not None and ranked["j"] % 2 == 0:
                ctx.output(self.even, ranked)
            else:
                yield ranked
        self.rows.update([row for row in rows if row["t"] != timestamp])


def ranked(random: Random, kind: str) -> Verb:
    """Rows numbered in order of time."""
    keys = random_keys(random, kind)
    even = random.choice([None, ps.OutputTag("even", schema_of(kind))])

    def build(stream: DataStream) -> Sequence[DataStream]:
        rows = stream.key_by(*keys).process(Ranked(kind, even), returns=schema_of(kind))
        return [rows] if even is None else [rows, rows.get_side_output(even)]

    def model(rows: Rows) -> Sequence[Rows]:
        given = [
            {**row, "j": number} for of in by_key(rows, keys).values() for number, row in enumerate(_in_order(of), 1)
        ]
        return [given] if even is None else [[row for row in given if row["j"] % 2 == odd] for odd in (1, 0)]

    return Verb(f"rank by {keys}{'' if even is None else ', even ones to a side output'}", build, model)


class Buckets(ps.KeyedProcessFunction):
    """Sums up each stretch of `size` ms at its end by a timer; not if `is_odd`, where every second row deletes that."""

    def __init__(self, kind: str, size: int, is_odd: bool) -> None:
        self.kind, self.size, self.is_odd = kind, size, is_odd

    def open(self, context: Any) -> None:
        self.rows = context.get_list_state(ps.ListStateDescriptor("rows", _struct(self.kind)))
        self.counts = context.get_map_state(ps.MapStateDescriptor("counts", "int64", key_type="int64"))

    def process_element(self, row: Row, ctx: Any) -> None:
        self.rows.add(row)
        end = row["t"] - row["t"] % self.size + self.size
        count = (self.counts.get(end) or 0) + 1
        self.counts.put(end, count)
        if self.is_odd and count % 2 == 0:
            ctx.timer_service.delete_event_time_timer(end)
        else:
            ctx.timer_service.register_event_time_timer(end)

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        rows = list(self.rows.get())
        due = [row for row in rows if timestamp - self.size <= row["t"] < timestamp]
        self.rows.update([row for row in rows if row not in due])
        self.counts.remove(timestamp)
        yield {**summed(due), "j": len(due), "t": timestamp}


def buckets(random: Random, kind: str) -> Verb:
    """Windows by timers."""
    keys, size, is_odd = random_keys(random, kind), random.choice([50, 1000]), random.random() < 0.5

    def model(rows: Rows) -> Sequence[Rows]:
        given = []
        for of_key in by_key(rows, keys).values():
            for end, due in _by_end(of_key, size).items():
                if len(due) % 2 or not is_odd:
                    given.append({**summed(due), "j": len(due), "t": end})
        return [given]

    return Verb(
        f"{'odd ' if is_odd else ''}buckets of {size}ms by {keys}",
        lambda s: [s.key_by(*keys).process(Buckets(kind, size, is_odd), returns=schema_of(kind))],
        model,
    )


def _by_end(rows: Rows, size: int) -> dict[int, Rows]:
    found: dict[int, Rows] = {}
    for row in rows:
        found.setdefault(row["t"] - row["t"] % size + size, []).append(row)
    return found


class Batches(ps.KeyedProcessFunction):
    """Rows marked a batch at a time."""

    def process_batch(self, batch: Any, ctx: Any) -> pa.RecordBatch:
        place = batch.data.schema.get_field_index("j")
        return batch.data.set_column(place, batch.data.schema.field(place), pc.add(batch.data.column(place), 1))


def batches(random: Random, kind: str) -> Verb:
    """A keyed function of batches, which gives a row for each row."""
    keys = random_keys(random, kind)
    return Verb(
        f"process_batch by {keys}",
        lambda s: [s.key_by(*keys).process(Batches(), returns=schema_of(kind))],
        lambda rows: [[{**row, "j": row["j"] + 1} for row in rows]],
    )


class Counted(ps.AggregateFunction):
    """How many values there are."""

    def create_accumulator(self) -> int:
        return 0

    def add(self, value: Any, accumulator: int) -> int:
        return accumulator + 1

    def get_result(self, accumulator: int) -> int:
        return accumulator


class Kept(ps.KeyedProcessFunction):
    """What the rows of each key come to, when event time is complete."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def open(self, context: Any) -> None:
        whole = ps.ReducingStateDescriptor("whole", _struct(self.kind), function=added)
        self.whole = context.get_reducing_state(whole)
        self.count = context.get_aggregating_state(ps.AggregatingStateDescriptor("count", "int64", function=Counted()))

    def process_element(self, row: Row, ctx: Any) -> None:
        self.whole.add(row)
        self.count.add(row)
        ctx.timer_service.register_event_time_timer(END)

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield {**self.whole.get(), "j": self.count.get(), "t": timestamp}


def kept(random: Random, kind: str) -> Verb:
    """A function with state that takes rows in as they come."""
    keys = random_keys(random, kind)
    return Verb(
        f"kept by {keys}",
        lambda s: [s.key_by(*keys).process(Kept(kind), returns=schema_of(kind))],
        lambda rows: [[{**as_one(of), "j": len(of), "t": END} for of in by_key(rows, keys).values()]],
    )


class Balance(ps.KeyedCoProcessFunction):
    """What both streams have had of a key, when event time is complete."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def open(self, context: Any) -> None:
        self.rows = [context.get_list_state(ps.ListStateDescriptor(name, _struct(self.kind))) for name in ("a", "b")]

    def process_element1(self, row: Row, ctx: Any) -> None:
        self.rows[0].add(row)
        ctx.timer_service.register_event_time_timer(END)

    def process_element2(self, row: Row, ctx: Any) -> None:
        self.rows[1].add(row)
        ctx.timer_service.register_event_time_timer(END)

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        left, right = (list(rows.get()) for rows in self.rows)
        yield {**summed(left + right), "j": len(left) - len(right), "t": timestamp}


def balance(random: Random, kind: str) -> Verb:
    """A function of two streams."""
    keys = random_keys(random, kind)

    def model(left: Rows, right: Rows) -> Sequence[Rows]:
        groups = by_key(left, keys), by_key(right, keys)
        return [
            [
                {**summed(one + other), "j": len(one) - len(other), "t": END}
                for key in {**groups[0], **groups[1]}
                for one, other in [(groups[0].get(key, []), groups[1].get(key, []))]
            ]
        ]

    return Verb(
        f"connect by {keys}",
        lambda one, other: [one.connect(other).key_by(keys, keys).process(Balance(kind), returns=schema_of(kind))],
        model,
        inputs=2,
    )


class Multiplied(ps.KeyedBroadcastProcessFunction):
    """The total of each key times the largest `j` that the broadcast stream has for it, when both are complete."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def open(self, context: Any) -> None:
        self.rows = context.get_list_state(ps.ListStateDescriptor("rows", _struct(self.kind)))

    def process_element(self, row: Row, ctx: Any) -> None:
        self.rows.add(row)
        ctx.timer_service.register_event_time_timer(END)

    def process_broadcast_element(self, row: Row, ctx: Any) -> None:
        factors = ctx.get_broadcast_state(FACTORS)
        factors.put(row["k"], max(row["j"], factors.get(row["k"]) or 0))

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        total = summed(list(self.rows.get()))
        factor = ctx.get_broadcast_state(FACTORS).get(total["k"]) or 0
        yield {**total, "j": total["j"] * factor, "t": timestamp}


def multiplied(random: Random, kind: str) -> Verb:
    """A function of a keyed stream and a broadcast one."""

    def model(rows: Rows, rules: Rows) -> Sequence[Rows]:
        factors = {key: max(0, *(row["j"] for row in of)) for (key,), of in by_key(rules, ["k"]).items()}
        totals = [summed(of) for of in by_key(rows, ["k"]).values()]
        return [[{**total, "j": total["j"] * factors.get(total["k"], 0), "t": END} for total in totals]]

    def build(stream: DataStream, rules: DataStream) -> Sequence[DataStream]:
        both = stream.key_by("k").connect(rules.broadcast(FACTORS))
        return [both.process(Multiplied(kind), returns=schema_of(kind))]

    return Verb("connect with a broadcast stream", build, model, inputs=2)
