"""Fixtures for the connectors that keep files."""

from __future__ import annotations

import secrets

import pytest

from penstock.testing.services import S3


@pytest.fixture
def bucket(s3: S3, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of a new bucket, which the environment gives access to."""
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    name = f"files-{secrets.token_hex(6)}"
    s3.create_bucket(name)
    return f"s3://{name}"
