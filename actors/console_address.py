"""Says where the web console of the cluster is, when a process first submits a job to it.

`StreamEnvironment.submit` calls it. Nobody waits for the console's answer, which is shown on standard error when it
comes; where no console runs, or it does not answer, nothing is said.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from concurrent.futures import Future
from typing import Final

import ray
from ray.exceptions import RayError

from penstock.actors.registry import NAMESPACE

CONSOLE_ACTOR: Final = "penstock-console"


def tell_console() -> None:
    """Say it, once for each cluster: later calls cost nothing, and the first one a look for the actor's name."""
    # A job runs already: what the cluster answers to this is no error of the job's.
    with contextlib.suppress(Exception):
        if ray.is_initialized():
            tell_console_of(ray.get_runtime_context().gcs_address)


@functools.cache
def tell_console_of(cluster: str) -> None:
    """The same of the cluster at an address, which is the one that this process is connected to."""
    try:
        answer = ray.get_actor(CONSOLE_ACTOR, NAMESPACE).url.remote()
    except (ValueError, AttributeError, RayError):
        # No console runs, which only `penstock console` starts, or one of an older version.
        return
    answer.future().add_done_callback(_show)


def _show(answer: Future[str]) -> None:
    if not answer.cancelled() and answer.exception() is None:
        sys.stderr.write(f"web console: {answer.result()}\n")
