"""Whether a Ray cluster takes the authentication token of this process: told before Ray tries, and tries again.

`cluster.connect` asks. Ray itself says of a token that is missing or wrong only that it cannot connect, after 20 s and
as many warnings. Where the answer is in doubt nothing is refused: Ray then finds out by itself.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from penstock.actors.grpc_call import bearer, call

_MODE: Final = "RAY_AUTH_MODE"
_TOKEN_MODE: Final = "token"  # noqa: S105 - the name of a mode
_MODES: Final = ("", _TOKEN_MODE, "disabled")
_KUBERNETES: Final = "RAY_ENABLE_K8S_TOKEN_AUTH"
"""With it, Ray takes the token of the pod."""
_SECONDS: Final = 3.0
_METHOD: Final = "/ray.rpc.NodeInfoGcsService/GetClusterId"
"""The first thing that Ray itself asks."""
_GOOD: Final = 0
_UNAUTHENTICATED: Final = 16


def token_problem(host: str, port: int, is_local: bool) -> str | None:
    """Why the cluster will not let this process in, and what to do; None: it will, or that is not known.

    Args:
        host, port: of the cluster's GCS, which answers there.
        is_local: whether the cluster was found on this machine, and not named: then Ray uses a token unasked.
    """
    mode = os.environ.get(_MODE, "").lower()
    if mode not in _MODES or _KUBERNETES in os.environ:
        return None
    answer = _code(host, port, None)
    if answer == _GOOD and mode == _TOKEN_MODE:
        return (
            "it has no authentication token, and with RAY_AUTH_MODE=token this process refuses its calls; set "
            "RAY_AUTH_MODE=disabled, or start the cluster anew with RAY_AUTH_MODE=token"
        )
    if answer != _UNAUTHENTICATED:
        return None
    uses_token = mode == _TOKEN_MODE if mode else is_local
    token = _token() if uses_token else None
    if token is not None and _code(host, port, token) != _UNAUTHENTICATED:
        return None
    where = "RAY_AUTH_TOKEN, the file that RAY_AUTH_TOKEN_PATH names, or ~/.ray/auth_token"
    if token is not None:
        return f"it wants an authentication token, and the one that is here ({where}) is not its; copy its token here"
    if _token() is None:
        return f"it wants an authentication token, and there is none here; copy its token here ({where}){_then(mode)}"
    return f"it wants an authentication token, which is not sent{_then(mode)}"


def _then(mode: str) -> str:
    return "" if mode == _TOKEN_MODE else "; set RAY_AUTH_MODE=token"


def _token() -> str | None:
    """The token of this process, from the places that Ray documents, in its order."""
    if given := os.environ.get("RAY_AUTH_TOKEN"):
        return given.strip()
    path = os.environ.get("RAY_AUTH_TOKEN_PATH")
    try:
        return Path(path or "~/.ray/auth_token").expanduser().read_text(encoding="ascii").strip() or None
    except (OSError, RuntimeError, UnicodeDecodeError):
        return None


def is_open(host: str, port: int) -> bool:
    """Whether the cluster whose GCS answers there is known to take calls without a token."""
    return _code(host, port, None) == _GOOD


def _code(host: str, port: int, token: str | None) -> int | None:
    """The status of one call; None: no answer."""
    try:
        return call((host, port), _METHOD, b"", bearer(token), _SECONDS).code
    except OSError:
        return None
