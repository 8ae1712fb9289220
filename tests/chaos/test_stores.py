"""Files on S3 and rows in PostgreSQL, exactly once, while processes and servers are killed and stopped."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.testing.chaos import ServerJob, chaos_environment, run_server_job, server_schedule
from penstock.testing.chaos.store_jobs import PostgresJob, S3Job
from penstock.testing.services import S3, Postgres

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_cluster", "no_leak")]


@pytest.mark.long("tests/connectors/files/test_object_storage.py; test_kafka.py kills processes")
@pytest.mark.parametrize("seed", [9])
def test_files_on_s3_hold_each_row_once(seed: int, s3: S3, tmp_path: Path) -> None:
    check(S3Job(s3), seed, tmp_path)


@pytest.mark.long("tests/connectors/postgres/test_commits.py breaks each step; test_kafka.py kills processes")
@pytest.mark.parametrize("seed", [9])
def test_a_table_of_postgres_has_each_row_once_and_in_order(seed: int, postgres: Postgres, tmp_path: Path) -> None:
    check(PostgresJob(postgres), seed, tmp_path)


def check(job: ServerJob, seed: int, folder: Path) -> None:
    """Nothing is wrong with the output of the job under the seed's schedule."""
    schedule = server_schedule(job, seed, "3s")
    run = run_server_job(job, schedule, chaos_environment(str(folder)), "3s")
    assert not run.violations
    assert run.status == "finished"
    assert run.fired
