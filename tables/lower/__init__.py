"""From the logical plan to streams: each node becomes operators of the engine."""
