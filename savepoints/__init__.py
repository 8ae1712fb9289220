"""Where checkpoints and savepoints are stored and read back: folders of disks and buckets, manifests, segments.

`paths` names every file, `storage` holds them, `segments` makes Arrow files of tables, `manifest` lists what a
checkpoint consists of, `store` decides which checkpoint counts, `writer` and `restore` serve the subtasks.

Users call `read`, `write`, `modify`, `bootstrap` and `diff`: state as Arrow tables, whatever job took it.
"""

from penstock.savepoints.diff import SavepointDiff, diff
from penstock.savepoints.editor import SavepointEditor, bootstrap, modify, write
from penstock.savepoints.layout import StateKind
from penstock.savepoints.reader import Savepoint, read

__all__ = ["Savepoint", "SavepointDiff", "SavepointEditor", "StateKind", "bootstrap", "diff", "modify", "read", "write"]
