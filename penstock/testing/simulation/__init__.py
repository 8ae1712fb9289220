"""Deterministic simulation: a whole job, its storage and its sinks in one process, where a seed decides everything.

`simulate(scenario, seed)` runs a job to its end while processes die, storage fails, mails are late or come twice and
the job is rescaled; what the sinks show must equal what the scenario computes without an engine. The same seed gives
the same run, so a run that went wrong can be run again.

Source of the idea: Will Wilson, "Testing Distributed Systems with Deterministic Simulation", Strange Loop 2014
(FoundationDB).
"""

from penstock.testing.simulation.faults import FaultRates
from penstock.testing.simulation.scenario import Case, Outcome, Scenario
from penstock.testing.simulation.sweep import Sweep, sweep
from penstock.testing.simulation.warehouse import Warehouse, WarehouseSink
from penstock.testing.simulation.world import simulate

__all__ = ["Case", "FaultRates", "Outcome", "Scenario", "Sweep", "Warehouse", "WarehouseSink", "simulate", "sweep"]
