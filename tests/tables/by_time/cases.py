"""Random queries by event time over random inputs: what is there in the end is what DuckDB says.

`python -m tests.tables.by_time.cases --queries 1000 --seed 7` runs more than the tests do. A query may be refused by an
error that says why; `--refused` shows these.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any, Final

import penstock as ps
from penstock.engine.errors import GraphError
from tests.tables.by_time.drawing import Drawing
from tests.tables.by_time.inputs import Inputs, answered, inputs, register
from tests.tables.by_time.kinds import KINDS
from tests.tables.by_time.relations import ImpossibleError, Rel

_EPOCH: Final = datetime(1970, 1, 1)


@dataclass(frozen=True, slots=True)
class Case:
    """A query and what it reads."""

    given: Inputs
    drawing: Drawing
    rel: Rel

    def wanted(self) -> Counter[tuple[Any, ...]]:
        """The rows that are to be there in the end."""
        return answered(self.given, [duck for _, duck in self.drawing.statements()], self.rel.duck)

    def held(self, changes: Iterable[Mapping[str, Any]]) -> Counter[tuple[Any, ...]]:
        """How often each row is there behind some changes."""
        held: Counter[tuple[Any, ...]] = Counter()
        for row in changes:
            held[tuple(plain(row[col.name]) for col in self.rel.cols)] += 1 if row["op"] in ("+I", "+U") else -1
        return Counter({row: count for row, count in held.items() if count})

    def register(self, env: ps.StreamEnvironment, pause: float = 0) -> None:
        """Give the inputs and the views their names in an environment."""
        register(env, self.given, self.drawing.needs_all, pause)
        for flink, _ in self.drawing.statements():
            env.sql(flink)

    def __str__(self) -> str:
        views = [flink for flink, _ in self.drawing.statements()]
        return f"unit {self.given.unit}, zone {self.given.zone}\n" + ";\n".join([*views, self.rel.flink])


def plain(value: Any) -> Any:
    """A time as microseconds; anything else as it is."""
    if not isinstance(value, datetime):
        return value
    if value.tzinfo is not None:
        value = value.astimezone(timezone.utc).replace(tzinfo=None)
    return (value - _EPOCH) // timedelta(microseconds=1)


def case(chance: random.Random, deepest: int) -> Case:
    """Draws one; queries stand so deep within each other, at the most."""
    while True:
        given = inputs(chance)
        finest_s = 0.001 if given.unit in ("us", "ns") else 1
        tables = given.tables()
        drawing = Drawing(chance, tables, KINDS, given.zone_us, finest_s)
        try:
            rel = drawing.query(chance.randint(1, deepest), lambda rel: rel not in tables)  # noqa: B023
        except ImpossibleError:
            continue
        return Case(given, drawing, rel)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of a query: "same", "nothing" where that is no row, "refused" or "wrong", with details."""

    kind: str
    detail: str = ""


def check(seed: int, deepest: int) -> Verdict:
    """Run a query, and compare it with DuckDB."""
    chance = random.Random(seed)
    made = case(chance, deepest)
    parallelism, size = chance.choice((1, 2, 3)), chance.choice((1, 1, 3, 1000))
    if made.drawing.reads_late:
        parallelism = 1
    query, by = made.rel.flink, None
    if made.rel.is_append and made.rel.times and chance.random() < 0.3:
        by = chance.choice(made.rel.times).name
        query = f"SELECT * FROM ({query}) ORDER BY {by}"
    about = f"seed {seed}, depth {deepest}, parallelism {parallelism}, rows {size}, order {by}, {made}\n"
    wanted = made.wanted()
    env = ps.StreamEnvironment(runtime="local", parallelism=parallelism, max_batch_rows=size)
    try:
        made.register(env)
        table = env.sql(query)
        assert table is not None
        rows = list(table.to_changelog().collect())
    except GraphError as error:
        return Verdict("refused", f"{about}{error}")
    except Exception as error:  # Whatever it is, it is told.
        return Verdict("wrong", f"{about}{type(error).__name__}: {error}")
    held = made.held(rows)
    if held != wanted:
        return Verdict("wrong", f"{about}too much {held - wanted}\nmissing {wanted - held}\nnegative {-held}")
    # Times of several units that are put together are plain columns.
    may_change = made.drawing.is_daring or made.given.unit != "ms"
    if made.rel.is_append and not may_change and any(row["op"] != "+I" for row in rows):
        return Verdict("wrong", f"{about}rows that only come change")
    times = [] if by is None else [plain(row[by]) for row in rows]
    if times != sorted(times, key=lambda time: (time is not None, time)):
        return Verdict("wrong", f"{about}not in order: {times}")
    return Verdict("same" if wanted else "nothing")


def main() -> None:
    """Run queries from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--depth", type=int, default=3)
    parser.add_argument("--refused", action="store_true")
    given = parser.parse_args()
    shown = ("wrong", "refused") if given.refused else ("wrong",)
    kinds: Counter[str] = Counter()
    for seed in range(given.seed, given.seed + given.queries):
        verdict = check(seed, given.depth)
        kinds[verdict.kind] += 1
        if verdict.kind in shown:
            print(f"--- {verdict.kind} {verdict.detail}", flush=True)  # noqa: T201
    print(f"{given.queries} queries, seeds from {given.seed}: {dict(kinds)}")  # noqa: T201
    raise SystemExit(bool(kinds["wrong"]))


if __name__ == "__main__":
    main()
