"""Random queries in the simulation: processes, managers and storage fail, jobs are restored and rescaled.

`python -m tests.tables.simulated_queries --seeds 500` runs more than the tests do, with a process for each processor.
What a query has said in the end is what DuckDB says of the same rows.
"""

from __future__ import annotations

import argparse
import os
import random
from collections import Counter
from typing import Any

import duckdb

from penstock.testing.simulation import Case, FaultRates, Outcome, Scenario, Warehouse, WarehouseSink, sweep
from tests.simulation.inputs import environment, flat, logs, source
from tests.tables.random_queries import Queries

_VIEWS = (
    "CREATE VIEW t AS SELECT `key` AS id, SUM(`value`) AS a, COUNT(*) AS b FROM events GROUP BY `key`",
    "CREATE VIEW u AS SELECT `key` AS a, `value` AS b FROM events WHERE MOD(`value`, 3) <> 0",
)
"""A table whose rows change, and one whose rows stay."""


def queries(sink: WarehouseSink, chosen: random.Random) -> Case:
    """A query over both tables."""
    written = logs(chosen, rows=chosen.choice([15, 30]))
    env = environment(chosen)
    env.tables.create_temporary_view("events", env.from_source(source(written)).uid("logs"))
    for view in _VIEWS:
        env.sql(view)
    asked = Queries(chosen).query(chosen.randint(1, 2))[0]
    table = env.sql(asked)
    assert table is not None
    table.to_changelog().sink_to(sink)
    names = list(table.columns)
    with duckdb.connect() as database:
        database.execute('CREATE TABLE events ("key" BIGINT, "value" BIGINT, "at" BIGINT)')
        database.executemany("INSERT INTO events VALUES (?, ?, ?)", flat(written))
        for view in _VIEWS:
            database.execute(view.replace("`", '"'))
        wanted = Counter(database.execute(asked).fetchall())

    def check(warehouse: Warehouse) -> list[str]:
        held: Counter[tuple[Any, ...]] = Counter()
        for row in warehouse.rows:
            held[tuple(row[name] for name in names)] += 1 if row["op"] in ("+I", "+U") else -1
        if held == wanted:
            return []
        return [f"{asked}\n    too much {+(held - wanted)}, missing {+(wanted - held)}"]

    return Case(env.program("queries"), check)


SCENARIO = Scenario("queries", queries, most_steps=200_000)
"""Rows of which each changes all rows of a join, again and again, take long (seed 1297911378: 61,000 steps)."""


def _show(outcome: Outcome) -> None:
    """A dot for a seed that held, or what went wrong, as soon as it is known: a long run may be ended early."""
    print(f"\n{outcome}\n" if outcome.violations else ".", end="", flush=True)  # noqa: T201


def main() -> None:
    """Run seeds from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=500)
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args()
    seeds = range(given.start, given.start + given.seeds)
    failed = sweep((SCENARIO,), seeds, given.processes, FaultRates(), progress=_show).failed
    print(f"\n{given.seeds} seeds from {given.start}: {len(failed)} failed")  # noqa: T201
    raise SystemExit(bool(failed))


if __name__ == "__main__":
    main()
