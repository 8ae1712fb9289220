"""What a program loads before its first row: each module costs every start, so their number is held."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
import penstock as ps

front_door = set(sys.modules)
env = ps.StreamEnvironment(runtime="local", parallelism=1)
doubled = env.from_collection([{"n": 1}, {"n": 2}]).map(lambda row: {"n": row["n"] * 2}).collect()
env.execute("first")
assert sorted(row["n"] for row in doubled) == [2, 4]
for modules in (front_door, set(sys.modules)):
    print(*(name for name in modules if name.split(".")[0] != "pandas"))
"""
FRONT_DOOR = {"penstock"}
LARGEST_JOB = 205
"""Modules of Penstock that a local job of one map may load; lower it when some go."""
OF_OTHER_JOBS = {
    "fastavro",
    "numba",
    "pyarrow.parquet",
    "pyspark",
    "ray",
    "rich",
    "rocksdict",
    "penstock.actors.spark.checks",
    "penstock.connectors.files",
    "penstock.engine.operators.windows",
    "penstock.engine.patterns",
    "penstock.savepoints.editor",
    "penstock.savepoints.reader",
    "penstock.tables",
}


def test_a_first_local_job_loads_what_it_needs() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    front_door, all_of_it = (set(line.split()) for line in done.stdout.splitlines())
    assert {name for name in front_door if name.startswith("penstock")} == FRONT_DOOR
    assert not {"numpy", "pyarrow"} & front_door
    assert sorted(OF_OTHER_JOBS & all_of_it) == []
    assert len([name for name in all_of_it if name.startswith("penstock")]) <= LARGEST_JOB
