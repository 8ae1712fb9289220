"""A cluster of three nodes, and a chaos run that kills one of them; prints its report as JSON. Run by `test_nodes.py`.

It has a process of its own because Ray knows one cluster a process, and the tests share another.
"""

from __future__ import annotations

import json
import sys

import ray
from ray.cluster_utils import Cluster

from penstock.testing.chaos import (
    JOBS,
    AfterCheckpoints,
    ChaosSchedule,
    KillNode,
    ScheduledFault,
    chaos_environment,
    run_chaos_job,
)


def main(folder: str) -> None:
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    cluster.add_node(num_cpus=2)
    ray.init(address=cluster.address, log_to_driver=False)
    cluster.wait_for_nodes()
    # The head has room for one of the two slots only, so the other node has the other one.
    schedule = ChaosSchedule([ScheduledFault(AfterCheckpoints(2), KillNode())])
    cluster.add_node(num_cpus=2)
    run = run_chaos_job(JOBS["sequence"], schedule, chaos_environment(folder), "5s", cluster=cluster)
    print(f"\n{json.dumps(run.to_dict())}")  # noqa: T201 - read by the test
    ray.shutdown()
    cluster.shutdown()


if __name__ == "__main__":
    main(sys.argv[1])
