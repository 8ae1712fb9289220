"""What the processes of a job load before they know which of them they are to be.

Ray imports this module in each worker that it starts, where `RAY_preload_python_modules` says so as the cluster is
started; a job then finds processes that are warm. `actors.cluster` sets it for clusters that a program starts itself.

What every process of a job needs is loaded at once: a job may be waiting for it. What only some need, job managers and
those whose user's modules import `StreamEnvironment`, comes when the process has waited for a while.
"""

from __future__ import annotations

import gc
import importlib
import threading
import time
from collections.abc import Callable, Iterable
from typing import Final

import ray

from penstock.actors.pandas_later import load_pandas_later
from penstock.actors.ray_serializers import register_serializers_later
from penstock.actors.subtask import warm_arrow

LATER: Final = (
    "penstock.actors.job_manager",
    "penstock.environment",
    "penstock.engine.operators.functions.keyed_process",
    "penstock.connectors.collection",
)
_LATER_SECONDS: Final = 3.0
"""A job that has this process started uses it before."""


def load_while(is_waiting: Callable[[], bool], modules: Iterable[str]) -> None:
    """Import the modules one by one, as long as nothing runs in this process."""
    for module in modules:
        if not is_waiting():
            return
        importlib.import_module(module)


def _load_later() -> None:
    time.sleep(_LATER_SECONDS)
    load_while(lambda: ray.get_runtime_context().get_actor_id() is None, LATER)


load_pandas_later()
register_serializers_later()
warm_arrow()
# What has been loaded stays: the collector would look through all of it each time that more is loaded.
gc.freeze()
if ray.is_initialized():
    threading.Thread(target=_load_later, name="warm imports", daemon=True).start()
