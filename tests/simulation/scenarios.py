"""The jobs of the simulation, each with what its sink must show, computed without an engine.

`share` says how much of its usual logs a job reads.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import partial

import penstock as ps
from penstock.engine.api.streams import DataStream
from penstock.testing.simulation import Case, Scenario, Warehouse, WarehouseSink
from tests.simulation.checkers import broken_sequences, differences, missing
from tests.simulation.functions import RULES, Delayed, Forgotten, HeldUntilRule, Numbered, NumberedSides, Repeated
from tests.simulation.inputs import EVENT, Event, environment, flat, hot_logs, logs, source

NUMBERED = {"key": "int64", "number": "int64"}
START = 1000
REPEATED = (1, 1, 1_100)
"""How often rows of even values are given: with the last, a batch that has one is merged on its way."""


def _milliseconds(moment: object) -> int:
    return moment if isinstance(moment, int) else round(moment.timestamp() * 1000)  # type: ignore[attr-defined]


def _timed(env: ps.StreamEnvironment, written: list[list[Event]], disorder: int, name: str = "logs") -> DataStream:
    strategy = ps.WatermarkStrategy.for_bounded_out_of_orderness(f"{2 * disorder}ms").with_timestamp_assigner("at")
    return env.from_source(source(written), watermarks=strategy).uid(name)


def sequences(sink: WarehouseSink, chosen: random.Random, share: float = 1, backend: str = "hashmap") -> Case:
    """Every key's rows are numbered without a gap and without a repetition."""
    written = logs(chosen, share)
    env = environment(chosen)
    env.configure({"state.backend.type": backend})
    keyed = env.from_source(source(written)).uid("logs").key_by("key")
    keyed.process(Numbered(), returns=NUMBERED).uid("numbered").sink_to(sink)
    counts = Counter(key for key, _, _ in flat(written))
    return Case(
        env.program("sequences"),
        lambda warehouse: broken_sequences(warehouse.rows, counts),
        lambda warehouse: broken_sequences(warehouse.rows),
    )


def exchanges(sink: WarehouseSink, chosen: random.Random, share: float = 1) -> Case:
    """Rows go round, are keyed, numbered, keyed otherwise, and numbered again."""
    written = logs(chosen, share, rows=40)
    env = environment(chosen)
    spread = env.from_source(source(written)).uid("logs").rebalance()
    mapped = spread.map(lambda row: {"key": row["key"]}, returns={"key": "int64"}).uid("mapped")
    first = mapped.key_by("key").process(Numbered(), returns=NUMBERED).uid("first")
    halved = first.map(lambda row: {"key": row["key"] % 2}, returns={"key": "int64"}).uid("halved")
    halved.key_by("key").process(Numbered(), returns=NUMBERED).uid("second").sink_to(sink)
    counts = Counter(key % 2 for key, _, _ in flat(written))
    return Case(
        env.program("exchanges"),
        lambda warehouse: broken_sequences(warehouse.rows, counts),
        lambda warehouse: broken_sequences(warehouse.rows),
    )


def _aligned_windows(events: list[Event], size: int, slide: int) -> Iterator[tuple[int, int, int]]:
    for key, value, at in events:
        start = at - at % slide
        while start > at - size:
            yield key, start, value
            start -= slide


def _sessions(events: list[Event], gap: int) -> Iterator[tuple[int, int, int]]:
    by_key: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    for key, value, at in events:
        by_key[key].append((at, value))
    for key, ordered in by_key.items():
        start = last = None
        for at, value in sorted(ordered):
            if last is None or at > last + gap:
                start = at
            last = at
            assert start is not None
            yield key, start, value


