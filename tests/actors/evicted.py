"""A driver that is told to end while its job runs: run by test_drivers.py, as a process of its own.

Arguments: address of the cluster, and folder.
"""

from __future__ import annotations

import sys
from pathlib import Path

from penstock import FileSink, StreamEnvironment
from penstock.job_folders import Resume
from tests.actors.keyed_job import environment
from tests.actors.paced import Paced

ROWS = 3_000


def run(env: StreamEnvironment, folder: Path, resume: Resume | None = None) -> None:
    """Write the numbers to files, slowly until there is the file `hurry`."""
    numbers = env.from_source(Paced(ROWS, 200, folder / "hurry"), "rows").uid("rows")
    numbers.sink_to(FileSink(folder / "out", "csv", mode="overwrite")).uid("out")
    env.execute("evicted", resume=resume)


if __name__ == "__main__":
    address, place = sys.argv[1], Path(sys.argv[2])
    run(environment(place / "checkpoints", 1, address=address), place)
