"""The dependencies that every installation has suffice for all that needs no extra."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXTRAS = ["aiokafka", "confluent_kafka", "deltalake", "duckdb", "fastavro", "pandas", "polars", "psycopg", "pyiceberg"]
EXTRAS += ["pyspark", "raydp", "redis", "rocksdict", "websockets"]


def test_jobs_run_with_the_bare_dependencies() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.packaging.bare", *EXTRAS], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("folder", ["engine", "savepoints", "actors", "console", "tables"])
def test_no_call_loads_pandas_by_the_way(folder: str) -> None:
    # Some versions of Arrow have these without pandas, and others do not.
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in (ROOT / folder).rglob("*.py")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if re.search(r"\.to_pandas_dtype\(", line)
    ]
    assert not found
