"""Seeds that went wrong once, and must never again.

A seed is kept with its scenario and the fault that it found. When the scenarios or the engine change, a seed may take
another course; its description then says what a new seed should be looked for.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.testing.simulation import FaultRates
from tests.simulation.mutants import LATE_DRAINS, USUAL

FEW_NODES = FaultRates(kill_node=0.003, budget=20)
RESCALED = FaultRates(budget=30, rescale=0.005, amid_rescale=0.01, passing=0.05)
"""Jobs are rescaled often, rows come meanwhile, and processes are lost in the middle of it."""


@dataclass(frozen=True, slots=True)
class Regression:
    """A run that failed.

    Args:
        scenario: name of the scenario.
        seed: of the run.
        found: what was wrong.
        rates: the faults.
    """

    scenario: str
    seed: int
    found: str
    rates: FaultRates = USUAL


REGRESSIONS = (
    Regression("connected", 25, "a source whose barrier was aborted while it waited span for ever on its deadline"),
    Regression("joined", 38, "a manager died between the savepoint that stopped the job and its end: the job went on"),
    Regression("bank", 46, "a manager that had been replaced removed the manifest that its successor was reading"),
    Regression("rules", 87, "a job was rescaled while it stopped with a savepoint, and began again from before it"),
    Regression("windows", 1, "a savepoint that stopped the job was stored while the attempt failed: a new one began"),
    Regression(
        "sequences", 32461, "a second job began from a savepoint behind a drained one, and was judged as if whole"
    ),
    Regression("exchanges", 701474, "a manager died while a drain was stored: the next ended the job without its rest"),
    Regression("exchanges", 90347, "a drain took the last checkpoint, which it gave up, for its own, and failed"),
    Regression(
        "totals", 31000120, "a smaller job asked for room, had it and could not take it, without end", FEW_NODES
    ),
    Regression("rules", 31001035, "the same, behind takeovers while nodes were lost", FEW_NODES),
    Regression(
        "connected", 504743487, "the simulation took the checkpoint of a manager for the savepoint of the one before"
    ),
    Regression("sequences", 1004, "a drain was refused whose savepoint was being written, and counted", LATE_DRAINS),
    Regression(
        "unequal_sources",
        916236474,
        "a rescale for which there was no room left subtasks behind that the end of the job waited for",
        RESCALED,
    ),
    Regression(
        "apart",
        794013836,
        "a third job began from a savepoint of one behind a drained one, and was judged as if whole",
        RESCALED,
    ),
    Regression(
        "exchanges",
        810169,
        "at the end of its input a sink captured for checkpoints older than one it had captured for",
    ),
    Regression(
        "forgotten", 183080878, "a job that was being deployed was taken down, and was deployed behind that", RESCALED
    ),
)


def how_to_run(scenario: str, seed: int) -> str:
    """The command that runs one seed again."""
    return f".venv/bin/python -m tests.simulation --seed {seed} --scenario {scenario}"
