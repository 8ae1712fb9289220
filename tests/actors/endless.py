"""A driver with an endless job that prints one row, for tests that end it from outside.

Run as `python -u -m tests.actors.endless ADDRESS`.
"""

import sys

from penstock import DataGenSource, Sequence, StreamEnvironment, col, count


def main(address: str) -> None:
    env = StreamEnvironment(parallelism=1, address=address)
    stream = env.from_source(DataGenSource({"n": Sequence()}, rate=1000))
    stream.key_by("n").aggregate(rows=count()).filter(col("n") == 0).print()
    env.execute("endless")


if __name__ == "__main__":
    main(sys.argv[1])
