"""Finds and reads the stimulus logs that jobs leave beside their checkpoints, for `penstock job replay`.

A log is named by the folder of a job, by the folder `log` in it, by one of its parts, or by a file that somebody has
made of it.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from penstock.engine.errors import CheckpointCorruptError, CheckpointError
from penstock.savepoints.paths import LOG, log_part, split_url
from penstock.savepoints.storage import OpenBlobs, normalise_url, open_blobs

_GZIP = b"\x1f\x8b"


@dataclass(frozen=True, slots=True)
class FoundLog:
    """The log of one job manager.

    Args:
        url: of its folder, or its file.
        manager: which, where the file names say so.
        managers: all that have one there.
        parts: path of each part within the folder, by number.
    """

    url: str
    manager: int | None
    managers: Sequence[int]
    parts: Sequence[tuple[int, str]]
    opened: OpenBlobs = open_blobs

    def lines(self) -> Iterator[tuple[int, Sequence[str]]]:
        """The lines of each part, by its number.

        Raises:
            CheckpointCorruptError: a part cannot be read; names it.
        """
        blobs = self.opened(self.url)
        for number, path in self.parts:
            yield number, _text(blobs.get(path).to_pybytes(), f"{self.url}/{path}").splitlines()


def find_log(path: str, manager: int | None = None, opened: OpenBlobs = open_blobs) -> FoundLog:
    """The log that a path or URL names.

    Args:
        path: of a job's folder, its folder `log`, a part, or a file.
        manager: number of the job manager; None: that of the part, else the newest.
        opened: makes a store of a URL.

    Raises:
        CheckpointError: there is none.
    """
    url = normalise_url(path)
    folder, name = split_url(url)
    named = log_part(name)
    if named is None and Path(path).is_file():
        return FoundLog(folder, None, (), [(0, name)], opened)
    if named is not None:
        url, manager = folder, named[0] if manager is None else manager
    found: dict[int, list[tuple[int, str]]] = {}
    for one, _ in opened(url).list():
        part = log_part(one)
        if part is not None and one.rpartition("/")[0] in ("", LOG):
            found.setdefault(part[0], []).append((part[1], one))
    chosen = max(found, default=0) if manager is None else manager
    if chosen not in found:
        which = "" if manager is None else f" of job manager {manager}"
        raise CheckpointError(
            f"{url} holds no stimulus log{which}; name the folder of a job's checkpoints, as <storage>/<job id>, or a "
            "file of its folder 'log'"
        )
    return FoundLog(url, chosen, sorted(found), sorted(found[chosen]), opened)


def _text(data: bytes, where: str) -> str:
    try:
        return (gzip.decompress(data) if data.startswith(_GZIP) else data).decode()
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise CheckpointCorruptError(f"{where} is no part of a stimulus log: {error}") from error
