"""What Ray says of processes that died or do not answer, in one line for people: errors of jobs have it."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import Sequence
from typing import Any, Final

from ray import cloudpickle
from ray.exceptions import ActorDiedError, ActorUnavailableError, RayActorError, RayError

from penstock.actors.tracebacks import in_a_line, program_not_loaded
from penstock.engine.errors import ClusterError, PenstockError, WorkerLostError, wants_everything

_FIELD: Final = re.compile(r"\t(class_name|actor_id|pid|name|namespace|ip): ")
_LOADING: Final = "in loaded_program\n"
"""Where the traceback of a program that does not load passes."""
_DETAIL: Final = "Worker exit detail: "
_ADVICE: Final = " Some common causes include"
_NOBODY_KNOWS: Final = "Worker unexpectedly exits with a connection error code"
_NEVER_BEGAN: Final = "The actor never ran"
_EXPLAINED_SECONDS: Final = 5.0
"""How long to wait for what Ray has to say of a process that has ended."""


def cause_of_death(died: RayActorError) -> str | None:
    """Why a process died; None where Ray knows no more than that it was killed, has crashed, or cannot be reached.

    Ray's own text repeats what the error names already (class, address), and lists what may have been the reason. Of a
    process that cannot be reached it tells how its call ended, in the words of gRPC, which help nobody. Of an error of
    the user's code, where the process began, stays what it says and where it was raised.
    """
    if isinstance(died, ActorUnavailableError):
        return None
    first, *lines = str(died).splitlines() or [""]
    if first != ActorDiedError.BASE_ERROR_MSG:
        return in_a_line(str(died)) or None
    text = " ".join(" ".join(line for line in lines if not _FIELD.match(line)).split())
    known = (text.partition(_DETAIL)[2] or text).partition(_ADVICE)[0]
    return None if known.startswith(_NOBODY_KNOWS) else known or None


def death(died: RayActorError) -> str:
    """Why a process died, or else what may have been the reason."""
    if isinstance(died, ActorUnavailableError):
        return "it was killed, or its node is lost"
    return cause_of_death(died) or "it was killed, or has crashed"


def left_unclosed(lost: RayError) -> str | None:
    """Why a process has not closed what it runs; None where it had never begun, and has nothing to close."""
    if not isinstance(lost, RayActorError):
        return str(lost)
    return None if _NEVER_BEGAN in str(lost) else death(lost)


def remark(error: RayError) -> str:
    """What Ray knows of why a call has no answer, as ` (...)` behind a message; empty where it knows none."""
    why = cause_of_death(error) if isinstance(error, RayActorError) else str(error).strip().partition("\n")[0]
    return f" ({why})" if why else ""


def not_loaded(died: RayError) -> ClusterError | None:
    """That a process could not load the user's program (`loaded_program`); None where it died of anything else."""
    if not (isinstance(died, RayActorError) and died.actor_init_failed and _LOADING in str(died)):
        return None
    return program_not_loaded(str(died))


def loaded_program(parts: Sequence[bytes]) -> Any:
    """What was pickled, in the process that is to run it; what is raised ends that, and whoever started it tells it.

    Ray would print it as well, with all frames.
    """
    try:
        try:
            return cloudpickle.loads(b"".join(parts))
        except SystemExit as left:
            # Ray would take it for the orderly end of a process that has never begun, of which nobody is told.
            raise ImportError(f"a module ends the process that imports it: sys.exit({left.code!r})") from left
    except Exception:
        if not wants_everything():
            sys.stderr = open(os.devnull, "w")  # noqa: SIM115  the process ends
        raise


def lost_worker(name: str, why: object) -> WorkerLostError:
    """The process of subtask `name` died; `why`: what Ray raised, or a text."""
    if isinstance(why, RayActorError):
        why = death(why)
    return WorkerLostError(f"the process of {name} died: {why}")


async def explained(call: asyncio.Future[Any], actor: Any, name: str, lost: PenstockError) -> PenstockError:
    """What becomes known soon after the end of a process: its last report, or what Ray says of its death.

    Args:
        call: to its `watch`.
        actor: held until then: of one that nobody holds, Ray would say only that.
        name: of the subtask.
        lost: what is known already.
    """
    try:
        reports = await asyncio.wait_for(call, _EXPLAINED_SECONDS)
    except RayActorError as died:
        cause = cause_of_death(died)
        return lost if cause is None else lost_worker(name, cause)
    except (asyncio.TimeoutError, RayError):
        return lost
    finally:
        del actor
    return next((report for report in reports if isinstance(report, PenstockError)), lost)
