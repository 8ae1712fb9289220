"""What the processes of a job load before they know which of them they are to be.

Ray imports this module in each worker that it starts, where `RAY_preload_python_modules` says so as the cluster is
started; a job then finds processes that are warm. `actors.cluster` sets it for clusters that a program starts itself.
"""

from __future__ import annotations

from penstock.actors.job_manager import JobManager
from penstock.actors.pandas_later import load_pandas_later
from penstock.actors.subtask import SubtaskActor, warm_arrow
from penstock.connectors.collection import CollectionSource
from penstock.engine.operators.functions.keyed_process import KeyedProcessOperator
from penstock.environment import StreamEnvironment

__all__ = ["CollectionSource", "JobManager", "KeyedProcessOperator", "StreamEnvironment", "SubtaskActor"]

load_pandas_later()
warm_arrow()
