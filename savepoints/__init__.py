"""Where checkpoints and savepoints are stored and read back: folders of disks and buckets, manifests, segments.

`paths` names every file, `storage` holds them, `segments` makes Arrow files of tables, `manifest` lists what a
checkpoint consists of, `store` decides which checkpoint counts, `writer` and `restore` serve the subtasks.
"""
