"""Where the values of configuration keys come from: a file, variables of the environment, `-D` of the command line.

The commands `run`, `config` and those that look for a cluster call `gather`. Nothing is refused here: what cannot be
read is noted in the configuration, to be reported with everything else.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from penstock.configuration import Configuration
from penstock.configuration_keys import KEYS, VARIABLES

FILE_VARIABLE: Final = "PENSTOCK_CONF"
DEFINED: Final = "-D"
DEFAULT_FILE: Final = "penstock.yaml"
_OTHER_VARIABLES: Final = (FILE_VARIABLE, "PENSTOCK_PARALLELISM", "PENSTOCK_ERROR_VALUES")
_SO_NEAR: Final = 0.85
"""Other programs set variables that begin like ours: only one that nearly is one of ours is a mistake."""


class _PlainLoader(yaml.SafeLoader):  # type: ignore[misc]
    """Makes plain values, and follows no aliases: a few nested ones would make more than any memory holds."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()
            raise yaml.composer.ComposerError(
                None, None, f"aliases (*{event.anchor}) are not taken; write the value again", event.start_mark
            )
        return super().compose_node(parent, index)


def gather(file: str | None, variables: Mapping[str, str], definitions: Sequence[str]) -> Configuration:
    """The values of all places, each over those of the places before it.

    Args:
        file: named on the command line.
        variables: of the environment.
        definitions: `key=value`, of the command line.
    """
    configuration = _from_file(Configuration(), file, variables)
    return _from_definitions(_from_variables(configuration, variables), definitions)


def _from_file(configuration: Configuration, file: str | None, variables: Mapping[str, str]) -> Configuration:
    named = file or variables.get(FILE_VARIABLE)
    path = Path(named or DEFAULT_FILE)
    if named is None and not path.exists():
        return configuration
    try:
        text = path.read_text(encoding="utf-8")
        content: Any = yaml.load(text, _PlainLoader)  # noqa: S506 - it makes plain values only
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no UTF-8 text"
        return configuration.but(f"{path} cannot be read: {reason}")
    except yaml.YAMLError as error:
        return configuration.but(f"{path} is no YAML: {' '.join(str(error).split())}")
    if content is None:
        return configuration
    if not isinstance(content, Mapping):
        return configuration.but(f"{path} must hold keys and values, such as 'parallelism.default: 2'")
    return configuration.over(content, str(path))


def _from_variables(configuration: Configuration, variables: Mapping[str, str]) -> Configuration:
    keys = {key.variable: key.name for key in KEYS.values() if key.variable}
    for name, value in variables.items():
        if name in keys and value:
            configuration = configuration.over({keys[name]: value}, name)
        elif name.startswith(VARIABLES) and name not in keys and name not in _OTHER_VARIABLES:
            near = difflib.get_close_matches(name, keys, n=1, cutoff=_SO_NEAR)
            if near:
                configuration = configuration.but(f"variable {name}: there is no such key (did you mean {near[0]!r}?)")
    return configuration


def _from_definitions(configuration: Configuration, definitions: Sequence[str]) -> Configuration:
    for definition in definitions:
        key, equals, value = definition.partition("=")
        if not equals or not key.strip():
            configuration = configuration.but(f"-D {definition}: write -Dkey=value, such as -Dparallelism.default=2")
        else:
            configuration = configuration.over({key.strip(): value.strip()}, DEFINED)
    return configuration
