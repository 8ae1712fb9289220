"""What is made of Ray's reports of dead processes, which are those of Ray 2.60."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from ray.exceptions import ActorDiedError, ActorUnavailableError, GetTimeoutError, RayActorError

from penstock.actors import deaths
from penstock.actors.deaths import cause_of_death, death, loaded_program, not_loaded, remark
from penstock.actors.tracebacks import in_a_line

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


def test_of_an_error_where_the_process_began_is_told_what_and_where(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = str(Path(deaths.__file__).parent / "job_manager.py")
    text = (
        "The actor died because of an error raised in its creation task, \x1b[36mray::JobManager.__init__()\x1b[39m "
        "(pid=9714, ip=192.0.2.2, repr=<JobManager object at 0x7f>)\n"
        f'  File "{ours}", line 70, in __init__\n    program, folder = cloudpickle.loads(parts)\n'
        '  File "/flows/shop.py", line 8, in <module>\n    BROKERS = os.environ["BROKERS"]\n              ~~~~~^^^\n'
        "  File \"<frozen os>\", line 679, in __getitem__\nKeyError: 'BROKERS'\nmore of it"
    )
    died = RayActorError(error_msg=text)
    assert cause_of_death(died) == "KeyError: 'BROKERS' more of it, raised at /flows/shop.py:8"
    syntax = 'Traceback:\n  File "/flows/shop.py", line 3\n    x = = 1\n        ^\nSyntaxError: invalid syntax'
    assert in_a_line(syntax) == "SyntaxError: invalid syntax, raised at /flows/shop.py:3"
    monkeypatch.setenv("PENSTOCK_TRACEBACK", "full")
    whole = cause_of_death(died)
    assert whole is not None
    assert "\x1b" not in whole
    assert whole.startswith("The actor died because")
    assert whole.endswith("KeyError: 'BROKERS'\nmore of it")


def test_an_error_of_ours_where_a_process_began_is_none_of_the_program() -> None:
    text = 'raised\n  File "/p/actors/brain_shell.py", line 9, in __init__\n    x\nOSError: disk'
    assert not_loaded(RayActorError(error_msg=text, actor_init_failed=True)) is None


def test_an_error_without_a_place_where_the_process_began_is_told_whole() -> None:
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


def test_a_module_that_ends_the_process_does_not_load(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray would take the exit for an orderly one: whoever submitted the program would wait for ever."""

    class Ends:
        def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
            return sys.exit, ("no BROKERS",)

    # Else nothing that this process writes is seen any more.
    monkeypatch.setenv("PENSTOCK_TRACEBACK", "full")
    with pytest.raises(ImportError, match=r"ends the process that imports it: sys\.exit\('no BROKERS'\)"):
        loaded_program([pickle.dumps(Ends())])
