from .differences import SavepointDiff, diff
from .editor import SavepointEditor, bootstrap, modify, write
from .layout import StateKind
from .reader import Savepoint, read

__all__ = ["Savepoint", "SavepointDiff", "SavepointEditor", "StateKind", "bootstrap", "diff", "modify", "read", "write"]
