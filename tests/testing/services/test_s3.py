"""The S3 server stores objects, honours conditional puts, and keeps objects while it is paused."""

from __future__ import annotations

import obstore
import pytest
from obstore.exceptions import AlreadyExistsError
from obstore.store import S3Store

from penstock.engine.errors import ClusterError
from penstock.testing.services import S3


def bucket(s3: S3, name: str) -> S3Store:
    s3.create_bucket(name)
    return S3Store(
        name,
        endpoint=s3.endpoint,
        access_key_id=s3.access_key,
        secret_access_key=s3.secret_key,
        region=s3.region,
        client_options={"allow_http": True},
    )


def test_objects_are_stored_and_made_once(s3: S3) -> None:
    store = bucket(s3, "test-once")
    obstore.put(store, "a", b"1", mode="create")
    with pytest.raises(AlreadyExistsError):
        obstore.put(store, "a", b"2", mode="create")
    assert obstore.get(store, "a").bytes() == b"1"


def test_objects_stay_while_the_server_is_paused(s3: S3) -> None:
    store = bucket(s3, "test-paused")
    obstore.put(store, "a", b"1")
    s3.pause()
    s3.resume()
    assert obstore.get(store, "a").bytes() == b"1"


def test_a_bucket_is_made_once_and_a_bad_name_refused(s3: S3) -> None:
    s3.create_bucket("test-twice")
    s3.create_bucket("test-twice")
    with pytest.raises(ClusterError, match="'A'"):
        s3.create_bucket("A")
