"""A group of commands whose modules are loaded when they are needed.

`--version` and one command need not wait for what all commands import. Only `--help` of the group and the shell's
completion, which show what each does, load all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup


class LazyGroup(TyperGroup):
    """The commands by name: a function, loaded by its `module:name`, or one that builds a group.

    Args:
        places: where each command is, in the order of the help.
    """

    places: Mapping[str, str | Callable[[], typer.Typer]]

    def list_commands(self, ctx: Any) -> list[str]:
        """The names, without loading anything."""
        return list(self.commands)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command, loaded; None: there is none of that name."""
        place = self.places.get(cmd_name)
        if place is None:
            return None
        if callable(place):
            app = place()
        else:
            module, _, name = place.partition(":")
            app = typer.Typer(add_completion=False, rich_markup_mode=None)
            app.command(cmd_name)(getattr(import_module(module), name))
        command = typer.main.get_command(app)
        command.name = cmd_name
        return command


def lazy_group(app: typer.Typer, places: Mapping[str, str | Callable[[], typer.Typer]]) -> LazyGroup:
    """The group of an app that has a callback and no commands of its own, with the commands that `places` names."""
    group = typer.main.get_command(app)
    assert isinstance(group, LazyGroup)
    group.places = places
    # By these names it proposes one for a name that there is not.
    group.commands = dict.fromkeys(places)  # type: ignore[assignment]
    return group
