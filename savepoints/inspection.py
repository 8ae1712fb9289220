"""What a savepoint holds, as far as it can be read: which files are damaged, and everything that the others say.

`penstock savepoint inspect` calls it. Only a manifest that is damaged leaves nothing to be shown. Whoever restores or
reads state is refused by the first damaged file; nothing of that is decided here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from penstock.engine.errors import CheckpointCorruptError
from penstock.savepoints.reader import Savepoint, facts_of
from penstock.savepoints.saved_state import SavedState
from penstock.savepoints.segments import read_file
from penstock.savepoints.storage import normalise_url, open_blobs
from penstock.savepoints.store import files_of, find_manifest, unfit_files


class Inspection:
    """A savepoint or retained checkpoint, of which files may be damaged. `inspect` makes it.

    Args:
        savepoint: of which the manifest alone has been read.
        damage: what is wrong, by the path of the file.
    """

    def __init__(self, savepoint: Savepoint, damage: Mapping[str, CheckpointCorruptError]) -> None:
        self.savepoint = savepoint
        self._damage = damage
        self._read: list[CheckpointCorruptError] = []
        self._facts = {id(state): self._facts_of(state) for one in savepoint.operators for state in one.all_states}

    @property
    def problems(self) -> Sequence[CheckpointCorruptError]:
        """One for each damaged file that was noticed; each names its file."""
        found = {str(error): error for error in self._read if not any(path in str(error) for path in self._damage)}
        return [*self._damage.values(), *found.values()]

    def to_dict(self) -> dict[str, Any]:
        """What there is, as JSON has it; a state that cannot be read has the kind `damaged` and no number of rows."""
        return {**self.savepoint.to_dict(self._known), "problems": [str(problem) for problem in self.problems]}

    def __rich__(self) -> Any:
        return self.savepoint.shown(self._known)

    def _known(self, state: SavedState) -> Mapping[str, Any]:
        return self._facts[id(state)]

    def _facts_of(self, state: SavedState) -> Mapping[str, Any]:
        try:
            return facts_of(state)
        except CheckpointCorruptError as error:
            self._read.append(error)
            return {
                "name": state.name,
                "kind": "damaged",
                "keys": [],
                "columns": {},
                "rows": None,
                "bytes": state.nbytes,
            }


Look = Callable[[Savepoint], Mapping[str, CheckpointCorruptError]]
"""Finds damaged files of a savepoint, by their paths."""


def lengths(savepoint: Savepoint) -> Mapping[str, CheckpointCorruptError]:
    """The files that are missing or cut off; reads none."""
    return unfit_files(savepoint.blobs, savepoint.checkpoint)


def hashes(savepoint: Savepoint) -> Mapping[str, CheckpointCorruptError]:
    """The files that are not as they were written; reads them all."""
    damage = dict(lengths(savepoint))
    for file in savepoint.files:
        if file.path not in damage:
            try:
                read_file(savepoint.blobs, file)
            except CheckpointCorruptError as error:
                damage[file.path] = error
    return damage


def inspect(path: str, look: Look = lengths, storage: Sequence[str] = ()) -> Inspection:
    """Look at a savepoint or a retained checkpoint, whatever has become of its files.

    Args:
        path, storage: as for `read`.
        look: how closely.

    Raises:
        RestoreError: there is none, or a later version of Penstock has written it.
        CheckpointCorruptError: its manifest is not as it was written.
    """
    found = find_manifest(path)
    savepoint = Savepoint(normalise_url(path), found.checkpoint, files_of(found, open_blobs, storage))
    return Inspection(savepoint, look(savepoint))
