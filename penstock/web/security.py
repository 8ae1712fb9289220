"""Who may ask what: tokens and roles, the hosts that requests may name, and the headers that browsers obey.

The application is wrapped in `Guard`, so that no route can be reached beside it. It keeps no session: a request brings
its token as a bearer, or in the cookie that `/v1/session` gives a browser for it; or a proxy that is trusted says whose
it is.
"""

from __future__ import annotations

import enum
import hmac
import json
import os
import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from starlette.datastructures import Headers
from starlette.requests import cookie_parser
from starlette.responses import JSONResponse

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

COOKIE: Final = "penstock-token"
REQUEST_HEADER: Final = "x-penstock-request"
"""No page of another origin can send it without being allowed to, and none is."""
LONGEST_BODY: Final = 64 * 1024
LONGEST_QUERY: Final = 16 * 1024
LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")
USER_HEADER: Final = "x-forwarded-user"
GROUPS_HEADER: Final = "x-forwarded-groups"
"""By these a proxy says whom it has logged in, with commas between the groups."""
_FORWARDED: Final = ("forwarded", "via", "x-real-ip", "x-forwarded-")
"""Whoever has a header that begins so comes from elsewhere, even if by a proxy on this machine."""
_READS: Final = ("GET", "HEAD")
_OPEN: Final = ("/", "/v1/session", "/v1/health")
"""Paths that tell nothing, and so ask for no token; the pages and what belongs to them are `/pages/...`."""
_HEADERS: Final = (
    (b"content-security-policy", b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
     b"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
)  # fmt: skip


class Role(enum.IntEnum):
    """What somebody may do; each may do what those before it may."""

    NOBODY = 0
    VIEWER = 1
    """Read all but stacks, flame graphs and logs, which show code and may show data."""
    OPERATOR = 2
    """Also take savepoints, stop, cancel and rescale jobs."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """The secrets by which the roles are known."""

    viewer: str
    operator: str

    def role_of(self, token: str) -> Role:
        """Whose token that is."""
        if hmac.compare_digest(token.encode(), self.operator.encode()):
            return Role.OPERATOR
        return Role.VIEWER if hmac.compare_digest(token.encode(), self.viewer.encode()) else Role.NOBODY


def tokens_in(file: Path) -> Tokens:
    """The tokens in a file, which is made where there is none; nobody but its owner can read it.

    Raises:
        PermissionError: others can read it.
        ValueError: it holds something else.
    """
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    except FileExistsError:
        if file.stat().st_mode & 0o077:
            raise PermissionError(f"{file} can be read by others; chmod 600 it, or remove it for new tokens") from None
        document = json.loads(file.read_text(encoding="utf-8"))
        return Tokens(str(document["viewer"]), str(document["operator"]))
    made = Tokens(secrets.token_urlsafe(32), secrets.token_urlsafe(32))
    with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
        json.dump({"viewer": made.viewer, "operator": made.operator}, stream)
    return made


@dataclass(frozen=True, slots=True)
class Access:
    """Who is let in.

    Args:
        tokens: the secrets of the roles.
        open_to: the role of who brings no token and asks for this machine by a loopback name: an operator where only
            this machine can connect, else nobody.
        hosts: the names and addresses that requests may be for, without ports.
        proxies: addresses of proxies that log users in, and are believed.
        operators: groups whose users are operators there; all others are viewers.
    """

    tokens: Tokens
    open_to: Role
    hosts: tuple[str, ...]
    proxies: tuple[str, ...] = ()
    operators: tuple[str, ...] = ()


class Guard:
    """Lets a request through, or answers it.

    Args:
        app: what is guarded.
        access: who is let in.
    """

    def __init__(self, app: App, access: Access) -> None:
        self._app = app
        self._access = access
        # Names of hosts are the same in any case.
        self._hosts = frozenset(name.lower() for name in access.hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        guarded = _with_headers(send)
        refusal = self._refusal(scope)
        if refusal is not None:
            status, message = refusal
            more = {"WWW-Authenticate": "Bearer"} if status == 401 else {}
            await JSONResponse({"errors": [message]}, status, more)(scope, receive, guarded)
            return
        await self._app(scope, _bounded(receive), guarded)

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        """Status and message, where the request is not let through."""
        headers = Headers(scope=scope)
        host = _host(headers.get("host", ""))
        if host not in self._hosts:
            return 421, "this server is not called so; penstock console --name NAME allows for a name"
        if len(scope.get("query_string", b"")) > LONGEST_QUERY:
            return 414, f"the query is longer than {LONGEST_QUERY} bytes"
        length = headers.get("content-length", "0")
        if not length.isdigit() or int(length) > LONGEST_BODY:
            return 413, f"the body is longer than {LONGEST_BODY} bytes"
        token = bearer_in(headers)
        role = self._access.tokens.role_of(token or _cookie(headers))
        if token and role is Role.NOBODY:
            return 401, "the token is wrong"
        role = max(role, self._role_without_token(scope, headers, host))
        scope["penstock.role"] = role
        path, reads = str(scope["path"]), scope["method"] in _READS
        if not reads and not token and headers.get(REQUEST_HEADER) is None:
            return 403, f"a request that changes something needs a bearer token or the header {REQUEST_HEADER}"
        if path in _OPEN or (reads and path.startswith("/pages/")):
            return None
        if role is Role.NOBODY:
            return 401, "bring a token: Authorization: Bearer ..., from the file that `penstock console` names"
        if not reads and role is not Role.OPERATOR:
            return 403, "this token may read; changing something needs the operator's"
        return None

    def _role_without_token(self, scope: Scope, headers: Headers, host: str) -> Role:
        """Of who is known by a proxy, or by being on this machine."""
        access, client = self._access, scope.get("client")
        if client is not None and client[0] in access.proxies and headers.get(USER_HEADER):
            groups = {group.strip() for group in headers.get(GROUPS_HEADER, "").split(",")}
            return Role.OPERATOR if groups & {*access.operators} else Role.VIEWER
        is_near = host in LOOPBACK and not any(name.startswith(_FORWARDED) for name in headers)
        return access.open_to if is_near else Role.NOBODY


def bearer_in(headers: Headers) -> str:
    """The token of the header `Authorization`; empty: there is none."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token if scheme.lower() == "bearer" else ""


def _host(header: str) -> str:
    name = header.rsplit(":", 1)[0] if not header.endswith("]") and ":" in header else header
    return name.strip("[]").lower()


def _cookie(headers: Headers) -> str:
    return cookie_parser(headers.get("cookie", "")).get(COOKIE, "")


def _bounded(receive: Receive) -> Receive:
    """A body without a length ends where it is too long, as if the client had gone."""
    taken = 0

    async def bounded() -> MutableMapping[str, Any]:
        nonlocal taken
        message = await receive()
        taken += len(message.get("body", b""))
        return {"type": "http.disconnect"} if taken > LONGEST_BODY else message

    return bounded


def _with_headers(send: Send) -> Send:
    async def sending(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", []), *_HEADERS]
        await send(message)

    return sending
