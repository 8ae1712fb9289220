"""Scans of checkpoints of a running job: each is one consistent cut through all subtasks, whatever fails meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.compute as pc

import penstock as ps
from penstock.engine.clock import SystemClock
from penstock.engine.errors import PenstockError
from penstock.savepoints import read
from tests.engine.helpers import local_environment

ACCOUNTS, SCANS = 20, 8


class Transfers(ps.ProcessFunction):
    """Takes from one account what it gives another: two rows that no cut may part. Fails now and then."""

    def __init__(self, failures: list[int]) -> None:
        self.failures = failures

    def __deepcopy__(self, memo: Any) -> Transfers:
        return Transfers(self.failures)

    def process_element(self, row: Any, ctx: Any) -> Any:
        number = row["n"]
        if self.failures and number >= self.failures[0]:
            self.failures.pop(0)
            raise ConnectionError("the bank is closed")
        amount = 1 + number % 7
        yield {"account": number * 7 % ACCOUNTS, "amount": -amount}
        yield {"account": (number * 11 + 3) % ACCOUNTS, "amount": amount}


def test_the_total_of_the_bank_is_right_in_every_scan(tmp_path: Path) -> None:
    env = local_environment(
        3,
        seed=1,
        clock=SystemClock(),
        max_batch_rows=50,
        buffer_timeout="0ms",
        checkpoints=ps.checkpoints(storage=str(tmp_path / "c")),
        restart=ps.fixed_delay(attempts=9, delay="0ms"),
    )
    failures = [200, 500]
    numbers = env.from_source(ps.DataGenSource({"n": ps.Sequence()}, rate=3000))
    moved = numbers.process(Transfers(failures), returns={"account": "int64", "amount": "int64"})
    balances = moved.key_by("account").aggregate(balance=ps.sum("amount"), n=ps.count()).uid("bank")
    balances.sink_to(ps.FileSink(tmp_path / "out", "json"))
    job = env.submit("bank")
    scans = accounts = 0
    while scans < SCANS or failures or accounts < ACCOUNTS:
        try:
            cut = read(job.checkpoint())
        except PenstockError:
            # It came between a failure and the restart.
            job.pump(0.01)
            continue
        scans += 1
        for state in cut.operator("bank").states:
            table = state.to_arrow()
            accounts = max(accounts, table.num_rows)
            assert pc.sum(table["sum(amount)"]).as_py() == 0
    assert job.info().restarts == 2
    job.cancel()