def windows(sink: WarehouseSink, chosen: random.Random, share: float = 1) -> Case:
    """Each window of each key comes once, with what plain Python computes for it."""
    disorder = chosen.choice([0, 15])
    written = logs(chosen, share, disorder=disorder)
    env = environment(chosen)
    kind, size, slide = chosen.choice([("tumbling", 60, 60), ("sliding", 60, 20), ("session", 40, 0)])
    assigner = {
        "tumbling": ps.tumbling(f"{size}ms"),
        "sliding": ps.sliding(f"{size}ms", f"{slide or 1}ms"),
        "session": ps.session(f"{size}ms"),
    }[kind]
    # Rows of sessions travel one by one: of a thousand of them, the job would not end within its steps.
    repeat = Repeated(1 if kind == "session" else chosen.choice(REPEATED))
    repeated = _timed(env, written, disorder).flat_map(repeat, returns=EVENT)
    keyed = repeated.key_by("key").window(assigner)
    keyed.aggregate(n=ps.count(), total=ps.sum("value")).uid("windows").sink_to(sink)
    events = flat(written)
    contents = _sessions(events, size) if kind == "session" else _aligned_windows(events, size, slide)
    folded: defaultdict[tuple[int, int], list[int]] = defaultdict(lambda: [0, 0])
    for key, start, value in contents:
        folded[key, start][0] += repeat.of(value)
        folded[key, start][1] += value * repeat.of(value)
    expected = [(key, start, n, total) for (key, start), (n, total) in folded.items()]

    def check(warehouse: Warehouse) -> list[str]:
        rows = [{**row, "start": _milliseconds(row["window_start"])} for row in warehouse.rows]
        return differences(rows, ["key", "start", "n", "total"], expected)

    return Case(env.program("windows"), check)


def bank(sink: WarehouseSink, chosen: random.Random, share: float = 1) -> Case:
    """Transfers move money: the total stays in every committed epoch of aligned checkpoints, and in the end."""
    written = logs(chosen, share, rows=40)
    env = environment(chosen)

    def legs(row: dict[str, int]) -> Iterator[dict[str, int]]:
        yield {"account": row["key"], "amount": -row["value"]}
        yield {"account": (row["key"] + 1 + row["at"] % 3) % 5, "amount": row["value"]}

    moved = (
        env.from_source(source(written))
        .uid("transfers")
        .flat_map(legs, returns={"account": "int64", "amount": "int64"})
    )
    spread = moved.uid("legs").key_by("account")
    spread.process(Postings(), returns={"account": "int64", "amount": "int64", "balance": "int64"}).uid(
        "postings"
    ).sink_to(sink)
    balances = Counter(dict.fromkeys(range(5), START))
    for key, value, at in flat(written):
        balances[key] -= value
        balances[(key + 1 + at % 3) % 5] += value
    config = env.program("bank").config.checkpoints
    in_step = config.mode.value == "aligned" and config.alignment_timeout_ms is None

    def check(warehouse: Warehouse) -> list[str]:
        found = list(unbalanced(warehouse))
        sums: Counter[int] = Counter(dict.fromkeys(range(5), START))
        for row in warehouse.rows:
            sums[row["account"]] += row["amount"]
        if sums != balances:
            found.append(f"balances are {dict(sums)} instead of {dict(balances)}")
        return found

    def unbalanced(warehouse: Warehouse) -> Iterator[str]:
        for job, number in sorted(warehouse.completed) if in_step else ():
            total = sum(row["amount"] for row in warehouse.rows_up_to(job, number))
            if total:
                yield f"the epoch of checkpoint {number} of job {job} has {total} too much"

    return Case(env.program("bank"), check)


class Postings(ps.KeyedProcessFunction):
    """Keeps the balance of each account."""

    def open(self, context: ps.RuntimeContext) -> None:
        self._balance = context.get_state(ps.ValueStateDescriptor("balance", "int64"))

    def process_element(self, row: dict[str, int], context: object) -> Iterator[dict[str, int]]:
        balance = self._balance.value()
        balance = (START if balance is None else balance) + row["amount"]
        self._balance.update(balance)
        yield {"account": row["account"], "amount": row["amount"], "balance": balance}


