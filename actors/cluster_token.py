"""Authentication tokens of Ray's clusters: whether one takes that of this process, and the one that a user's share.

`cluster.connect` asks before Ray tries, and tries again: Ray itself says of a token that is missing or wrong only that
it cannot connect, after 20 s and as many warnings. Where the answer is in doubt nothing is refused: Ray then finds out
by itself.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import tempfile
from pathlib import Path
from typing import Final

from penstock.actors.grpc_call import bearer, call

_MODE: Final = "RAY_AUTH_MODE"
_TOKEN_MODE: Final = "token"  # noqa: S105 - the name of a mode
_MODES: Final = ("", _TOKEN_MODE, "disabled")
_TOKEN: Final = "RAY_AUTH_TOKEN"  # noqa: S105 - the name of a variable
_PATH: Final = "RAY_AUTH_TOKEN_PATH"
_FILE: Final = "~/.ray/auth_token"
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
    where = f"{_TOKEN}, the file that {_PATH} names, or {_FILE}"
    if token is not None:
        return f"it wants an authentication token, and the one that is here ({where}) is not its; copy its token here"
    if _token() is None:
        return f"it wants an authentication token, and there is none here; copy its token here ({where}){_then(mode)}"
    return f"it wants an authentication token, which is not sent{_then(mode)}"


def _then(mode: str) -> str:
    return "" if mode == _TOKEN_MODE else "; set RAY_AUTH_MODE=token"


def _token() -> str | None:
    """The token of this process, from the places that Ray documents, in its order."""
    if given := os.environ.get(_TOKEN):
        return given.strip()
    try:
        return token_file().read_text(encoding="ascii").strip() or None
    except (OSError, RuntimeError, UnicodeDecodeError):
        return None


def token_file() -> Path:
    """Where Ray looks for the token of this user, unless the environment holds it.

    Raises:
        RuntimeError: it is in the home folder, and there is none.
    """
    return Path(os.environ.get(_PATH) or _FILE).expanduser()


def make_token() -> None:
    """Make the token of this user's clusters where there is none, for the user alone.

    Ray would, but where all users of the machine may read it, who could then run code as this one. Of two processes
    that begin at once, both keep the token that is there first. What cannot be written is left to Ray.
    """
    mode = os.environ.get(_MODE, "").lower()
    if mode not in ("", _TOKEN_MODE) or _KUBERNETES in os.environ or os.environ.get(_TOKEN) or os.environ.get(_PATH):
        return
    with contextlib.suppress(OSError, RuntimeError):
        file = token_file()
        if file.exists():
            return
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=file.parent, prefix=".auth_token-") as whole:
            whole.write(secrets.token_hex(32))
            whole.flush()
            os.link(whole.name, file)


def is_open(host: str, port: int) -> bool:
    """Whether the cluster whose GCS answers there is known to take calls without a token."""
    return _code(host, port, None) == _GOOD


def _code(host: str, port: int, token: str | None) -> int | None:
    """The status of one call; None: no answer."""
    try:
        return call((host, port), _METHOD, b"", bearer(token), _SECONDS).code
    except OSError:
        return None
