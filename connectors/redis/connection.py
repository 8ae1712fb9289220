"""How Redis is reached: URLs, clients, and what went wrong in words.

The sink and the lookup table use it. No message of this module shows a password.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from penstock.engine.connectors import Dataset
from penstock.engine.errors import ConfigurationError

if TYPE_CHECKING:
    from redis import Redis

CONNECT_SECONDS: Final = 8.0
"""How long a server may take to answer."""
SHOWN: Final = 300
"""How many characters messages show of what a server says of a command, which may quote it."""
_RETRIES: Final = 3
_URL_HELP: Final = (
    "redis: the url cannot be read; give redis://user:password@host:port/0, or rediss:// for TLS, with special "
    "characters of user and password percent-encoded (urllib.parse.quote)"
)


def shown_url(url: str) -> str:
    """Where the URL leads to, for messages: `host:port/database`.

    Raises:
        ConfigurationError: it cannot be read; shows nothing of it, as what is wrong may be the password.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except (ValueError, TypeError, AttributeError):
        raise ConfigurationError(_URL_HELP) from None
    # A password with an unquoted / or @ is read as parts of the address.
    unreadable = parts.netloc.count("@") > 1 or re.fullmatch(r"/?\d*", parts.path) is None
    if parts.scheme not in {"redis", "rediss"} or not host or unreadable:
        raise ConfigurationError(_URL_HELP)
    return f"{host}:{port or 6379}/{parts.path.strip('/') or '0'}"


def client(url: str, retries: int = _RETRIES) -> Redis:
    """A client that tries commands again where the connection was lost: for commands that may be repeated alone.

    Raises:
        ConfigurationError: redis is not installed, or the URL cannot be used.
    """
    shown_url(url)
    try:
        from redis import Redis
        from redis.backoff import ExponentialBackoff
        from redis.retry import Retry
    except ImportError:
        raise ConfigurationError(
            "redis: redis-py is not installed; install it by `pip install 'penstock[redis]'`"
        ) from None
    retry = Retry(ExponentialBackoff(cap=1, base=0.1), retries)
    try:
        return Redis.from_url(url, socket_connect_timeout=2, socket_timeout=CONNECT_SECONDS, retry=retry)
    except (ValueError, TypeError):
        raise ConfigurationError(_URL_HELP) from None


def dataset_of(url: str, prefix: str) -> Dataset:
    """The keys with a prefix in a database of a server, for lineage.

    Example:
        >>> dataset_of("redis://me:secret@cache:6380/2", "clicks:")
        Dataset(namespace='redis://cache:6380', name='2/clicks:*')
    """
    parts = urlsplit(url)
    return Dataset(f"redis://{parts.hostname}:{parts.port or 6379}", f"{parts.path.strip('/') or 0}/{prefix}*")


def check_answers(url: str) -> None:
    """Refuse a server that cannot be used now.

    Raises:
        ConfigurationError: it does not answer within 8 s, or refuses.
    """
    asked = client(url, retries=0)
    import redis

    try:
        asked.ping()
    except redis.RedisError as error:
        raise ConfigurationError(failure(url, error)) from None
    finally:
        asked.close()


def is_forbidden(text: str) -> bool:
    """Whether a server refuses a command because of the user's rights; the client leaves some codes out."""
    return "NOPERM" in text or "no permissions" in text.lower()


def failure(url: str, error: Exception) -> str:
    """What to say where the server cannot be used."""
    text = " ".join(str(error).split())
    password = urlsplit(url).password
    for secret in (password, unquote(password)) if password else ():
        text = text.replace(secret, "***")
    return (
        f"redis: the server at {shown_url(url)} cannot be used: {text}; check the url, that the server runs and can be "
        "reached from here, and user and password"
    )