def connected(sink: WarehouseSink, chosen: random.Random, share: float = 1) -> Case:
    """Two streams meet in one function, which numbers the rows of both."""
    left, right = logs(chosen, share, rows=30), logs(chosen, share, rows=chosen.choice([5, 40]))
    env = environment(chosen)
    one = env.from_source(source(left)).uid("left").key_by("key")
    other = env.from_source(source(right)).uid("right").key_by("key")
    columns = {"key": "int64", "number": "int64", "side": "string", "of_side": "int64"}
    one.connect(other).process(NumberedSides(), returns=columns).uid("numbered").sink_to(sink)
    counts = Counter(key for key, _, _ in flat(left) + flat(right))
    sides = Counter([("left", key) for key, _, _ in flat(left)] + [("right", key) for key, _, _ in flat(right)])
    expected = [(key, side, n) for (side, key), count in sides.items() for n in range(1, count + 1)]

    def check(warehouse: Warehouse) -> list[str]:
        rows = warehouse.rows
        return broken_sequences(rows, counts) + differences(rows, ["key", "side", "of_side"], expected)

    return Case(env.program("connected"), check)


def joined(sink: WarehouseSink, chosen: random.Random, share: float = 1) -> Case:
    """Each pair of rows that are near in time comes once."""
    disorder = chosen.choice([0, 15])
    left, right = logs(chosen, share, 25, disorder, keys=8), logs(chosen, share, 25, disorder, keys=8)
    env = environment(chosen)
    one = _timed(env, left, disorder, "left").key_by("key")
    other = _timed(env, right, disorder, "right").key_by("key")
    one.interval_join(other, "-20ms", "20ms").uid("pairs").sink_to(sink)
    expected = [
        (key, value, at, value2, at2)
        for key, value, at in flat(left)
        for key2, value2, at2 in flat(right)
        if key == key2 and abs(at2 - at) <= 20
    ]
    columns = ["key", "value", "at", "value_right", "at_right"]
    return Case(env.program("joined"), lambda warehouse: differences(warehouse.rows, columns, expected))


def unequal_sources(sink: WarehouseSink, chosen: random.Random, share: float = 1) -> Case:
    """One source ends long before the other; both are united, windowed, and end up once in the sink."""
    short, long = logs(chosen, share, rows=chosen.choice([1, 5])), logs(chosen, share)
    env = environment(chosen)
    both = _timed(env, short, 0, "short").union(_timed(env, long, 0, "long"))
    counted = both.key_by("key").window(ps.tumbling("50ms")).aggregate(n=ps.count())
    counted.uid("windows").sink_to(sink)
    counts = Counter((key, start) for key, start, _ in _aligned_windows(flat(short) + flat(long), 50, 50))
    expected = [(key, start, n) for (key, start), n in counts.items()]

    def check(warehouse: Warehouse) -> list[str]:
        rows = [{**row, "start": _milliseconds(row["window_start"])} for row in warehouse.rows]
        return differences(rows, ["key", "start", "n"], expected)

    return Case(env.program("unequal sources"), check)


def timers(sink: WarehouseSink, chosen: random.Random, share: float = 1) -> Case:
    """Rows are held back until a timer of the clock, and then come once."""
    written = logs(chosen, share)
    env = environment(chosen)
    delayed = _timed(env, written, 0).key_by("key").process(Delayed(), returns={"key": "int64", "value": "int64"})
    delayed.uid("delayed").sink_to(sink)
    expected = [(key, value) for key, value, _ in flat(written)]
    return Case(env.program("timers"), lambda warehouse: differences(warehouse.rows, ["key", "value"], expected))


def totals(sink: WarehouseSink, chosen: random.Random, share: float = 1) -> Case:
    """Running totals: the last one of each key is the total."""
    written = logs(chosen, share)
    env = environment(chosen)
    repeat = Repeated(chosen.choice(REPEATED))
    repeated = env.from_source(source(written)).uid("logs").flat_map(repeat, returns=EVENT)
    repeated.key_by("key").aggregate(n=ps.count(), total=ps.sum("value")).uid("totals").sink_to(sink)
    counts, sums = Counter[int](), Counter[int]()
    for key, value, _ in flat(written):
        counts[key] += repeat.of(value)
        sums[key] += value * repeat.of(value)

    def check(warehouse: Warehouse) -> list[str]:
        last: dict[int, tuple[int, int]] = {}
        steps = Counter((row["key"], row["n"]) for row in warehouse.rows)
        for row in warehouse.rows:
            last[row["key"]] = max(last.get(row["key"], (0, 0)), (row["n"], row["total"]))
        found = [
            f"key {key}: {last.get(key)} in the end" for key in counts if last.get(key) != (counts[key], sums[key])
        ]
        return found + [f"key {key} reached {n} {times} times" for (key, n), times in steps.items() if times > 1]

    return Case(env.program("totals"), check)


