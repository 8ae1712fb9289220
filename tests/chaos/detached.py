"""A driver that starts a detached job and waits to be killed.

Run as `python -u -m tests.chaos.detached ADDRESS FOLDER`.
"""

import sys
import time

from penstock import DataGenSource, FileSink, Sequence, StreamEnvironment, checkpoints, count


def main(address: str, folder: str) -> None:
    env = StreamEnvironment(
        parallelism=1, address=address, checkpoints=checkpoints("200ms", f"{folder}/checkpoints"), standbys=0
    )
    rows = env.from_source(DataGenSource({"n": Sequence()}, rate=500))
    rows.key_by("n").aggregate(rows=count()).sink_to(FileSink(f"{folder}/rows", "csv"))
    env.submit("outlives its driver", detached=True)
    print("started")  # noqa: T201 - read by the test
    time.sleep(600)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
