"""Where checkpoints and savepoints are stored and read back.

The engine of this release takes no checkpoints, so nothing is here yet but the place that the layers keep for it.
"""