def neighbours(sink: WarehouseSink, chosen: random.Random, share: float = 1) -> Case:
    """Each subtask sends to some of the next task's alone, and some end long before others."""
    written = [log[: chosen.choice([4, 20, 60])] for log in logs(chosen, share)]
    env = environment(chosen)
    spread = env.from_source(source(written)).uid("logs").rescale()
    spread.map(dict, returns=EVENT).uid("passed").sink_to(sink)
    return Case(
        env.program("neighbours"),
        lambda warehouse: differences(warehouse.rows, ["key", "value", "at"], flat(written)),
    )


def many_keys(sink: WarehouseSink, chosen: random.Random, share: float = 1) -> Case:
    """Running totals of so many keys that a checkpoint holds what has changed since the one before."""
    written = hot_logs(chosen, share)
    env = environment(chosen)
    keyed = env.from_source(source(written)).uid("logs").key_by("key")
    keyed.aggregate(n=ps.count(), total=ps.sum("value"), least=ps.min("value")).uid("totals").sink_to(sink)
    # Updates of a batch are one for each key: the last one of each key is compared.
    events = flat(written)
    expected = {
        key: (len(values), sum(values), min(values))
        for key in {key for key, _, _ in events}
        if (values := [value for one, value, _ in events if one == key])
    }

    def check(warehouse: Warehouse) -> list[str]:
        steps = Counter((row["key"], row["n"]) for row in warehouse.rows)
        rows = sorted(warehouse.rows, key=lambda row: row["n"])
        last = {row["key"]: (row["n"], row["total"], row["least"]) for row in rows}
        found = [f"key {key}: {last.get(key)} in the end" for key in expected if last.get(key) != expected[key]]
        return found + [f"key {key} reached {n} {times} times" for (key, n), times in steps.items() if times > 1]

    return Case(env.program("many keys"), check)


def forgotten(sink: WarehouseSink, chosen: random.Random, share: float = 1) -> Case:
    """Rows of many keys are numbered, and each third one has its key forgotten, so that the next begins anew."""
    written = hot_logs(chosen, share)
    env = environment(chosen)
    keyed = env.from_source(source(written)).uid("logs").key_by("key")
    keyed.process(Forgotten(), returns=NUMBERED).uid("numbered").sink_to(sink)
    counts = Counter(key for key, _, _ in flat(written))
    expected = [(key, n % 3 + 1) for key, count in counts.items() for n in range(count)]
    return Case(env.program("forgotten"), lambda warehouse: differences(warehouse.rows, ["key", "number"], expected))


def at_least_once(sink: WarehouseSink, chosen: random.Random, share: float = 1) -> Case:
    """Without alignment, each row comes at least once, and none that was not written."""
    written = [
        [(key, value, 1000 * number + n) for n, (key, value, _) in enumerate(log)]
        for number, log in enumerate(logs(chosen, share))
    ]
    env = environment(chosen, ["at-least-once"])
    keyed = env.from_source(source(written)).uid("logs").key_by("key")
    passed = keyed.process(Passed(), returns={"key": "int64", "at": "int64", "number": "int64"}).uid("passed")
    passed.sink_to(sink)
    expected = [(key, at) for key, _, at in flat(written)]
    counts = Counter(key for key, _, _ in flat(written))

    def check(warehouse: Warehouse) -> list[str]:
        highest: Counter[int] = Counter()
        for row in warehouse.rows:
            highest[row["key"]] = max(highest[row["key"]], row["number"])
        less = [f"key {key} was counted {highest[key]} times of {n}" for key, n in counts.items() if highest[key] < n]
        return missing(warehouse.rows, ["key", "at"], expected) + less

    return Case(env.program("at least once"), check)


