"""A bank whose money is counted in checkpoint after checkpoint, while its job fails and restarts at random rows.

`test_one_cut.py` scans a few; `python -m tests.savepoints.bank_scans --scans 10000 --seed 1` scans many, and says how
many it has scanned, through how many failures. It ends with status 1 at the first total that is not right.
"""

from __future__ import annotations

import argparse
import logging
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

import penstock as ps
from penstock.engine.clock import SystemClock
from penstock.engine.errors import PenstockError
from penstock.savepoints import read
from tests.engine.helpers import local_environment

ACCOUNTS = 20
ROWS_A_SECOND = 1000


@dataclass
class Failures:
    """When the job fails next: at random rows of the input, each later than the one before.

    Args:
        seed: of the rows.
        apart: rows between two failures, on average.
    """

    seed: int
    apart: int
    happened: int = 0
    next_row: int = 0
    random: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self._draw()

    def _draw(self) -> None:
        self.next_row += self.random.randint(1, 2 * self.apart)

    def look(self, row: int) -> None:
        """Fail where it is time."""
        if row >= self.next_row:
            self.happened += 1
            self.next_row = row
            self._draw()
            raise ConnectionError("the bank is closed")


class Transfers(ps.ProcessFunction):
    """Takes from one account what it gives another: two rows that no cut may part."""

    def __init__(self, failures: Failures) -> None:
        self.failures = failures

    def __deepcopy__(self, memo: Any) -> Transfers:
        # The subtasks, and those of all attempts, share what has happened.
        return Transfers(self.failures)

    def process_element(self, row: Any, ctx: Any) -> Iterator[dict[str, int]]:
        number = row["n"]
        self.failures.look(number)
        amount = 1 + number % 7
        yield {"account": number * 7 % ACCOUNTS, "amount": -amount}
        yield {"account": (number * 11 + 3) % ACCOUNTS, "amount": amount}


@dataclass(frozen=True, slots=True)
class Scanned:
    """What was seen.

    Args:
        scans: checkpoints whose total was right; each is another one.
        restarts: of the job meanwhile.
        accounts: the most that one cut had.
        wrong: the total of a cut where it was not zero; None: all were.
    """

    scans: int
    restarts: int
    accounts: int
    wrong: int | None = None


def scan(folder: Path, scans: int, seed: int, apart: int = 2000, parallelism: int = 2) -> Scanned:
    """Scan so many checkpoints of the bank, at least until all accounts are there and it has failed twice.

    Args:
        folder: for the checkpoints and the output.
        scans: how many.
        seed: of the failures, and of the order in which the job's parts move.
        apart: rows between two failures, on average.
        parallelism: of the job.
    """
    failures = Failures(seed, apart)
    env = local_environment(
        parallelism,
        seed=seed,
        clock=SystemClock(),
        max_batch_rows=50,
        buffer_timeout="0ms",
        checkpoints=ps.checkpoints(storage=str(folder / "c")),
        restart=ps.fixed_delay(attempts=1_000_000, delay="0ms"),
    )
    numbers = env.from_source(ps.DataGenSource({"n": ps.Sequence()}, rate=ROWS_A_SECOND))
    moved = numbers.process(Transfers(failures), returns={"account": "int64", "amount": "int64"})
    balances = moved.key_by("account").aggregate(balance=ps.sum("amount"), n=ps.count()).uid("bank")
    balances.sink_to(ps.FileSink(folder / "out", "json"))
    job = env.submit("bank")
    done = accounts = 0
    try:
        while done < scans or failures.happened < 2 or accounts < ACCOUNTS:
            try:
                cut = read(job.checkpoint())
            except PenstockError:
                # It came between a failure and the restart.
                job.pump(0.01)
                continue
            for state in cut.operator("bank").states:
                table = state.to_arrow()
                accounts = max(accounts, table.num_rows)
                if (total := pc.sum(table["sum(amount)"]).as_py() or 0) != 0:
                    return Scanned(done, job.info().restarts, accounts, total)
            done += 1
        return Scanned(done, job.info().restarts, accounts)
    finally:
        job.cancel()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--scans", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    logging.disable()
    began = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        found = scan(Path(folder), given.scans, given.seed)
    sys.stdout.write(f"seed {given.seed}: {found}, {time.process_time() - began:.0f} s of CPU\n")
    return found.wrong is not None


if __name__ == "__main__":
    sys.exit(main())
