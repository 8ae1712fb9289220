"""What a node's raylet is asked about its workers, for which Ray (2.60) has no Python interface.

`warm_processes` asks. It is private to Ray: whatever does not answer as expected counts as a raylet that does not know.
"""

from __future__ import annotations

from typing import Any, Final

from penstock.actors.grpc_call import call
from penstock.actors.lifeline import Address

_SERVICE: Final = "/ray.rpc.NodeManagerService"
_CALL_SECONDS: Final = 2.0
_NO_ID: Final = b"\xff"
"""Of such bytes alone Ray makes the id of no actor."""


def idle_workers(address: Address) -> int | None:
    """How many processes on a node wait for anything to run; None: it does not say.

    Args:
        address: of its raylet.
    """
    from google.protobuf.message import DecodeError
    from ray.core.generated import common_pb2 as untyped_common
    from ray.core.generated import node_manager_pb2 as untyped

    messages, common = _untyped(untyped), _untyped(untyped_common)
    answer = _ask(address, "GetNodeStats", messages.GetNodeStatsRequest())
    if answer is None:
        return None
    stats = messages.GetNodeStatsReply()
    try:
        stats.ParseFromString(answer)
    except DecodeError:
        return None
    idle = (
        worker.worker_type == common.WORKER and not worker.actor_id.strip(_NO_ID) and not worker.num_running_tasks
        for worker in stats.core_workers_stats
    )
    return sum(map(bool, idle))


def start_workers(address: Address, count: int, kept_seconds: int) -> bool:
    """Have a node start processes that wait for what is to run in them: all of one call at once.

    Args:
        address: of its raylet.
        count: how many; it starts no more than it has CPUs.
        kept_seconds: how long each of them waits at least.

    Returns:
        whether it does.
    """
    from ray.core.generated import common_pb2 as untyped_common
    from ray.core.generated import node_manager_pb2 as untyped

    messages, common = _untyped(untyped), _untyped(untyped_common)
    request = messages.PrestartWorkersRequest(
        language=common.PYTHON, num_workers=count, keep_alive_duration_secs=kept_seconds
    )
    return _ask(address, "PrestartWorkers", request) is not None


def _ask(address: Address, method: str, request: Any) -> bytes | None:
    from ray._raylet import AuthenticationTokenLoader  # type: ignore[attr-defined]

    loader: Any = AuthenticationTokenLoader.instance()
    token = loader.get_token_for_http_header() if loader.has_token() else {}
    headers = {name.lower(): value for name, value in token.items()}
    try:
        answer = call(address, f"{_SERVICE}/{method}", request.SerializeToString(), headers, _CALL_SECONDS)
    except OSError:
        return None
    return answer.message if answer.code == 0 else None


def _untyped(module: Any) -> Any:
    return module
