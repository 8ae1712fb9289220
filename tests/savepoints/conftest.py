"""Folders of every kind of storage, an S3 server for the session, and a checkpoint that has everything."""

from __future__ import annotations

import itertools
import logging
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.savepoints.storage import BlobStore, open_blobs

_NUMBERS = itertools.count()


@pytest.fixture(scope="session")
def s3_bucket() -> Iterator[str]:
    """URL of a bucket on an S3 server of this machine; the environment has its address and credentials."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    environment = {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "user-of-the-test",
        "AWS_SECRET_ACCESS_KEY": "secret-of-the-test",
        "AWS_REGION": "us-east-1",
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        request = urllib.request.Request(f"http://{host}:{port}/penstock-test", method="PUT")
        with urllib.request.urlopen(request):
            pass
        yield "s3://penstock-test"
    server.stop()


@pytest.fixture(params=["file", "memory", "s3"])
def folder_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """URL of a new empty folder, once for each kind of storage."""
    match request.param:
        case "file":
            return tmp_path.as_uri() + "/root"
        case "memory":
            return f"memory://test-{next(_NUMBERS)}/root"
        case _:
            bucket: str = request.getfixturevalue("s3_bucket")
            return f"{bucket}/root-{next(_NUMBERS)}"


@pytest.fixture
def blobs(folder_url: str) -> BlobStore:
    """A new empty folder, once for each kind of storage."""
    return open_blobs(folder_url)


@pytest.fixture
def memory_url() -> Callable[[], str]:
    """Makes URLs of new folders in memory."""
    return lambda: f"memory://test-{next(_NUMBERS)}/root"
