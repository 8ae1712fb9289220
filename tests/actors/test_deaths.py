"""What is made of Ray's reports of dead processes, which are those of Ray 2.60."""

from __future__ import annotations

import pytest
from ray.exceptions import ActorDiedError, ActorUnavailableError, GetTimeoutError, RayActorError

from penstock.actors.deaths import cause_of_death, death, remark

FIELDS = "\n\tclass_name: SubtaskActor\n\tactor_id: 9ffe24c5\n\tpid: 802\n\tnamespace: 8da36b45\n\tip: 192.0.2.2\n"
WORKER = "The actor is dead because its worker process has died. Worker exit type: "
KILLED = (
    "SYSTEM_ERROR Worker exit detail: Worker unexpectedly exits with a connection error code 2. End of file. "
    "Some common causes include: (1) the process was killed by the OOM killer due to high memory usage, (2) ..."
)
MEMORY = "NODE_OUT_OF_MEMORY Worker exit detail: Task was killed due to the node running low on memory.\nUsed: 31 GB"
NODE = (
    "The actor died because its node has died. Node Id: 48a2f4e1\n"
    "\tthe actor's node was terminated unexpectedly: health check failed due to missing too many heartbeats"
)


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        (WORKER + KILLED, None),
        (WORKER + MEMORY, "Task was killed due to the node running low on memory. Used: 31 GB"),
        (NODE, " ".join(NODE.split())),
        ("", None),
    ],
)
def test_the_cause_alone_is_told(said: str, cause: str | None) -> None:
    died = RayActorError(error_msg=ActorDiedError.BASE_ERROR_MSG + FIELDS + said)
    assert cause_of_death(died) == cause


def test_an_error_where_the_process_began_is_told_whole() -> None:
    text = "The actor died because of an error raised in its creation task, Traceback:\n  line 1\nNo module 'orders'"
    assert cause_of_death(RayActorError(error_msg=text)) == text


def test_of_a_process_on_a_lost_node_it_is_not_told_how_its_call_ended() -> None:
    closed = "RpcError: RPC error: Socket closed rpc_code: 14. The task may or may not have been executed on the actor."
    lost = ActorUnavailableError(closed, None)
    assert cause_of_death(lost) is None
    assert death(lost) == "it was killed, or its node is lost"
    assert death(RayActorError(error_msg=ActorDiedError.BASE_ERROR_MSG + FIELDS + WORKER + KILLED)) == (
        "it was killed, or has crashed"
    )


def test_behind_a_message_stands_what_is_known_and_never_how_a_call_ended() -> None:
    cut_off = "The client queue is disconnected: RpcError: RPC Error message: Cancelling all calls; code 14"
    assert remark(ActorUnavailableError(cut_off, None)) == ""
    assert remark(RayActorError(error_msg=ActorDiedError.BASE_ERROR_MSG + FIELDS + WORKER + KILLED)) == ""
    died = RayActorError(error_msg=ActorDiedError.BASE_ERROR_MSG + FIELDS + WORKER + MEMORY)
    assert remark(died) == " (Task was killed due to the node running low on memory. Used: 31 GB)"
    assert remark(GetTimeoutError("not ready\nmore")) == " (not ready)"
