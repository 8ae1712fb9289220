"""The PostgreSQL server keeps committed rows, checks passwords, and refuses none of this to root."""

from __future__ import annotations

import os
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from penstock.testing.services import Postgres


def count(postgres: Postgres, table: str) -> int:
    with psycopg.connect(postgres.dsn) as connection:
        row = connection.execute(f"select count(*) from {table}").fetchone()
    assert row is not None
    return int(row[0])


def test_committed_rows_stay_over_restart_and_kill_and_others_go(postgres: Postgres) -> None:
    with psycopg.connect(postgres.dsn) as connection:
        connection.execute("create table test_kept (x int)")
        connection.execute("insert into test_kept values (1)")
    postgres.restart()
    assert count(postgres, "test_kept") == 1
    # Killed with a client and its backend in the middle of a transaction; several times, as the next start must not
    # find the processes of the last.
    for _ in range(3):
        connection = psycopg.connect(postgres.dsn)
        connection.execute("insert into test_kept values (2)")
        postgres.kill()
        with pytest.raises(psycopg.OperationalError):
            connection.execute("select 1")
        connection.close()
        postgres.start()
    assert count(postgres, "test_kept") == 1


def test_a_paused_server_goes_on_where_it_was(postgres: Postgres) -> None:
    with psycopg.connect(postgres.dsn) as connection:
        backend = connection.info.backend_pid
        postgres.pause()
        paused = state(backend)
        postgres.resume()
        assert paused == "T"
        assert connection.execute("select 1").fetchone() == (1,)


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.mark.parametrize("wrong", [{"password": "guess"}, {"user": "nobody-known"}, {"dbname": "not-there"}])
def test_wrong_credentials_are_refused(postgres: Postgres, wrong: dict[str, str]) -> None:
    parts = {**conninfo_to_dict(postgres.dsn), **wrong}
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(make_conninfo(**parts))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root starts it as another user")
def test_it_does_not_run_as_root(postgres: Postgres) -> None:
    assert postgres.pid is not None
    assert Path(f"/proc/{postgres.pid}").stat().st_uid != 0


def test_settings_are_handed_on() -> None:
    with Postgres(settings={"max_connections": "7"}) as server, psycopg.connect(server.dsn) as connection:
        assert connection.execute("show max_connections").fetchone() == ("7",)
