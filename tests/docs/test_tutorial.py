"""The tutorial runs from top to bottom: Kafka in, PostgreSQL out, a kill in the middle, an upgrade by savepoint."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from penstock.testing import services
from penstock.testing.services import Kafka, Postgres
from tests.docs.test_snippets import ROOT, run_snippets


def test_the_tutorial_runs(kafka: Kafka, postgres: Postgres, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for name, server in {"Kafka": kafka, "Postgres": postgres}.items():
        monkeypatch.setattr(services, name, lambda server=server: server)
        monkeypatch.setattr(server, "start", lambda: None)
    monkeypatch.setenv("PATH", os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    for name in ("BROKERS", "DSN"):
        monkeypatch.setenv(name, "")
    run_snippets("docs/tutorial.md", monkeypatch)
