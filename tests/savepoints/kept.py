"""The job whose savepoint is kept in tests/data: every later version must resume from it, and give the same rows.

`python -m tests.savepoints.kept` writes it anew under the format version of the code; that of an earlier version is
never written again.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from hashlib import sha256
from pathlib import Path
from typing import Any

import penstock as ps
from penstock import savepoints
from penstock.savepoints.manifest import FORMAT

DATA = Path(__file__).parents[1] / "data"
ROWS = 1200
STOPPED_BEHIND = 400
"""Rows of the first result that the job has given when the savepoint is taken, at least."""


class EveryKind(ps.KeyedProcessFunction):
    """Keeps state of each kind, and a timer a key."""

    def open(self, ctx: ps.RuntimeContext) -> None:
        self.total = ctx.get_state(ps.ValueStateDescriptor("total", "int64"))
        self.recent = ctx.get_list_state(ps.ListStateDescriptor("recent", "int64"))
        self.by_parity = ctx.get_map_state(ps.MapStateDescriptor("by_parity", "int64", key_type="string"))
        self.largest = ctx.get_reducing_state(ps.ReducingStateDescriptor("largest", "int64", function=max))

    def process_element(self, row: Any, ctx: Any) -> Any:
        total = (self.total.value() or 0) + row["value"]
        self.total.update(total)
        self.recent.update([*self.recent.get(), row["value"]][-3:])
        parity = "even" if row["value"] % 2 == 0 else "odd"
        self.by_parity.put(parity, self.by_parity.get(parity, 0) + 1)
        self.largest.add(row["value"])
        ctx.timer_service.register_event_time_timer(row["at"] - row["at"] % 1000 + 999)
        yield {"key": row["key"], "what": "total", "n": total}

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield {"key": ctx.current_key, "what": "timer", "n": timestamp}


def build(env: ps.StreamEnvironment) -> list[ps.CollectResult]:
    """The program: each stateful operator has a uid."""
    fields = {"key": ps.RandomInt(0, 7), "value": ps.RandomInt(0, 1000), "at": ps.Sequence(step=10)}
    in_order = ps.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner("at")
    rows = env.from_source(ps.DataGenSource(fields, rows=ROWS), watermarks=in_order).uid("source").set_parallelism(1)
    keyed = rows.key_by("key")
    kinds = {"key": "int64", "what": "string", "n": "int64"}
    sums = {"n": ps.count(), "total": ps.sum("value"), "first": ps.first("value")}
    return [
        keyed.process(EveryKind(), returns=kinds).uid("every-kind").collect(),
        keyed.window(ps.tumbling("3s")).aggregate(**sums).uid("tumbling").collect(),
        keyed.window(ps.session("35ms")).aggregate(**sums).uid("session").collect(),
        keyed.aggregate(n=ps.count(), largest=ps.max("value")).uid("running").collect(),
    ]


def environment(storage: str, parallelism: int = 2) -> ps.StreamEnvironment:
    """The environment that the savepoint is taken in; others may have another parallelism."""
    return ps.StreamEnvironment(
        runtime="local",
        parallelism=parallelism,
        max_batch_rows=20,
        checkpoints=ps.checkpoints(storage=storage, savepoints=storage),
    )


def write(target: Path) -> None:
    """Run the job for a while, and stop it with a savepoint."""
    with tempfile.TemporaryDirectory() as folder:
        env = environment(folder)
        totals = build(env)[0]
        job = env.submit("kept")
        reading = iter(totals)
        for _ in range(STOPPED_BEHIND):
            next(reading)
        shutil.copytree(job.stop().removeprefix("file://"), target)
    expected = {"goes_on": goes_on(target, 2), "states": states(target)}
    (target.parent / f"{target.name}.json").write_text(json.dumps(expected, indent=2) + "\n")


def goes_on(savepoint: Path, parallelism: int) -> dict[str, str]:
    """The digest of each result of the job that resumes from the savepoint; of running values the last counts."""
    with tempfile.TemporaryDirectory() as folder:
        env = environment(folder, parallelism)
        kinds, tumbling, session, running = build(env)
        env.execute("kept, from its savepoint", savepoint=str(savepoint))
        rows = {
            "every-kind": sorted([row["key"], row["what"], row["n"]] for row in kinds),
            "tumbling": sorted([str(value) for value in row.values()] for row in tumbling),
            "session": sorted([str(value) for value in row.values()] for row in session),
            "running": sorted(
                [key, *last] for key, last in {r["key"]: (r["n"], r["largest"]) for r in running}.items()
            ),
        }
        return {name: f"{len(of)} rows, {sha256(json.dumps(of).encode()).hexdigest()}" for name, of in rows.items()}


def states(savepoint: Path) -> dict[str, list[str]]:
    """The keyed states of each kind in the savepoint, as rows."""
    held = savepoints.read(str(savepoint)).operator("every-kind")
    return {state.name: sorted(map(str, state.to_arrow().to_pylist())) for state in held.states}


if __name__ == "__main__":
    kept = DATA / f"savepoint-{FORMAT}"
    sys.exit(f"{kept} is there; it is never written again") if kept.exists() else write(kept)
