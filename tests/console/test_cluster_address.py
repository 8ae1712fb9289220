"""Which cluster a command asks that names none: that of the key `penstock.address`, whatever the command."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.engine.errors import ClusterError
from tests.console.conftest import Penstock

COMMANDS = (("list",), ("why", "orders"), ("console",), ("console", "--stop"), ("drain", "--this-node"))


@pytest.mark.parametrize("command", [*COMMANDS, ("chaos", "run", "--job", "orders")], ids=" ".join)
def test_every_command_asks_the_cluster_that_the_configuration_names_and_shows_nothing_else_of_it(
    penstock: Penstock, folder: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    asked = []

    def connect(address: str | None, cpus: float, log_to_driver: bool = True) -> None:
        asked.append((address, log_to_driver))
        raise ClusterError("there is none")

    monkeypatch.setattr("penstock.actors.cluster.connect", connect)
    (folder / "penstock.yaml").write_text("penstock.address: head:6379\n")
    done = penstock(*command)
    assert (done.code, asked) == (1, [("head:6379", False)]), done.err
    penstock(*command[:1], *command[1:], "--address", "other:6379")
    assert asked[1:] == [("other:6379", False)]
