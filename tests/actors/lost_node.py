"""A cluster of two nodes, a job on the second, and the loss of that node; prints OK. Run by `test_nodes.py`.

It has a process of its own because Ray knows one cluster a process, and the tests share another.
"""

from __future__ import annotations

import sys

import ray
from ray.cluster_utils import Cluster

from penstock import JobStatus
from tests.actors.keyed_job import assert_exact, environment, submit, until, until_checkpoint

ROWS = 20_000


def main(folder: str) -> None:
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    lost = cluster.add_node(num_cpus=2)
    ray.init(address=cluster.address, log_to_driver=False)
    cluster.wait_for_nodes()
    job, updates = submit(environment(folder), "lost node", rows=ROWS, rate=500)
    until_checkpoint(job)
    spare = cluster.add_node(num_cpus=2)
    assert spare is not lost
    cluster.remove_node(lost, allow_graceful=False)
    info = until(job, lambda info: info["restarts"] >= 1)
    job.wait()
    assert job.status() is JobStatus.FINISHED
    assert_exact(updates, ROWS)
    print("OK", info["restart_history"])  # noqa: T201 - read by the test
    ray.shutdown()
    cluster.shutdown()


if __name__ == "__main__":
    main(sys.argv[1])
