"""What a process that connects to a cluster sets up for itself; there is no cluster here."""

from __future__ import annotations

import os
from unittest.mock import patch

import pytest

from penstock.actors.cluster import connect


@pytest.mark.parametrize(("is_terminal", "colours"), [(True, None), (False, "0")])
def test_what_workers_print_has_colours_in_terminals_alone(
    is_terminal: bool, colours: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ray.is_initialized", lambda: False)
    monkeypatch.setattr("ray.init", lambda **options: None)
    # The cluster of the tests has all that is started later.
    monkeypatch.setattr("penstock.actors.embedded_start.control_service", lambda: None)
    monkeypatch.setattr("sys.stdout.isatty", lambda: is_terminal)
    with patch.dict("os.environ"):
        os.environ.pop("RAY_COLOR_PREFIX", None)
        connect(None, 1)
        assert os.environ.get("RAY_COLOR_PREFIX") == colours
