"""Files and folders that functions read by name, wherever their subtask runs: what a job knows of one.

The environment registers them, the job's configuration carries them, and `OperatorContext.cached_file` asks for them.
How a node comes to its copy is the business of who implements this: `penstock.connectors.files.node_copy`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from penstock.engine.errors import ConfigurationError, nearest


class CachedFile(Protocol):
    """A file or folder under a name; picklable."""

    @property
    def name(self) -> str:
        """What functions call it."""
        ...

    def copy(self, directory: str | None) -> Path:
        """Its copy on this machine, made where there is none yet; nobody changes it.

        Args:
            directory: for copies; None: the system's temporary folder.

        Raises:
            ConfigurationError: it cannot be read, or no copy can be written.
        """
        ...


def copy_called(name: str, files: Sequence[CachedFile], directory: str | None, where: str) -> Path:
    """The copy on this machine of the file or folder of that name.

    Args:
        name: as it was registered.
        files: that the job has.
        directory: for copies; None: the system's temporary folder.
        where: who asks, for messages.

    Raises:
        ConfigurationError: none is called so, or it cannot be had.
    """
    for file in files:
        if file.name == name:
            return file.copy(directory)
    names = [file.name for file in files]
    there = f"there are {', '.join(names)}" if names else "none is registered: env.register_cached_file(path, name)"
    raise ConfigurationError(f"{where}: no cached file {name!r}{nearest(name, names)}; {there}")