class Passed(ps.KeyedProcessFunction):
    """Numbers the rows of each key, and says which they were."""

    def open(self, context: ps.RuntimeContext) -> None:
        self._count = context.get_state(ps.ValueStateDescriptor("count", "int64"))

    def process_element(self, row: dict[str, int], context: object) -> Iterator[dict[str, int]]:
        number = (self._count.value() or 0) + 1
        self._count.update(number)
        yield {"key": row["key"], "at": row["at"], "number": number}


def rules(sink: WarehouseSink, chosen: random.Random, share: float = 1) -> Case:
    """Rows wait in operator state for a rule, which is broadcast; all of them pass once, with the rule."""
    written = [
        [(key, 1000 * number + n, at) for n, (key, _, at) in enumerate(log)]
        for number, log in enumerate(logs(chosen, share))
    ]
    env = environment(chosen)
    events = env.from_source(source(written)).uid("logs").rebalance()
    # Rows before the rule delay it; they are no rules.
    before = [(0, 0, 0)] * chosen.choice([0, 20, 50])
    ruled = env.from_source(source([[*before, (0, 7, 0)]])).uid("rules").filter(ps.col("value") > 0)
    checked = events.connect(ruled.broadcast(RULES)).process(
        HeldUntilRule(), returns={"value": "int64", "rule": "int64"}
    )
    checked.uid("held").sink_to(sink)
    expected = [(value, 7) for _, value, _ in flat(written)]
    return Case(env.program("rules"), lambda warehouse: differences(warehouse.rows, ["value", "rule"], expected))


def apart(sink: WarehouseSink, chosen: random.Random, share: float = 1) -> Case:
    """Parts that no channel connects, so that each restarts by itself: one numbers its rows, one hands them on."""
    numbered = logs(chosen, share, rows=40)
    # No two rows are alike.
    handed = [
        [(key, 1000 * number + n, at) for n, (key, _, at) in enumerate(log)]
        for number, log in enumerate(logs(chosen, share, rows=chosen.choice([10, 40])))
    ]
    env = environment(chosen)
    keyed = env.from_source(source(numbered)).uid("numbered logs").key_by("key")
    keyed.process(Numbered(), returns=NUMBERED).uid("numbered").sink_to(sink).uid("first sink")
    env.from_source(source(handed)).uid("handed logs").sink_to(sink).uid("second sink")
    counts = Counter(key for key, _, _ in flat(numbered))

    def rows_with(warehouse: Warehouse, column: str) -> list[dict[str, int]]:
        return [row for row in warehouse.rows if column in row]

    def check(warehouse: Warehouse) -> list[str]:
        found = broken_sequences(rows_with(warehouse, "number"), counts)
        return found + differences(rows_with(warehouse, "at"), ["key", "value", "at"], flat(handed))

    def check_drained(warehouse: Warehouse) -> list[str]:
        twice = [
            row
            for row, times in Counter(tuple(row.values()) for row in rows_with(warehouse, "at")).items()
            if times > 1
        ]
        return broken_sequences(rows_with(warehouse, "number")) + [f"{row} came twice" for row in twice]

    return Case(env.program("apart"), check, check_drained)


_BUILDS = (
    sequences,
    windows,
    bank,
    connected,
    exchanges,
    joined,
    unequal_sources,
    timers,
    totals,
    at_least_once,
    rules,
    apart,
    many_keys,
    forgotten,
    neighbours,
)
SCENARIOS = tuple(Scenario(build.__name__, build) for build in _BUILDS)
"""Seed s runs number s modulo their number."""
BRIEF = tuple(Scenario(build.__name__, partial(build, share=0.4)) for build in _BUILDS)
"""The same jobs with two fifths of the rows: a fault strikes more often for the time that it takes to run them."""
ON_DISK = Scenario("on_disk", partial(sequences, backend="rocksdb"))
"""Not among them, as a run of it costs as much as four."""
