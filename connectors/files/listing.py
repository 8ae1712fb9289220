"""Which files a path, a directory, a pattern or a URL means, now.

The file source asks once where it is built, and a watching one again and again. Files whose names begin with `.` or `_`
are hidden: a directory does not give them.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final, TypeAlias

from penstock.connectors.files.object_store import is_url, normalise_url
from penstock.engine.errors import ConfigurationError

FilePath: TypeAlias = "str | os.PathLike[str]"
_HIDDEN: Final = "._"


@dataclass(frozen=True, slots=True, order=True)
class FoundFile:
    """A file as it is now; in the order of their last changes.

    Args:
        modified: when it was changed last, nanoseconds since the epoch by the storage's clock.
        path: absolute, or a URL.
        size: in bytes.
    """

    modified: int
    path: str
    size: int


def places_of(paths: FilePath | Sequence[FilePath]) -> dict[str, str]:
    """What the user gave: files, directories, patterns and URLs, absolute, each with the text that was given.

    Raises:
        ConfigurationError: nothing, no path, or a URL that cannot be used.
    """
    given = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    if not given:
        raise ConfigurationError("files: no paths; give at least one file, directory or pattern")
    for path in given:
        if not isinstance(path, (str, os.PathLike)):
            raise ConfigurationError(f"files: a path must be text or a Path, not {path!r}")
    return {_absolute(os.fspath(path)): os.fspath(path) for path in given}


def _absolute(text: str) -> str:
    return normalise_url(text, "files") if is_url(text) else os.path.abspath(os.path.expanduser(text))


def is_pattern(place: str) -> bool:
    """Whether it stands for all files whose paths match it."""
    return glob.has_magic(place)


def find_paths(place: str) -> list[str]:
    """The paths of the files of one of `places_of`, sorted; none where nothing matches.

    Raises:
        OSError: the folder or bucket cannot be listed.
    """
    if is_url(place):
        return sorted(file.path for file in _find_objects(place))
    if os.path.isfile(place):
        return [place]
    if os.path.isdir(place):
        with os.scandir(place) as entries:
            return sorted(entry.path for entry in entries if entry.name[0] not in _HIDDEN and entry.is_file())
    return sorted(match for match in glob.glob(place, recursive=True) if os.path.isfile(match))


def find_files(place: str) -> list[FoundFile]:
    """The files themselves, in the order of their last changes; errors as of `find_paths`."""
    if is_url(place):
        return sorted(_find_objects(place))
    found = []
    for path in find_paths(place):
        try:
            status = os.stat(path)
        except FileNotFoundError:  # removed meanwhile
            continue
        found.append(FoundFile(status.st_mtime_ns, path, status.st_size))
    return sorted(found)


def _find_objects(place: str) -> list[FoundFile]:
    from penstock.connectors.files.bucket_reader import find_object, list_folder, list_objects

    if not is_pattern(place):
        inside = [FoundFile(*entry) for entry in list_folder(place)]
        files = [file for file in inside if _is_child(file.path, place)]
        if files:
            return files
        single = find_object(place)
        return [] if single is None else [FoundFile(*single)]
    parts = place.split("/")
    fixed = next(index for index, part in enumerate(parts) if glob.has_magic(part))
    if fixed < 3:
        raise ConfigurationError(f"files: {place}: the name of a bucket is no pattern")
    return [
        FoundFile(*entry)
        for entry in list_objects("/".join(parts[:fixed]))
        if _matches(entry[1].split("/")[fixed:], parts[fixed:])
    ]


def _is_child(path: str, folder: str) -> bool:
    name = path.removeprefix(f"{folder}/")
    return bool(name) and "/" not in name and name[0] not in _HIDDEN


def _matches(parts: Sequence[str], pattern: Sequence[str]) -> bool:
    """As `glob`: `**` is any number of folders, and a name that begins with a dot matches only what begins with one."""
    if not pattern:
        return not parts
    if pattern[0] == "**" and _matches(parts, pattern[1:]):
        return True
    if not parts or not parts[0] or (parts[0][0] == "." and pattern[0][0] != "."):
        return False
    if pattern[0] == "**":
        return _matches(parts[1:], pattern)
    return fnmatchcase(parts[0], pattern[0]) and _matches(parts[1:], pattern[1:])
