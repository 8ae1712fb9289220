"""A driver that is killed in the moment in which it has created the manager of a detached job.

Run as `python -m tests.chaos.detached ADDRESS FOLDER`.
"""

import os
import signal
import sys
from typing import Any
from unittest.mock import patch

from penstock import DataGenSource, FileSink, Sequence, StreamEnvironment, checkpoints, count
from penstock.actors.manager_start import create_manager


def create_and_die(*arguments: Any) -> None:
    create_manager(*arguments)
    os.kill(os.getpid(), signal.SIGKILL)


def main(address: str, folder: str) -> None:
    env = StreamEnvironment(
        parallelism=1, address=address, checkpoints=checkpoints("200ms", f"{folder}/checkpoints"), standbys=0
    )
    rows = env.from_source(DataGenSource({"n": Sequence()}, rate=500))
    rows.key_by("n").aggregate(rows=count()).sink_to(FileSink(f"{folder}/rows", "csv"))
    with patch("penstock.actors.client.create_manager", create_and_die):
        env.submit("outlives its driver", detached=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
