"""A driver that is told to end while its job runs: run by test_drivers.py, as a process of its own.

Arguments: address of the cluster, folder, and whether to `resume` or to `begin`.
"""

from __future__ import annotations

import sys
from pathlib import Path

from penstock import FileSink, StreamEnvironment
from tests.actors.keyed_job import environment
from tests.actors.paced import Paced

ROWS = 3_000


def main(address: str, folder: Path, resume: str) -> None:
    """Write the numbers to files, slowly until there is the file `hurry`."""
    env: StreamEnvironment = environment(folder / "checkpoints", 1, address=address)
    numbers = env.from_source(Paced(ROWS, 200, folder / "hurry"), "rows").uid("rows")
    numbers.sink_to(FileSink(folder / "out", "csv", mode="overwrite")).uid("out")
    env.execute("evicted", resume="latest" if resume == "resume" else None)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
