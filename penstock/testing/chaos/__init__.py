"""Chaos: processes of a running job are killed and stopped by a schedule, and checkers look for what that has cost.

`ChaosHarness(job, ChaosSchedule.random(seed)).run()` shakes any job that takes checkpoints; `penstock chaos run` does
so from the command line. Simulation (`penstock.testing.simulation`) finds more faults in less time; this shows that the
processes, the cluster and the storage that one really has keep what it promises.
"""

from penstock.testing.chaos.checkers import BankChecker, EventRuleChecker, OracleChecker, SequenceChecker, Verdict
from penstock.testing.chaos.harness import ChaosHarness, ChaosServer
from penstock.testing.chaos.jobs import JOBS, ChaosJob
from penstock.testing.chaos.report import ChaosReport, ChaosRun, FaultRecord
from penstock.testing.chaos.runs import (
    chaos_environment,
    keep_log,
    quiet_cluster,
    run_chaos_flow,
    run_chaos_job,
    run_server_job,
)
from penstock.testing.chaos.schedule import (
    AfterCheckpoints,
    AfterFault,
    AfterSeconds,
    AmidRescale,
    ChaosSchedule,
    DrainNode,
    KillManager,
    KillNode,
    KillServer,
    KillStandby,
    KillSubtask,
    PauseManager,
    PauseServer,
    PauseSubtask,
    Rescale,
    RescaleStorm,
    RestartServer,
    ScheduledFault,
    SubtaskChoice,
    TakeNode,
    TakeSavepoint,
)
from penstock.testing.chaos.server_jobs import ServerJob, Trial, server_schedule

__all__ = [
    "JOBS",
    "AfterCheckpoints",
    "AfterFault",
    "AfterSeconds",
    "AmidRescale",
    "BankChecker",
    "ChaosHarness",
    "ChaosJob",
    "ChaosReport",
    "ChaosRun",
    "ChaosSchedule",
    "ChaosServer",
    "DrainNode",
    "EventRuleChecker",
    "FaultRecord",
    "KillManager",
    "KillNode",
    "KillServer",
    "KillStandby",
    "KillSubtask",
    "OracleChecker",
    "PauseManager",
    "PauseServer",
    "PauseSubtask",
    "Rescale",
    "RescaleStorm",
    "RestartServer",
    "ScheduledFault",
    "SequenceChecker",
    "ServerJob",
    "SubtaskChoice",
    "TakeNode",
    "TakeSavepoint",
    "Trial",
    "Verdict",
    "chaos_environment",
    "keep_log",
    "quiet_cluster",
    "run_chaos_flow",
    "run_chaos_job",
    "run_server_job",
    "server_schedule",
]
