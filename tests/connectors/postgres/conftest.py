"""A connection to the server for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from penstock.testing.services import Postgres
from tests.connectors.postgres.tables import Database


@pytest.fixture(scope="module")
def database(postgres: Postgres) -> Iterator[Database]:
    """What the server holds, and new tables in it."""
    with psycopg.connect(postgres.dsn, autocommit=True) as connection:
        connection.execute("SET TIME ZONE 'UTC'")
        yield Database(postgres, connection)
