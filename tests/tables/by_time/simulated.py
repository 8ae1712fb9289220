"""Random queries by event time in the simulation: processes, managers and storage fail, jobs are restored and rescaled.

`python -m tests.tables.by_time.simulated --seeds 500` runs more than the tests do, with a process for each processor.
"""

from __future__ import annotations

import argparse
import os
import random
from typing import Final

from penstock.engine.errors import GraphError
from penstock.testing.simulation import Case, FaultRates, Outcome, Scenario, Warehouse, WarehouseSink, sweep
from tests.simulation.inputs import PAUSE, environment
from tests.tables.by_time.cases import case


def timed_queries(sink: WarehouseSink, chosen: random.Random) -> Case:
    """A query that is not refused."""
    while True:
        made = case(chosen, chosen.randint(1, 2))
        if made.drawing.reads_late:
            continue
        env = environment(chosen)
        try:
            made.register(env, PAUSE)
            table = env.sql(made.rel.flink)
            assert table is not None
            table.to_changelog().sink_to(sink)
        except GraphError:
            continue
        wanted = made.wanted()

        def check(warehouse: Warehouse) -> list[str]:
            held = made.held(warehouse.rows)  # noqa: B023 - it is returned with this one
            if held == wanted:  # noqa: B023
                return []
            return [f"{made}\n    too much {held - wanted}, missing {wanted - held}"]  # noqa: B023

        return Case(env.program("timed_queries"), check)


SCENARIO: Final = Scenario("timed_queries", timed_queries, most_steps=200_000)


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
