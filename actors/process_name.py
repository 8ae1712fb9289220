"""The name of a process in `ps`, `top` and Ray's own log lines: which job, task and subtask it runs.

Ray shows the class of an actor there, which is the same for all subtasks of all jobs.
"""

from __future__ import annotations

import os
from typing import Final

import ray

_LONGEST: Final = 120
_TELLS_RAY: Final = ":actor_name:"
"""What a worker prints for Ray to name it in the lines that drivers get."""


def process_name(job: str, task: str, subtask: int) -> str:
    """Job, task and subtask, with the middle left out where it is long.

    Example:
        >>> process_name("orders", "count", 3)
        'orders/count/3'
    """
    name = f"{job}/{task}".replace("\n", " ")
    return f"{name if len(name) <= _LONGEST else f'{name[:_LONGEST]}...'}/{subtask}"


def name_process(actor: object, kind: type, name: str) -> None:
    """Have Ray call this process `kind:name` from its next call on.

    Args:
        actor: what runs in it.
        kind: the class of the actor, without names that it has got before.
        name: of `process_name`.
    """
    actor.__class__ = type(f"{kind.__name__}:{name}", (kind,), {})
    if ray.is_initialized() and ray.get_runtime_context().worker.mode == ray.WORKER_MODE:
        for stream in (1, 2):
            os.write(stream, f"{_TELLS_RAY}{name}\n".encode())
