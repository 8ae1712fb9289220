"""The import path of the process that submits a job, for the processes that run it: its modules are found there too.

What is pickled in an `Imported` puts the path down before it: the client sends the program so, the manager the graph.
Folders that a machine does not have do no harm there.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


def own_import_path() -> Sequence[str]:
    """What this process imports from beside the installation of Python: absolute paths, in order."""
    installed = tuple({f"{os.path.realpath(prefix)}{os.sep}" for prefix in (sys.prefix, sys.base_prefix)})
    found = (os.path.abspath(entry) for entry in sys.path)
    return [path for path in dict.fromkeys(found) if os.path.exists(path) and not _is_within(path, installed)]


def extend_import_path(paths: Sequence[str]) -> None:
    """Import from these too, behind what there is."""
    known = {os.path.abspath(entry) for entry in sys.path}
    sys.path.extend(path for path in paths if path not in known)


@dataclass(frozen=True, slots=True)
class Imported:
    """A value that is pickled with the import path of this process; unpickled, it is the value itself.

    Example:
        >>> pickle.loads(pickle.dumps(Imported(7)))  # doctest: +SKIP
        7
    """

    value: Any

    def __reduce__(self) -> tuple[Any, ...]:
        # The arguments are made in order: the path is there when the value is looked for.
        return _imported, (_ImportPath(tuple(own_import_path())), self.value)


@dataclass(frozen=True, slots=True)
class _ImportPath:
    paths: tuple[str, ...]

    def __reduce__(self) -> tuple[Any, ...]:
        return extend_import_path, (self.paths,)


def _imported(path: None, value: Any) -> Any:
    return value


def _is_within(path: str, folders: tuple[str, ...]) -> bool:
    return f"{os.path.realpath(path)}{os.sep}".startswith(folders)
