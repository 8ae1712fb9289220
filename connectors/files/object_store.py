"""Buckets of S3, Google Cloud and Azure: their URLs, their clients, and what their errors say without secrets.

The file sink and source, and the lake sinks, call it for paths such as `s3://bucket/folder`. Clients take credentials,
region and end point from the environment alone, so that none is in a job, a checkpoint or a message.
"""

from __future__ import annotations

import functools
import os
import re
import time
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from penstock.engine.connectors import Dataset
from penstock.engine.errors import ConfigurationError, nearest

if TYPE_CHECKING:  # this name exists for type checkers only
    from obstore.store import ClientConfig, ObjectStore, RetryConfig

SCHEMES: Final = ("s3", "gs", "az")
REMEDY: Final = "check the bucket's name, and the credentials, region and end point in the environment"
_ANSWER_SECONDS: Final = 8
_REQUEST_SECONDS: Final = 30
_SECRET_NAME: Final = re.compile(r"KEY|SECRET|TOKEN|PASSWORD|CREDENTIAL|SAS", re.IGNORECASE)
_OPTION: Final = re.compile(r"\?[\w.-]+=")
"""The beginning of a query; a `?` alone is part of a pattern."""
_SHORTEST_SECRET: Final = 6
_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")
_BODY_PARTS: Final = re.compile(r"<(Code|Message)>(.*?)</\1>", re.DOTALL)


def is_url(path: str) -> bool:
    """Whether it names a bucket, or something else that is no path of this machine."""
    return "://" in path


def dataset_of(path: str) -> Dataset:
    """A file or folder, or a pattern for such, for lineage: an absolute path or a URL.

    Example:
        >>> dataset_of("s3://orders/2024/*.parquet"), dataset_of("/data/orders")
        (Dataset(namespace='s3://orders', name='2024/*.parquet'), Dataset(namespace='file', name='/data/orders'))
    """
    if not is_url(path):
        return Dataset("file", path)
    scheme, _, place = path.partition("://")
    bucket, _, key = place.partition("?")[0].partition("/")
    return Dataset(f"{scheme}://{bucket.rpartition('@')[2]}", key or "/")


def normalise_url(url: str, where: str) -> str:
    """The URL in the one spelling that is used, without a slash at its end.

    Args:
        url: `s3://bucket/folder`, `gs://bucket/folder`, `az://container/folder`.
        where: who wants it, for messages.

    Raises:
        ConfigurationError: no such scheme, no bucket, or a secret or an option in the URL.

    Example:
        >>> normalise_url("s3://events//2024/", "file sink")
        's3://events/2024'
    """
    parts = urlsplit(url)
    shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
    if parts.scheme not in SCHEMES:
        raise ConfigurationError(
            f"{where}: {shown}: no storage is called {parts.scheme!r}{nearest(parts.scheme, SCHEMES)}; use a path that "
            f"every node can open, or one of {', '.join(f'{scheme}://' for scheme in SCHEMES)}"
        )
    if "@" in parts.netloc or _OPTION.search(url):
        raise ConfigurationError(
            f"{where}: {shown}: credentials and options do not belong into the URL, which is logged and stored; set "
            "them in the environment (AWS_..., GOOGLE_..., AZURE_...)"
        )
    if not parts.netloc:
        raise ConfigurationError(f"{where}: {shown} names no bucket")
    names = [name for name in url.split("://", 1)[1].split("/") if name]
    if any(name in (".", "..") for name in names):
        raise ConfigurationError(f"{where}: {shown}: a URL has no parts '.' and '..'; write it without them")
    return f"{parts.scheme}://{'/'.join(names)}"


def locate(url: str) -> tuple[ObjectStore, str]:
    """The client of the URL's bucket, and the key within it (empty for the bucket itself).

    Raises:
        ConfigurationError: the environment does not make a client.
        TimeoutError: the storage does not answer within 8 s.
    """
    scheme, _, rest = url.partition("://")
    bucket, _, key = rest.partition("/")
    return _connect(scheme, bucket), key


@functools.cache
def _connect(scheme: str, bucket: str) -> ObjectStore:
    """The client of a bucket, which holds connections and credentials: one a process.

    Raises:
        ConfigurationError: as of `locate`.
        TimeoutError: the storage does not answer within 8 s.
    """
    import obstore
    from obstore.exceptions import BaseError

    began = time.monotonic()
    try:
        # Uploads may take long, and are tried again; whether anybody is there is known sooner.
        obstore.head(_client(scheme, bucket, _ANSWER_SECONDS, retries=0), ".penstock")
    except (BaseError, OSError, ValueError):
        # Other mistakes are reported by the request that meets them.
        if time.monotonic() - began >= _ANSWER_SECONDS:
            raise TimeoutError(f"{scheme}://{bucket}: no answer within {_ANSWER_SECONDS} s") from None
    return _client(scheme, bucket, _REQUEST_SECONDS, retries=2)


def _client(scheme: str, bucket: str, seconds: int, retries: int) -> ObjectStore:
    from obstore.exceptions import BaseError
    from obstore.store import AzureStore, GCSStore, S3Store

    retrying: RetryConfig = {"max_retries": retries}
    options: ClientConfig = {"timeout": f"{seconds}s"}
    try:
        match scheme:
            case "gs":
                return GCSStore(bucket, client_options=options, retry_config=retrying)
            case "az":
                return AzureStore(bucket, client_options=options, retry_config=retrying)
            case _:
                options["allow_http"] = os.environ.get("AWS_ENDPOINT_URL", "").startswith("http://")
                return S3Store(bucket, client_options=options, retry_config=retrying)
    except (BaseError, ValueError) as error:
        raise ConfigurationError(f"{scheme}://{bucket} cannot be opened: {reason(error)}; {REMEDY}") from None


def errors() -> tuple[type[Exception], ...]:
    """What calls of a client raise."""
    from obstore.exceptions import BaseError

    return BaseError, OSError, ValueError


def remove_object(url: str) -> None:
    """Remove an object, if it is there.

    Raises:
        OSError: the storage refuses.
    """
    import obstore

    try:
        obstore.delete(*locate(url))
    except FileNotFoundError:
        return
    except errors() as error:
        raise OSError(f"{url} cannot be removed: {reason(error)}; {REMEDY}") from None


def reason(error: BaseException) -> str:
    """What a client says went wrong, without the request, the server's long answer, or any secret."""
    text = _COLOUR.sub("", str(error)).split("\n\n", 1)[0]
    head, body, answer = text.partition("<?xml")
    if body:
        head += " ".join(part[1] for part in _BODY_PARTS.findall(answer))
    for name, value in os.environ.items():
        if len(value) >= _SHORTEST_SECRET and _SECRET_NAME.search(name):
            head = head.replace(value, "***")
    return " ".join(head.split()).rstrip(": ")
