"""Where checkpoints and savepoints are stored and read back: folders of disks and buckets, manifests, segments.

`paths` names every file, `storage` holds them, `segments` makes Arrow files of tables, `manifest` lists what a
checkpoint consists of, `store` decides which checkpoint counts, `writer` and `restore` serve the subtasks.

Users call `read`, `write`, `modify`, `bootstrap` and `diff`: state as Arrow tables, whatever job took it. These names
stand in `__init__.pyi` and are loaded when they are first used: to start a job, only storage is needed.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
